"""A start for the head from single calls: every model answers the same questions, and rows are fitted to that.

Q questions, L models, S answers of each model to each question, k read-out coordinates without the bias.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

PENALTIES = np.logspace(-3, 5, 33)
"""Ridge penalties that are tried, in units of the coordinates' mean square times the number of answers of a model."""


ROLE_TRAINING = (0.05, 64, 300)
"""Learning rate, batch and steps of `sft` that teach the role rows a script; it is met well before the last step."""


class Rows(NamedTuple):
    """The models' rows of a linear head and their biases; a bias of zeros where none was asked for."""

    weights: Float[Array, "L k"]
    bias: Float[Array, " L"]


class RidgeFit(NamedTuple):
    """Rows, the penalty chosen (in the units of `PENALTIES`) and the mean squared leave-one-out error of each."""

    rows: Rows
    penalty: Float[Array, ""]
    errors: Float[Array, " 33"]


@partial(jax.jit, static_argnames="bias")
def ridge(
    z: Float[ArrayLike, "Q k"], rewards: Float[ArrayLike, "Q L S"], temperature: float = 0.1, bias: bool = True
) -> RidgeFit:
    r"""Ridge regression of each model's success on the coordinates, as logits.

    What is regressed is a model's mean reward on a question minus the mean over the models: what they have in common
    moves no choice. Questions weigh as much as they have answers of that model; the intercept is not penalised. One
    penalty serves all models, the one with the smallest error on left-out questions, by the closed form
    $e_q / (1 - h_q)$ (e the residual, h the leverage). Logits are predicted rewards over ``temperature``.

    Args:
        z: coordinates of the questions.
        rewards: NaN where an answer is missing.
        temperature: how much better a model must be for a lead of one logit.
        bias: fit an intercept per model; without one the fit goes through the origin.
    """
    z, rewards = jnp.asarray(z, float), jnp.asarray(rewards, float)
    count = jnp.sum(~jnp.isnan(rewards), axis=2).astype(z.dtype)
    success = jnp.nansum(rewards, axis=2) / jnp.maximum(count, 1)
    asked = count > 0
    common = jnp.sum(success * asked, axis=1) / jnp.maximum(asked.sum(axis=1), 1)
    target = jnp.where(asked, success - common[:, None], 0.0)
    size, penalties = jnp.mean(z**2), jnp.asarray(PENALTIES, z.dtype)

    def one_model(y: Float[Array, " Q"], n: Float[Array, " Q"]):
        total = jnp.maximum(n.sum(), 1)
        centre, level = (n @ z / total, n @ y / total) if bias else (jnp.zeros(z.shape[1]), jnp.asarray(0.0))
        # Rows scaled by the root of their weight turn the weighted problem into the plain one.
        root = jnp.sqrt(n)
        u, s, vt = jnp.linalg.svd(root[:, None] * (z - centre), full_matrices=False)
        scaled = root * (y - level)

        def one_penalty(penalty):
            ridge = penalty * size * total
            shrunk = s**2 / (s**2 + ridge)
            leverage = u**2 @ shrunk + (n / total if bias else 0.0)
            error = (scaled - u @ (shrunk * (u.T @ scaled))) / jnp.maximum(1 - leverage, 1e-6)
            return vt.T @ (s / (s**2 + ridge) * (u.T @ scaled)), jnp.sum(error**2)

        w, errors = jax.vmap(one_penalty)(penalties)
        return w, level - w @ centre, errors

    weights, biases, errors = jax.vmap(one_model, in_axes=(1, 1), out_axes=1)(target, count)
    errors = errors.sum(axis=1) / jnp.maximum(count.sum(), 1)
    best = jnp.argmin(errors)
    rows = Rows(weights[best] / temperature, (biases[best] if bias else jnp.zeros(rewards.shape[1])) / temperature)
    return RidgeFit(rows, penalties[best], errors)


def labels(rewards: Float[ArrayLike, "Q L S"], majority: bool = True) -> Float[Array, "Q L"]:
    """Which model a question should go to: all weight on the best, shared evenly among equals.

    Args:
        rewards: NaN where an answer is missing; a model without an answer gets no weight.
        majority: a model counts as right if most of its answers are, as in the paper; else its mean reward counts.

    Returns:
        Weights that sum to 1, or to 0 for a question without any answer.
    """
    rewards = jnp.asarray(rewards, float)
    count = jnp.sum(~jnp.isnan(rewards), axis=2)
    score = jnp.nansum(rewards, axis=2) / jnp.maximum(count, 1)
    score = jnp.where(count > 0, (score > 0.5).astype(score.dtype) if majority else score, -jnp.inf)
    best: Bool[Array, "Q L"] = (score == score.max(axis=1, keepdims=True)) & (count > 0)
    return best / jnp.maximum(best.sum(axis=1, keepdims=True), 1)


@partial(jax.jit, static_argnames=("batch", "steps", "bias"))
def sft(
    key: PRNGKeyArray,
    z: Float[ArrayLike, "Q k"],
    targets: Float[ArrayLike, "Q L"],
    learning_rate: float = 1e-6,
    batch: int = 64,
    steps: int = 1000,
    bias: bool = True,
) -> Rows:
    """Supervised training of a linear head from zero: Adam on the cross-entropy with `labels`.

    The encoder is not touched. The paper gives learning rate 1e-6 and batches of 64; it does not say how many steps.

    Args:
        key: of the batches.
        z: coordinates of the questions.
        targets: weights over models; a row of zeros is a question that does not count.
        learning_rate: Adam's.
        batch: questions per step, drawn without replacement within a step; all of them where there are fewer.
        steps: how many.
        bias: train a bias per model.
    """
    z, targets = jnp.asarray(z, float), jnp.asarray(targets, float)
    adam = optax.adam(learning_rate)
    start: Any = Rows(jnp.zeros((targets.shape[1], z.shape[1])), jnp.zeros(targets.shape[1]))

    def loss(rows: Rows, chosen: Array) -> Float[Array, ""]:
        logits = z[chosen] @ rows.weights.T + (rows.bias if bias else 0.0)
        counted = jnp.maximum(targets[chosen].sum(), 1)
        return -jnp.sum(targets[chosen] * jax.nn.log_softmax(logits)) / counted

    def step(carry: Any, key: PRNGKeyArray) -> tuple[Any, None]:
        rows, state = carry
        chosen = jax.random.permutation(key, z.shape[0])[:batch]
        updates, state = adam.update(jax.grad(loss)(rows, chosen), state)
        return (optax.apply_updates(rows, updates), state), None

    (rows, _), _ = jax.lax.scan(step, (start, adam.init(start)), jax.random.split(key, steps))
    return rows
