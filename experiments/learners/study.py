"""Every learner at an equal number of episodes: as published, then tuned with equally many trials."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from rich.console import Console

from experiments.learners import figures, page
from experiments.learners.arms import Arm, Ground, Rule, Trial, Version
from experiments.learners.play import Player, Runs, Task, View
from experiments.learners.settings import Readout, Settings
from experiments.learners.steps import name_of, step_of
from experiments.results import Results, over_seeds, show
from experiments.worlds import build_ground, check_pool, coordinator, kind_names, on_ground, read
from trinity_jax.config import HeadSettings, ReadoutSettings
from trinity_jax.learning.learner import build
from trinity_jax.world.evolve import Rules, World
from trinity_jax.world.value import attainable

TUNING, PUBLISHED, TUNED, COORDINATES = range(4)
"""Branches of the root key: no run is played twice."""


def run(settings: Settings, results: Results, console: Console) -> None:
    """Play everything; write the tables, the figures and the page.

    Raises:
        UserError: a pool's table that does not fit the kinds, or a world that cannot be built.
    """
    check_pool(settings.pool, settings.world, "pool")
    console.print(f"world: {settings.world.states} states")
    made = build_ground(settings.world, len(settings.pool.names))
    world, names = on_ground(made, settings.pool), kind_names(made.kinds)
    views: dict[Readout, View] = {kind: _view(settings, world, kind) for kind in get_args(Readout)}
    rules = Rules(len(names), settings.world.max_calls, judge_every=settings.judge_every)
    player = Player(views, rules)
    held_out = list(made.kinds[made.train :])
    bounds = attainable(world.skills.take(world.held_out), held_out, settings.world.max_calls)
    _, uniform = player.worth["raw"](jnp.zeros(views["raw"].coordinator.layout.size))
    ground = Ground(bounds, float(uniform[0]), tuple(names), settings.pool.names)

    root = jax.random.key(settings.seed)
    published = [_task(settings, root, name, "published") for name in settings.compare]
    arms = [
        _arm(settings, views, name, "published", task, "sample", runs, console)
        for name, task, runs in zip(settings.compare, published, player.play(published), strict=True)
    ]
    trials = _trials(settings, player, root, console)
    best = {name: max(mine, key=lambda trial: trial.train.max()) for name, mine in trials.items()}
    tuned = [_task(settings, root, name, "tuned", best[name]) for name in settings.compare]
    arms += [
        _arm(settings, views, name, "tuned", task, best[name].rule, runs, console)
        for name, task, runs in zip(settings.compare, tuned, player.play(tuned), strict=True)
    ]
    results.table(_rows(arms, ground))
    results.table(_trial_rows(settings, trials), "trials.csv")
    results.table(_curve_rows(arms), "curves.csv")
    for name, figure in figures.draw(arms, ground).items():
        results.figure(name, figure)
    results.page(page.text(settings, ground, arms, trials))


def _view(settings: Settings, world: World, kind: Readout) -> View:
    # Fitted to first turns only, coordinates hardly see what later turns change, and so not whose turn it is.
    readout = ReadoutSettings(kind=kind, k=settings.whitened, source="episodes")
    seen = read(
        world, readout, settings.world.max_calls, jax.random.fold_in(jax.random.key(settings.seed), COORDINATES)
    )
    width = seen.world.states.every(jnp.int32(0)).shape[-1]
    head = coordinator(HeadSettings(), readout, width, len(settings.pool.names))
    return View(seen.world, head, seen.calls)


def _keys(root: PRNGKeyArray, branch: int, count: int) -> list[PRNGKeyArray]:
    return [jax.random.fold_in(jax.random.fold_in(root, branch), number) for number in range(count)]


def _task(settings: Settings, root: PRNGKeyArray, name: str, version: Version, trial: Trial | None = None) -> Task:
    learning = settings.arm(name, version)
    if trial is None:
        return Task(learning, "raw", step_of(learning), _keys(root, PUBLISHED, settings.seeds))
    return Task(learning, trial.readout, trial.step, _keys(root, TUNED, settings.seeds))


def _trials(settings: Settings, player: Player, root: PRNGKeyArray, console: Console) -> dict[str, list[Trial]]:
    keys = _keys(root, TUNING, settings.tuning_seeds)
    asked = [(name, *trial) for name in settings.compare for trial in settings.learners[name].trials]
    tasks = [Task(settings.arm(name, "tuned"), readout, step, keys) for name, readout, step in asked]
    found: dict[str, list[Trial]] = {name: [] for name in settings.compare}
    for (name, readout, step), runs in zip(asked, player.play(tasks), strict=True):
        found[name].append(Trial(readout, step, runs.train.mean(axis=0)))
        console.print(f"trial {name}: {found[name][-1].train.max():.3f} on training questions ({readout}, {step:g})")
    return found


def _arm(
    settings: Settings,
    views: Mapping[Readout, View],
    name: str,
    version: Version,
    task: Task,
    rule: Rule,
    runs: Runs,
    console: Console,
) -> Arm:
    learning, n = task.learning, views[task.readout].coordinator.layout.size
    if learning.generations:
        each = settings.episodes // learning.generations
        episodes = each * (1 + np.arange(learning.generations))
        adapted = build(learning, n, lambda *_: jnp.zeros(())).c_mu * learning.generations
    else:
        calls = learning.warm_start.calls(len(settings.pool.names), settings.world.train)
        episodes, adapted = np.array([calls]), np.nan
    arm = Arm(name, version, task.readout, task.step, name_of(learning), rule, n, adapted, episodes, runs)
    console.print(f"{version} {name}: {show(over_seeds(arm.success))} ({task.readout}, {arm.step_name} {task.step:g})")
    return arm


def _rows(arms: Sequence[Arm], ground: Ground) -> list[dict[str, Any]]:
    return [
        {
            "learner": arm.name,
            "version": arm.version,
            "seed": seed,
            "coordinates": arm.readout,
            arm.step_name: arm.step,
            "n": arm.n,
            "c_mu_T": arm.adapted,
            "rule": arm.rule,
            "success": arm.success[seed],
            "sampled": arm.runs.held_out[seed, 0],
            "greedy": arm.runs.held_out[seed, 1],
            "regret": ground.bounds.per_kind - arm.success[seed],
            "sampled_train": arm.runs.train[seed, 0],
            "greedy_train": arm.runs.train[seed, 1],
            "episodes": int(arm.episodes[-1]),
            "calls": int(arm.runs.calls[seed]),
        }
        for arm in arms
        for seed in range(len(arm.success))
    ]


def _trial_rows(settings: Settings, trials: dict[str, list[Trial]]) -> list[dict[str, Any]]:
    return [
        {
            "learner": name,
            "coordinates": trial.readout,
            "step_name": name_of(settings.arm(name, "tuned")),
            "step": trial.step,
            "sampled_train": trial.train[0],
            "greedy_train": trial.train[1],
            "chosen": trial is max(mine, key=lambda one: one.train.max()),
        }
        for name, mine in trials.items()
        for trial in mine
    ]


def _curve_rows(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    rows = []
    for arm in arms:
        if arm.runs.course is None:
            continue
        calls = arm.calls.mean(axis=0)
        for number, episodes in enumerate(arm.episodes):
            at = {name: np.asarray(getattr(arm.runs.course, name))[:, number] for name in ("sampled", "greedy", "norm")}
            if np.isfinite(at["sampled"]).all():
                sampled, greedy, norm = (over_seeds(values) for values in at.values())
                rows.append(
                    {
                        "learner": arm.name,
                        "version": arm.version,
                        "generation": number + 1,
                        "episodes": int(episodes),
                        "calls": calls[number],
                        "sampled": sampled.mean,
                        "sampled_low": sampled.low,
                        "sampled_high": sampled.high,
                        "greedy": greedy.mean,
                        "greedy_low": greedy.low,
                        "greedy_high": greedy.high,
                        "norm": norm.mean,
                        "fitness": float(np.mean(arm.runs.course.fitness[:, number])),
                    }
                )
    return rows
