"""evosax's OpenAI-ES behind the interface of all learners: a control that adapts neither scales nor step size."""

import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import optax
from evosax.algorithms.distribution_based.open_es import Open_ES, Params, State
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from trinity_jax.config import LearningSettings
from trinity_jax.learning.population import population_size
from trinity_jax.learning.protocol import Experience, start_vector, strong, unless_all_missing
from trinity_jax.learning.shaping import centred_ranks


class OpenAIES:
    r"""OpenAI-ES (Salimans et al. 2017): antithetic pairs $m \pm \sigma_0 z$, a gradient from centred ranks, Adam.

    The step size stays sigma0; ``gradient.learning_rate`` is Adam's. An odd population is raised by one.
    """

    needs_trace = False

    def __init__(self, settings: LearningSettings, n: int):
        self.n = n
        self.population = population_size(settings, n)
        self.sharing = settings.sharing
        self._sigma0, self._learning_rate = settings.sigma0, settings.gradient.learning_rate
        self._algorithm = _algorithm(self.population, n, jnp.zeros(0).dtype)

    @property
    def c_mu(self) -> float:
        """NaN: no distribution is adapted."""
        return math.nan

    def init(self, key: PRNGKeyArray, mean: Float[ArrayLike, " n"] | None = None) -> State:
        """State before the first generation, around ``mean``."""
        state = self._algorithm.init(key, start_vector(mean, self.n), Params())
        optimiser: Any = state.opt_state
        dtype = state.mean.dtype
        rate = {"learning_rate": jnp.asarray(self._learning_rate, dtype)}
        return strong(
            state.replace(std=jnp.asarray(self._sigma0, dtype), opt_state=optimiser._replace(hyperparams=rate))
        )

    def ask(self, state: State, key: PRNGKeyArray) -> tuple[Float[Array, "P n"], State]:
        """P/2 draws and their mirror images."""
        return self._algorithm.ask(key, state, Params())

    def tell(
        self,
        state: State,
        X: Float[Array, "P n"],
        fitness: Float[ArrayLike, " P"],
        key: PRNGKeyArray,
        seen: Experience | None = None,
    ) -> State:
        """One step of Adam; a generation of NaN alone changes nothing, not even Adam's momentum."""
        values = -jnp.asarray(fitness, X.dtype)
        after, _ = self._algorithm.tell(key, X, values, state, Params())
        return unless_all_missing(values, after, state)

    def mean(self, state: State) -> Float[Array, " n"]:
        """Mean of the distribution."""
        return state.mean

    def sigma(self, state: State) -> Float[Array, ""]:
        """sigma0: it does not change."""
        return state.std

    def diagonal_spread(self, state: State) -> Float[Array, ""]:
        """NaN: there are no scales."""
        return jnp.asarray(jnp.nan)


class _OpenES(Open_ES):
    """evosax's, with the step size kept from the state, so that strategies that differ in it share one program."""

    def _tell(self, key: jax.Array, population: Any, fitness: Any, state: State, params: Params) -> State:
        return super()._tell(key, population, fitness, state, params).replace(std=state.std)


@lru_cache
def _algorithm(population: int, n: int, dtype: jnp.dtype) -> Open_ES:
    """evosax compiles anew for every object; the learning rate in the state is what counts."""
    adam = optax.inject_hyperparams(optax.adam)(learning_rate=1.0)
    return _OpenES(
        population,
        jnp.zeros(n, dtype),
        optimizer=adam,
        fitness_shaping_fn=centred_ranks,
        metrics_fn=lambda *_: {},
    )
