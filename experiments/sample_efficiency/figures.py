"""Figures of the study."""

import numpy as np
from matplotlib.figure import Figure

from experiments.results import over_seeds
from experiments.sample_efficiency.page import PoolResult
from experiments.sample_efficiency.settings import Settings


def success_by_calls(settings: Settings, pool: PoolResult) -> Figure:
    """Mean held-out success against calls paid, with 95 % intervals over seeds, one curve a recipe."""
    figure = Figure(figsize=(8, 5))
    axes = figure.subplots()
    for number, (name, arm) in enumerate(pool.arms.items()):
        calls = arm.curves.calls.mean(axis=0)
        mean, low, high = np.array([over_seeds(column) for column in arm.success.T]).T
        colour = f"C{number % 10}"
        if len(calls) == 1:
            axes.errorbar(calls, mean, [mean - low, high - mean], fmt="s", color=colour, label=name, capsize=3)
            continue
        axes.plot(calls, mean, color=colour, label=name, lw=2.5 if name == settings.ours else 1.2)
        axes.fill_between(calls, low, high, color=colour, alpha=0.15, lw=0)
    found = pool.attainable
    axes.axhline(found.fixed, color="0.3", ls="--", lw=1, label="best fixed policy")
    axes.axhline(found.per_kind, color="0.3", ls=":", lw=1, label="best per kind")
    axes.axhline(found.fixed + 0.8 * found.gain, color="0.7", lw=0.8, label="80 % of the gain")
    for part in (5, 30):
        axes.axvline(pool.budget / part, color="0.85", lw=0.8)
        axes.text(pool.budget / part, axes.get_ylim()[0], f" 1/{part}", color="0.5", fontsize=8, va="bottom")
    axes.set(xscale="log", xlabel="calls paid", ylabel="held-out success", title=pool.name)
    axes.legend(fontsize=7, ncols=2)
    return figure


def calls_needed(settings: Settings, pools: list[PoolResult]) -> Figure:
    """Share of seeds that have reached 80 % of the gain, against calls as a share of the reference's."""
    shown = [pool for pool in pools if pool.attainable.gain >= settings.least_gain] or pools
    figure = Figure(figsize=(4 * len(shown), 3.6))
    for axes, pool in zip(np.atleast_1d(figure.subplots(1, len(shown), sharey=True)), shown, strict=True):
        for number, (name, arm) in enumerate(pool.arms.items()):
            calls = np.sort(arm.calls_to[0]) / pool.budget
            known = calls[np.isfinite(calls)]
            share = np.arange(1, len(known) + 1) / len(calls)
            x, y = np.r_[known, max(2.0, *known, 0.0)], np.r_[share, share[-1:] if len(share) else 0.0]
            if len(known):
                axes.step(x, y, where="post", color=f"C{number % 10}", label=name, lw=2 if name == settings.ours else 1)
        axes.axvline(1 / 5, color="0.8", lw=0.8)
        axes.set(xscale="log", xlabel="calls / the reference's", title=pool.name, ylim=(0, 1.02))
        axes.legend(fontsize=6)
    figure.axes[0].set_ylabel("share of seeds at 80 % of the gain")
    return figure
