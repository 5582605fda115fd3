"""The same question on recorded outcomes of real models: which to ask first, with one left out and added back.

Every choice is a single call, so "calls" are outcomes of the training half that were looked at.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from experiments.pool_change.settings import RecordedSettings
from experiments.recorded.evolve import Head, evolve, logits, task_weights
from experiments.recorded.outcomes import Outcomes
from experiments.recorded.scores import reward
from trinity_jax.coordinator.readout import coordinates, fit
from trinity_jax.learning import new_row
from trinity_jax.learning.probes import ridge
from trinity_jax.learning.strategy import Strategy

TEMPERATURE = 0.1


class Replaced(NamedTuple):
    """Rewards on the test half with one model left out and added back, S seeds.

    Attributes:
        model: who was left out.
        old: of the coordinator without it: what a mask leaves, too.
        masked: of the whole coordinator with the model masked.
        full: of a full retraining.
        row: of a new row, by calls.
        retrained: of a full retraining that saw no more outcomes than these, by calls.
        profile: of a profile head that never saw the model, after its anchors.
        profile_old: of the same head on the old pool.
    """

    model: str
    old: Float[np.ndarray, "S n"]
    masked: Float[np.ndarray, "S n"]
    full: Float[np.ndarray, "S n"]
    row: dict[int, Float[np.ndarray, "S n"]]
    retrained: dict[int, Float[np.ndarray, "S n"]]
    profile: Float[np.ndarray, "S n"]
    profile_old: Float[np.ndarray, "S n"]


def replace_each(
    outcomes: Outcomes,
    states: Float[np.ndarray, "Q D"],
    settings: RecordedSettings,
    budgets: tuple[int, ...],
    seeds: range,
) -> list[Replaced]:
    """Leave every model out in turn."""
    train = outcomes.train
    z = np.asarray(coordinates(fit("whitened", settings.k, states[train]), jnp.asarray(states)))
    whole = [_evolved(settings, z, outcomes, train, seed) for seed in seeds]
    found = []
    for place, name in enumerate(outcomes.models):
        order = [*(i for i in range(len(outcomes.models)) if i != place), place]
        ours = outcomes.pool([outcomes.models[i] for i in order], "pool")
        rows = [_one(settings, z, ours, train, seed, budgets) for seed in seeds]
        full, masked = [], []
        for head in whole:
            scores = np.array(logits(head, jnp.asarray(z)))
            full.append(reward(scores.argmax(axis=1), outcomes.right)[~train])
            scores[:, place] = -np.inf
            masked.append(reward(scores.argmax(axis=1), outcomes.right)[~train])
        found.append(
            Replaced(
                name,
                np.stack([one["old"] for one in rows]),
                np.stack(masked),
                np.stack(full),
                {calls: np.stack([one["row", calls] for one in rows]) for calls in budgets if calls},
                {calls: np.stack([one["retrained", calls] for one in rows]) for calls in budgets if calls},
                np.stack([one["profile"] for one in rows]),
                np.stack([one["profile_old"] for one in rows]),
            )
        )
    return found


def _one(
    settings: RecordedSettings,
    z: Float[np.ndarray, "Q k"],
    outcomes: Outcomes,
    train: Bool[np.ndarray, " Q"],
    seed: int,
    budgets: tuple[int, ...],
) -> dict:
    """The last model is the one that was left out."""
    L = len(outcomes.models)
    rest = outcomes.pool(outcomes.models[:-1], "pool")
    old = _evolved(settings, z, rest, train, seed)
    known = np.asarray(logits(old, jnp.asarray(z)))
    rng = np.random.default_rng(seed)

    def judged(scores: Float[np.ndarray, "Q L"]) -> Float[np.ndarray, " n"]:
        return reward(scores.argmax(axis=1), outcomes.right)[~train]

    found: dict = {"old": judged(known)}
    places = rng.permutation(np.flatnonzero(train))
    for calls in budgets:
        if calls:
            seen = np.sort(places[:calls])
            row = new_row.fit(
                z[seen],
                outcomes.right[seen][:, :, None],
                z[seen],
                np.arange(len(seen)),
                known[seen],
                greedy=True,
            )
            ours = z @ np.asarray(row.weights)[0] + np.asarray(row.bias)[0]
            found["row", calls] = judged(np.column_stack([known, ours]))
            few = np.zeros_like(train)
            few[places[: max(calls // L, 4)]] = True
            found["retrained", calls] = judged(
                np.asarray(logits(_evolved(settings, z, outcomes, few, seed), jnp.asarray(z)))
            )
    anchors = np.sort(places[: settings.anchors])
    with_new = _profile(settings, z, outcomes, train, anchors, seed)
    found["profile"], found["profile_old"] = judged(with_new), judged(with_new[:, :-1])
    return found


def _evolved(
    settings: RecordedSettings, z: np.ndarray, outcomes: Outcomes, seen: Bool[np.ndarray, " Q"], seed: int
) -> Head:
    """The head of `experiments.recorded` on the prompts seen; the others have weight 0, so that shapes stay."""
    train = outcomes.train
    weight = task_weights(outcomes.task, seen)[train]
    single = jnp.float32
    return evolve(
        settings.learning,
        jnp.asarray(z[train], single),
        jnp.asarray(outcomes.right[train], single),
        jnp.asarray(weight, single),
        jnp.asarray(settings.penalty, single),
        jax.random.key(seed),
    )


def _profile(
    settings: RecordedSettings,
    z: Float[np.ndarray, "Q k"],
    outcomes: Outcomes,
    train: Bool[np.ndarray, " Q"],
    anchors: np.ndarray,
    seed: int,
) -> Float[np.ndarray, "Q L"]:
    """Logits of a profile head that was evolved without the last model; its start is the ridge head itself."""
    rows = ridge(z[anchors], outcomes.right[anchors][:, :, None], TEMPERATURE).rows
    features = np.concatenate([np.asarray(rows.weights), np.asarray(rows.bias)[:, None]], axis=1)
    scale = max(float(np.sqrt((features[:-1] ** 2).mean())), 1e-9)
    known = jnp.asarray(features / scale, jnp.float32)
    one = jnp.asarray(np.concatenate([z, np.ones((len(z), 1))], axis=1), jnp.float32)
    weight = jnp.asarray(task_weights(outcomes.task, train)[train], jnp.float32)
    right = jnp.asarray(outcomes.right[train][:, :-1], jnp.float32)
    width = one.shape[1]
    strategy = Strategy(settings.learning.model_copy(update={"sigma0": 0.7}), width)
    key = jax.random.key(seed)

    @jax.jit
    def run(start):
        def fitness(vector):
            scores = one[train] @ (known[:-1] * vector).T
            return weight @ jnp.sum(jax.nn.softmax(scores) * right, axis=1)

        def generation(state, number):
            ask, tell = jax.random.split(jax.random.fold_in(key, number))
            X, state = strategy.ask(state, ask)
            return strategy.tell(state, X, jax.vmap(fitness)(X), tell), None

        state = strategy.init(jax.random.fold_in(key, settings.learning.generations), start)
        return strategy.mean(jax.lax.scan(generation, state, jnp.arange(settings.learning.generations))[0])

    end = run(jnp.full(width, scale))
    return np.asarray(one @ (known * end).T)
