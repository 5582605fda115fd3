"""``kind: efficiency``: every point of Propositions 1 and 2, then table, figures and text from the points."""

import time
from collections.abc import Iterator

import numpy as np
from rich.console import Console

from experiments.efficiency import contraction, figures, page, separability, threshold
from experiments.efficiency.cases import cases
from experiments.efficiency.equal_calls import compare
from experiments.efficiency.gain import climb
from experiments.efficiency.points import Point
from experiments.efficiency.settings import Settings
from experiments.results import Results


def run(settings: Settings, results: Results, console: Console) -> None:
    """Measure, then write results.csv, figures/ and results.md."""
    points = []
    parts = {
        "Proposition 1": _proposition_1,
        "noise threshold": threshold.measure,
        "Proposition 2": contraction.measure,
        "separability": separability.measure,
    }
    for number, (name, measure) in enumerate(parts.items()):
        began = time.monotonic()
        points += measure(settings, np.random.default_rng([settings.seed, number]))
        console.print(f"{name}: {time.monotonic() - began:.0f} s")
    results.table([point.row() for point in points])
    for name, figure in figures.draw(points, settings).items():
        results.figure(name, figure)
    results.page(page.write(points, settings))


def _proposition_1(settings: Settings, rng: np.random.Generator) -> Iterator[Point]:
    found = cases(settings)
    for case, case_rng in zip(found, rng.spawn(len(found)), strict=True):
        climbed = list(climb(case, settings, case_rng))
        yield from climbed
        # Random search knows n and the kind of strategy only through G.
        if case.kind == "csa" and case.n == settings.gain.n:
            yield from compare(case, climbed, case_rng, settings)
