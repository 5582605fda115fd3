"""A recipe on a pool: exact held-out success of the deployed vector against the calls paid so far, seed by seed."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from experiments.sample_efficiency.settings import Recipe, Settings
from experiments.sample_efficiency.warm_start import Start, warm_start
from experiments.worlds import Coordinator, Ground, coordinator, on_ground, read
from trinity_jax.config import HeadSettings, LearningSettings, PoolSettings
from trinity_jax.learning.learner import Learner, build
from trinity_jax.world import histories
from trinity_jax.world.evolve import Course, Rules, World, evolve, log_prob, worth


class Curves(NamedTuple):
    """S seeds, point 0 before the first generation.

    Attributes:
        calls: paid so far, by the recipe's price.
        sampled: held-out success, choices sampled.
        greedy: the same with the largest logits.
        n: numbers evolved.
    """

    calls: Float[np.ndarray, "S G+1"]
    sampled: Float[np.ndarray, "S G+1"]
    greedy: Float[np.ndarray, "S G+1"]
    n: int

    def deployed(self, recipe: Recipe) -> Float[np.ndarray, "S G+1"]:
        """Success under the recipe's own rule."""
        return self.sampled if recipe.evaluate == "sample" else self.greedy


def calls_to(curves: Curves, success: Float[np.ndarray, "S G+1"], target: float) -> Float[np.ndarray, " S"]:
    """Calls paid when success first reaches the target; infinity for a seed that never does."""
    reached = success >= target
    first = curves.calls[np.arange(len(reached)), reached.argmax(axis=1)]
    return np.where(reached.any(axis=1), first, np.inf)


def success_at(curves: Curves, success: Float[np.ndarray, "S G+1"], calls: float) -> Float[np.ndarray, " S"]:
    """Success of the last vector that no more than ``calls`` had paid for; NaN where even the start cost more."""
    affordable = (curves.calls <= calls).sum(axis=1)
    last = success[np.arange(len(success)), np.maximum(affordable - 1, 0)]
    return np.where(affordable > 0, last, np.nan)


Run = Callable[[PoolSettings], Curves]


def runner(settings: Settings, name: str, ground: Ground, models: int) -> Run:
    """A recipe, compiled once for all pools of as many models."""
    recipe = settings.recipes[name]
    width = int(jax.eval_shape(ground.states.every, jnp.int32(0)).shape[-1])
    head = coordinator(HeadSettings(), recipe.readout, width, models)
    learning, K = recipe.learning, settings.world.max_calls
    rules = Rules(
        kinds=len(set(ground.kinds)),
        max_calls=K,
        questions=learning.questions,
        repeats=learning.repeats,
        reuse=recipe.reuse,
    )
    last = histories.last_event(settings.world.transcript, K)
    run = _compiled(learning, head, rules, shared=recipe.readout.kind == "raw")
    root = jax.random.key(settings.seed)

    def on_pool(pool: PoolSettings) -> Curves:
        world = on_ground(ground, pool)
        keys = [jax.random.fold_in(root, seed) for seed in range(settings.seeds)]
        starts = [_start(world, last, recipe, head, K, jax.random.fold_in(key, 0)) for key in keys]
        # Raw coordinates are the same for all seeds, and large.
        worlds = world if recipe.readout.kind == "raw" else _stacked([start.world for start in starts])
        vectors = jnp.asarray(np.stack([start.vector for start in starts]))
        begin = np.array([start.calls for start in starts], float)
        first = [np.asarray(x) for x in run.value(worlds, vectors)]
        if not learning.generations:
            return Curves(begin[:, None], first[0][:, None], first[1][:, None], head.layout.size)
        course = jax.tree.map(np.asarray, run.evolve(jnp.stack(keys), worlds, vectors))
        paid = course.asked if recipe.price == "asked" else course.made
        return Curves(
            np.concatenate([begin[:, None], begin[:, None] + paid.cumsum(axis=1)], 1),
            np.concatenate([first[0][:, None], course.sampled], 1),
            np.concatenate([first[1][:, None], course.greedy], 1),
            head.layout.size,
        )

    return on_pool


class _Compiled(NamedTuple):
    evolve: Callable[..., Course]
    value: Callable[..., tuple[jax.Array, jax.Array]]


def _compiled(learning: LearningSettings, head: Coordinator, rules: Rules, shared: bool) -> _Compiled:
    # A gradient learner's log-probability reads the world; the others are made once, outside of any trace.
    gradient = learning.learner in ("reinforce", "grpo")
    fixed = None if gradient else build(learning, head.layout.size)

    def learner(world: World) -> Learner:
        return fixed or build(learning, head.layout.size, log_prob(world, rules, head.logits))

    def over_seeds(one, keys, worlds, vectors):
        if shared:
            return jax.lax.map(lambda a: one(a[0], worlds, a[1]), (keys, vectors))
        return jax.lax.map(lambda a: one(*a), (keys, worlds, vectors))

    def course(key, world, vector):
        return evolve(learner(world), world, rules, head.logits, learning.generations, key, vector)[1]

    def value(_, world, vector):
        both = (worth(world, rules, head.logits, vector, world.held_out, sample) for sample in (True, False))
        return tuple(one.reward.mean() for one in both)

    return _Compiled(
        jax.jit(lambda keys, worlds, vectors: over_seeds(course, keys, worlds, vectors)),
        jax.jit(lambda worlds, vectors: over_seeds(value, jnp.arange(len(vectors)), worlds, vectors)),
    )


def _start(world: World, last: np.ndarray, recipe: Recipe, head: Coordinator, max_calls: int, key: jax.Array) -> Start:
    if recipe.learning.warm_start.kind != "none":
        return warm_start(world, last, recipe.learning.warm_start, recipe.readout, max_calls, key)
    seen = read(world, recipe.readout, max_calls, key)
    return Start(seen.world, np.zeros(head.layout.size, np.float32), seen.calls)


def _stacked(worlds: list[World]) -> World:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *worlds)
