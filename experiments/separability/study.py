"""What can be told from hidden states and head logits and, for comparison, from words and from random weights."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from rich.console import Console

from experiments.recorded.outcomes import Outcomes
from experiments.recorded.routers import best_per_task
from experiments.results import Results
from experiments.separability import page
from experiments.separability.heads import choices, taught
from experiments.separability.measure import Features, Planes, fisher, held_out_hits, planes, standardised, tfidf
from experiments.separability.names import BEST, CHARACTERS, DRAWN, FIRST, KIND, LOGITS, RANDOM, STATES, WORDS
from experiments.separability.sets import gather
from experiments.separability.settings import Settings
from trinity_jax.encoder.decoder import Decoder
from trinity_jax.encoder.states import decoder_of, hidden_states, read, states_of
from trinity_jax.evaluation.intervals import mean_interval

Hits = tuple[str, int | None, int | None, str, str]


class View(NamedTuple):
    """One way to look at the prompts; ``x`` where it has fixed features."""

    name: str
    features: Features
    x: Float[np.ndarray, "n F"] | None = None
    layer: int | None = None
    position: int | None = None


class Measured(NamedTuple):
    """One set of prompts.

    Attributes:
        name: of the set.
        kinds: their names.
        kind: of every judged prompt.
        rows: of the table.
        planes: projections of the judged prompts.
        hits: what was told right, by features, layer, position, label and kernel.
    """

    name: str
    kinds: tuple[str, ...]
    kind: Int[np.ndarray, " n"]
    rows: list[dict[str, Any]]
    planes: Planes
    hits: dict[Hits, Bool[np.ndarray, " n"]]


def run(settings: Settings, results: Results, console: Console) -> None:
    """Measure every set and write the table, the figures and the page.

    Raises:
        UserError: see `gather`; or an encoder without these layers.
    """
    sets, missing = gather(settings)
    measured = []
    for name, outcomes in sets.items():
        console.print(f"{name}: {len(outcomes.ids)} prompts of {len(outcomes.tasks)} kinds")
        measured.append(measure(name, outcomes, settings, console))
    results.table([row for one in measured for row in one.rows])
    page.figures(measured, settings, results)
    results.page(page.text(measured, settings, missing))


def measure(name: str, outcomes: Outcomes, settings: Settings, console: Console) -> Measured:
    """Encode one set, evolve its head on some of the prompts, tell the labels of the others."""
    place = settings.head.layer, settings.encoder.read_position
    marked = taught(outcomes.task, settings.head.share, settings.seed)
    with console.status(f"{name}: encoding") as status:
        states = _states(outcomes, settings, lambda done, total: status.update(f"{name}: encoding {done} of {total}"))
        random = _random(outcomes, settings)[~marked]
    chosen = choices(states[place], outcomes, marked, settings.head, settings.seed)
    kind = outcomes.task[~marked]
    labels = {KIND: kind, BEST: best_per_task(outcomes)[kind], FIRST: chosen.first, DRAWN: chosen.drawn}
    prompts = [outcomes.prompts[i] for i in np.flatnonzero(~marked)]
    views = [View(STATES, standardised(x[~marked]), x[~marked], *at) for at, x in states.items()]
    views += [
        View(RANDOM, standardised(random), random, *place),
        View(LOGITS, standardised(chosen.logits), chosen.logits),
        View(WORDS, tfidf(prompts, "word", (1, 1))),
        View(CHARACTERS, tfidf(prompts, "char_wb", (1, 4))),
    ]
    rows, hits = [], {}
    with console.status(f"{name}: support vector machines") as status:
        for number, view in enumerate(views, 1):
            status.update(f"{name}: support vector machines, view {number} of {len(views)}")
            elsewhere = view.layer is not None and (view.layer, view.position) != place
            for what in (KIND,) if elsewhere else labels:
                for kernel in settings.svm.kernels:
                    right = held_out_hits(view.features, labels[what], kernel, settings.svm, settings.seed)
                    row = _accuracy(right, labels[what], settings)
                    ceiling = {"ceiling": float(chosen.likeliest.mean())} if what == DRAWN else {}
                    rows.append(_about(name, view, what) | {"kernel": kernel} | row | ceiling)
                    hits[view.name, view.layer, view.position, what, kernel] = right
            if view.x is not None:
                ratio, by_lot = fisher(view.x, kind, settings.permutations, settings.seed)
                rows.append(_about(name, view, KIND) | {"measure": "Fisher ratio", "value": ratio, "by lot": by_lot})
    flat = planes(states[place], outcomes.task, marked)
    return Measured(name, outcomes.tasks, kind, rows, flat, hits)


def _states(outcomes: Outcomes, settings: Settings, progress: Any) -> dict[tuple[int, int], Float[np.ndarray, "Q D"]]:
    """States by layer and position."""
    layers, positions = settings.layers, settings.positions
    pool = len(outcomes.models)
    h = hidden_states(settings.encoder, outcomes.prompts, pool, layers, positions, progress)
    return {(layer, at): h[:, i, j] for i, layer in enumerate(layers) for j, at in enumerate(positions)}


def _random(outcomes: Outcomes, settings: Settings) -> Float[np.ndarray, "Q D"]:
    """States at the head's layer and position of an encoder of this shape whose weights nobody trained."""
    encoder = settings.encoder
    decoder = Decoder.random(decoder_of(encoder).config, settings.seed)
    ids = read(encoder, outcomes.prompts, len(outcomes.models)).ids
    return states_of(decoder, ids, (settings.head.layer,), (encoder.read_position,))[:, 0, 0]


def _about(name: str, view: View, label: str) -> dict[str, Any]:
    return {"set": name, "features": view.name, "layer": view.layer, "position": view.position, "label": label}


def _accuracy(right: np.ndarray, label: np.ndarray, settings: Settings) -> dict[str, Any]:
    mean, low, high = mean_interval(right.astype(float), settings.bootstrap, settings.seed)
    counts = np.unique_counts(label).counts
    return {
        "measure": "accuracy",
        "value": mean,
        "low": low,
        "high": high,
        "prompts": len(label),
        "classes": len(counts),
        "largest class": counts.max() / len(label),
    }
