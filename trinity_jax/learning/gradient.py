"""Policy gradients: REINFORCE, and group-relative advantages as in GRPO."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from trinity_jax.config import LearningSettings
from trinity_jax.learning.population import population_size
from trinity_jax.learning.protocol import Experience, start_vector, strong, unless_all_missing

LogProb = Callable[[Float[Array, " n"], Any], Float[Array, "P R"]]
"""(vector, trace) -> log-probability of the choices each episode made, summed over its sampled decisions. Finite, and
differentiable in the vector, whatever the trace."""


class State(NamedTuple):
    """The vector and the optimiser's state, learning rate included."""

    mean: Float[Array, " n"]
    optimiser: Any


class PolicyGradient:
    r"""Adam on the score-function gradient $\frac1N \sum_i A_i \nabla \log \pi(\mathrm{choices}_i)$ of N episodes.

    All P candidates are the current vector, so the P R episodes are one batch. ``reinforce``: $A_i$ is the reward minus
    the mean of all other episodes; ``grpo``: minus the mean of the other episodes of the same question. Both are
    unbiased, since no baseline contains the episode's own reward. With ``gradient.standardise`` it is the reward
    standardised within the batch or question, as GRPO was published. One step per batch: there is nothing to clip.

    References: Williams 1992, REINFORCE; Kool et al. 2019, leave-one-out baselines; Shao et al. 2024, GRPO.
    """

    needs_trace = True

    def __init__(self, settings: LearningSettings, n: int, log_prob: LogProb):
        self.n = n
        self.population = population_size(settings, n)
        self.sharing = settings.sharing
        self._grouped = settings.learner == "grpo"
        self._standardise = settings.gradient.standardise
        self._log_prob = log_prob
        self._optimiser = optax.inject_hyperparams(optax.adam)(learning_rate=settings.gradient.learning_rate)

    @property
    def c_mu(self) -> float:
        """NaN: there is no distribution."""
        return math.nan

    def init(self, key: PRNGKeyArray, mean: Float[ArrayLike, " n"] | None = None) -> State:
        """The vector to begin with; ``key`` is not used."""
        start = start_vector(mean, self.n)
        return strong(State(start, self._optimiser.init(start)))

    def ask(self, state: State, key: PRNGKeyArray) -> tuple[Float[Array, "P n"], State]:
        """The same vector P times."""
        return jnp.broadcast_to(state.mean, (self.population, self.n)), state

    def tell(
        self,
        state: State,
        X: Float[Array, "P n"],
        fitness: Float[ArrayLike, " P"],
        key: PRNGKeyArray,
        seen: Experience | None = None,
    ) -> State:
        """One step of Adam. Rewards are read from ``seen``; ``fitness`` is not, since episodes are what is weighed.

        Raises:
            ValueError: no experience, or one without a trace.
        """
        if seen is None or seen.trace is None:
            raise ValueError("a policy gradient needs the generation's experience with its trace")
        rewards = jnp.asarray(seen.rewards, state.mean.dtype)
        groups = seen.groups if self._grouped else jnp.zeros_like(seen.groups)
        advantage = advantages(rewards, groups, self._standardise)
        slope = gradient(self._log_prob, state.mean, advantage, jnp.sum(~jnp.isnan(rewards)), seen.trace)
        updates, optimiser = self._optimiser.update(-slope, state.optimiser, state.mean)
        mean: Any = optax.apply_updates(state.mean, updates)
        return unless_all_missing(rewards, State(mean, optimiser), state)

    def mean(self, state: State) -> Float[Array, " n"]:
        """The vector."""
        return state.mean

    def sigma(self, state: State) -> Float[Array, ""]:
        """NaN: nothing is sampled around the vector."""
        return jnp.asarray(jnp.nan)

    def diagonal_spread(self, state: State) -> Float[Array, ""]:
        """NaN: there are no scales."""
        return jnp.asarray(jnp.nan)


def advantages(
    rewards: Float[Array, "P R"], groups: Int[Array, "P R"], standardise: bool = False
) -> Float[Array, "P R"]:
    """Reward minus the mean of the group's other episodes, or (r - mean)/std over the group.

    Zero for a NaN, which counts nowhere, and for an episode that is alone in its group or in a group of equals.

    Args:
        rewards: NaN where an episode could not be completed.
        groups: equal numbers stand in one group.
        standardise: divide by the group's standard deviation instead of leaving each episode out of its own mean.
    """
    flat = rewards.ravel()
    known = ~jnp.isnan(flat)
    _, group = jnp.unique(groups.ravel(), return_inverse=True, size=flat.size)

    def over_group(values: Float[Array, " N"]) -> Float[Array, " N"]:
        return jax.ops.segment_sum(jnp.where(known, values, 0.0), group, flat.size)[group]

    count = over_group(jnp.ones_like(flat))
    centred = jnp.where(known, flat - over_group(flat) / jnp.maximum(count, 1), 0.0)
    if standardise:
        std = jnp.sqrt(over_group(centred**2) / jnp.maximum(count, 1))
        varied = std > 1e-6  # of equal rewards only rounding is left
        scaled = jnp.where(varied, centred / jnp.where(varied, std, 1.0), 0.0)
    else:
        scaled = centred * jnp.where(count > 1, count / jnp.maximum(count - 1, 1), 0.0)
    return scaled.reshape(rewards.shape)


def gradient(
    log_prob: LogProb, vector: Float[Array, " n"], advantage: Float[Array, "P R"], episodes: Any, trace: Any
) -> Float[Array, " n"]:
    """Estimate of the gradient of the mean reward at ``vector`` from ``episodes`` episodes that it played."""

    def weighed(point: Float[Array, " n"]) -> Float[Array, ""]:
        return jnp.sum(advantage * log_prob(point, trace)) / jnp.maximum(episodes, 1)

    return jax.grad(weighed)(vector)
