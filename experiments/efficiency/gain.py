"""Proposition 1, the ES: its gain by generation, tuned by a sweep, beside its laws."""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import PRNGKeyArray

from experiments.efficiency import laws
from experiments.efficiency.arms import Trace, new_key, strategy
from experiments.efficiency.cases import Case
from experiments.efficiency.points import Point, line
from experiments.efficiency.settings import Settings
from experiments.results import over_seeds

LAWFUL = 0.8
"""Laws are fitted while the mean's chance of success is below this: later saturation bends any line."""


def climb(case: Case, settings: Settings, rng: np.random.Generator) -> Iterator[Point]:
    """Sweep of step sizes, gains with the best of them, and how well the laws fit."""
    objective, tuning_key, run_key = case.objective(rng), new_key(rng), new_key(rng)

    def runs(key: PRNGKeyArray, seeds: int, sigma0: float) -> Trace:
        return case.run(objective, key, seeds, sigma0, settings.population, settings.generations[-1])

    best = case.point("gain").but(sigma0=settings.gain.linear_spread)
    if not case.linear:
        tries = [_try(case, multiple, runs, tuning_key, settings) for multiple in settings.multiples]
        yield from tries
        best = max(tries, key=lambda point: point.value)
    assert best.sigma0 is not None
    point = case.point("gain").but(sigma0=best.sigma0, multiple=best.multiple, seeds=settings.gain.seeds)
    yield from _course(case, point, runs(run_key, settings.gain.seeds, best.sigma0), settings)


def _try(case: Case, multiple: float, runs: Callable[..., Trace], key: PRNGKeyArray, settings: Settings) -> Point:
    """One step size of the sweep; all are tried with the same random numbers."""
    sigma0, T = multiple * laws.es_spread(case.G, settings.population), settings.generations[-1]
    gains = runs(key, settings.gain.tuning_seeds, sigma0).logit[:, -1] - case.level
    point = case.point("sweep").but(over_seeds(gains), measure="gain", T=T, seeds=len(gains))
    point = point.but(c_mu_T=strategy(case.kind, case.n, settings.population).c_mu * T)
    predicted = case.path(np.full(T, sigma0), settings.population).gain[-1]
    return point.but(predicted=predicted, sigma0=sigma0, multiple=multiple)


def _course(case: Case, point: Point, trace: Trace, settings: Settings) -> Iterator[Point]:
    """The ES's gains by generation, and how well the laws fit."""
    P, T = settings.population, settings.generations[-1]
    c_mu = strategy(case.kind, case.n, P).c_mu
    sigmas = trace.sigma.mean(axis=0)
    path = case.path(sigmas[:-1], P)
    gains = trace.logit - case.level
    for t in range(T + 1):
        of_mean = point.but(over_seeds(gains[:, t]), measure="gain", predicted=path.gain[t], T=t, c_mu_T=c_mu * t)
        yield of_mean
        if t > 0:
            yield of_mean.but(over_seeds(trace.crowd[:, t - 1] - case.level), measure="population", predicted=None)

    lawful = case.chance(trace.logit.mean(axis=0)) < LAWFUL if case.replications else np.full(T + 1, True)
    last = T if lawful.all() else max(2, int(np.argmin(lawful)) - 1)
    t = np.arange(last + 1)
    fit = point.but(part="fit", T=last, c_mu_T=c_mu * last)
    slopes, straight = line(t, gains[:, : last + 1])
    yield fit.but(over_seeds(slopes), measure="slope", predicted=line(t, path.gain[: last + 1])[0])
    yield fit.but(over_seeds(slopes), measure="first-order slope", predicted=_first_order(case, point.sigma0, P))
    yield fit.but(straight, measure="R2 in T")
    yield fit.but(line(np.log(t[1:]), gains[:, 1 : last + 1])[1], measure="R2 in ln T")
    yield fit.but(line(np.arange(T + 1), gains)[1], measure="R2 in T to the end", T=T, c_mu_T=c_mu * T)

    pull, exact, length2 = (values[:, :last].mean(axis=1) for values in (trace.pull, trace.exact_pull, trace.length2))
    if not case.replications:
        yield fit.but(over_seeds(case.n * pull**2 / length2), measure="kbar", predicted=laws.kbar(P))
        return
    crowds = trace.crowd[:, :last].mean(axis=0)
    spreads = sigmas[:last] * np.sqrt(path.gradient2[:last])
    formula, counted = [], []
    for crowd, spread in zip(crowds, spreads, strict=True):
        formula.append(case.attenuation(spread, float(case.chance(crowd)), case.replications))
        chances = case.chance(crowd + spread * laws.nodes())
        counted.append(laws.selection(chances, P, case.replications).pull / laws.kappa(P))
    rho = fit.but(over_seeds(pull / exact))
    yield rho.but(measure="rho", predicted=float(np.mean(formula)))
    yield rho.but(measure="rho by counts", predicted=float(np.mean(counted)))


def _first_order(case: Case, spread: float | None, population: int) -> float:
    """Slope at the start, rho by its formula at the candidates' chance."""
    assert spread is not None
    G = np.inf if case.linear else case.G
    attenuation = 1.0
    if case.replications:
        chance = float(case.chance(np.asarray(case.level - spread**2 / (2 * G))))
        attenuation = case.attenuation(spread, chance, case.replications)
    return laws.es_slope(G, spread, population, attenuation)
