"""The one number that says how far a learner steps: read from settings, and set while a compiled program runs."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from trinity_jax.config import LearningSettings
from trinity_jax.learning import gradient, random_search
from trinity_jax.learning.protocol import Learner


def step_of(learning: LearningSettings) -> float:
    """Initial step size, half width of the box, learning rate, or ridge's temperature, by learner."""
    if not learning.generations:
        warm = learning.warm_start
        return warm.learning_rate if warm.kind == "sft" else warm.temperature
    if learning.by_gradient:
        return learning.gradient.learning_rate
    uniform = learning.learner == "random_search" and learning.search.box == "uniform"
    return learning.search.half_width if uniform else learning.sigma0


def name_of(learning: LearningSettings) -> str:
    """What `step_of` is."""
    if not learning.generations:
        return "learning rate" if learning.warm_start.kind == "sft" else "temperature"
    if learning.by_gradient:
        return "learning rate"
    uniform = learning.learner == "random_search" and learning.search.box == "uniform"
    return "half width" if uniform else "sigma0"


def without_step(learning: LearningSettings) -> LearningSettings:
    """Settings with a step of 1: equal for learners that one program serves.

    OpenAI-ES has two numbers: its learning rate goes with its step size, in the ratio of the settings.
    """
    ratio = learning.gradient.learning_rate / learning.sigma0 if learning.learner == "open_es" else 1.0
    return learning.model_copy(
        update={
            "sigma0": 1.0,
            "search": learning.search.model_copy(update={"half_width": 1.0}),
            "gradient": learning.gradient.model_copy(update={"learning_rate": ratio}),
            "warm_start": learning.warm_start.model_copy(update={"learning_rate": 1.0, "temperature": 1.0}),
        }
    )


class AtStep:
    """A learner built `without_step`, at a step that may be traced."""

    def __init__(self, learner: Learner, step: Float[ArrayLike, ""]):
        self._learner, self._step = learner, jnp.asarray(step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def init(self, key: PRNGKeyArray, mean: Float[Array, " n"] | None = None) -> Any:
        """The learner's state, with the step in the place of its 1."""
        state = self._learner.init(key, mean)
        if isinstance(state, random_search.State):
            return state._replace(scale=self._step)
        if isinstance(state, gradient.State):
            return state._replace(optimiser=_at_rate(state.optimiser, self._step))
        if hasattr(state, "opt_state"):
            rate = self._step * state.opt_state.hyperparams["learning_rate"]
            return state.replace(std=self._step, opt_state=_at_rate(state.opt_state, rate))
        return state.replace(std=self._step)


def _at_rate(optimiser: Any, rate: Float[Array, ""]) -> Any:
    return optimiser._replace(hyperparams=optimiser.hyperparams | {"learning_rate": rate})
