"""A start for the head from a few journaled calls: scripted episodes show the states, single calls show the models.

Scripted episodes choose models at random and roles by rule: a Worker (or, every other time, a Thinker) first, a
Verifier after a Worker, a Worker after a rejection. The read-out is fitted on the states they meet, and the role rows
are taught the rule there, so that evolution begins where episodes end with a checked answer. The models' rows come from
single Worker calls, by ridge regression (`trinity_jax.learning.probes`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from experiments.worlds import into, met, warm_up
from trinity_jax.config import ReadoutSettings, WarmStartSettings
from trinity_jax.coordinator import readout as readouts
from trinity_jax.learning.probes import ROLE_TRAINING, ridge, sft
from trinity_jax.world.episode import THINKER, VERIFIER, WORKER
from trinity_jax.world.evolve import World
from trinity_jax.world.histories import Event

_NEVER = -30.0  # a logit


class Start(NamedTuple):
    """Where evolution begins: a world in its coordinates, the vector, the calls all this took, and single answers."""

    world: World
    vector: Float[np.ndarray, " n"]
    calls: int
    probes: Float[np.ndarray, "N L S"] | None = None


def rule(last: Int[np.ndarray, " S"]) -> Float[np.ndarray, "S 3"]:
    """Chance of each role by the last event that can be read."""
    chances = np.zeros((len(last), 3))
    chances[last == -1, [[WORKER], [THINKER]]] = 0.5
    chances[np.isin(last, (Event.WRONG, Event.RIGHT)), VERIFIER] = 1.0
    chances[np.isin(last, (Event.REJECT, Event.THINKER)), WORKER] = 1.0
    return chances


def warm_start(
    world: World,
    last: Int[np.ndarray, " S"],
    settings: WarmStartSettings,
    readout: ReadoutSettings,
    max_calls: int,
    key: PRNGKeyArray,
) -> Start:
    """Play, fit, teach.

    Args:
        world: in raw coordinates.
        last: last event of each history, from `histories.last_event`.
        settings: how many single calls, and how they become logits.
        readout: coordinates to fit.
        max_calls: K.
        key: of everything random.
    """
    models, train = world.skills.accepts_right.shape[0], np.asarray(world.train)
    chances = rule(last)
    script = jnp.asarray(np.concatenate([np.zeros((len(last), models)), np.where(chances, 0.0, _NEVER)], 1))
    keys = jax.random.split(key, 3)
    trace = warm_up(world, script, keys[0], max_calls)
    history, decided = np.asarray(trace.history), np.asarray(trace.decided)
    question = np.broadcast_to(train[:, None], history.shape)[decided]
    at = history[decided]

    fitted = readouts.fit(readout.kind, readout.k, met(world, question, at))
    seen = into(world, fitted)
    right = world.skills.worker[world.train][:, :, None]
    probes = jax.random.uniform(keys[1], (*right.shape[:2], settings.samples)) < right
    skilled = ridge(met(seen, train, np.zeros_like(train)), np.asarray(probes, float), settings.temperature).rows
    roles = sft(keys[2], met(seen, question, at), chances[at], *ROLE_TRAINING)
    weights = np.concatenate([np.asarray(skilled.weights), np.asarray(roles.weights)])
    bias = np.concatenate([np.asarray(skilled.bias), np.asarray(roles.bias)]) if readout.bias else []
    return Start(
        seen,
        np.concatenate([weights.ravel(), bias]).astype(np.float32),
        int(trace.called.sum()) + probes.size,
        np.asarray(probes, float),
    )
