"""Figures of the ablation study."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.ablation.arms import Arm
from experiments.ablation.found import Found
from experiments.ablation.settings import Settings
from experiments.results import Results, over_seeds
from trinity_jax.evaluation.intervals import Estimate


def draw(found: Found, settings: Settings, results: Results) -> None:
    """heads, blocks, sweeps and parts, as PNG and SVG."""
    results.figure("heads", _heads(found, settings))
    results.figure("blocks", _blocks(found))
    results.figure("sweeps", _sweeps(found, settings))
    results.figure("parts", _parts(found))


def _heads(found: Found, settings: Settings) -> Figure:
    figure = Figure(figsize=(11, 3))
    titles = {
        "centred": "centred, sigma0 tuned",
        "raw": "raw, sigma0 tuned",
        "paper": f"raw, sigma0 = {settings.learning.sigma0}",
    }
    for axis, (name, title) in zip(figure.subplots(1, 3, sharex=True, sharey=True), titles.items(), strict=True):
        _dots(axis, {label: found.success(arm) for label, arm in found.groups[f"heads, {name}"].items()})
        _policies(axis.axvline, found)
        axis.set(title=title, xlabel="held-out success")
    figure.axes[0].invert_yaxis()
    figure.axes[0].legend(fontsize="x-small", loc="lower left")
    return figure


def _blocks(found: Found) -> Figure:
    figure = Figure(figsize=(5, 3.5))
    axis = figure.subplots()
    for name in ("centred", "rotated", "raw"):
        _line(axis, found, found.groups[f"blocks, {name}"], name)
    _policies(axis.axhline, found)
    axis.set(xlabel="blocks k of block-diagonal-k", ylabel="held-out success")
    axis.legend(fontsize="small")
    return figure


def _sweeps(found: Found, settings: Settings) -> Figure:
    figure = Figure(figsize=(10, 6))
    first, second, third, fourth = figure.subplots(2, 2, sharey=True).flat
    for axis, name, label in (
        (first, "replications", "replications m_CMA"),
        (second, "population", "population lambda"),
    ):
        for kind in ("equal generations", "equal episodes", "paper"):
            shown = f"raw, sigma0 = {settings.learning.sigma0}" if kind == "paper" else kind
            _line(axis, found, found.groups[f"{name}, {kind}"], shown)
        axis.set(xlabel=label)
        axis.set_xscale("log", base=2)
    for name in ("centred", "raw"):
        _line(third, found, found.groups[f"sigma0, {name}"], name)
    third.set(xlabel="sigma0", xscale="log")
    calls = found.groups["calls"]
    _line(fourth, found, calls, "evolved")
    best = [found.ceiling(arm) for arm in calls.values()]
    fourth.plot(list(map(int, calls)), [one.fixed for one in best], "k--", lw=1, label="best fixed policy")
    fourth.plot(list(map(int, calls)), [one.per_kind for one in best], "k:", lw=1, label="best per kind")
    fourth.set(xlabel="calls K")
    for axis in (first, second, third, fourth):
        if axis is not fourth:
            _policies(axis.axhline, found)
        axis.set_ylabel("held-out success")
        axis.legend(fontsize="x-small")
    return figure


def _parts(found: Found) -> Figure:
    panels = {"protocol": {label: found.success(arm) for label, arm in found.groups["protocol"].items()}}
    for name, title in (("centred", "read position"), ("paper", "read position, paper's setting")):
        if arms := found.groups.get(f"position, {name}"):
            panels[title] = {f"token {at}": found.success(arm) for at, arm in arms.items()}
    if found.long:
        panels["singular-value scales"] = {one: over_seeds(found.scaled(one)) for one in ("none", "layer")}
    figure = Figure(figsize=(6, 0.7 + 0.35 * sum(len(rows) + 2 for rows in panels.values())))
    heights = [len(rows) + 1 for rows in panels.values()]
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (title, rows) in zip(axes, panels.items(), strict=True):
        _dots(axis, rows)
        axis.invert_yaxis()
        axis.set_title(title, fontsize="small", loc="left")
    axes[-1].set_xlabel("held-out success")
    return figure


def _dots(axis: Axes, rows: Mapping[str, Estimate]) -> None:
    means, lows, highs = np.array(list(rows.values())).T
    axis.errorbar(means, np.arange(len(rows)), xerr=[means - lows, highs - means], fmt="o", capsize=3)
    axis.set_yticks(np.arange(len(rows)), list(rows))
    axis.grid(axis="x", lw=0.3)
    axis.margins(y=0.2)


def _line(axis: Axes, found: Found, arms: Mapping[str, Arm], label: str) -> None:
    means, lows, highs = np.array([found.success(arm) for arm in arms.values()]).T
    axis.errorbar(list(map(float, arms)), means, [means - lows, highs - means], fmt="o-", capsize=2, label=label)


def _policies(line, found: Found) -> None:
    line(found.reference.fixed, color="grey", ls="--", lw=1, label="best fixed policy")
    line(found.reference.per_kind, color="grey", ls=":", lw=1, label="best per kind")
