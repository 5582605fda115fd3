"""Figures and text of the study of recorded outcomes; accuracies in percent."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from experiments.recorded.names import EVOLVED, ORACLE, PER_TASK, SINGLE
from experiments.recorded.scores import macro, macro_interval
from experiments.recorded.settings import Settings
from experiments.results import Results, markdown, show
from trinity_jax.evaluation.intervals import Estimate

if TYPE_CHECKING:
    from experiments.recorded.study import Judged, Policy


def interval(values: Float[np.ndarray, " n"], task: Int[np.ndarray, " n"], settings: Settings) -> Estimate:
    """Mean over tasks with its interval."""
    return macro_interval(values, task, settings.bootstrap, settings.seed)


def figures(judged: Sequence["Judged"], settings: Settings, results: Results) -> None:
    """Accuracies on the test half, the head's choices by task, accuracies in cross-validation."""
    results.figure("accuracy", _accuracies(judged, settings))
    results.figure("choices", _choices(judged))
    results.figure("cross_validation", _validation(judged))


def _accuracies(judged: Sequence["Judged"], settings: Settings) -> Figure:
    figure = Figure(figsize=(9, 3.2 * len(judged)))
    for axis, one in zip(figure.subplots(len(judged), 1, squeeze=False).flat, judged, strict=True):
        found = [
            _percent(interval(policy.rewards.mean(0), one.test.task, settings)) for policy in one.policies.values()
        ]
        mean, low, high = np.array(found).T
        places = np.arange(len(found))[::-1]
        colours = ["C3" if name == EVOLVED else "C0" for name in one.policies]
        axis.errorbar(mean, places, xerr=[mean - low, high - mean], fmt="none", ecolor="grey", capsize=3)
        axis.scatter(mean, places, color=colours, zorder=3)
        axis.axvline(mean[list(one.policies).index(SINGLE)], color="grey", ls=":")
        axis.set(yticks=places, yticklabels=list(one.policies), title=one.pool, xlabel="right on the test half, %")
    return figure


def _choices(judged: Sequence["Judged"]) -> Figure:
    """Which models the evolved head asks, by task, mean over seeds."""
    figure = Figure(figsize=(9, 2.6 * len(judged)))
    for axis, one in zip(figure.subplots(len(judged), 1, squeeze=False).flat, judged, strict=True):
        shares, left = one.unguarded[EVOLVED].shares, np.zeros(len(one.test.tasks))
        assert shares is not None
        for model, name in enumerate(one.test.models):
            axis.barh(one.test.tasks, shares[:, model], left=left, label=name)
            left = left + shares[:, model]
        axis.set(title=one.pool, xlabel=f"share of prompts ({EVOLVED}, before any fall-back)", xlim=(0, 1))
        axis.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _validation(judged: Sequence["Judged"]) -> Figure:
    figure = Figure(figsize=(9, 3.2 * len(judged)))
    for axis, one in zip(figure.subplots(len(judged), 1, squeeze=False).flat, judged, strict=True):
        found = one.selected[EVOLVED]
        layers, values = ({getattr(option, key) for option in found.means} for key in ("layer", "value"))
        for colour, layer in enumerate(sorted(layers)):
            for style, value in zip(("-", "--", ":", "-."), sorted(values), strict=False):
                line = {o.k: 100 * mean for o, mean in found.means.items() if (o.layer, o.value) == (layer, value)}
                axis.plot(
                    *zip(*sorted(line.items()), strict=True), f"C{colour}{style}", label=f"layer {layer}, {value:g}"
                )
        axis.axhline(100 * found.single, color="grey", label=SINGLE)
        axis.set(
            title=one.pool,
            xlabel="whitened directions k",
            ylabel="right in cross-validation, %",
        )
        axis.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def text(judged: Sequence["Judged"], settings: Settings, cut: int) -> str:
    """results.md."""
    ours = settings.evolved.learning
    first = judged[0]
    parts = [
        "# Recorded outcomes: which model to ask first",
        f"""{first.seen} prompts to learn from, {len(first.test.ids)} to judge on ({", ".join(first.test.tasks)}).
        Metric: mean over tasks of the share of right answers, in percent; intervals are 95 % (bootstrap of prompts
        within their tasks). States: `{settings.encoder.source}`, token {settings.encoder.read_position}, after layer
        {", ".join(map(str, settings.layers))}; {cut} prompts were too long and lost their middle.""",
        f"""Everything was chosen on the training half: the options of every router by {settings.folds}-fold
        cross-validation, repeated with {settings.seeds} seeds that deal their own folds, and whether to use the router
        at all. Where its lead over always asking the best single model is not larger than the lead's standard error,
        that model is asked.""",
        f"""The evolved head: linear, whitened directions and a bias, Sep-CMA-ES ({ours.generations} generations of
        {ours.population or "the default number of"} candidates, sigma0 {ours.sigma0:g}), fitness = expected reward of
        the softmax on all training prompts - penalty x squared weights; it asks the model of the largest logit. Its
        accuracy is the mean of {settings.seeds} evolutions.""",
    ]
    parts = [_flow(part) for part in parts]
    for one in judged:
        parts += [f"## {one.pool}", _table(one, settings), _options(one), _said(one, settings)]
    return "\n\n".join([*parts, "## What it cost", _cost(judged, settings)])


def _table(one: "Judged", settings: Settings) -> str:
    header = ["policy", "right", *one.test.tasks, f"- {SINGLE}", f"- {PER_TASK}", "characters a response"]
    against = [one.policies[name].rewards.mean(axis=0) for name in (SINGLE, PER_TASK)]
    rows = []
    for name, policy in one.policies.items():
        values = policy.rewards.mean(axis=0)
        differences = [_points(interval(values - other, one.test.task, settings)) for other in against]
        tasks = [f"{100 * values[one.test.task == t].mean():.2f}" for t in range(len(one.test.tasks))]
        chars = "" if policy.chars is None else f"{policy.chars:.0f}"
        right = show(_percent(interval(values, one.test.task, settings)), 2)
        rows.append([name, right, *tasks, *differences, chars])
    return markdown(header, rows)


def _options(one: "Judged") -> str:
    header = [
        "router",
        "layer",
        "k",
        "its own",
        "right in cross-validation",
        f"lead over {SINGLE}",
        "used",
        "right if used anyway",
    ]
    rows = []
    for name, found in one.selected.items():
        right = _mean(one.unguarded[name], one)
        option = found.option
        lead = f"{100 * found.lead:+.2f} (standard error {100 * found.error:.2f})"
        mean, used = f"{100 * found.means[option]:.2f}", "yes" if found.used else "no"
        rows.append([name, option.layer, option.k, f"{option.value:g}", mean, lead, used, f"{right:.2f}"])
    return "Chosen on the training half:\n\n" + markdown(header, rows)


def _said(one: "Judged", settings: Settings) -> str:
    """What was reached and what was not, from this run's numbers."""
    ours, found = one.policies[EVOLVED], one.selected[EVOLVED]
    if found.used:
        lines = [f"The evolved head was used. Its seeds: {_listed(ours, one)}."]
    else:
        lines = [
            "The evolved head does not lead by more than a standard error in cross-validation: the best single model "
            "is asked instead."
        ]
    for name, policy in one.policies.items():
        if name not in (EVOLVED, ORACLE):
            difference = interval(ours.rewards.mean(0) - policy.rewards.mean(0), one.test.task, settings)
            lines.append(f"Against {name}: {_points(difference)} points, {_verdict(difference)}.")
    chosen, alone = one.alone[EVOLVED]
    lines.append(
        f"Had each seed decided by its own folds alone: {_mean(alone, one):.2f} ({_listed(alone, one)}), the head used "
        f"by {sum(own.used for own in chosen)} of {len(chosen)}."
    )
    gap = _mean(one.policies[ORACLE], one) - _mean(one.policies[SINGLE], one)
    lines.append(
        f"The oracle is {gap:.2f} points above the best single model, but it knows which answers are right, lucky "
        "guesses too; the honest bars are the best single model and the best model per task."
    )
    return "\n".join(f"- {line}" for line in lines)


def _verdict(difference: Estimate) -> str:
    if difference.low == difference.high == 0:
        return "the same"
    if difference.low > 0:
        return "better"
    if difference.high < 0:
        return "worse"
    return f"{'above' if difference.mean > 0 else 'below' if difference.mean < 0 else 'level'}, within the interval"


def _cost(judged: Sequence["Judged"], settings: Settings) -> str:
    learning, seen = settings.evolved.learning, judged[0].seen
    calls = " and ".join(f"{one.seen * len(one.test.models):,} for {one.pool}" for one in judged)
    said = f"""Every router learns from the same recorded calls, one a prompt and model: {calls}. An evolution plays
    them over and over, {learning.generations} generations of candidates x {seen:,} prompts, and makes no further call.
    On the test half every policy makes one call a prompt."""
    for one in judged:
        ours, single = one.policies[EVOLVED].chars, one.policies[SINGLE].chars
        if ours is not None and single is not None:
            said += f""" {one.pool}: responses have {ours:.0f} characters on average, the best single model's
            {single:.0f} (a stand-in for cost: no token counts are recorded)."""
    return _flow(said)


def _flow(text: str) -> str:
    return " ".join(text.split())


def _by_seed(policy: "Policy", one: "Judged") -> list[float]:
    return [macro(rewards, one.test.task) for rewards in policy.rewards]


def _listed(policy: "Policy", one: "Judged") -> str:
    return ", ".join(f"{100 * value:.2f}" for value in _by_seed(policy, one))


def _mean(policy: "Policy", one: "Judged") -> float:
    return 100 * float(np.mean(_by_seed(policy, one)))


def _percent(estimate: Estimate) -> Estimate:
    return Estimate(*(100 * value for value in estimate))


def _points(estimate: Estimate) -> str:
    return show(_percent(estimate), 2, sign=True)
