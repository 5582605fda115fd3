"""Figures of the study of pool changes."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from experiments.pool_change.settings import Settings
from experiments.recorded.outcomes import Outcomes
from experiments.recorded.scores import macro
from experiments.results import over_seeds

if TYPE_CHECKING:
    from experiments.pool_change.recorded import Replaced
    from experiments.pool_change.study import Change


def by_calls(settings: Settings, changes: list["Change"]) -> Figure:
    """Success by calls paid since a model joined: one panel a pool and model that matters most there."""
    shown = []
    for pool in settings.pools:
        own = [one for one in changes if one.pool == pool]
        shown.append(max(own, key=lambda one: one.gain.mean()))
    figure = Figure(figsize=(4.2 * len(shown), 3.8))
    for axes, one in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown, strict=True):
        for label, curve, colour in (("full retraining", one.full, "C0"), ("new row", one.row, "C3")):
            mean, low, high = np.array([over_seeds(column) for column in curve.success.T]).T
            calls = np.maximum(curve.calls.mean(axis=0), 10)  # a logarithmic axis has no zero
            axes.plot(calls, mean, colour, marker=".", label=label)
            axes.fill_between(calls, low, high, color=colour, alpha=0.15, lw=0)
        levels = (
            ("mask (goes on without)", one.old, "0.4", ":"),
            ("profile head, never saw it", one.profile, "C2", "--"),
        )
        for label, values, colour, style in levels:
            axes.axhline(values.mean(), color=colour, ls=style, label=label)
        axes.axvline(0.05 * one.full.calls[:, -1].mean(), color="0.85", lw=1)
        axes.set(xscale="log", xlabel="calls paid since", title=f"{one.pool}: {one.model} joins")
        axes.legend(fontsize=7)
    figure.axes[0].set_ylabel("held-out success")
    return figure


def masks(changes: list["Change"]) -> Figure:
    """Masking each model against retraining without it."""
    figure = Figure(figsize=(8, 0.28 * len(changes) + 1.2))
    axes = figure.subplots()
    found = np.array([over_seeds(100 * (one.masked - one.old)) for one in changes])
    places = np.arange(len(changes))[::-1]
    error = np.abs(found[:, 1:].T - found[:, 0])
    axes.errorbar(found[:, 0], places, xerr=error, fmt="o", capsize=3)
    axes.axvspan(-1, 1, color="0.9")
    axes.set(yticks=places, yticklabels=[f"{one.pool}: {one.model}" for one in changes])
    axes.set(xlabel="masked - retrained without it, points")
    return figure


def recorded(settings: Settings, found: dict[str, tuple[Outcomes, list["Replaced"]]]) -> Figure:
    """Each real model left out and added back: accuracy against that of full retraining."""
    figure = Figure(figsize=(6 * len(found), 4.5))
    for axes, (pool, (outcomes, rows)) in zip(
        np.atleast_1d(figure.subplots(1, len(found))), found.items(), strict=True
    ):
        task = outcomes.task[~outcomes.train]
        places = np.arange(len(rows))
        ways = {"old": [one.old for one in rows], "profile head": [one.profile for one in rows]}
        ways |= {f"new row, {calls}": [one.row[calls] for one in rows] for calls in settings.budgets if calls}
        ways["full retraining"] = [one.full for one in rows]
        for number, (way, values) in enumerate(ways.items()):
            right = [100 * macro(rewards.mean(axis=0), task) for rewards in values]
            axes.plot(places + 0.08 * number, right, "o", label=way)
        axes.set(xticks=places, ylabel="right on the test half, %", title=pool)
        axes.set_xticklabels([one.model for one in rows], rotation=30, ha="right", fontsize=7)
        axes.legend(fontsize=7)
    return figure
