"""Hidden states of the world: Gaussian task clusters with a stated drift, or an encoder's states looked up."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from trinity_jax.world.episode import Policy

Logits = Callable[[Float[Array, " n"], Float[Array, "*B k"]], Float[Array, "*B L+3"]]
"""(flat vector, states) -> logits: the coordinator's head."""


class States(Protocol):
    """Where hidden states come from; both kinds are pytrees of arrays."""

    def policy(self, logits: Logits, vector: Float[Array, " n"], question: Int[Array, ""]) -> Policy:
        """The vector's logits at each history of one question."""
        ...

    def every(self, question: Int[Array, ""]) -> Float[Array, "S k"]:
        """States of all histories of one question."""
        ...


class Table(NamedTuple):
    """States looked up by question and history: an encoder's, in any read-out coordinates."""

    h: Float[Array, "Q S k"]

    def policy(self, logits: Logits, vector: Float[Array, " n"], question: Int[Array, ""]) -> Policy:
        """The vector's logits at each history of one question."""
        return lambda history: logits(vector, self.h[question, history])

    def every(self, question: Int[Array, ""]) -> Float[Array, "S k"]:
        """States of all histories of one question."""
        return self.h[question]


class Drifting(NamedTuple):
    """h = base[question] + drift[history], read by a head that is affine in h.

    The two parts of the logits are computed apart, once per question and once per history, not once per turn.
    """

    base: Float[Array, "Q k"]
    drift: Float[Array, "S k"]

    def policy(self, logits: Logits, vector: Float[Array, " n"], question: Int[Array, ""]) -> Policy:
        """The vector's logits at each history of one question."""
        origin = logits(vector, jnp.zeros(self.drift.shape[1]))
        moved = logits(vector, self.drift) - origin
        start = logits(vector, self.base[question])
        return lambda history: start + moved[history]

    def every(self, question: Int[Array, ""]) -> Float[Array, "S k"]:
        """States of all histories of one question."""
        return self.base[question] + self.drift


def clusters(
    key: PRNGKeyArray,
    kinds: Int[np.ndarray, " Q"],
    turns: Int[np.ndarray, "S 3"],
    width: int,
    separability: float = 1.0,
    common: float = 0.0,
    drift: float = 0.5,
) -> Drifting:
    r"""Synthetic states: $h = c\,e_0 + s\,e_{kind} + \varepsilon_q + \delta \sum_i t_i\,e_i$.

    The $t_i$ count the Workers' and Thinkers' turns and the rejections so far; whether an answer was right is not in h.

    All directions e and the question's own part are standard normal vectors of length ``width``, so their norms are
    near its square root. For training and held-out questions of the same clusters, make one set and divide it.

    Args:
        key: of all draws.
        kinds: kind of each question.
        turns: of each history, from `histories.turns`.
        width: D.
        separability: s; 0 leaves nothing that tells kinds apart.
        common: c, the part that all states share, as raw states of an encoder do.
        drift: delta, how far each turn moves the state.
    """
    directions = jax.random.normal(jax.random.fold_in(key, 0), (int(kinds.max()) + 5, width))
    own = jax.random.normal(jax.random.fold_in(key, 1), (len(kinds), width))
    base = common * directions[0] + separability * directions[4 + kinds] + own
    return Drifting(base, drift * jnp.asarray(turns, jnp.float32) @ directions[1:4])
