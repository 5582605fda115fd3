"""Text of the ablation study."""

from collections.abc import Mapping

import numpy as np

from experiments.ablation import paper
from experiments.ablation.arms import AUTHORS, FULL, NO_ROLES, OWN_LUCK, Arm
from experiments.ablation.found import Found, verdict
from experiments.ablation.settings import Settings
from experiments.results import markdown, over_seeds, show
from trinity_jax.coordinator.heads import make


def text(found: Found, settings: Settings) -> str:
    """results.md."""
    parts = [
        "# Ablations",
        _setting(found, settings),
        "## Heads",
        *_heads(found, settings),
        "## Do the encoder's coordinates fall into blocks?",
        *_blocks(found),
        "## Roles and random numbers",
        *_protocol(found),
        "## Replications and population",
        *_sweeps(found, settings),
        "## Step size",
        *_step_sizes(found),
        "## Calls",
        *_calls(found),
    ]
    if settings.small:
        parts += ["## Read position", *_positions(found, settings)]
    if found.long:
        parts += ["## Singular-value scales", *_scales(found, settings)]
    if not found.long:
        parts.append("Not run with these settings: " + _missing(settings) + ".")
    return "\n\n".join(parts)


def _setting(found: Found, settings: Settings) -> str:
    world, learning, best = settings.world, settings.learning, found.reference
    states = f"of `{world.encoder.source}`" if world.states == "encoder" else "synthetic"
    return (
        f"Jitted tri-role world: {len(world.mix)} kinds of question, {world.train} for training and {world.held_out} "
        f"held out, {found.models} simulated models, hidden states {states} (D = {found.width}), at most "
        f"{world.max_calls} calls. Every number is the exact held-out success of the final mean of sep-CMA-ES, mean of "
        f"{settings.seeds} seeds with a 95 % t interval; differences are taken seed by seed. Best fixed policy "
        f"{best.fixed:.3f}, best one for each kind {best.per_kind:.3f}.\n\n"
        f"Unless said otherwise a run has {learning.generations} generations of {learning.population} candidates with "
        f"{learning.questions} replications, and the head has no bias and reads centred states. Each such arm tried "
        f"sigma0 = {', '.join(map(str, settings.step_sizes))} on {settings.tuning_seeds} seeds of their own and kept "
        "what was best by exact success on the training questions: the same trials for every arm. (A real run could "
        f"not know that number.) Rows with the paper's setting take raw states and sigma0 = {learning.sigma0} as they "
        "are. The paper's numbers are percent on other tasks with other models: they stand beside ours for the order, "
        "not for the size."
    )


def _heads(found: Found, settings: Settings) -> list[str]:
    titles = {
        "centred": "Centred states, sigma0 tuned:",
        "raw": "Raw states, sigma0 tuned:",
        "paper": f"The paper's setting, raw states and sigma0 = {settings.learning.sigma0}:",
    }
    parts = []
    for name, title in titles.items():
        arms = found.groups[f"heads, {name}"]
        header = [
            "head",
            "n",
            f"n at D = {paper.WIDTH}, L = {paper.MODELS}",
            "sigma0",
            "success",
            "less the linear head",
            "by largest logits",
        ]
        rows = [
            [
                label,
                found.arms[arm].n,
                make(arm.head, paper.MODELS + 3, paper.WIDTH).size,
                found.arms[arm].sigma0,
                show(found.success(arm)),
                "" if label == "linear" else show(found.less(arm, arms["linear"]), sign=True),
                round(found.largest(arm), 3),
                *paper.cells(paper.HEAD_SCORES.get(label)),
            ]
            for label, arm in arms.items()
        ]
        parts += [title, markdown(header + paper.COLUMNS, rows), _against(found, arms, "linear", "the linear head")]
    raw, centred = (found.groups[f"heads, {name}"] for name in ("raw", "centred"))
    moved = {label: found.less(centred[label], raw[label]) for label in raw}
    gained = [label for label, difference in moved.items() if difference.low > 0]
    parts.append(
        f"Centring the states helps {len(gained)} of {len(raw)} heads ({_listed(gained)}); for the linear head it is "
        f"worth {show(moved['linear'], sign=True)}. On raw states {_above_fixed(found, raw)}."
    )
    parts.append(
        "The largest logit does not change when all logits are scaled, and runs start from zeros: with argmax sigma0 "
        "is without effect, and of equal ones the first is kept. The other heads draw their choices in training and "
        "when judged; the column beside says what they would reach by their largest logits."
    )
    return parts


def _above_fixed(found: Found, arms: Mapping[str, Arm]) -> str:
    best = found.reference.fixed
    above = [label for label, arm in arms.items() if found.success(arm).low > best]
    below = [label for label, arm in arms.items() if found.success(arm).high < best]
    return (
        f"{len(above)} of {len(arms)} heads end above the best fixed policy and {len(below)} below it, "
        "so that one policy for all questions, found by playing all of them, would have served better there"
        if below
        else f"{len(above)} of {len(arms)} heads end above the best fixed policy and none below it"
    )


def _blocks(found: Found) -> list[str]:
    by = {name: found.groups[f"blocks, {name}"] for name in ("raw", "centred", "rotated")}
    rows, hurt, apart = [], [], {}
    for k, centred in by["centred"].items():
        rotation = found.less(by["rotated"][k], centred)
        whole = found.less(centred, found.groups["heads, centred"]["linear"])
        apart[k] = rotation
        hurt += [k] if k != "1" and rotation.high < 0 else []
        rows.append(
            [
                int(k),
                found.arms[centred].n,
                *(show(found.success(arms[k])) for arms in by.values()),
                show(rotation, sign=True),
                "" if k == "1" else show(whole, sign=True),
            ]
        )
    header = ["k", "n", *by, "rotated less centred", "centred less one block"]
    parts = [
        "Block-diagonal-k, softmax. If the blocks of coordinates meant something, a random rotation of the centred "
        "states before the head would cost a block-diagonal head something that it does not cost the whole matrix "
        "(k = 1, which can undo it).",
        markdown(header, rows),
    ]
    tried = [k for k in apart if k != "1"]
    helped = [k for k in tried if apart[k].low > 0]
    if not hurt:
        said = (
            f"A rotation hurts none of k = {_listed(tried)}"
            + (f" and even helps k = {_listed(helped)}" if helped else "")
            + ": that a block-diagonal head does what it does owes nothing that can be told here to the coordinates' "
            "order. Random directions, cut into blocks, serve as well, so the states are redundant rather than "
            "block-separable."
        )
    else:
        said = f"A rotation hurts k = {_listed(hurt)} of {_listed(tried)}: there the encoder's own coordinates are "
        said += "better blocks than random ones."
    control = apart.get("1")
    if control is not None:
        said += f" The control, k = 1, changes by {show(control, sign=True)} ({verdict(control)})."
    return [*parts, said]


def _protocol(found: Found) -> list[str]:
    arms = found.groups["protocol"]
    header = ["arm", "sigma0", "success", f"less {FULL}", "best fixed", "best per kind", "calls made in training"]
    header += ["calls a held-out episode"]
    rows = []
    for label, arm in arms.items():
        best, runs = found.ceiling(arm), found.arms[arm].runs
        rows.append(
            [
                label,
                found.arms[arm].sigma0,
                show(found.success(arm)),
                "" if label == FULL else show(found.less(arm, arms[FULL]), sign=True),
                round(best.fixed, 3),
                round(best.per_kind, 3),
                round(float(np.mean([one.made for one in runs]))),
                round(float(np.mean([one.turns for one in runs])), 2),
                *paper.cells(paper.PROTOCOL_SCORES.get(label, paper.TRINITY if label == FULL else None)),
            ]
        )
    lost = {label: found.less(arm, arms[FULL]) for label, arm in arms.items() if label != FULL}
    own = lost[OWN_LUCK]
    calls = [np.mean([one.made for one in found.arms[arms[label]].runs]) for label in (OWN_LUCK, FULL)]
    return [
        "No Thinker: that role is never chosen. No roles: Workers only, so every episode is K calls of which the last "
        "answer counts; no one verifies and no one stops early. A Worker of this world does not learn from the answers "
        "before it, so that is as good as a single call. Own random numbers: every candidate draws questions, choices "
        "and replies of its own and pays for all of them. The authors' recipe is that with the paper's setting.",
        markdown(header + paper.COLUMNS, rows),
        _against(found, arms, FULL, "all roles with common random numbers"),
        f"Common random numbers are worth {show(_negative(own), sign=True)} in success "
        f"({verdict(_negative(own))}), and sharing equal calls makes training {calls[0] / calls[1]:.1f} times cheaper. "
        "What roles are worth here is what the pool gives them: without any the best per kind goes from "
        f"{found.ceiling(arms[FULL]).per_kind:.3f} to {found.ceiling(arms[NO_ROLES]).per_kind:.3f}. "
        f"The authors' recipe changes success by {show(lost[AUTHORS], sign=True)} ({verdict(lost[AUTHORS])}).",
    ]


def _sweeps(found: Found, settings: Settings) -> list[str]:
    parts = [
        "Equal episodes: fewer of one means more generations. The last column takes raw states and sigma0 = "
        f"{settings.learning.sigma0} at equal generations.",
    ]
    for name, word, usual in (
        ("replications", "m_CMA", settings.learning.questions),
        ("population", "lambda", settings.learning.population),
    ):
        columns = [f"{name}, {kind}" for kind in ("equal generations", "equal episodes", "paper")]
        by = [found.groups[column] for column in columns]
        rows = [[int(count), *(show(found.success(arms[count])) for arms in by)] for count in by[0]]
        parts.append(markdown([word, "equal generations", "equal episodes", "the paper's setting"], rows))
        alike = by[1]
        best = max(alike, key=lambda count: found.success(alike[count]).mean)
        least, most = min(alike, key=int), max(alike, key=int)
        said = f"At equal episodes {word} = {best} is best: {show(found.success(alike[best]))}."
        if least != most:
            slope = found.less(alike[least], alike[most])
            said += f" {word} = {least} less {most}: {show(slope, sign=True)} ({verdict(slope)})."
        if str(usual) in alike and best != str(usual):
            gap = found.less(alike[best], alike[str(usual)])
            said += (
                f" The usual {usual} is behind by {show(gap)}, an interval that does not count the choice of the best."
            )
        parts.append(said)
    return parts


def _step_sizes(found: Found) -> list[str]:
    by = {name: found.groups[f"sigma0, {name}"] for name in ("centred", "raw")}
    steps = list(by["centred"])
    rows = [[float(step), *(show(found.success(arms[step])) for arms in by.values())] for step in steps]
    spans = {name: [found.success(arms[step]).mean for step in steps] for name, arms in by.items()}
    best = {name: steps[int(np.argmax(values))] for name, values in spans.items()}
    return [
        "Linear head:",
        markdown(["sigma0", *by], rows),
        " ".join(
            f"On {name} states {best[name]} is best, and the best and the worst differ by "
            f"{max(values) - min(values):.3f}."
            for name, values in spans.items()
        ),
    ]


def _calls(found: Found) -> list[str]:
    arms = found.groups["calls"]
    rows = [
        [
            int(K),
            show(found.success(arm)),
            round(found.ceiling(arm).fixed, 3),
            round(found.ceiling(arm).per_kind, 3),
            round(float(np.mean([one.turns for one in found.arms[arm].runs])), 2),
        ]
        for K, arm in arms.items()
    ]
    least, most = min(arms, key=int), max(arms, key=int)
    header = ["K", "success", "best fixed", "best per kind", "calls a held-out episode"]
    said = f"From K = {least} to {most} success changes by {show(found.less(arms[most], arms[least]), sign=True)}."
    return [markdown(header, rows), said] if least != most else [markdown(header, rows)]


def _positions(found: Found, settings: Settings) -> list[str]:
    assert settings.small
    own = settings.small.world
    by = {name: found.groups[f"position, {name}"] for name in ("centred", "paper")}
    rows = [
        [int(at), *(show(found.success(arms[at])) for arms in by.values()), *_position_cells(at)]
        for at in by["centred"]
    ]
    header = ["token", "centred, sigma0 tuned", "the paper's setting"]
    parts = [
        f"A smaller world: {own.train} + {own.held_out} questions, at most {own.max_calls} calls, states after layer "
        f"{own.encoder.layers or 'the last'} at each position.",
        markdown(header + paper.COLUMNS, rows),
    ]
    usual = str(own.encoder.read_position)
    for at in by["centred"]:
        if at != usual:
            both = {name: found.less(arms[at], arms[usual]) for name, arms in by.items()}
            parts.append(
                f"Token {at} less token {usual}: {show(both['centred'], sign=True)} on centred states "
                f"({verdict(both['centred'])}), {show(both['paper'], sign=True)} in the paper's setting "
                f"({verdict(both['paper'])})."
            )
    return parts


def _position_cells(at: str) -> list[str]:
    scores = {"-2": paper.TRINITY, "-1": paper.LAST_TOKEN}
    return paper.cells(scores.get(at))


def _scales(found: Found, settings: Settings) -> list[str]:
    assert settings.small
    assert settings.small.scales
    own = settings.small.scales
    by = {preset: found.scaled(preset) for preset in ("none", "layer")}
    one = {preset: next(run for run in found.long if run.preset == preset) for preset in by}
    gain = over_seeds(by["layer"] - by["none"])
    depth = max(run.blocks for run in found.short)
    rows = [
        [
            preset,
            one[preset].n,
            one[preset].scales,
            show(over_seeds(by[preset])),
            *paper.cells(paper.WITHOUT_SCALES if preset == "none" else paper.TRINITY),
        ]
        for preset in by
    ]
    cost = [
        [run.preset, run.n, round(run.drawn, 3), round(run.pairs), run.blocks, round(run.pairs * run.blocks)]
        for run in found.short
    ]
    few = f"{own.released_generations} generations of {own.released_population} candidates"
    return [
        f"The same smaller world, with the encoder's tips run for every candidate and transcript: {own.generations} "
        f"generations of {own.population} candidates with {own.questions} replications, {own.seeds} seeds, sigma0 = "
        f"{one['none'].sigma0} (what the reference chose at this read position); `layer` scales the seven matrices of "
        f"block {own.layer} of the {depth} that the encoder is cut to (the paper: the second-to-last of all 28), "
        f"{own.scale} of a singular value per unit.",
        markdown(["scales", "n", "of them scales", "success", *paper.COLUMNS], rows),
        f"Scales less none: {show(gain, sign=True)} ({verdict(gain)}, {own.seeds} seeds); the paper gains with them on "
        "all four tasks.",
        f"With `released` the embedding is scaled too, so that nothing is shared between candidates: {few}, one seed, "
        "only to see what it costs.",
        markdown(
            ["scales", "n", "success", "pairs encoded a generation", "blocks a pair", "block passes a generation"], cost
        ),
        "Its success after so few generations says nothing about its worth.",
    ]


def _against(found: Found, arms: Mapping[str, Arm], to: str, name: str) -> str:
    """Which arms are told apart from one of them."""
    told: dict[str, list[str]] = {}
    for label, arm in arms.items():
        if label != to:
            told.setdefault(verdict(found.less(arm, arms[to])), []).append(label)
    order = ("better", "worse", "no difference that can be told")
    return f"Against {name}: " + "; ".join(f"{said}: {_listed(told[said])}" for said in order if said in told) + "."


def _negative(difference):
    mean, low, high = difference
    return type(difference)(-mean, -high, -low)


def _listed(names) -> str:
    return ", ".join(names) or "none"


def _missing(settings: Settings) -> str:
    return "singular-value scales" if settings.small else "read positions, singular-value scales"
