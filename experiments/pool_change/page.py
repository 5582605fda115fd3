"""The study's page: what was reached, in sentences computed from the run."""

from typing import TYPE_CHECKING

import numpy as np

from experiments.pool_change.settings import Settings
from experiments.pool_change.ways import at_calls
from experiments.recorded.outcomes import Outcomes
from experiments.recorded.scores import macro, macro_interval
from experiments.results import markdown, over_seeds, show
from trinity_jax.evaluation.intervals import Estimate

if TYPE_CHECKING:
    from experiments.pool_change.recorded import Replaced
    from experiments.pool_change.study import Change

SHARE = 0.05
"""Of full retraining's calls."""


def write(
    settings: Settings,
    changes: list["Change"],
    recorded: dict[str, tuple[Outcomes, list["Replaced"]]],
    why: str,
    profile_n: int,
) -> str:
    """The whole page."""
    matters = [one for one in changes if one.gain.mean() >= settings.least_gain]
    parts = [_head(settings, changes), "## When is each enough?", _verdict(settings, changes, matters, profile_n)]
    parts += ["## A model joins", _joins(settings, changes), "## A model leaves", _leaves(changes)]
    parts += ["## Profile head on the old pool", _old_pool(changes)]
    for pool, (outcomes, rows) in recorded.items():
        parts += [f"## Recorded outcomes: {pool}", _recorded(settings, outcomes, rows)]
    if not recorded:
        parts += ["## Recorded outcomes", f"Left out: {why}."]
    return "\n\n".join(parts)


def _head(settings: Settings, changes: list["Change"]) -> str:
    world, ours = settings.world, settings.new_row
    states = "synthetic states" if world.states == "synthetic" else "hidden states of a real encoder"
    return (
        "# When the pool changes\n\n"
        f"Jitted tri-role world, {states}, {world.train} training and {world.held_out} held-out questions, "
        f"K = {world.max_calls}, {settings.seeds} seeds; simulated models. Success is the exact held-out expectation "
        "under the largest logits; intervals (95 %, t) are over seeds. Every model of every pool is left out in turn. "
        "Gain is full retraining with the model minus the coordinator trained without it. Calls are paid calls since "
        f"the change; full retraining takes {np.mean([one.full.calls[:, -1].mean() for one in changes]):,.0f} on "
        f"average. A new row costs {ours.samples} answers of the newcomer to each training question, {ours.looks} "
        f"episodes a question, and {ours.evolution.generations} generations of {ours.evolution.population} candidates "
        "in which nothing but that row and the role rows moves. The old models' answers to the same questions "
        f"({ours.samples} each) are taken to be known and are not counted: a profile is kept with the coordinator, and "
        f"a training run's journal holds many. Where they are not, they cost {world.train * ours.samples:,} calls a "
        "model more. The profile head is diag(b) R: R turns a model's answers to the anchors (the training questions, "
        f"{ours.samples} times each) into its row by ridge regression, b and the role rows are evolved on the old pool."
    )


def _verdict(settings: Settings, changes: list["Change"], matters: list["Change"], profile_n: int) -> str:
    lines = []
    if matters:
        shares = [_share(one, one.part(SHARE)) for one in matters]
        good = sum(share >= 0.9 for share in shares)
        lines.append(
            f"- **New row**, for at most {SHARE:.0%} of full retraining's calls: {np.mean(shares):.0%} of its gain on "
            f"average over the {len(matters)} cases in which the model matters (gain >= {settings.least_gain}); at "
            f"least 90 % in {good} of {len(matters)} (least {min(shares):.0%}, {_name(matters, shares, min)})."
            f"{_why_row(good == len(matters))}"
        )
        for pool in dict.fromkeys(one.pool for one in matters):
            own = [(one, share) for one, share in zip(matters, shares, strict=True) if one.pool == pool]
            mean = sum(one.gain.mean() * share for one, share in own) / sum(one.gain.mean() for one, _ in own)
            met = "reached" if mean >= 0.9 else "missed"
            lines.append(f"  - {pool}: {mean:.0%} of the gain over its {len(own)} cases (90 % {met}).")
        halves = [_share(one, one.profile) for one in matters]
        good = sum(share >= 0.5 for share in halves)
        lines.append(
            f"- **Profile head** (n = {profile_n}), for a model it never saw, with no call beyond the anchors "
            f"({matters[0].anchors}): {np.mean(halves):.0%} of the gain on average; at least half in {good} of "
            f"{len(matters)} (least {min(halves):.0%}, {_name(matters, halves, min)})."
        )
    else:
        lines.append("- No model matters here: no retraining gains as much as it takes to count.")
    old = [100 * float((one.profile_old - one.old).mean()) for one in changes]
    worst = min(range(len(changes)), key=lambda i: old[i])
    lines.append(
        f"- On the old pools the profile head is {np.mean(old):+.1f} points from the linear head on average; more than "
        f"one point below it in {sum(value < -1 for value in old)} of {len(old)} cases (worst {old[worst]:+.1f}, "
        f"{changes[worst].pool} without {changes[worst].model})."
    )
    mask = [100 * float((one.masked - one.old).mean()) for one in changes]
    below = sum(value < -1 for value in mask)
    lines.append(
        f"- **Mask**, for no call: {np.mean(mask):+.1f} points from retraining without the model on average; within "
        f"one point or better in {len(mask) - below} of {len(mask)} cases (worst {min(mask):+.1f}).{_why_mask(below)}"
    )
    lines += [f"- After {calls:,} calls: {_after(matters or changes, calls)}" for calls in settings.budgets]
    return "\n".join(lines)


def _why_row(reached: bool) -> str:
    if reached:
        return ""
    return (
        " Where it falls short, the frozen rows are the reason: an evolved head's logits are large and their maximum "
        "is convex, and one more linear row that has to lie above it on some states and below it on others is learnt "
        "from noisy answers to few questions."
    )


def _why_mask(below: int) -> str:
    if not below:
        return ""
    return (
        " A row that never won a question was never selected to be second there: what is left after a mask is an "
        "order that training did not see."
    )


def _after(changes: list["Change"], calls: int) -> str:
    """What is best at so many calls, by the mean over cases."""
    found = {"going on without": np.mean([one.old.mean() for one in changes])}
    if calls:
        found["a new row"] = np.mean([at_calls(one.row, calls).mean() for one in changes])
    full = [at_calls(one.full, calls).mean() for one in changes]
    if np.isfinite(full).all():
        found["full retraining"] = np.mean(full)
    if all(one.anchors <= calls for one in changes):
        found["a profile head"] = np.mean([one.profile.mean() for one in changes])
    best = max(found, key=lambda way: found[way])
    return ", ".join(f"{way} {value:.3f}" for way, value in found.items()) + f"; best is {best}."


def _joins(settings: Settings, changes: list["Change"]) -> str:
    header = ["pool", "model", "without", "gain", *(f"row, {calls:,} calls" for calls in settings.budgets if calls)]
    header += [f"row, {SHARE:.0%} of full", "of the gain", "profile head", "of the gain"]
    header += [f"full, {calls:,} calls" for calls in settings.budgets if calls >= 1000] + ["full", "its calls"]
    rows = []
    for one in changes:
        part, matters = one.part(SHARE), one.gain.mean() >= settings.least_gain
        row = [one.pool, one.model, show(over_seeds(one.old)), show(over_seeds(one.gain), sign=True)]
        row += [_known(at_calls(one.row, calls)) for calls in settings.budgets if calls]
        row += [show(over_seeds(part)), f"{_share(one, part):.0%}" if matters else "-"]
        row += [show(over_seeds(one.profile)), f"{_share(one, one.profile):.0%}" if matters else "-"]
        row += [_known(at_calls(one.full, calls)) for calls in settings.budgets if calls >= 1000]
        rows.append([*row, show(over_seeds(one.full.success[:, -1])), f"{one.full.calls[:, -1].mean():,.0f}"])
    return markdown(header, rows)


def _leaves(changes: list["Change"]) -> str:
    rows = [
        [one.pool, one.model, show(over_seeds(one.masked)), show(over_seeds(one.old)), _points(one.masked - one.old)]
        for one in changes
    ]
    return markdown(["pool", "who leaves", "masked", "retrained", "difference, points"], rows)


def _old_pool(changes: list["Change"]) -> str:
    rows = [
        [one.pool, one.model, show(over_seeds(one.profile_old)), show(over_seeds(one.old)), _points(difference)]
        for one, difference in ((one, one.profile_old - one.old) for one in changes)
    ]
    return markdown(["pool", "without", "profile head", "linear head", "difference, points"], rows)


def _recorded(settings: Settings, outcomes: Outcomes, rows: list["Replaced"]) -> str:
    task, ours = outcomes.task[~outcomes.train], settings.recorded

    def difference(one: np.ndarray, other: np.ndarray) -> str:
        found = macro_interval((one - other).mean(axis=0), task, ours.bootstrap, settings.seed)
        return show(Estimate(*(100 * value for value in found)), 2, sign=True)

    budgets = [calls for calls in settings.budgets if calls]
    header = ["model", "without", "full - without", "masked - without"]
    header += [f"row, {calls:,} calls - without" for calls in budgets]
    header += [f"full on {calls:,} outcomes - without" for calls in budgets]
    header += [f"profile ({ours.anchors} anchors) - without", "profile - linear, old pool"]
    lines = []
    for one in rows:
        line = [one.model, f"{100 * macro(one.old.mean(axis=0), task):.2f}"]
        line += [difference(one.full, one.old), difference(one.masked, one.old)]
        line += [difference(one.row[calls], one.old) for calls in budgets]
        line += [difference(one.retrained[calls], one.old) for calls in budgets]
        lines.append([*line, difference(one.profile, one.old), difference(one.profile_old, one.old)])
    said = (
        f"{int(outcomes.train.sum())} prompts to learn from, {len(task)} to judge on; mean over tasks, percent. One "
        "model is left out and added back; differences are paired by prompt, with 95 % intervals (bootstrap within "
        f"tasks), mean of {settings.seeds} seeds. A call is one recorded outcome; a new row pays for the newcomer's "
        "alone, full retraining for every model's."
    )
    return said + "\n\n" + markdown(header, lines)


def _share(one: "Change", success: np.ndarray) -> float:
    """Of the gain, by means over seeds."""
    return float((success - one.old).mean() / one.gain.mean())


def _name(changes: list["Change"], values: list[float], which) -> str:
    one = changes[values.index(which(values))]
    return f"{one.pool}, {one.model}"


def _points(values: np.ndarray) -> str:
    return show(over_seeds(100 * values), 1, sign=True)


def _known(values: np.ndarray) -> str:
    return show(over_seeds(values)) if np.isfinite(values).all() else "start costs more"
