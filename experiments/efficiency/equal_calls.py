"""Proposition 1, random search: its gain at the ES's number of Bernoulli calls, tuned for each N, and the ratio."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from experiments.efficiency import laws
from experiments.efficiency.cases import Case
from experiments.efficiency.points import Point, line, one, ratio, within
from experiments.efficiency.random_search import PROPOSALS, Candidates, draw, search
from experiments.efficiency.settings import Settings
from experiments.results import over_seeds

REPLICATIONS = 2
"""Random search draws this many times the ES's replications, 32 against 16 in the paper, so N = P T / 2."""

PAPER_BOX = 0.5 / math.sqrt(3) / 0.03
"""Standard deviation of the paper's box [-0.5, 0.5]^n over the ES's sigma0 of 0.03."""


def compare(case: Case, climbed: Sequence[Point], rng: np.random.Generator, settings: Settings) -> Iterator[Point]:
    """Gains of random search, how well the laws fit, and the ratio of gains at equal calls.

    Args:
        case: what both climb; curvature enters through (tr H)^2 / tr H^2 only.
        climbed: points of the ES.
        rng: source of all random numbers.
        settings: of the study.
    """
    P, runs, n = settings.population, settings.gain.search_seeds, case.effective_n()
    calls = {P * T // REPLICATIONS for T in settings.generations}
    # With exact ranks replications mean nothing, and N = P T is the comparison at equal replications.
    counts = sorted(calls if case.replications else calls | {P * T for T in settings.generations})
    for proposal in PROPOSALS if not case.replications else PROPOSALS[:1]:
        tuning = draw(rng, max(2, runs // 4), counts[-1], n, proposal)
        final = draw(rng, runs, counts[-1], n, proposal)
        points = []
        for N in counts:
            chosen = _point(case, proposal, N).but(sigma0=settings.gain.linear_spread)
            if not case.linear:
                tries = list(_tries(case, proposal, tuning.first(N), rng, settings.multiples))
                points += tries
                chosen = max(tries, key=lambda point: point.value).but(part="gain")
            points += _winners(case, chosen, final.first(N), rng)
        if proposal == "box":
            points += _paper_box(case, final.first(max(calls)), rng, P)
        if proposal == "gaussian":
            points += _fits(case, within(points, part="gain", measure="gain"))
            points += _ratios(case, climbed, points, P)
        yield from points


def _point(case: Case, proposal: str, N: int) -> Point:
    replications = REPLICATIONS * case.replications if case.replications else None
    return case.point("gain").but(arm=f"{case.name}: {proposal} search", N=N, replications=replications)


def _fitness(case: Case, rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    """What random search sees of true gains."""
    if not case.replications:
        return lambda gain: gain
    draws = REPLICATIONS * case.replications
    return lambda gain: rng.binomial(draws, case.chance(case.level + gain)) / draws


def _law(case: Case, spread: float, N: int) -> float:
    """What the law expects of random search with this step size."""
    loss = 0.0 if case.linear else spread**2 / (2 * case.G)
    if not case.replications:
        return spread * laws.expected_maximum(N) - loss
    chances = case.chance(case.level - loss + spread * laws.nodes())
    return spread * laws.winner_pull(chances, N, REPLICATIONS * case.replications) - loss


def _tries(
    case: Case, proposal: str, candidates: Candidates, rng: np.random.Generator, multiples: Sequence[float]
) -> Iterator[Point]:
    """Step sizes over m_N G, as many as the ES may try."""
    runs, N = candidates.a.shape
    for multiple in multiples:
        spread = multiple * laws.search_spread(case.G, N)
        gains = search(candidates, spread, case.G, _fitness(case, rng)).gain
        point = _point(case, proposal, N).but(over_seeds(gains), part="sweep", measure="gain", seeds=runs)
        yield point.but(sigma0=spread, multiple=multiple, predicted=_law(case, spread, N))


def _winners(case: Case, chosen: Point, candidates: Candidates, rng: np.random.Generator) -> Iterator[Point]:
    """True gain, reported fitness and rank attenuation at one step size."""
    spread, (runs, N) = chosen.sigma0, candidates.a.shape
    assert spread is not None
    winners = search(candidates, spread, math.inf if case.linear else case.G, _fitness(case, rng))
    point = chosen.but(seeds=runs, N=N)
    yield point.but(over_seeds(winners.gain), measure="gain", predicted=_law(case, spread, N))
    if case.replications:
        true = over_seeds(case.chance(case.level + winners.gain)).mean
        yield point.but(over_seeds(winners.reported), measure="reported chance", predicted=true)
        yield point.but(over_seeds(winners.pull / laws.expected_maximum(N)), measure="rho", predicted=None)


def _paper_box(case: Case, candidates: Candidates, rng: np.random.Generator, population: int) -> Iterator[Point]:
    """The paper's fixed box on an objective on which the ES's sigma0 = 0.03 is the best."""
    spread = PAPER_BOX * laws.es_spread(case.G, population)
    runs, N = candidates.a.shape
    gains = search(candidates, spread, case.G, _fitness(case, rng)).gain
    point = _point(case, "the paper's box", N).but(over_seeds(gains), measure="gain", seeds=runs, sigma0=spread)
    yield point.but(multiple=spread / laws.search_spread(case.G, N), predicted=_law(case, spread, N))


def _fits(case: Case, gains: Sequence[Point]) -> Iterator[Point]:
    """Slope and R^2 in ln N, m_N^2 and m_N; predicted is the same line through the law's values."""
    values = np.array([point.value for point in gains])
    fit = gains[-1].but(part="fit", seeds=gains[-1].seeds, sigma0=None, multiple=None)
    counts = [point.N for point in gains if point.N]
    maxima = np.array([laws.expected_maximum(N) for N in counts])
    law = np.array([point.predicted for point in gains])
    slope = float(line(np.log(counts), values)[0])
    yield fit.but(slope, measure="slope in ln N", predicted=float(line(np.log(counts), law)[0]))
    for name, x in {"ln N": np.log(counts), "m_N^2": maxima**2, "m_N": maxima, "N": np.array(counts)}.items():
        yield fit.but(line(x, values)[1], measure=f"R2 in {name}", predicted=None)


def _ratios(case: Case, climbed: Sequence[Point], searched: Sequence[Point], population: int) -> Iterator[Point]:
    """Gain of the ES over that of random search, where both are surely above 0; and the bound.

    ``predicted`` of a ratio is the quotient of the laws, where the law of random search is above 0.
    """
    fits = within(climbed, part="fit", measure="rho")
    es_rho = fits[0].value if fits else 1.0
    lawful = within(climbed, part="fit", measure="slope")[0].T
    for found in within(searched, part="gain", measure="gain"):
        N, law = found.N, found.predicted
        assert N is not None
        assert law is not None
        assert lawful is not None
        search_rho = one(searched, part="gain", measure="rho", N=N).value if case.replications else 1.0
        for name, T in (("ratio", REPLICATIONS * N / population), ("ratio at N = P T", N / population)):
            es = within(climbed, part="gain", measure="gain", T=T)
            if not es or not 1 < T <= lawful or (case.replications and name != "ratio"):
                continue
            if es[0].low <= 0 or found.low <= 0:
                continue
            point = found.but(part="ratio", arm=case.name, T=int(T), sigma0=None, multiple=None, replications=None)
            quotient = es[0].predicted / law if law > 0 and es[0].predicted else None
            yield point.but(ratio(es[0].estimate, found.estimate), measure=name, predicted=quotient)
            bound = laws.ratio_bound(population, T, N, es_rho / search_rho)
            yield point.but(bound, measure=name.replace("ratio", "bound"), predicted=None)
