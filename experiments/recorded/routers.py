"""Routers: fixed rules, and what learns to choose a model from read-out coordinates of the prompt's hidden state.

All of them read whitened coordinates, fitted to the training half's states without their outcomes.
"""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

from experiments.recorded.evolve import evolve, logits, task_weights
from experiments.recorded.names import EVOLVED
from experiments.recorded.outcomes import Outcomes
from experiments.recorded.scores import macro
from experiments.recorded.settings import Settings
from trinity_jax.config import LearningSettings
from trinity_jax.coordinator.readout import coordinates, fit

Seen = Bool[np.ndarray, " Q"]
Choice = Int[np.ndarray, " Q"]
"""The chosen model of every prompt, seen or not."""


class Option(NamedTuple):
    """One setting of a router: after which layer and in how many directions it reads, and a number of its own."""

    layer: int
    k: int
    value: float


class Router(NamedTuple):
    """A way to learn.

    Attributes:
        name: for tables.
        value: what an option's ``value`` is.
        options: the stiff ones first.
        learn: from an option, the prompts that it may learn from, and a seed, to a choice on all prompts.
    """

    name: str
    value: str
    options: tuple[Option, ...]
    learn: Callable[[Option, Seen, int], Choice]


def best_single(seen: Outcomes) -> int:
    """The model of the highest macro mean over the prompts seen."""
    return int(np.argmax([macro(column, seen.task) for column in seen.right.T]))


def best_per_task(seen: Outcomes) -> Int[np.ndarray, " tasks"]:
    """The best model of each task; a rule that is told the task, as no other router here is."""
    return np.array([seen.right[seen.task == t].mean(axis=0).argmax() for t in range(len(seen.tasks))])


def routers(
    outcomes: Outcomes, states: Float[np.ndarray, "Q layers D"], train: Seen, settings: Settings
) -> tuple[Router, ...]:
    """The evolved head and its rivals.

    Raises:
        UserError: more directions asked for than the training prompts' states differ in.
    """

    @functools.cache
    def read(layer: int, k: int) -> Float[np.ndarray, "Q k"]:
        h = states[:, settings.layers.index(layer)]
        return np.asarray(coordinates(fit("whitened", k, h[train]), jnp.asarray(h)))

    def options(ks: tuple[int, ...], values: tuple[float, ...]) -> tuple[Option, ...]:
        return tuple(Option(layer, k, value) for k, value, layer in itertools.product(ks, values, settings.layers))

    def on_coordinates(learn: Callable[..., Choice]) -> Callable[[Option, Seen, int], Choice]:
        return lambda option, seen, seed: learn(read(option.layer, option.k), outcomes, option.value, seen, seed)

    ours, rivals = settings.evolved, settings.rivals
    evolved = functools.partial(evolved_head, train=train, learning=ours.learning)
    return (
        Router(EVOLVED, "penalty", options(ours.k, ours.penalty), on_coordinates(evolved)),
        Router("regression per model", "C", options(rivals.k, rivals.C), on_coordinates(per_model_regression)),
        Router("nearest neighbours", "neighbours", options(rivals.k, rivals.neighbours), on_coordinates(neighbours)),
        Router("softmax on best-model label", "C", options(rivals.k, rivals.C), on_coordinates(best_model_label)),
    )


def evolved_head(
    z: Float[np.ndarray, "Q k"],
    outcomes: Outcomes,
    penalty: float,
    seen: Seen,
    seed: int,
    *,
    train: Seen,
    learning: LearningSettings,
) -> Choice:
    """The largest logit of an evolved head.

    A prompt that all models get right, or none, adds the same to the fitness of all candidates: it is left out. Every
    fold of the training half has one shape, its other prompts have weight 0, so that all share one compilation.
    """
    rows = train & (outcomes.right.min(axis=1) < outcomes.right.max(axis=1))
    weight = task_weights(outcomes.task, seen)[rows]
    single = jnp.float32
    head = evolve(
        learning,
        jnp.asarray(z[rows], single),
        jnp.asarray(outcomes.right[rows], single),
        jnp.asarray(weight, single),
        jnp.asarray(penalty, single),
        jax.random.key(seed),
    )
    return np.asarray(logits(head, jnp.asarray(z))).argmax(axis=1)


def per_model_regression(z: Float[np.ndarray, "Q k"], outcomes: Outcomes, C: float, seen: Seen, seed: int) -> Choice:
    """One logistic regression a model says how likely it is right; the likeliest model is asked."""
    chances = []
    for own in outcomes.right.T:
        if np.ptp(own[seen]) == 0:  # nothing to tell apart
            chances.append(np.full(len(z), own[seen][0]))
        else:
            fitted = LogisticRegression(C=C, solver="newton-cholesky").fit(z[seen], own[seen])
            chances.append(np.asarray(fitted.predict_proba(z))[:, 1])
    return np.stack(chances, axis=1).argmax(axis=1)


def neighbours(z: Float[np.ndarray, "Q k"], outcomes: Outcomes, count: float, seen: Seen, seed: int) -> Choice:
    """The model that was right most often on the nearest prompts; of equals, the one better overall."""
    right = outcomes.right[seen]
    count = min(int(count), len(right))
    near = NearestNeighbors(n_neighbors=count).fit(z[seen]).kneighbors_graph(z)
    return (near @ right / count + 1e-6 * right.mean(axis=0)).argmax(axis=1)


def best_model_label(z: Float[np.ndarray, "Q k"], outcomes: Outcomes, C: float, seen: Seen, seed: int) -> Choice:
    """Softmax regression on which model is right; of several, one by lot; prompts nobody gets right are left out."""
    lot = np.random.default_rng(seed).random(outcomes.right.shape)
    label = (outcomes.right + lot).argmax(axis=1)
    taught = np.flatnonzero(seen & outcomes.right.any(axis=1))
    if len(np.unique(label[taught])) < 2:
        return np.full(len(z), label[taught[0]] if len(taught) else 0)
    return LogisticRegression(C=C, solver="newton-cholesky").fit(z[taught], label[taught]).predict(z)
