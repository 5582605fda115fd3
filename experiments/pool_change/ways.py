"""The ways to follow a change of the pool, on the jitted world: one compiled program each, all seeds in a batch.

A pool of L models is trained as a whole; then each model is left out in turn and the rest is trained. Dropping is the
whole coordinator with a mask against that one, adding is that one with a new row against the whole coordinator.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from experiments.pool_change.settings import Settings
from experiments.sample_efficiency.warm_start import Start, warm_start
from experiments.worlds import Coordinator, Ground, coordinator, met, on_ground
from trinity_jax.config import HeadSettings, LearningSettings, PoolSettings
from trinity_jax.coordinator.heads import spread
from trinity_jax.learning import new_row
from trinity_jax.learning.learner import build
from trinity_jax.learning.partial import Partial
from trinity_jax.learning.probes import ridge
from trinity_jax.world import histories
from trinity_jax.world.episode import Trace, play
from trinity_jax.world.evolve import Course, Rules, World, evolve, worth
from trinity_jax.world.histories import Event


class Trained(NamedTuple):
    """A full training of S seeds: starts, vectors, and success by calls, point 0 at the start."""

    starts: list[Start]
    vectors: Float[np.ndarray, "S n"]
    calls: Float[np.ndarray, "S G+1"]
    success: Float[np.ndarray, "S G+1"]


class Curve(NamedTuple):
    """Success by calls paid since the change, S seeds."""

    calls: Float[np.ndarray, "S T"]
    success: Float[np.ndarray, "S T"]


class Lab:
    """Compiled programs for pools of L models and of L - 1."""

    def __init__(self, settings: Settings, ground: Ground, models: int):
        self.settings, self.ground, self.models = settings, ground, models
        K = settings.world.max_calls
        width = int(jax.eval_shape(ground.states.every, jnp.int32(0)).shape[-1])
        self.last = histories.last_event(settings.world.transcript, K)
        sequences = histories.sequences(settings.world.transcript, K)
        self.after = {event: sequences.index((event,)) for event in (Event.RIGHT, Event.WRONG)}
        self.heads = {L: coordinator(HeadSettings(), settings.readout, width, L) for L in (models - 1, models)}
        self.root = jax.random.key(settings.seed)
        self._train = {L: self._trainer(L) for L in self.heads}
        self._value = {L: jax.jit(lambda world, vector, L=L: self._greedy(world, vector, L)) for L in self.heads}
        self._look = jax.jit(self._looked)
        self._short = self._shorter()
        self._profile, self._profile_value = self._profiler()

    def rules(self, learning: LearningSettings, judge_every: int = 1) -> Rules:
        """Of an evolution; replies are kept over it."""
        return Rules(
            kinds=len(set(self.ground.kinds)),
            max_calls=self.settings.world.max_calls,
            questions=learning.questions,
            repeats=learning.repeats,
            reuse="run",
            judge_every=judge_every,
        )

    def key(self, seed: int, tag: int) -> PRNGKeyArray:
        """Of one seed's part of the study."""
        return jax.random.fold_in(jax.random.fold_in(self.root, seed), tag)

    def train(self, pool: PoolSettings, tag: int) -> Trained:
        """The whole recipe, as for a pool that nothing is known of."""
        settings, L = self.settings, len(pool.names)
        world = on_ground(self.ground, pool)
        keys = [self.key(seed, tag) for seed in range(settings.seeds)]
        start, K = settings.training.warm_start, settings.world.max_calls
        starts = [warm_start(world, self.last, start, settings.readout, K, jax.random.fold_in(key, 0)) for key in keys]
        vectors = jnp.asarray(np.stack([one.vector for one in starts]))
        worlds = stacked([one.world for one in starts])
        ends, course = self._train[L](jnp.stack(keys), worlds, vectors)
        first = np.array([self.value(one.world, one.vector) for one in starts])
        begin = np.array([float(one.calls) for one in starts])
        made = np.asarray(course.made, float).cumsum(axis=1)
        return Trained(
            starts,
            np.asarray(ends),
            np.concatenate([begin[:, None], begin[:, None] + made], axis=1),
            np.concatenate([first[:, None], np.asarray(course.greedy)], axis=1),
        )

    def value(self, world: World, vector: Float[np.ndarray, " n"]) -> float:
        """Exact held-out success of the largest logits."""
        return float(self._value[world.skills.accepts_right.shape[0]](world, jnp.asarray(vector, jnp.float32)))

    def answers(self, world: World, samples: int, key: PRNGKeyArray) -> Float[np.ndarray, "N L S"]:
        """Single Worker calls of every model on every training question."""
        right = world.skills.worker[world.train][:, :, None]
        drawn = jax.random.uniform(key, (*right.shape[:2], samples)) < right
        return np.asarray(drawn, float)

    def add(self, worlds: list[World], old: Trained, tag: int) -> Curve:
        """A new row for the last model of ``worlds``, which are in the old coordinators' coordinates.

        Points: nothing done; one answer a question; all answers; after a look at its own episodes; each generation.
        """
        ours = self.settings.new_row
        N = len(np.asarray(worlds[0].train))
        calls, success, begun = [], [], []
        for seed, world in enumerate(worlds):
            key = self.key(seed, tag)
            profile = self.answers(world, ours.samples, jax.random.fold_in(key, 0))
            at = _States(world, np.arange(N), np.zeros(N, int), np.ones(N))
            # The newcomer's first reply is read too: it is what its row meets next.
            replied = np.where(profile[:, -1, 0] == 1, self.after[Event.RIGHT], self.after[Event.WRONG])
            at = at.also(np.arange(N), replied, np.ones(N))
            first = profile.copy()
            first[:, -1, 1:] = np.nan
            vectors = [self._with_row(old.vectors[seed], first, at), self._with_row(old.vectors[seed], profile, at)]
            trace = self._look(world, jnp.asarray(vectors[-1], jnp.float32), jax.random.fold_in(key, 1))
            history = np.asarray(trace.history).reshape(N, -1)
            # Turns that were not played count nothing: all shapes are the same, whatever happened.
            question = np.repeat(np.arange(N), history.shape[1])
            at = at.also(question, history.ravel(), np.asarray(trace.decided).ravel().astype(float))
            vectors.append(self._with_row(old.vectors[seed], profile, at))
            spent = [0, N, N * ours.samples, N * ours.samples + int(trace.called.sum())]
            calls.append(spent)
            success.append([old.success[seed, -1], *(self.value(world, vector) for vector in vectors)])
            begun.append(vectors[-1])
        keys = jnp.stack([self.key(seed, tag + 1) for seed in range(len(worlds))])
        _, course = self._short(keys, stacked(worlds), jnp.asarray(np.stack(begun), jnp.float32))
        paid = np.asarray(calls, float)
        later = paid[:, -1:] + np.asarray(course.made, float).cumsum(axis=1)
        return Curve(
            np.concatenate([paid, later], axis=1),
            np.concatenate([np.asarray(success), np.asarray(course.greedy)], axis=1),
        )

    def profile(self, worlds: list[World], old: Trained, tag: int) -> tuple[np.ndarray, np.ndarray]:
        """A profile head evolved on all models of ``worlds`` but the last: its success without and with that one, [S].

        A = diag(b) R: R turns answers to the anchors into the row that ridge regression finds (it is linear in them), b
        weighs the coordinates, alike for all models, and is evolved with the role rows. A free matrix in b's place
        reaches no more on the old pool and ranks a model it never saw by what it learnt of others by heart.
        """
        L = self.models
        keys, features, vectors = [], [], []
        for seed, world in enumerate(worlds):
            key = self.key(seed, tag)
            anchors = self.answers(world, self.settings.new_row.samples, jax.random.fold_in(key, 0))
            train = np.asarray(world.train)
            z = met(world, train, np.zeros_like(train))
            rows = ridge(z, anchors, self.settings.training.warm_start.temperature).rows
            found = np.concatenate([np.asarray(rows.weights), np.asarray(rows.bias)[:, None]], axis=1)
            scale = max(float(np.sqrt((found[:-1] ** 2).mean())), 1e-9)
            features.append(found / scale)
            roles = self._rows(old.starts[seed].vector, L - 1)[-3:]
            vectors.append(np.concatenate([np.full(found.shape[1], scale), roles.ravel()]))
            keys.append(jax.random.fold_in(key, 1))
        known = jnp.asarray(np.stack(features), jnp.float32)
        start = jnp.asarray(np.stack(vectors), jnp.float32)
        ends = self._profile(jnp.stack(keys), stacked([world.without(L - 1) for world in worlds]), start, known)
        together = zip(worlds, ends, known, strict=True)
        pairs = [
            [float(self._profile_value(shown, end, one)) for shown in (world.without(L - 1), world.without(-1))]
            for world, end, one in together
        ]
        without, with_it = np.array(pairs).T
        return without, with_it

    @property
    def profile_n(self) -> int:
        """Numbers of a profile head."""
        return 4 * (self.settings.readout.k + 1)

    def _with_row(self, vector: np.ndarray, answers: np.ndarray, at: "_States") -> np.ndarray:
        """The old vector with a row for the last model."""
        L = self.models - 1
        N = len(np.asarray(at.world.train))
        z = at.coordinates()
        old = np.asarray(self.heads[L].logits(jnp.asarray(vector, jnp.float32), jnp.asarray(z)))[:, :L]
        row = new_row.fit(z[:N], answers, z, at.question, old, greedy=True, counts=at.counts)
        rows = self._rows(vector, L)
        new = np.concatenate([np.asarray(row.weights)[0], np.asarray(row.bias)])
        rows = np.insert(rows, L, new, axis=0)
        return np.concatenate([rows[:, :-1].ravel(), rows[:, -1]])

    def _rows(self, vector: np.ndarray, models: int) -> Float[np.ndarray, "L+3 k+1"]:
        """Rows of a linear head, the bias as a last column."""
        k = self.settings.readout.k
        weights, bias = np.split(np.asarray(vector, np.float64), [(models + 3) * k])
        return np.concatenate([weights.reshape(models + 3, k), bias[:, None]], axis=1)

    def _greedy(self, world: World, vector: Array, L: int) -> Array:
        rules = self.rules(self.settings.training)
        return worth(world, rules, self.heads[L].logits, vector, world.held_out, sample=False).reward.mean()

    def _trainer(self, L: int):
        head, learning = self.heads[L], self.settings.training
        return _batched(head, build(learning, head.layout.size), self.rules(learning), learning.generations)

    def _shorter(self):
        head, learning = self.heads[self.models], self.settings.new_row.evolution
        rows = [self.models - 1, *range(self.models, self.models + 3)]
        learner = Partial(head.layout.places(rows), head.layout.size, lambda m: build(learning, m))
        return _batched(head, learner, self.rules(learning), learning.generations)

    def _looked(self, world: World, vector: Array, key: PRNGKeyArray) -> Trace:
        def one(question: Array, number: Array) -> Trace:
            mine = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, question), number))
            policy = world.states.policy(self.heads[self.models].logits, vector, question)
            K = self.settings.world.max_calls
            return play(policy, world.skills.take(question), world.histories, mine[0], mine[1], K)[1]

        numbers = jnp.arange(self.settings.new_row.looks)
        return jax.vmap(lambda q: jax.vmap(lambda r: one(q, r))(numbers))(world.train)

    def _profiler(self):
        learning, width = self.settings.profile.evolution, self.settings.readout.k + 1
        rules = self.rules(learning, judge_every=learning.generations)
        learner = build(learning, self.profile_n)

        def logits(features: Array):
            def of(vector: Array, z: Array) -> Array:
                weights, roles = vector[:width], vector[width:].reshape(3, width)
                rows = spread(features, jnp.concatenate([jnp.diag(weights), roles]))
                return z @ rows[:, :-1].T + rows[:, -1]

            return of

        def one(a: tuple[Any, ...]) -> Array:
            key, world, start, features = a
            return evolve(learner, world, rules, logits(features), learning.generations, key, start)[0]

        def value(world: World, vector: Array, features: Array) -> Array:
            return worth(world, rules, logits(features), vector, world.held_out, sample=False).reward.mean()

        return jax.jit(lambda *a: jax.lax.map(one, a)), jax.jit(value)


class _States(NamedTuple):
    """States that a row meets, by question (its place among the training questions) and history; how often each."""

    world: World
    question: Int[np.ndarray, " B"]
    history: Int[np.ndarray, " B"]
    counts: Float[np.ndarray, " B"]

    def also(self, question: np.ndarray, history: np.ndarray, counts: np.ndarray) -> "_States":
        """With some more."""
        more = ((self.question, question), (self.history, history), (self.counts, counts))
        return _States(self.world, *map(np.concatenate, more))

    def coordinates(self) -> Float[np.ndarray, "B k"]:
        return met(self.world, np.asarray(self.world.train)[self.question], self.history)


def _batched(head: Coordinator, learner: Any, rules: Rules, generations: int):
    def one(a: tuple[Any, ...]) -> tuple[Array, Course]:
        key, world, start = a
        return evolve(learner, world, rules, head.logits, generations, key, start)

    return jax.jit(lambda *a: jax.lax.map(one, a))


def stacked(worlds: list[World]) -> World:
    """One world with a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *worlds)


def at_calls(curve: Curve, calls: float) -> Float[np.ndarray, " S"]:
    """Success of the last point that no more than so many calls had paid for; NaN where even the first cost more."""
    affordable = (curve.calls <= calls).sum(axis=1)
    last = curve.success[np.arange(len(curve.success)), np.maximum(affordable - 1, 0)]
    return np.where(affordable > 0, last, np.nan)
