"""A learner that moves some numbers of a vector and leaves the rest as they are, bit for bit."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from trinity_jax.learning.protocol import Experience, Learner, start_vector


class State(NamedTuple):
    """The inner learner's state, and the whole vector whose other numbers are kept."""

    inner: Any
    whole: Float[Array, " n"]


class Partial:
    """Evolves the numbers at ``places`` of a vector of length n.

    Args:
        places: which numbers move; m different ones.
        n: length of the whole vector.
        build: from m to the learner of the moving numbers.

    Example:
        >>> from trinity_jax.config import LearningSettings
        >>> from trinity_jax.learning.learner import build
        >>> learner = Partial([0, 2], 3, lambda m: build(LearningSettings(population=4), m))
        >>> state = learner.init(jax.random.key(0), jnp.array([1.0, 2.0, 3.0]))
        >>> X, state = learner.ask(state, jax.random.key(1))
        >>> bool((X[:, 1] == 2.0).all())
        True
    """

    def __init__(self, places: Int[ArrayLike, " m"], n: int, build: Callable[[int], Learner]):
        self._places = np.asarray(places)
        if len(set(self._places.tolist())) < len(self._places) or not ((self._places >= 0) & (self._places < n)).all():
            raise ValueError(f"places: expected different ones below {n}, got {self._places.tolist()}")
        self.n = n
        self._inner = build(len(self._places))
        self.population = self._inner.population
        self.sharing = self._inner.sharing
        self.needs_trace = self._inner.needs_trace

    @property
    def c_mu(self) -> float:
        """The inner learner's."""
        return self._inner.c_mu

    def init(self, key: PRNGKeyArray, mean: Float[ArrayLike, " n"] | None = None) -> State:
        """Around the whole vector ``mean`` (zeros by default), whose other numbers are kept.

        Raises:
            UserError: ``mean`` is not a vector of length n, or not finite.
        """
        whole = start_vector(mean, self.n)
        return State(self._inner.init(key, whole[self._places]), whole)

    def ask(self, state: State, key: PRNGKeyArray) -> tuple[Float[Array, "P n"], State]:
        """Whole vectors that differ at ``places`` alone."""
        X, inner = self._inner.ask(state.inner, key)
        whole = jnp.broadcast_to(state.whole, (X.shape[0], self.n))
        return whole.at[:, self._places].set(X.astype(whole.dtype)), State(inner, state.whole)

    def tell(
        self,
        state: State,
        X: Float[Array, "P n"],
        fitness: Float[ArrayLike, " P"],
        key: PRNGKeyArray,
        seen: Experience | None = None,
    ) -> State:
        """As the inner learner, on the moving numbers."""
        return State(self._inner.tell(state.inner, X[:, self._places], fitness, key, seen), state.whole)

    def mean(self, state: State) -> Float[Array, " n"]:
        """The whole vector to deploy."""
        inner = self._inner.mean(state.inner)
        return state.whole.at[self._places].set(inner.astype(state.whole.dtype))

    def sigma(self, state: State) -> Float[Array, ""]:
        """The inner learner's."""
        return self._inner.sigma(state.inner)

    def diagonal_spread(self, state: State) -> Float[Array, ""]:
        """The inner learner's."""
        return self._inner.diagonal_spread(state.inner)
