"""Arms on the jitted worlds: one compiled program per head and size, whatever the step size, coordinates or roles."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from experiments.ablation.arms import Arm, Coordinates
from experiments.ablation.settings import Settings
from experiments.worlds import coordinator, read
from trinity_jax.config import HeadSettings, LearningSettings, ReadoutSettings
from trinity_jax.learning.strategy import Strategy
from trinity_jax.world import histories
from trinity_jax.world.evolve import Rules, World, evolve, worth
from trinity_jax.world.states import Logits, Table

NEVER = -1e9
"""Logit of a role that may not be chosen: its chance is exactly 0, and differences of it are finite."""

_TUNING, _JUDGED = 0, 1


class Outcome(NamedTuple):
    """Exact success of the final mean, drawing its choices and by the largest logits, and what the run cost.

    Attributes:
        train_drawn: on the training questions.
        train_largest: the same by the largest logits.
        drawn: on the held-out questions.
        largest: the same by the largest logits.
        turns: calls of a held-out episode, drawing.
        made: calls that had to be made in the run, equal ones once where they are shared.
    """

    train_drawn: float
    train_largest: float
    drawn: float
    largest: float
    turns: float
    made: int

    def success(self, argmax: bool, train: bool = False) -> float:
        """As the arm decides."""
        kinds = (self.train_drawn, self.train_largest) if train else (self.drawn, self.largest)
        return kinds[argmax]


class Measured(NamedTuple):
    """An arm's runs.

    Attributes:
        n: numbers evolved.
        sigma0: with which it was judged.
        runs: one per seed.
        tuning: outcomes by step size, on other seeds; empty where sigma0 was given.
    """

    n: int
    sigma0: float
    runs: tuple[Outcome, ...]
    tuning: dict[float, tuple[Outcome, ...]]


@dataclass(frozen=True)
class _Program:
    """What is fixed when an arm is compiled."""

    head: HeadSettings
    learning: LearningSettings
    kinds: int
    max_calls: int
    width: int
    models: int


def measure(arm: Arm, world: World, settings: Settings) -> Measured:
    """All seeds of an arm; where it leaves its step size open, that of the best exact success on training questions.

    Tuning and judged seeds are apart, and each is the same for all arms.
    """
    program = _Program(
        arm.head,
        # Not part of the program.
        arm.learning.model_copy(update={"sigma0": 1.0}),
        len(np.unique(np.asarray(world.kinds))),
        arm.max_calls,
        world.states.every(jnp.int32(0)).shape[-1],
        world.skills.accepts_right.shape[0],
    )
    n, run = _compiled(program)
    mine = jnp.asarray(arm.roles), jnp.asarray(not arm.argmax)
    root = jax.random.key(settings.seed)

    def runs(sigma0: float, purpose: int, count: int) -> tuple[Outcome, ...]:
        keys = [jax.random.fold_in(jax.random.fold_in(root, purpose), number) for number in range(count)]
        return tuple(_outcome(world, arm, *run(world, *mine, jnp.float32(sigma0), key)) for key in keys)

    tuning, sigma0 = {}, arm.sigma0
    if sigma0 is None:
        tuning = {step: runs(step, _TUNING, settings.tuning_seeds) for step in settings.step_sizes}
        sigma0 = max(tuning, key=lambda step: np.mean([one.success(arm.argmax, train=True) for one in tuning[step]]))
    return Measured(n, sigma0, runs(sigma0, _JUDGED, settings.seeds), tuning)


def _outcome(world: World, arm: Arm, scores: Float[Array, "Q S L+3"], made: Int[Array, ""]) -> Outcome:
    drawn, largest, turns = judge(world, scores, arm.max_calls)
    train, held_out = np.asarray(world.train), np.asarray(world.held_out)
    return Outcome(
        float(drawn[train].mean()),
        float(largest[train].mean()),
        float(drawn[held_out].mean()),
        float(largest[held_out].mean()),
        float(turns[held_out].mean()),
        int(made),
    )


def views(world: World, settings: Settings) -> dict[Coordinates, World]:
    """The world in the coordinates that heads are evolved in; the rotation is drawn once."""
    raw = tabulated(world)
    centred = read(raw, ReadoutSettings(kind="centred"), settings.world.max_calls, jax.random.key(0)).world
    assert isinstance(centred.states, Table)
    turn = jax.random.orthogonal(jax.random.fold_in(jax.random.key(settings.seed), 2), centred.states.h.shape[-1])
    rotated = jnp.einsum("...i,ij->...j", centred.states.h, turn, precision=jax.lax.Precision.HIGHEST)
    return {"raw": raw, "centred": centred, "rotated": centred._replace(states=Table(rotated))}


def tabulated(world: World) -> World:
    """The same world with its states as a table, for heads that are not affine in them."""
    every = jax.jit(jax.vmap(world.states.every))
    return world._replace(states=Table(every(jnp.arange(world.kinds.shape[0]))))


def shorter(world: World, mode: histories.Mode, K: int, fewer: int) -> World:
    """A world of K calls with at most ``fewer`` of them: those of its histories that can still arise.

    Args:
        world: with a table of states.
        mode: of its transcripts.
        K: its calls.
        fewer: at most K.
    """
    assert isinstance(world.states, Table)
    place = {read: number for number, read in enumerate(histories.sequences(mode, K))}
    kept = jnp.asarray([place[read] for read in histories.sequences(mode, fewer)])
    return world._replace(states=Table(world.states.h[:, kept]), histories=histories.build(mode, fewer))


def masked(logits: Logits, roles: Bool[Array, " 3"]) -> Logits:
    """The same head without some of the roles."""

    def allowed(vector: Float[Array, " n"], z: Float[Array, "*B k"]) -> Float[Array, "*B L+3"]:
        scores = logits(vector, z)
        return scores.at[..., -3:].set(jnp.where(roles, scores[..., -3:], NEVER))

    return allowed


def judge(
    world: World, scores: Float[Array, "Q S L+3"], max_calls: int
) -> tuple[Float[np.ndarray, " Q"], Float[np.ndarray, " Q"], Float[np.ndarray, " Q"]]:
    """Exact success by question when choices are drawn, when the largest logits decide, and calls when drawn."""
    return jax.device_get(_judge(world, scores, max_calls))


@partial(jax.jit, static_argnames="max_calls")
def _judge(world: World, scores: Float[Array, "Q S L+3"], max_calls: int) -> tuple[Any, Any, Any]:
    everything = jnp.arange(world.kinds.shape[0])
    own, rules = world._replace(states=Table(scores)), Rules(1, max_calls)
    drawn, largest = (worth(own, rules, tabled, jnp.zeros(0), everything, sample) for sample in (True, False))
    return drawn.reward, largest.reward, drawn.calls


def tabled(_vector: Any, scores: Any) -> Any:
    """The head of a world whose table holds logits already."""
    return scores


@lru_cache
def _compiled(program: _Program) -> tuple[int, Callable[..., Any]]:
    """Length n, and (world, roles, sample, sigma0, key) -> (logits at every history, calls made), jitted."""
    # Coordinates without a bias of their own: the same numbers are evolved in all of them.
    parts = coordinator(program.head, ReadoutSettings(kind="raw"), program.width, program.models)
    strategy = Strategy(program.learning, parts.layout.size)
    explore, generations = parts.explore, program.learning.generations

    def run(
        world: World, roles: Bool[Array, " 3"], sample: Any, sigma0: Float[Array, ""], key: PRNGKeyArray
    ) -> tuple[Float[Array, "Q S L+3"], Int[Array, ""]]:
        rules = Rules(program.kinds, program.max_calls, program.learning.questions, sample=sample)
        logits = masked(parts.logits, roles)
        noisy = (lambda noise, explore=explore: masked(explore(noise), roles)) if explore else None
        # Judged apart, by a program that all heads share: this one compiles faster without held-out questions.
        learning = world._replace(held_out=world.held_out[:0])
        vector, course = evolve(_starting(strategy, sigma0), learning, rules, logits, generations, key, explore=noisy)
        assert isinstance(world.states, Table)
        return logits(vector, world.states.h), course.made.sum()

    return parts.layout.size, jax.jit(run)


def _starting(strategy: Strategy, sigma0: Float[Array, ""]) -> Strategy:
    """The same strategy with another step size, which may be traced."""
    other, params = copy(strategy), strategy.params
    other.params = replace(params, std_init=sigma0)  # pyright: ignore[reportArgumentType]
    return other


def rows(arm: Arm, measured: Measured) -> list[dict[str, Any]]:
    """Every run as a line of the table."""
    learning = arm.learning
    about = {
        "world": "large" if arm.position is None else f"small, token {arm.position}",
        "head": arm.head.kind,
        "blocks": arm.head.blocks if arm.head.kind == "block_diagonal" else None,
        "rank": arm.head.rank if arm.head.kind == "low_rank" else None,
        "n": measured.n,
        "coordinates": arm.coordinates,
        "decision": "argmax" if arm.argmax else "sample",
        "roles": "+".join(name for name, may in zip(("Worker", "Thinker", "Verifier"), arm.roles, strict=True) if may),
        "calls": arm.max_calls,
        "common random numbers": learning.common_random_numbers,
        "population": learning.population,
        "replications": learning.questions,
        "generations": learning.generations,
    }

    def lines(purpose: str, sigma0: float, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
        return [
            about
            | {"sigma0": sigma0, "purpose": purpose, "seed": seed}
            | {"success": one.success(arm.argmax), "success in training": one.success(arm.argmax, train=True)}
            | {"success, drawn": one.drawn, "success, largest logits": one.largest}
            | {"calls a held-out episode": one.turns, "calls made": one.made}
            for seed, one in enumerate(outcomes)
        ]

    tried = [line for sigma0, outcomes in measured.tuning.items() for line in lines("tuning", sigma0, outcomes)]
    return tried + lines("judged", measured.sigma0, measured.runs)
