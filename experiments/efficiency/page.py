"""results.md: one line per statement, confirmed or not, from the points of this run."""

from collections.abc import Sequence

from experiments.efficiency import contraction, proposition_1, separability, threshold
from experiments.efficiency.gain import LAWFUL
from experiments.efficiency.points import Point
from experiments.efficiency.settings import Settings
from experiments.efficiency.verdict import STRAIGHT, TOLERANCE

_INTRODUCTION = """# Propositions 1 and 2 on synthetic objectives

The logit of success is l(x) = l0 + g.x - x'Hx/2, H block-diagonal plus a coupling of blocks of relative spectral
norm eps. A reward is Bernoulli(sigmoid(l)); with "exact ranks" the fitness is l itself. G = |g|^2 / tr H is the unit of
every gain. The evolution strategy (ES) is the repaired sep-CMA-ES with {P} candidates; what counts is the true logit of
its mean. Random search is simulated exactly as scalars; what counts is the true logit of its winner, not its reward.
Every arm of Proposition 1 tried the same number of step sizes on runs of their own; the best was then run anew. Square
brackets are 95 % intervals over runs.

"Confirmed" means, in this run: within {tolerance:.0%} of the prediction unless said, and R^2 above {straight} where a
form is claimed. "Undecided": not so, but the interval holds the prediction. Laws on binary rewards are fitted while the
mean's chance of success is below {lawful}. results.csv has every point."""


def write(points: Sequence[Point], settings: Settings) -> str:
    """The page."""
    sections = {
        "Proposition 1, exact ranks": proposition_1.exact,
        "Proposition 1, binary rewards": proposition_1.binary,
        "The noise threshold": threshold.lines,
        "Proposition 2": contraction.lines,
        "Separability": separability.lines,
        "Where the statements fail": proposition_1.failures,
    }
    text = [_INTRODUCTION.format(P=settings.population, tolerance=TOLERANCE, straight=STRAIGHT, lawful=LAWFUL)]
    text += ["\n".join([f"## {title}", "", *section(points, settings)]) for title, section in sections.items()]
    return "\n\n".join(text)
