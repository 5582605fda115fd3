"""Figures of the comparison: final success, learning curves, and which model is chosen for which kind."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.learners.arms import Arm, Ground
from experiments.results import over_seeds

_COLOURS = matplotlib.colormaps["tab10"].colors  # pyright: ignore[reportAttributeAccessIssue]


def draw(arms: Sequence[Arm], ground: Ground) -> dict[str, Figure]:
    """Figures by file name."""
    figures = {"success": _success(arms, ground), "curves": _curves(arms, ground)}
    for version in ("published", "tuned"):
        mine = [arm for arm in arms if arm.version == version and arm.runs.course is not None]
        if mine:
            figures[f"selection_{version}"] = _selection(mine, ground)
    return figures


def _colour(arms: Sequence[Arm], name: str) -> Any:
    return _COLOURS[list(dict.fromkeys(arm.name for arm in arms)).index(name) % len(_COLOURS)]


def _levels(ax: Axes, ground: Ground, vertical: bool) -> None:
    line = ax.axvline if vertical else ax.axhline
    for value, style, label in (
        (ground.bounds.per_kind, "-", "best policy for every kind"),
        (ground.bounds.fixed, "--", "best fixed policy"),
        (ground.uniform, ":", "uniform choices"),
    ):
        line(value, color="0.5", linestyle=style, linewidth=1, label=label)


def _success(arms: Sequence[Arm], ground: Ground) -> Figure:
    names = [arm.name for arm in arms if arm.version == "published"]
    figure = Figure(figsize=(7.5, 1.5 + 0.45 * len(names)))
    ax = figure.subplots()
    for version, shift, marker in (("published", -0.15, "o"), ("tuned", 0.15, "s")):
        for arm in (arm for arm in arms if arm.version == version):
            at, found = names.index(arm.name) + shift, over_seeds(arm.success)
            label = version if arm.name == names[0] else None
            colour = _COLOURS[0 if version == "published" else 1]
            ax.plot([found.low, found.high], [at, at], color=colour)
            ax.plot(found.mean, at, marker, color=colour, label=label)
    _levels(ax, ground, vertical=True)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("exact held-out success, mean and 95 % interval over seeds")
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3)
    return figure


def _curves(arms: Sequence[Arm], ground: Ground) -> Figure:
    figure = Figure(figsize=(11, 8))
    for row, version in zip(figure.subplots(2, 2, sharey=True), ("published", "tuned"), strict=True):
        for ax, axis in zip(row, ("episodes", "calls"), strict=True):
            for arm in (arm for arm in arms if arm.version == version):
                _curve(ax, arm, axis, _colour(arms, arm.name))
            _levels(ax, ground, vertical=False)
            ax.set_xscale("log")
            ax.set_xlabel(f"{axis} ({version})")
        row[0].set_ylabel("exact held-out success")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    return figure


def _curve(ax: Axes, arm: Arm, axis: str, colour: Any) -> None:
    course = arm.runs.course
    if course is None:
        found, x = over_seeds(arm.success), arm.episodes[-1] if axis == "episodes" else arm.calls.mean()
        ax.plot([x, x], [found.low, found.high], color=colour)
        ax.plot(x, found.mean, "o", color=colour, label=arm.name)
        return
    values = np.asarray(course.sampled if arm.rule == "sample" else course.greedy)
    known = np.isfinite(values).all(axis=0)
    x = arm.episodes if axis == "episodes" else arm.calls.mean(axis=0)
    found = [over_seeds(values[:, number]) for number in np.flatnonzero(known)]
    ax.plot(x[known], [one.mean for one in found], color=colour, label=arm.name)
    ax.fill_between(
        x[known], [one.low for one in found], [one.high for one in found], color=colour, alpha=0.15, linewidth=0
    )


def _selection(arms: Sequence[Arm], ground: Ground) -> Figure:
    """The paper's selection figure: chance of each model at the first turn, by kind, while learning."""
    figure = Figure(figsize=(2.4 * len(ground.kinds) + 1, 1.3 * len(arms) + 1))
    axes = figure.subplots(len(arms), len(ground.kinds), sharex=True, sharey=True, squeeze=False)
    for row, arm in zip(axes, arms, strict=True):
        assert arm.runs.course is not None
        first = np.asarray(arm.runs.course.first).mean(axis=0)  # [G, kinds, L]
        known = np.isfinite(first).all(axis=(1, 2))
        for number, (ax, kind) in enumerate(zip(row, ground.kinds, strict=True)):
            ax.stackplot(arm.episodes[known], first[known, number].T, labels=ground.models)
            ax.set_ylim(0, 1)
            ax.margins(x=0)
            if arm is arms[0]:
                ax.set_title(kind, fontsize=9)
        row[0].set_ylabel(arm.name, fontsize=7)
    axes[-1, 0].set_xlabel("episodes")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(ground.models), fontsize=8)
    return figure
