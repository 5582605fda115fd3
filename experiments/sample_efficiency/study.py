"""All recipes on all pools: calls to 80 and 90 % of the attainable gain, and success at fixed budgets."""

import re
from typing import Any

import numpy as np
from rich.console import Console

from experiments.results import Results, over_seeds
from experiments.sample_efficiency import figures, page
from experiments.sample_efficiency.curves import Curves, calls_to, runner, success_at
from experiments.sample_efficiency.page import FRACTIONS, Arm, PoolResult
from experiments.sample_efficiency.settings import Settings
from experiments.worlds import Ground, build_ground, check_pool, on_ground
from trinity_jax.errors import UserError
from trinity_jax.world.value import attainable

SHARES = (0.8, 0.9)


def run(settings: Settings, results: Results, console: Console) -> None:
    """Leave results.csv, figures and results.md.

    Raises:
        UserError: a pool's name that no file can have, a table that does not fit the kinds, or such a read-out.
    """
    # Every pool is looked at before the first state is computed: a bad table stops the study at once.
    for name, pool in settings.pools.items():
        if not re.fullmatch(r"[\w .-]+", name):
            raise UserError(
                f"pools: expected names of letters, digits, _, - and . (figures are named so), got {name!r}"
            )
        check_pool(pool, settings.world, f"pools.{name}")
    sizes = sorted({len(pool.names) for pool in settings.pools.values()})
    grounds = {size: _ground(settings, size, console) for size in sizes}
    found = {name: _attainable(grounds[len(pool.names)], settings, name) for name, pool in settings.pools.items()}
    curves: dict[str, dict[str, Curves]] = {name: {} for name in settings.pools}
    for recipe in settings.names:
        console.print(f"recipe {recipe}")
        for size in sizes:
            play = runner(settings, recipe, grounds[size], size)
            for name, pool in settings.pools.items():
                if len(pool.names) == size:
                    curves[name][recipe] = play(pool)
    judged = [_judge(settings, name, found[name], curves[name]) for name in settings.pools]
    results.table(list(_rows(settings, judged)))
    for pool in judged:
        results.figure(f"calls_{pool.name}", figures.success_by_calls(settings, pool))
    results.figure("calls_needed", figures.calls_needed(settings, judged))
    results.page(page.write(settings, judged))


def _ground(settings: Settings, size: int, console: Console) -> Ground:
    if settings.world.states == "encoder":
        console.print(f"hidden states for a pool of {size} (kept in the cache folder)")

    def progress(done: int, total: int) -> None:
        if done == total or done % 1024 == 0:
            console.print(f"  {done} of {total} transcripts")

    return build_ground(settings.world, size, progress)


def _attainable(ground: Ground, settings: Settings, name: str):
    world = on_ground(ground, settings.pools[name])
    held_out = np.asarray(world.held_out)
    kinds = [ground.kinds[question] for question in held_out]
    return attainable(world.skills.take(held_out), kinds, settings.world.max_calls)


def _judge(settings: Settings, name: str, found, curves: dict[str, Curves]) -> PoolResult:
    targets = [found.fixed + share * found.gain for share in SHARES]
    budget = float(curves[settings.reference].calls[:, -1].mean())
    arms = {}
    for recipe, curve in curves.items():
        success = curve.deployed(settings.recipes[recipe])
        # The yardstick gets whichever rule suits it better at each point.
        if recipe == settings.reference:
            success = np.maximum(curve.sampled, curve.greedy)
        arms[recipe] = Arm(
            curve,
            success,
            tuple(calls_to(curve, success, target) for target in targets),
            tuple(success_at(curve, success, budget * fraction) for fraction in FRACTIONS),
        )
    return PoolResult(name, found, budget, arms)


def _rows(settings: Settings, judged: list[PoolResult]):
    for pool in judged:
        for recipe, arm in pool.arms.items():
            common: dict[str, Any] = {"pool": pool.name, "recipe": recipe, "n": arm.curves.n}
            levels = {"fixed": pool.attainable.fixed, "per_kind": pool.attainable.per_kind}
            for seed in range(settings.seeds):
                to = {f"calls_to_{share:.0%}": float(arm.calls_to[i][seed]) for i, share in enumerate(SHARES)}
                yield common | {"part": "seed", "seed": seed, "success": float(arm.success[seed, -1])} | levels | to
            for point in range(arm.success.shape[1]):
                mean, low, high = over_seeds(arm.success[:, point])
                calls = float(arm.curves.calls[:, point].mean())
                both = {
                    "sampled": float(arm.curves.sampled[:, point].mean()),
                    "greedy": float(arm.curves.greedy[:, point].mean()),
                }
                yield common | {
                    "part": "curve", "generation": point, "calls": calls, "success": mean, "low": low, "high": high
                } | both  # fmt: skip
