"""Figures and text of the separability study."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from experiments.results import Results, markdown, show
from experiments.separability.names import BEST, CHARACTERS, DRAWN, FIRST, KIND, LOGITS, RANDOM, STATES, WORDS
from experiments.separability.settings import Settings
from trinity_jax.evaluation.intervals import Estimate, paired_difference

if TYPE_CHECKING:
    from experiments.separability.study import Measured

PAPER = {KIND: 1.000, DRAWN: 0.713}
"""Accuracy of a linear SVM in the paper (arXiv 2512.04695): task, and model chosen."""


def figures(measured: Sequence["Measured"], settings: Settings, results: Results) -> None:
    """Accuracy and Fisher ratio by layer, and the judged prompts in the plane."""
    results.figure("by_layer", _by_layer(measured, settings))
    results.figure("projections", _projections(measured, settings))


def _by_layer(measured: Sequence["Measured"], settings: Settings) -> Figure:
    figure = Figure(figsize=(4 * len(measured), 6))
    axes = figure.subplots(2, len(measured), squeeze=False, sharex=True)
    for (upper, lower), one in zip(axes.T, measured, strict=True):
        for colour, position in enumerate(settings.positions):
            rows = [_row(one, STATES, layer, position, KIND, settings.svm.kernels[0]) for layer in settings.layers]
            low, high = np.array([[row["value"] - row["low"], row["high"] - row["value"]] for row in rows]).T
            values = [row["value"] for row in rows]
            upper.errorbar(
                settings.layers, values, [low, high], color=f"C{colour}", capsize=2, label=f"token {position}"
            )
            ratios = [_fisher(one, layer, position) for layer in settings.layers]
            lower.plot(settings.layers, [row["value"] for row in ratios], f"C{colour}o-", label=f"token {position}")
            lower.plot(settings.layers, [row["by lot"] for row in ratios], f"C{colour}:")
        for style, name in (("--", WORDS), (":", CHARACTERS)):
            upper.axhline(_at_head(one, name, KIND, settings)["value"], color="grey", ls=style, label=name)
        random = _at_head(one, RANDOM, KIND, settings)
        upper.plot(random["layer"], random["value"], "kx", label="random weights")
        upper.set(title=one.name, ylim=(0, 1.03))
        lower.set(xlabel="after layer", yscale="log")
    axes[0, 0].set_ylabel(f"kind told right ({settings.svm.kernels[0]} SVM)")
    axes[1, 0].set_ylabel("Fisher ratio (dotted: 95 % of labels by lot)")
    axes[0, 0].legend(fontsize="small")
    return figure


def _projections(measured: Sequence["Measured"], settings: Settings) -> Figure:
    figure = Figure(figsize=(4 * len(measured), 8))
    axes = figure.subplots(2, len(measured), squeeze=False)
    for column, one in zip(axes.T, measured, strict=True):
        for axis, what, points in zip(column, ("PCA", "LDA"), one.planes, strict=True):
            for place, kind in enumerate(one.kinds):
                own = one.kind == place
                colour = f"C{place % 10}"
                axis.scatter(*points[own].T, s=9, color=colour, marker="ox^"[place // 10 % 3], label=kind)
            axis.set(title=f"{one.name}: {what}", xticks=[], yticks=[])
        column[0].legend(fontsize=6)
    figure.supxlabel(f"prompts that the projections were not fitted on; layer {settings.head.layer}", fontsize="small")
    return figure


def text(measured: Sequence["Measured"], settings: Settings, missing: str | None) -> str:
    """results.md."""
    first = settings.svm.kernels[0]
    parts = [
        "# Separability",
        _flow(
            f"""How well labels of prompts can be told from hidden states of `{settings.encoder.source}` by support
            vector machines ({settings.svm.folds}-fold cross-validation, C chosen by {settings.svm.inner_folds}-fold
            cross-validation inside each training part). Intervals are 95 % (bootstrap over prompts). A head (linear,
            {settings.head.k} whitened directions of layer {settings.head.layer} at token
            {settings.encoder.read_position}) was evolved on {settings.head.share:.0%} of each kind's prompts;
            everything is measured on the others."""
        ),
    ]
    parts += [_kinds(one) for one in measured]
    if missing:
        parts.append(f"No recorded outcomes of real models: {missing}.")
    parts += ["## Task kind, by layer and token", *(_layers_table(one, settings) for one in measured)]
    parts += [
        f"## All labels, at layer {settings.head.layer} and token {settings.encoder.read_position}",
        "Chosen models: of the evolved head, by its largest logit or drawn from its softmax as in training. A draw "
        "cannot be told better than by its likeliest model, whose mean chance is the ceiling.",
    ]
    parts += [_labels_table(one, settings) for one in measured]
    parts += [
        f"## What this says ({first} SVM)",
        *(_said(one, settings) for one in measured),
        _paper(measured, settings),
    ]
    return "\n\n".join(parts)


def _kinds(one: "Measured") -> str:
    return f"**{one.name}**: {len(one.kind)} judged prompts of {len(one.kinds)} kinds ({', '.join(one.kinds)})."


def _layers_table(one: "Measured", settings: Settings) -> str:
    header = ["layer", *(f"{kernel}, token {at}" for at in settings.positions for kernel in settings.svm.kernels)]
    header += [f"Fisher ratio, token {at} (by lot)" for at in settings.positions]
    rows = []
    for layer in settings.layers:
        cells = [
            _shown(_row(one, STATES, layer, at, KIND, kernel))
            for at in settings.positions
            for kernel in settings.svm.kernels
        ]
        ratios = [_fisher(one, layer, at) for at in settings.positions]
        rows.append([layer, *cells, *(f"{row['value']:.3f} ({row['by lot']:.3f})" for row in ratios)])
    return f"{one.name}:\n\n{markdown(header, rows)}"


def _labels_table(one: "Measured", settings: Settings) -> str:
    header = ["label", "classes", "largest class", "ceiling", "features"]
    header += list(settings.svm.kernels)
    rows = []
    for label in (KIND, BEST, FIRST, DRAWN):
        for name in (STATES, LOGITS, RANDOM, WORDS, CHARACTERS):
            found = [_at_head(one, name, label, settings, kernel) for kernel in settings.svm.kernels]
            about = found[0]
            ceiling = f"{about['ceiling']:.3f}" if "ceiling" in about else ""
            classes = [label, f"{about['classes']}", f"{about['largest class']:.3f}", ceiling]
            rows.append([*(classes if name == STATES else [""] * 4), name, *map(_shown, found)])
    return f"{one.name}:\n\n{markdown(header, rows)}"


def _said(one: "Measured", settings: Settings) -> str:
    at = settings.encoder.read_position
    states = _hits(one, STATES, KIND, settings)
    lines = [f"{one.name}: kind is told from states right in {_shown(_at_head(one, STATES, KIND, settings))}."]
    lines += [
        f"Against {name}: {_verdict(_difference(states, _hits(one, name, KIND, settings), settings))}."
        for name in (WORDS, CHARACTERS, RANDOM, LOGITS)
    ]
    for other in settings.positions:
        if other != at:
            there = one.hits[STATES, settings.head.layer, other, KIND, settings.svm.kernels[0]]
            lines.append(f"Token {at} against token {other}: {_verdict(_difference(states, there, settings))}.")
    return "\n".join(f"- {line}" if i else line + "\n" for i, line in enumerate(lines))


def _paper(measured: Sequence["Measured"], settings: Settings) -> str:
    lines = [
        f"The paper reports {PAPER[KIND]:.3f} for the task and {PAPER[DRAWN]:.3f} for the chosen model "
        "(linear SVM on hidden states; another encoder, other tasks, another pool).",
    ]
    perfect = [one.name for one in measured if _at_head(one, STATES, KIND, settings)["value"] == 1]
    words = [one.name for one in measured if _at_head(one, WORDS, KIND, settings)["value"] >= 0.99]
    lines.append(f"Every kind is told right here in: {', '.join(perfect) or 'no set'}.")
    if words:
        lines.append(
            f"In {', '.join(words)} word counts alone tell at least 99 % of the kinds: there a perfect score says "
            "little about the encoder."
        )
    for one in measured:
        drawn, largest = (_at_head(one, STATES, label, settings) for label in (DRAWN, FIRST))
        lines.append(
            f"{one.name}: the head's largest logit is told right in {_shown(largest)}, a draw from its softmax in "
            f"{_shown(drawn)} where at most {drawn['ceiling']:.3f} is possible: "
            + (
                "what is missing to 1 is the luck of the draw, not the state."
                if drawn["high"] >= drawn["ceiling"]
                else "less than the luck of the draw explains."
            )
        )
    return " ".join(lines)


def _flow(text: str) -> str:
    return " ".join(text.split())


def _verdict(difference: Estimate) -> str:
    said = "better" if difference.low > 0 else "worse" if difference.high < 0 else "no difference that can be told"
    return f"{show(difference, sign=True)}, {said}"


def _difference(ours: np.ndarray, theirs: np.ndarray, settings: Settings) -> Estimate:
    return paired_difference(ours.astype(float), theirs.astype(float), settings.bootstrap, settings.seed)


def _shown(row: dict) -> str:
    return show(Estimate(row["value"], row["low"], row["high"]))


def _place(name: str, settings: Settings) -> tuple[int | None, int | None]:
    return (settings.head.layer, settings.encoder.read_position) if name in (STATES, RANDOM) else (None, None)


def _hits(one: "Measured", name: str, label: str, settings: Settings) -> np.ndarray:
    return one.hits[(name, *_place(name, settings), label, settings.svm.kernels[0])]


def _at_head(one: "Measured", name: str, label: str, settings: Settings, kernel: str | None = None) -> dict:
    return _row(one, name, *_place(name, settings), label, kernel or settings.svm.kernels[0])


def _row(one: "Measured", name: str, layer: int | None, position: int | None, label: str, kernel: str) -> dict:
    wanted = {"features": name, "layer": layer, "position": position, "label": label, "kernel": kernel}
    return next(row for row in one.rows if row["measure"] == "accuracy" and wanted.items() <= row.items())


def _fisher(one: "Measured", layer: int, position: int) -> dict:
    wanted = {"measure": "Fisher ratio", "features": STATES, "layer": layer, "position": position}
    return next(row for row in one.rows if wanted.items() <= row.items())
