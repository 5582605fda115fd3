"""What every learner is, and what it is told of a generation beside the fitness."""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from trinity_jax.config import Sharing
from trinity_jax.errors import UserError


class Experience(NamedTuple):
    """The episodes of a generation: P candidates, R episodes each.

    Attributes:
        rewards: NaN marks an episode that could not be completed.
        groups: which question an episode was about; equal numbers are the same question.
        trace: what a gradient learner's ``log_prob`` reads: the choices made and what was seen; a pytree of arrays
            whose leading axes are P and R. None where no learner asks for it.
    """

    rewards: Float[Array, "P R"]
    groups: Int[Array, "P R"]
    trace: Any = None


class Learner(Protocol):
    """Proposes vectors, hears how they fared, and says which one to deploy.

    A state is a pytree of arrays without keys, so that it can be a checkpoint, a carry of ``lax.scan`` or a batch under
    ``vmap``; numbers that are tuned (step size, learning rate) are in it. Fitness is maximised.

    Attributes:
        n: length of the flat vector.
        population: P, vectors per generation.
        sharing: what the candidates of a generation share. Gradient learners propose one vector P times: shared keys
            would make P equal episodes of it.
        needs_trace: whether `tell` wants an `Experience` with a trace.
    """

    n: int
    population: int
    sharing: Sharing
    needs_trace: bool

    @property
    def c_mu(self) -> float:
        """Rank-mu learning rate: times the generations below 0.1 means no adaptation; NaN where there is none."""
        ...

    def init(self, key: PRNGKeyArray, mean: Float[ArrayLike, " n"] | None = None) -> Any:
        """State before the first generation, around ``mean`` (zeros by default).

        Raises:
            UserError: ``mean`` is not a vector of length n, or not finite.
        """
        ...

    def ask(self, state: Any, key: PRNGKeyArray) -> tuple[Float[Array, "P n"], Any]:
        """Vectors to play, and the state that `tell` expects with them."""
        ...

    def tell(
        self,
        state: Any,
        X: Float[Array, "P n"],
        fitness: Float[ArrayLike, " P"],
        key: PRNGKeyArray,
        seen: Experience | None = None,
    ) -> Any:
        """State after a generation. NaN marks a candidate without fitness; NaN alone leaves `mean` where it was."""
        ...

    def mean(self, state: Any) -> Float[Array, " n"]:
        """The vector to validate, keep and export."""
        ...

    def sigma(self, state: Any) -> Float[Array, ""]:
        """Global step size; NaN where there is none."""
        ...

    def diagonal_spread(self, state: Any) -> Float[Array, ""]:
        """Standard deviation over mean of the diagonal scales; NaN where there are none."""
        ...


def start_vector(mean: Float[ArrayLike, " n"] | None, n: int) -> Float[Array, " n"]:
    """``mean`` as a float vector, zeros for None.

    Raises:
        UserError: another shape, or (where the numbers are known, outside of ``jit``) not finite.
    """
    if mean is None:
        return jnp.zeros(n)
    start = jnp.asarray(mean, dtype=float)
    if start.shape != (n,):
        raise UserError(f"start of the evolution: expected a vector of shape ({n},), got {start.shape}")
    if not isinstance(start, Tracer) and not bool(jnp.isfinite(start).all()):
        raise UserError("start of the evolution: expected finite numbers, got NaN or infinity")
    return start


def strong(tree: Any) -> Any:
    """Drop weak types, so that a state from init, tell or a checkpoint meets the same compiled function."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.asarray(leaf).dtype), tree)


def unless_all_missing(fitness: Float[Array, "..."], after: Any, before: Any) -> Any:
    """``after``, or ``before`` where nothing at all is known of the generation."""
    known = ~jnp.all(jnp.isnan(fitness))
    return jax.tree.map(lambda new, old: jnp.where(known, new, old), after, before)
