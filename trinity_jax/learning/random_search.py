"""Random search: draw vectors, keep the one that fared best (the paper's rival, and Proposition 1's)."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from trinity_jax.config import LearningSettings
from trinity_jax.learning.population import population_size
from trinity_jax.learning.protocol import Experience, start_vector, strong


class State(NamedTuple):
    """Centre and scale of the draws, and the best vector so far with its fitness (-inf before any)."""

    start: Float[Array, " n"]
    scale: Float[Array, ""]
    best: Float[Array, " n"]
    best_fitness: Float[Array, ""]


class RandomSearch:
    """Vectors drawn independently around the start; the best by its own noisy fitness is what gets deployed.

    Each vector is played once, with its R episodes, and keeps that fitness. The maximum of noisy means flatters: what
    the kept vector is worth has to be measured on other episodes.

    ``search.box: uniform`` draws from start + [-b, b]^n with b = ``search.half_width`` (the paper's, b = 0.5);
    ``gaussian`` from N(start, sigma0^2 I), the theorem's.
    """

    needs_trace = False

    def __init__(self, settings: LearningSettings, n: int):
        self.n = n
        self.population = population_size(settings, n)
        self.sharing = settings.sharing
        self._uniform = settings.search.box == "uniform"
        self._scale = settings.search.half_width if self._uniform else settings.sigma0

    @property
    def c_mu(self) -> float:
        """NaN: no distribution is adapted."""
        return math.nan

    def init(self, key: PRNGKeyArray, mean: Float[ArrayLike, " n"] | None = None) -> State:
        """Nothing drawn yet: the start is what would be deployed."""
        start = start_vector(mean, self.n)
        return strong(State(start, jnp.asarray(self._scale, start.dtype), start, jnp.asarray(-jnp.inf, start.dtype)))

    def ask(self, state: State, key: PRNGKeyArray) -> tuple[Float[Array, "P n"], State]:
        """P fresh draws."""
        shape, dtype = (self.population, self.n), state.start.dtype
        draw = partial(jax.random.uniform, minval=-1.0) if self._uniform else jax.random.normal
        return state.start + state.scale * draw(key, shape, dtype), state

    def tell(
        self,
        state: State,
        X: Float[Array, "P n"],
        fitness: Float[ArrayLike, " P"],
        key: PRNGKeyArray,
        seen: Experience | None = None,
    ) -> State:
        """Keep the best of these if it beats the best so far; of equals the first is kept. NaN never wins."""
        known = jnp.asarray(fitness, X.dtype)
        known = jnp.where(jnp.isnan(known), -jnp.inf, known)
        first = jnp.argmax(known)
        better = known[first] > state.best_fitness
        return state._replace(
            best=jnp.where(better, X[first], state.best),
            best_fitness=jnp.where(better, known[first], state.best_fitness),
        )

    def mean(self, state: State) -> Float[Array, " n"]:
        """The best vector so far by its noisy fitness."""
        return state.best

    def sigma(self, state: State) -> Float[Array, ""]:
        """NaN: there is no step."""
        return jnp.asarray(jnp.nan)

    def diagonal_spread(self, state: State) -> Float[Array, ""]:
        """NaN: there are no scales."""
        return jnp.asarray(jnp.nan)
