"""The study's page: tables by pool, and what they say."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.results import markdown, over_seeds, show
from experiments.sample_efficiency.curves import Curves
from experiments.sample_efficiency.settings import Settings
from trinity_jax.world.value import Attainable

FRACTIONS = (1 / 30, 1 / 5, 1.0)
"""Budgets, in parts of the reference's calls."""


class Arm(NamedTuple):
    """One recipe on one pool; ``calls_to`` is for 80 and 90 %, ``at`` for `FRACTIONS`."""

    curves: Curves
    success: Float[np.ndarray, "S G+1"]
    calls_to: tuple[Float[np.ndarray, " S"], ...]
    at: tuple[Float[np.ndarray, " S"], ...]


class PoolResult(NamedTuple):
    """All recipes on one pool; ``budget`` is the calls of the reference recipe in all."""

    name: str
    attainable: Attainable
    budget: float
    arms: dict[str, Arm]


def write(settings: Settings, pools: list[PoolResult]) -> str:
    """The whole page."""
    parts = [_head(settings, pools)]
    parts += [_verdict(settings, pool) for pool in pools]
    parts.append(_best(settings, pools))
    parts += [_table(settings, pool) for pool in pools]
    parts.append("## Recipes\n\n" + "\n".join(f"- `{name}`: {settings.recipes[name].note}" for name in settings.names))
    return "\n\n".join(parts)


def _head(settings: Settings, pools: list[PoolResult]) -> str:
    world = settings.world
    states = (
        "synthetic states (Gaussian clusters)" if world.states == "synthetic" else "hidden states of a real encoder"
    )
    return (
        "# Paid calls for the same coordinator\n\n"
        f"Jitted tri-role world, {states}, {world.train} training and {world.held_out} held-out questions of "
        f"{len(world.mix)} kinds, K = {world.max_calls}, {settings.seeds} seeds. Models are simulated. Success is the "
        "exact held-out expectation for the deployed vector, not an estimate; intervals (95 %, t) are over seeds. "
        "Attainable is the best fixed tri-role policy of each kind minus the best single fixed one, both enumerated. "
        f"The yardstick is the number of calls that `{settings.reference}` pays for "
        f"({', '.join(f'{pool.name} {pool.budget:,.0f}' for pool in pools)}); it is judged by the better of sampled "
        "and greedy choices at each point, every other recipe by its own rule. A recipe has reached a level when it "
        "first gets there; later points may lie lower (see the curves)."
    )


def _verdict(settings: Settings, pool: PoolResult) -> str:
    found, arm = pool.attainable, pool.arms[settings.ours]
    head = f"## {pool.name}: best fixed {found.fixed:.3f}, best per kind {found.per_kind:.3f}, to gain {found.gain:.3f}"
    final = over_seeds(arm.success[:, -1] - found.fixed)
    if found.gain < settings.least_gain:
        harm = "not worse than" if final.low >= 0 else "within its interval of" if final.high >= 0 else "WORSE than"
        return (
            f"{head}\n\nLess than {settings.least_gain} to gain: `{settings.ours}` ends {harm} the best fixed policy, "
            f"{show(final, sign=True)}. No other claim is made here."
        )
    lines = []
    for share, calls in zip((0.8, 0.9), arm.calls_to, strict=True):
        reached = np.isfinite(calls)
        part = 5 if share == 0.8 else 30
        within = (calls <= pool.budget / part).mean()
        middle = f"median {np.median(calls):,.0f} calls" if np.isfinite(np.median(calls)) else "median never"
        median = float(np.median(calls))
        ratio = f", {_share(median / pool.budget)} the reference's" if np.isfinite(median) else ""
        lines.append(
            f"- {share:.0%} of the gain: {middle}{ratio}; reached by {reached.mean():.0%} of the seeds, by "
            f"{within:.0%} within 1/{part} of the reference's calls."
        )
    reference = pool.arms[settings.reference]
    got = over_seeds((reference.success[:, -1] - found.fixed) / found.gain)
    lines.append(f"- The reference itself ends at {show(got, 2, sign=True)} of the gain.")
    lines.append(f"- `{settings.ours}` against the best fixed policy at the end: {show(final, sign=True)}.")
    return head + "\n\n" + "\n".join(lines)


def _best(settings: Settings, pools: list[PoolResult]) -> str:
    """Which recipe needs the fewest calls, by the median over seeds of the calls to 80 %."""
    lines = ["## Which is best\n"]
    for pool in pools:
        if pool.attainable.gain < settings.least_gain:
            continue
        medians = {name: float(np.median(arm.calls_to[0])) for name, arm in pool.arms.items()}
        order = sorted((name for name in medians if np.isfinite(medians[name])), key=medians.__getitem__)
        listed = ", ".join(f"`{name}` {medians[name]:,.0f}" for name in order) or "none"
        lines.append(f"- {pool.name}: median calls to 80 %, fewest first: {listed}.{_at_a_fifth(settings, pool)}")
    return "\n".join(lines)


def _at_a_fifth(settings: Settings, pool: PoolResult) -> str:
    """The best of those that have begun by then."""
    at = {name: float(arm.at[1].mean()) for name, arm in pool.arms.items() if np.isfinite(arm.at[1]).all()}
    if not at:
        return ""
    best = max(at, key=at.__getitem__)
    ours = f"; `{settings.ours}` {at[settings.ours]:.3f}" if settings.ours in at else ""
    return f" Highest mean success at 1/5 of the reference's calls: `{best}` ({at[best]:.3f}{ours})."


def _table(settings: Settings, pool: PoolResult) -> str:
    rows = []
    for name, arm in pool.arms.items():
        at = [show(over_seeds(values)) if np.isfinite(values).all() else "start costs more" for values in arm.at]
        needed = [_needed(calls) for calls in arm.calls_to]
        rows.append([name, arm.curves.n, *needed, *at, f"{arm.curves.calls[:, -1].mean():,.0f}"])
    header = ["recipe", "n", "calls to 80 % (seeds)", "calls to 90 % (seeds)"]
    header += ["success at 1/30", "at 1/5", "at 1", "calls in all"]
    return f"### {pool.name}\n\n" + markdown(header, rows)


def _share(part: float) -> str:
    """``1/6 of``, or how many times."""
    return f"1/{1 / part:.0f} of" if part <= 0.5 else f"{part:.2f} times"


def _needed(calls: Float[np.ndarray, " S"]) -> str:
    middle, reached = np.median(calls), np.isfinite(calls).mean()
    return f"{middle:,.0f} ({reached:.0%})" if np.isfinite(middle) else f"- ({reached:.0%})"
