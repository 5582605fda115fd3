"""Every model of every pool leaves and joins; then the same on recorded outcomes of real models."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from rich.console import Console

from experiments.pool_change import figures, page
from experiments.pool_change.recorded import Replaced, replace_each
from experiments.pool_change.settings import Settings
from experiments.pool_change.ways import Curve, Lab, at_calls
from experiments.recorded.outcomes import Outcomes, find, load
from experiments.recorded.scores import macro
from experiments.results import Results, over_seeds
from experiments.worlds import build_ground, check_pool, on_ground
from trinity_jax.config import PoolSettings
from trinity_jax.encoder.states import hidden_states
from trinity_jax.errors import UserError

NAMED = 3
"""Models that the router's instruction names throughout: it goes on naming as many as it was trained with, and with
three the states are those of the sample-efficiency study, which may be in the cache folder already."""


class Change(NamedTuple):
    """One model of one pool, S seeds; success is exact, on held-out questions.

    Attributes:
        pool: its name.
        model: who leaves, or joins.
        old: without it, as trained.
        masked: of the whole coordinator, the model masked.
        full: a full training with it, by calls.
        row: a new row, by calls.
        profile: a profile head that never saw it, once it has answered the anchors.
        profile_old: the same head without it.
        anchors: calls of its anchor profile.
    """

    pool: str
    model: str
    old: Float[np.ndarray, " S"]
    masked: Float[np.ndarray, " S"]
    full: Curve
    row: Curve
    profile: Float[np.ndarray, " S"]
    profile_old: Float[np.ndarray, " S"]
    anchors: int

    @property
    def gain(self) -> Float[np.ndarray, " S"]:
        """Of full retraining over going on without the model."""
        return self.full.success[:, -1] - self.old

    def part(self, share: float) -> Float[np.ndarray, " S"]:
        """Success of the new row for so large a part of full retraining's calls."""
        last = np.array([at_calls(self.row, share * calls)[s] for s, calls in enumerate(self.full.calls[:, -1])])
        return last


def run(settings: Settings, results: Results, console: Console) -> None:
    """Leave results.csv, figures and results.md.

    Raises:
        UserError: a table that does not fit the kinds; broken outcomes, or an encoder without the layer.
    """
    for name, pool in settings.pools.items():
        check_pool(pool, settings.world, f"pools.{name}")
    models = len(next(iter(settings.pools.values())).names)
    if settings.world.states == "encoder":
        console.print("hidden states (kept in the cache folder)")
    ground = build_ground(settings.world, NAMED)
    lab = Lab(settings, ground, models)
    changes = []
    for name, pool in settings.pools.items():
        found = _pool(lab, name, pool, 1000 * (1 + list(settings.pools).index(name)))
        changes += found
        for one in found:
            gain = one.gain.mean()
            console.print(f"{name} without {one.model}: {one.old.mean():.3f}, retraining gains {gain:+.3f}")
    recorded, why = _recorded(settings, console)
    results.table([*_rows(settings, changes), *_recorded_rows(recorded)])
    results.figure("calls", figures.by_calls(settings, changes))
    results.figure("mask", figures.masks(changes))
    if recorded:
        results.figure("recorded", figures.recorded(settings, recorded))
    results.page(page.write(settings, changes, recorded, why, lab.profile_n))


def _pool(lab: Lab, name: str, pool: PoolSettings, tag: int) -> list[Change]:
    whole = lab.train(pool, tag)
    found = []
    for place, model in enumerate(pool.simulated):
        rest = tuple(other for other in pool.simulated if other is not model)
        own = tag + 10 * (place + 1)
        old = lab.train(pool.model_copy(update={"simulated": rest}), own)
        masked = [lab.value(s.world.without(place), v) for s, v in zip(whole.starts, whole.vectors, strict=True)]
        skills = on_ground(lab.ground, pool.model_copy(update={"simulated": (*rest, model)})).skills
        worlds = [start.world._replace(skills=skills) for start in old.starts]
        row = lab.add(worlds, old, own + 1)
        without, with_it = lab.profile(worlds, old, own + 3)
        anchors = lab.settings.world.train * lab.settings.new_row.samples
        full = Curve(whole.calls, whole.success)
        found.append(
            Change(name, model.name, old.success[:, -1], np.array(masked), full, row, with_it, without, anchors)
        )
    return found


def _recorded(settings: Settings, console: Console) -> tuple[dict[str, tuple[Outcomes, list[Replaced]]], str]:
    """By pool; empty, and why, where no outcomes are at hand."""
    ours = settings.recorded
    if not ours.pools:
        return {}, "recorded.pools is empty"
    try:
        folder = find(ours.data.folder)
    except UserError as error:
        if ours.data.folder is not None:
            raise
        console.print(f"skipped: {error}")
        return {}, str(error)
    everything = load(folder).some(ours.data.per_task)
    found = {}
    for name, models in ours.pools.items():
        outcomes = everything.pool(models, f"recorded.pools.{name}")
        console.print(f"{name}: {len(outcomes.ids)} recorded prompts")
        states = hidden_states(ours.encoder, outcomes.prompts, len(models), ours.layers)[:, -1, 0]
        seeds = range(settings.seed, settings.seed + settings.seeds)
        found[name] = outcomes, replace_each(outcomes, states, ours, settings.budgets, seeds)
    return found, ""


def _rows(settings: Settings, changes: list[Change]) -> list[dict[str, Any]]:
    rows = []
    for one in changes:
        common = {"part": "world", "pool": one.pool, "model": one.model}
        single = {
            "old": one.old, "masked": one.masked, "profile": one.profile, "profile_old": one.profile_old
        }  # fmt: skip
        for way, values in single.items():
            rows += [common | {"way": way, "seed": s, "success": float(v)} for s, v in enumerate(values)]
        for way, curve in (("full", one.full), ("row", one.row)):
            for point in range(curve.success.shape[1]):
                mean, low, high = over_seeds(curve.success[:, point])
                rows.append(
                    common
                    | {"way": way, "point": point, "calls": float(curve.calls[:, point].mean())}
                    | {"success": mean, "low": low, "high": high}
                )
            for calls in settings.budgets:
                values = at_calls(curve, calls)
                rows += [
                    common | {"way": way, "seed": s, "budget": calls, "success": float(v)} for s, v in enumerate(values)
                ]
    return rows


def _recorded_rows(recorded: dict[str, tuple[Outcomes, list[Replaced]]]) -> list[dict[str, Any]]:
    rows = []
    for pool, (outcomes, found) in recorded.items():
        task = outcomes.task[~outcomes.train]
        for one in found:
            common = {"part": "recorded", "pool": pool, "model": one.model}
            ways = [("old", None, one.old), ("masked", None, one.masked), ("full", None, one.full)]
            ways += [("row", calls, values) for calls, values in one.row.items()]
            ways += [("full, so many outcomes", calls, values) for calls, values in one.retrained.items()]
            ways += [("profile", None, one.profile), ("profile_old", None, one.profile_old)]
            for way, calls, values in ways:
                for seed, rewards in enumerate(values):
                    rows.append(common | {"way": way, "budget": calls, "seed": seed, "success": macro(rewards, task)})
    return rows
