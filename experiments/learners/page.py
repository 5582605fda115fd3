"""results.md: what came out, in words that follow from this run's numbers."""

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np

from experiments.learners.arms import Arm, Ground, Trial, Version
from experiments.learners.settings import Settings
from experiments.results import markdown, over_seeds, show

PAPER = {
    "sep_cma_es": "sep-CMA-ES",
    "sft": "SFT",
    "random_search_uniform": "random search",
    "reinforce": "REINFORCE",
}
"""The paper's four, best first."""


def text(settings: Settings, ground: Ground, arms: Sequence[Arm], trials: Mapping[str, Sequence[Trial]]) -> str:
    """The page."""
    published, tuned = ([arm for arm in arms if arm.version == version] for version in ("published", "tuned"))
    parts = [
        f"# Learners at {settings.episodes:,} episodes each",
        _world(settings, ground),
        "## As published",
        "In raw coordinates. The deployed vector samples its choices, as in the released code; *greedy* is the same "
        "vector with its largest logits. What the paper does not state is in the config file, with a word on it.",
        _table(published, ground),
        "## Tuned",
        _tuning(settings, trials),
        _table(tuned, ground),
        "## Ranking",
        _ranking("published", published),
        _ranking("tuned", tuned),
        *_paper(published, tuned),
        _moved(published, tuned),
        "## What else can be read off",
        *_notes(settings, ground, published, tuned),
        "Figures: `success` (both tables), `curves` (held-out success by episodes and by calls), `selection_published` "
        "and `selection_tuned` (which model is chosen first, by kind, while learning: the paper's figure).",
    ]
    return "\n\n".join(part for part in parts if part)


def _world(settings: Settings, ground: Ground) -> str:
    world, bounds = settings.world, ground.bounds
    by_kind = "; ".join(f"{kind}: {_policy(ground, policy)}" for kind, policy in bounds.by_kind.items())
    states = f"{world.states} states" + ("" if world.states == "encoder" else f" of width {world.synthetic.width}")
    return (
        f"{len(ground.models)} models and three roles, K = {world.max_calls}, {world.train} training and "
        f"{world.held_out} held-out questions of {len(ground.kinds)} kinds, {states}. All values are exact "
        f"expectations on the held-out questions, means over {settings.seeds} seeds with 95 % intervals; seeds vary a "
        "learner's luck, questions and states stay the same.\n\n"
        f"Uniform choices succeed with {ground.uniform:.3f}; the best fixed policy with {bounds.fixed:.3f} "
        f"({_policy(ground, bounds.policy)}); the best for every kind with {bounds.per_kind:.3f} ({by_kind}). "
        f"*Regret* is {bounds.per_kind:.3f} minus success."
    )


def _policy(ground: Ground, policy) -> str:
    thinker = "" if policy.thinker is None else f"{ground.models[policy.thinker]} thinks, "
    return f"{thinker}{ground.models[policy.worker]} works, {ground.models[policy.verifier]} verifies"


def _table(arms: Sequence[Arm], ground: Ground) -> str:
    rows = []
    for arm in sorted(arms, key=lambda arm: -arm.success.mean()):
        sampled, greedy = (over_seeds(arm.runs.held_out[:, which]) for which in (0, 1))
        rows.append(
            [
                arm.name,
                f"{arm.readout}, {arm.step_name} {arm.step:g}",
                arm.n,
                "" if np.isnan(arm.adapted) else f"{arm.adapted:.3f}",
                arm.rule,
                show(over_seeds(arm.success)),
                show(sampled),
                show(greedy),
                show(over_seeds(ground.bounds.per_kind - arm.success)),
                f"{arm.runs.calls.mean():,.0f}",
            ]
        )
    header = ["learner", "setting", "n", "c_mu T", "rule", "success", "sampled", "greedy", "regret", "calls made"]
    return markdown(header, rows)


def _tuning(settings: Settings, trials: Mapping[str, Sequence[Trial]]) -> str:
    count = len(next(iter(trials.values())))
    lines = (
        f"{count} trials of every learner: coordinates and the one number that sets its step, {settings.tuning_seeds} "
        "seeds each, apart from those below. The best by exact success on the training questions was taken, with the "
        "better of sampling and largest logits. The trials' own episodes are not counted."
    )
    edges = [
        name
        for name, mine in trials.items()
        if (best := max(mine, key=lambda trial: trial.train.max()))
        and (steps := [trial.step for trial in mine if trial.readout == best.readout])
        and len(steps) > 1
        and best.step in (min(steps), max(steps))
    ]
    if edges:
        lines += f" The best step was the smallest or largest tried for {', '.join(edges)}: more may be in them."
    return lines


def clearly(better: Arm, worse: Arm) -> int:
    """1 if the first is better, -1 if it is worse, 0 if the 95 % interval of the difference contains 0."""
    difference = over_seeds(better.success - worse.success)
    return int(difference.low > 0) - int(difference.high < 0)


def _ranking(version: Version, arms: Sequence[Arm]) -> str:
    ordered = sorted(arms, key=lambda arm: -arm.success.mean())
    line = ordered[0].name
    for above, below in pairwise(ordered):
        line += f" {'>' if clearly(above, below) > 0 else '~'} {below.name}"
    return f"**{version}**: {line} (`~`: the interval of the difference to the next contains 0)."


def _paper(published: Sequence[Arm], tuned: Sequence[Arm]) -> list[str]:
    names = [name for name in PAPER if any(arm.name == name for arm in published)]
    if len(names) < 2:
        return []
    lines = []
    for version, arms in (("published", published), ("tuned", tuned)):
        mine = {arm.name: arm for arm in arms}
        pairs = {(one, two): clearly(mine[one], mine[two]) for one, two in combinations(names, 2)}
        told = [
            f"{len(found)} {word}"
            + (f" ({', '.join(f'{PAPER[a]} over {PAPER[b]}' for a, b in found)})" if found else "")
            for word, sign in (("as in the paper", 1), ("the other way round", -1), ("undecided", 0))
            for found in [[pair for pair, value in pairs.items() if value == sign]]
        ]
        order = sorted(names, key=lambda name: -mine[name].success.mean())
        lines.append(
            f"Of the {len(pairs)} pairs of the paper's order ({' > '.join(PAPER[name] for name in names)}), {version}: "
            f"{'; '.join(told)}. Here: {' > '.join(PAPER[name] for name in order)} by the mean."
        )
    return lines


def _moved(published: Sequence[Arm], tuned: Sequence[Arm]) -> str:
    before, after = ({arm.name: arm for arm in arms} for arms in (published, tuned))
    pairs = list(combinations(before, 2))
    turned = [
        (one, two) for one, two in pairs if clearly(before[one], before[two]) * clearly(after[one], after[two]) == -1
    ]
    if not turned:
        return f"None of the {len(pairs)} pairs of learners clearly changes its order between the two tables."
    told = ", ".join(f"{one} and {two}" for one, two in turned)
    return (
        f"**The ranking depends on the settings**: {len(turned)} of {len(pairs)} pairs of learners clearly change "
        f"their order between the two tables ({told})."
    )


def _notes(settings: Settings, ground: Ground, published: Sequence[Arm], tuned: Sequence[Arm]) -> list[str]:
    notes = []
    for version, arms in (("published", published), ("tuned", tuned)):
        mine = {arm.name: arm for arm in arms}
        if "sep_cma_es" in mine and "isotropic_es" in mine:
            sep, control = mine["sep_cma_es"], mine["isotropic_es"]
            gap = show(over_seeds(sep.success - control.success), sign=True)
            word = {1: "adapting the diagonal helped", 0: "no difference is seen", -1: "adapting the diagonal hurt"}
            notes.append(
                f"- sep-CMA-ES minus the isotropic control, {version}: {gap}; {word[clearly(sep, control)]} "
                f"(c_mu T = {sep.adapted:.3f}; below 0.1 the diagonal cannot have adapted)."
            )
    beaten = [arm.name for arm in published if over_seeds(arm.success).high < ground.bounds.fixed]
    passed = [arm.name for arm in published if over_seeds(arm.success).low > ground.bounds.fixed]
    notes.append(
        f"- As published, {_names(passed)} end clearly above the best fixed policy, {_names(beaten)} clearly below it."
    )
    reached = [arm.name for arm in tuned if over_seeds(arm.success).low > ground.bounds.fixed]
    near = [arm.name for arm in tuned if arm.success.mean() >= ground.bounds.fixed + 0.9 * ground.bounds.gain]
    notes.append(
        f"- Tuned, {_names(reached)} end clearly above the best fixed policy; {_names(near)} reach 90 % of the "
        f"attainable gain of {ground.bounds.gain:.3f} by the mean."
    )
    gains = {
        arm.name: over_seeds(arm.success - other.success)
        for arm in tuned
        for other in published
        if other.name == arm.name
    }
    most = max(gains, key=lambda name: abs(gains[name].mean))
    notes.append(f"- Tuning changed most for {most}: {show(gains[most], sign=True)}.")
    told = [
        f"{before.name} {before.episodes[-1]:,} as published and {after.episodes[-1]:,} tuned"
        for before in published
        for after in tuned
        if before.name == after.name in ("sft", "ridge")
    ]
    if told:
        notes.append(
            "- SFT and ridge fit the models' rows only: their roles are uniform when choices are sampled, and always "
            f"Worker with the largest logits. They play no episodes but learn from single calls: {', '.join(told)}."
        )
    return notes


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"
