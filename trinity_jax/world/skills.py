"""The pool of the world as arrays: who is right how often, on which question, in which role."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trinity_jax.config import PoolSettings
from trinity_jax.errors import UserError


class Skills(NamedTuple):
    """Chances by question and model.

    Attributes:
        worker: chance of a right answer.
        thinker: chance of a good suggestion.
        accepts_right: as Verifier, chance to accept a right response.
        accepts_wrong: chance to accept a wrong one.
        boost: what a good suggestion adds to the Worker's chance.
    """

    worker: Float[Array, "Q L"]
    thinker: Float[Array, "Q L"]
    accepts_right: Float[Array, " L"]
    accepts_wrong: Float[Array, " L"]
    boost: Float[Array, ""]

    def take(self, questions) -> "Skills":
        """The same pool on some of the questions."""
        return self._replace(worker=self.worker[questions], thinker=self.thinker[questions])


def from_pool(pool: PoolSettings, kinds: Sequence[str], difficulty: Float[np.ndarray, " Q"] | None = None) -> Skills:
    """The arrays of a simulated pool.

    Args:
        pool: ``kind: simulated``; ``shuffle_skills`` has no counterpart here.
        kinds: kind of each of the Q questions.
        difficulty: in logits, taken from each Worker's chance; 0 and 1 stay what they are.

    Raises:
        UserError: not a simulated pool, or a kind that is in no skill table.
    """
    if pool.kind != "simulated" or pool.shuffle_skills:
        raise UserError("world: expected a pool of kind: simulated without shuffle_skills")
    worker = [[_skill(m.name, "worker", m.worker, kind) for m in pool.simulated] for kind in kinds]
    thinker = [[_skill(m.name, "thinker", m.thinker, kind) for m in pool.simulated] for kind in kinds]
    shift = np.zeros(len(kinds)) if difficulty is None else difficulty
    return Skills(
        harder(jnp.asarray(worker, jnp.float32), jnp.asarray(shift, jnp.float32)[:, None]),
        jnp.asarray(thinker, jnp.float32),
        jnp.asarray([m.accepts_right for m in pool.simulated], jnp.float32),
        jnp.asarray([m.accepts_wrong for m in pool.simulated], jnp.float32),
        jnp.asarray(pool.thinker_boost, jnp.float32),
    )


def harder(chance: Float[Array, "*B"], difficulty: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """sigmoid(logit(chance) - difficulty), with 0 and 1 as they are."""
    certain = (chance <= 0) | (chance >= 1)
    inside = jnp.where(certain, 0.5, chance)
    return jnp.where(certain, chance, jax.nn.sigmoid(jnp.log(inside) - jnp.log1p(-inside) - difficulty))


def _skill(name: str, role: str, table: Mapping[str, float], kind: str) -> float:
    if kind not in table and "default" not in table:
        raise UserError(
            f"pool.simulated: {name}: {role} has no skill for {kind!r} and no default (has {sorted(table)})"
        )
    return table[kind] if kind in table else table["default"]
