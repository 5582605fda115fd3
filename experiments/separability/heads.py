"""A head evolved on some prompts of a set, and what it chooses on the others."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.recorded.evolve import evolve, logits, task_weights
from experiments.recorded.outcomes import Outcomes
from experiments.separability.settings import HeadSettings, taught_of
from trinity_jax.coordinator.readout import coordinates, fit


class Choices(NamedTuple):
    """Model logits, the largest, a draw from the softmax as in training, and how likely the likeliest model is."""

    logits: Float[np.ndarray, "n L"]
    first: Int[np.ndarray, " n"]
    drawn: Int[np.ndarray, " n"]
    likeliest: Float[np.ndarray, " n"]


def taught(task: Int[np.ndarray, " Q"], share: float, seed: int) -> Bool[np.ndarray, " Q"]:
    """The prompts that the head is evolved on: the same share of every kind, at least three, drawn from the seed."""
    rng, marked = np.random.default_rng(seed), np.zeros(len(task), bool)
    for t in np.unique(task):
        own = rng.permutation(np.flatnonzero(task == t))
        marked[own[: taught_of(len(own), share)]] = True
    return marked


def choices(
    states: Float[np.ndarray, "Q D"],
    outcomes: Outcomes,
    marked: Bool[np.ndarray, " Q"],
    settings: HeadSettings,
    seed: int,
) -> Choices:
    """Evolve a head on the marked prompts' states and outcomes; choose for the others.

    Raises:
        UserError: fewer marked prompts than read-out directions.
    """
    own = outcomes.rows(marked)
    readout = fit("whitened", settings.k, states[marked])
    z = coordinates(readout, jnp.asarray(states))
    key = jax.random.key(seed)
    head = evolve(
        settings.learning,
        z[marked],
        jnp.asarray(own.right, jnp.float32),
        jnp.asarray(task_weights(own.task, np.ones(len(own.ids), bool)), jnp.float32),
        settings.penalty,
        key,
    )
    scores = logits(head, z[~marked])
    drawn = jax.random.categorical(jax.random.fold_in(key, 1), scores)
    likeliest = jax.nn.softmax(scores).max(axis=1)
    return Choices(*(np.asarray(part) for part in (scores, scores.argmax(axis=1), drawn, likeliest)))
