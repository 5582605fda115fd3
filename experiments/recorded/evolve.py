"""A head for the first turn's model choice, evolved on recorded outcomes: one jitted loop over generations."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from trinity_jax.config import LearningSettings
from trinity_jax.learning.strategy import Strategy


class Head(NamedTuple):
    """Model logits = weights z + bias, z the read-out coordinates."""

    weights: Float[Array, "L k"]
    bias: Float[Array, " L"]


def logits(head: Head, z: Float[Array, "Q k"]) -> Float[Array, "Q L"]:
    """Logits of every prompt."""
    return z @ head.weights.T + head.bias


def expected_reward(
    head: Head, z: Float[Array, "Q k"], right: Float[Array, "Q L"], weight: Float[Array, " Q"]
) -> Float[Array, ""]:
    """Weighted mean reward of a choice drawn from the softmax; as every outcome is recorded, none has to be drawn."""
    return weight @ jnp.sum(jax.nn.softmax(logits(head, z)) * right, axis=1)


@functools.partial(jax.jit, static_argnames="settings")
def evolve(
    settings: LearningSettings,
    z: Float[Array, "Q k"],
    right: Float[Array, "Q L"],
    weight: Float[Array, " Q"],
    penalty: Float[Array, ""] | float,
    key: PRNGKeyArray,
) -> Head:
    r"""The distribution's mean after ``settings.generations``, evolved from zeros: the uniform choice.

    Fitness is the expected reward minus $\lambda |A|^2$, with A the head's weights. In whitened coordinates this pulls
    towards a choice that does not depend on the prompt; the bias, all that is left at large $\lambda$, is free.

    Args:
        settings: the strategy's.
        z: read-out coordinates.
        right: recorded outcomes.
        weight: of each prompt; they sum to 1, and a prompt of weight 0 is not seen.
        penalty: lambda.
        key: of the whole evolution.
    """
    L, k = right.shape[1], z.shape[1]
    with jax.ensure_compile_time_eval():  # its constants are remembered beyond this trace
        strategy = Strategy(settings, L * (k + 1))
    head_of = functools.partial(_head, L=L)

    def fitness(vector: Float[Array, " n"]) -> Float[Array, ""]:
        head = head_of(vector)
        return expected_reward(head, z, right, weight) - penalty * jnp.sum(head.weights**2)

    def generation(state, number):
        ask, tell = jax.random.split(jax.random.fold_in(key, number))
        X, state = strategy.ask(state, ask)
        return strategy.tell(state, X, jax.vmap(fitness)(X), tell), None

    start = strategy.init(jax.random.fold_in(key, settings.generations))
    last, _ = jax.lax.scan(generation, start, jnp.arange(settings.generations))
    return head_of(strategy.mean(last))


def task_weights(task: np.ndarray, kept: np.ndarray) -> Float[np.ndarray, " Q"]:
    """Weights with which a mean over the kept prompts is the mean over tasks of the tasks' means."""
    weight = np.zeros(len(task))
    present = np.unique(task[kept])
    for t in present:
        own = kept & (task == t)
        weight[own] = 1 / (own.sum() * len(present))
    return weight


def _head(vector: Float[Array, " n"], L: int) -> Head:
    weights, bias = jnp.split(vector, [vector.shape[0] - L])
    return Head(weights.reshape(L, -1), bias)
