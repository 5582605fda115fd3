"""The noise threshold: how strong a slope must be before any step size makes progress on binary rewards."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit

from experiments.efficiency import laws
from experiments.efficiency.arms import new_key, strategy
from experiments.efficiency.cases import Case
from experiments.efficiency.equal_calls import REPLICATIONS
from experiments.efficiency.points import Point, one, within
from experiments.efficiency.random_search import draw, search
from experiments.efficiency.settings import Settings
from experiments.efficiency.verdict import agrees, note, verdict
from experiments.results import over_seeds, show
from trinity_jax.evaluation.intervals import Estimate

RESAMPLES = 2000


def measure(settings: Settings, rng: np.random.Generator) -> Iterator[Point]:
    """Gain against G at several small step sizes, p = 1/2 at the start; of the smallest, the G at which it crosses 0.

    ``predicted`` is the law at that step size; the closed form for vanishing steps is a point of its own.
    """
    for runs, limit in (
        (_evolution(settings, rng), laws.es_threshold(settings.population, settings.threshold.replications)),
        (_random(settings, rng), _search_limit(settings)),
    ):
        points = list(runs)
        yield from points
        smallest = [point for point in points if point.sigma0 == min(settings.threshold.spreads)]
        law = _crossing([point.but(Estimate(point.predicted or 0.0, point.low, point.high)) for point in smallest], rng)
        threshold = smallest[0].but(_crossing(smallest, rng), measure="threshold", predicted=law.mean, G=None)
        yield threshold
        yield threshold.but(limit, measure="threshold of vanishing steps", predicted=None, sigma0=None)


def _evolution(settings: Settings, rng: np.random.Generator) -> Iterator[Point]:
    """Gain per generation of the ES."""
    about, P = settings.threshold, settings.population
    limit = laws.es_threshold(P, about.replications)
    T = about.generations
    for spread in about.spreads:
        for strength in about.strengths:
            case = Case(
                f"ES, sigma |g| = {spread:g}",
                about.n,
                settings.gain.block,
                G=strength * limit,
                replications=about.replications,
            )
            trace = case.run(case.objective(rng), new_key(rng), about.seeds, spread, P, T)
            path = case.path(trace.sigma.mean(axis=0)[:-1], P)
            point = case.point("threshold").but(measure="gain", T=T, seeds=about.seeds, sigma0=spread)
            point = point.but(c_mu_T=strategy(case.kind, about.n, P).c_mu * T)
            yield point.but(over_seeds(trace.logit[:, -1] / T), predicted=path.gain[-1] / T)


def _search_count(settings: Settings) -> int:
    return settings.population * settings.generations[-1] // REPLICATIONS


def _search_limit(settings: Settings) -> float:
    return laws.search_threshold(_search_count(settings), REPLICATIONS * settings.threshold.replications)


def _random(settings: Settings, rng: np.random.Generator) -> Iterator[Point]:
    """Gain of random search in all, at the calls of the longest run of the ES."""
    about, N = settings.threshold, _search_count(settings)
    draws = REPLICATIONS * about.replications
    candidates = draw(rng, settings.gain.search_seeds, N, about.n)
    for spread in about.spreads:
        for strength in about.strengths:
            case = Case(
                f"random search, sigma |g| = {spread:g}",
                about.n,
                settings.gain.block,
                G=strength * _search_limit(settings),
            )
            gains = search(candidates, spread, case.G, lambda gain: rng.binomial(draws, expit(gain)) / draws).gain
            loss = spread**2 / (2 * case.G)
            law = spread * laws.winner_pull(expit(spread * laws.nodes() - loss), N, draws) - loss
            point = case.point("threshold").but(measure="gain", N=N, seeds=len(gains), sigma0=spread)
            yield point.but(over_seeds(gains), predicted=law, ranks="bernoulli", replications=draws)


def _crossing(points: list[Point], rng: np.random.Generator) -> Estimate:
    """G at which the gain is 0: gains are nearly straight in 1/G, since the loss is sigma^2 tr H = spread^2 / G."""
    inverse = np.array([1 / point.G for point in points if point.G])
    values = np.array([point.value for point in points])
    errors = np.array([(point.high - point.low) / 3.92 for point in points])

    def root(y: Float[np.ndarray, "*s G"]) -> Float[np.ndarray, "*s"]:
        weight = 1 / errors**2
        centre = (inverse @ weight) / weight.sum()
        slope = y @ (weight * (inverse - centre)) / (weight @ (inverse - centre) ** 2)
        return centre - (y @ weight) / weight.sum() / slope

    resampled = root(values + errors * rng.standard_normal((RESAMPLES, len(values))))
    low, high = np.quantile(1 / resampled, [0.025, 0.975])
    return Estimate(float(1 / root(values)), float(low), float(high))


def lines(points: Sequence[Point], settings: Settings) -> Iterator[str]:
    """What the run says about it."""
    found = within(points, part="threshold")
    for limit, who in zip(
        within(found, measure="threshold of vanishing steps"), ("the ES's mean", "random search's winner"), strict=True
    ):
        crossing = one(found, measure="threshold", arm=limit.arm)
        size = f"R = {crossing.replications}" + (f", N = {crossing.N}" if crossing.N else "")
        yield verdict(
            agrees(crossing),
            f"Below G = 1/{1 / limit.value:.1f} ({size}, p = 1/2) no step size makes {who} gain: at sigma |g| = "
            f"{crossing.sigma0:g} the gain is 0 at G = 1/{1 / crossing.value:.1f} [1/{1 / crossing.low:.1f}, "
            f"1/{1 / crossing.high:.1f}], by the law for that step size 1/{1 / (crossing.predicted or 1):.1f}. "
            "By the law larger steps need more.",
        )
    limit = laws.es_threshold(settings.population, settings.threshold.replications)
    below = [p for p in found if p.measure == "gain" and p.N is None and (p.G or 0) < 0.99 * limit]
    if below:
        worst = min(below, key=lambda point: point.value)
        yield verdict(
            all(point.high < 0 for point in below),
            f"Below it every one of the {len(below)} step sizes and slopes tried loses; fastest "
            f"{show(worst.estimate, 4, sign=True)} logits a generation, by the law {worst.predicted:+.4f}.",
        )
    n = settings.gain.n
    yield note(
        "For long vectors this is strict. If all directions curve alike, the optimum lies n G / 2 logits above the "
        f"start: at the threshold and n = {n:,}, {n * limit / 2:.0f} logits. From p = 0.05 to 0.95 it is "
        f"{2 * logit(0.95):.0f} logits, so binary rewards with {settings.threshold.replications} replications can "
        f"teach an ES only where at most about {4 * logit(0.95) / limit:.0f} directions carry the curvature."
    )
