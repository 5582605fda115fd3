"""Proposition 2: how fast the squared distance to the optimum shrinks at small n, and what noise makes of it."""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import expit, logit

from experiments.efficiency import laws
from experiments.efficiency.arms import Trace, evolve, new_key, strategy
from experiments.efficiency.objective import block, centred
from experiments.efficiency.points import Point, line, one, within
from experiments.efficiency.settings import Settings
from experiments.efficiency.verdict import TOLERANCE, agrees, each, together, verdict
from experiments.results import over_seeds, show
from trinity_jax.evaluation.intervals import Estimate

KBAR = "kbar/n"
ARMS = ("step size from the gradient", "CSA", "TPA")
LENGTH = 4
"""Generations over n; the contraction is read from the second half. Proposition 2's transient is of order n."""


def measure(settings: Settings, rng: np.random.Generator) -> Iterator[Point]:
    """Exact ranks on the sphere for each n and arm, on blocks for each eps, and binary rewards on the sphere."""
    for part in (_sphere, _blocks, _noise):
        yield from part(settings, rng)


def _sphere(settings: Settings, rng: np.random.Generator) -> Iterator[Point]:
    """H = I from |m|^2 = n. The step size is kappa_w mu_eff |m|/n times each multiple; CSA and TPA only start there.

    For the first arm, which keeps to it, that is times the multiple that the law finds best at this n.
    """
    about, P = settings.contraction, settings.population
    for n in about.n:
        objective = centred(np.eye(1), 0.0, np.ones(n), 0.0)
        start, key = _start(rng, n, n), new_key(rng)
        multiples = np.linspace(0.05, 1.2, 116)
        best = float(multiples[np.argmax([laws.sphere_contraction(n, x, P) for x in multiples])])
        for arm, kind, unit in zip(ARMS, ("isotropic", "csa", "tpa"), (best, 1.0, 1.0), strict=True):
            follow = kind == "isotropic"
            for multiple in about.multiples:
                x = multiple * unit
                sigma0 = x * laws.kappa(P) * laws.mu_eff(P) / np.sqrt(n) / (np.sqrt(n) if follow else 1)
                trace = evolve(kind, objective, key, about.seeds, sigma0, P, LENGTH * n, start=start, follow=follow)
                law = laws.sphere_contraction(n, x, P) if follow else None
                point = Point(part="contraction", arm=arm, n=n, ranks="exact", multiple=x, sigma0=float(sigma0))
                yield _contraction(point, kind, trace, settings).but(predicted=law)
        limit = Point(part="contraction", arm=KBAR, measure="contraction", n=n, value=laws.kbar(P) / n)
        yield limit
        yield limit.but(laws.sphere_contraction(n, best, P), arm="law at this n, best step size", multiple=best)


def _blocks(settings: Settings, rng: np.random.Generator) -> Iterator[Point]:
    """The same on badly conditioned blocks: along the axes, where rescaling mends everything but eps, and rotated."""
    about, P = settings.contraction, settings.population
    n = about.blocks_n
    start, key = _start(rng, n, n), new_key(rng)
    roots = {
        "sphere": np.eye(about.block),
        "axes": block(about.block, about.condition),
        "rotated": block(about.block, about.condition, rng),
    }
    for arm, root in roots.items():
        for eps in about.eps:
            objective = centred(root, eps, np.ones(n), 0.0)
            sigma0 = laws.kappa(P) * laws.mu_eff(P) / np.sqrt(n)
            trace = evolve("csa", objective, key, about.seeds, sigma0, P, 2 * LENGTH * n, start=start)
            point = Point(part="blocks", arm=arm, n=n, block=about.block, eps=eps, ranks="exact")
            yield _contraction(point.but(sigma0=float(sigma0)), "csa", trace, settings)


def _noise(settings: Settings, rng: np.random.Generator) -> Iterator[Point]:
    """Binary rewards on the sphere: distance by generation, and the distance at which the noise stops progress."""
    about, P = settings.contraction, settings.population
    n, level = about.blocks_n, float(logit(about.top))
    distance2 = 2 * (level - float(logit(about.start)))
    objective = centred(np.eye(1), 0.0, np.ones(n), level)
    start, key = _start(rng, n, distance2), new_key(rng)
    T, c_mu = 2 * LENGTH * n, strategy("csa", n, P).c_mu
    for replications in about.replications:
        sigma0 = laws.kappa(P) * laws.mu_eff(P) * np.sqrt(distance2) / n / 2
        trace = evolve("csa", objective, key, about.seeds, sigma0, P, T, "logistic", replications, start)
        point = Point(
            part="floor", arm=f"R = {replications}", n=n, ranks="bernoulli", replications=replications,
            seeds=about.seeds, sigma0=float(sigma0),
        )  # fmt: skip
        for t in range(T + 1):
            yield point.but(_geometric(trace.distance2[:, t]), measure="distance^2", T=t, c_mu_T=c_mu * t)
        late = np.exp(np.log(trace.distance2[:, T // 2 :]).mean(axis=1))
        floor = _floor(n, level, replications, P)
        yield point.but(_geometric(late), measure="floor", predicted=floor, T=T, c_mu_T=c_mu * T)


def _start(rng: np.random.Generator, n: int, distance2: float) -> np.ndarray:
    """A random direction at a distance."""
    direction = rng.standard_normal(n)
    return direction * np.sqrt(distance2) / np.linalg.norm(direction)


def _contraction(point: Point, kind: str, trace: Trace, settings: Settings) -> Point:
    """1 - exp of the slope of ln |m|^2 over the second half of the run, past the transient; NaN if it diverged."""
    T = trace.distance2.shape[1] - 1
    t = np.arange(T // 2, T + 1)
    if not np.isfinite(trace.distance2).all():
        return point.but(np.nan, measure="contraction", T=T, seeds=len(trace.distance2))
    slopes = line(t, np.log(trace.distance2[:, t]))[0]
    mean, low, high = over_seeds(slopes)
    shrinks = Estimate(-np.expm1(mean), -np.expm1(high), -np.expm1(low))
    return point.but(shrinks, measure="contraction", T=T, seeds=len(slopes), c_mu_T=_c_mu(kind, point, settings) * T)


def _c_mu(kind: str, point: Point, settings: Settings) -> float:
    assert point.n is not None
    return 0.0 if kind == "isotropic" else strategy(kind, point.n, settings.population).c_mu


def _geometric(values: np.ndarray) -> Estimate:
    """Geometric mean and its interval."""
    return Estimate(*np.exp(over_seeds(np.log(values))))


def _floor(n: int, level: float, replications: int, population: int) -> float:
    """|m|^2 at which G = |m|^2 / n is the threshold for the chance of success there; infinite if it always is below."""
    distance2 = 0.0
    for _ in range(1000):
        chance = float(expit(level - distance2 / 2))
        if chance < 1e-6:
            return np.inf
        distance2 = n * laws.es_threshold(population, replications, chance)
    return distance2


def lines(points: Sequence[Point], settings: Settings) -> Iterator[str]:
    """What the run says about Proposition 2."""
    found = [point for point in within(points, part="contraction") if not np.isnan(point.value)]
    sizes = list(dict.fromkeys(point.n or 0 for point in found))
    limit = {n: one(found, arm=KBAR, n=n).value for n in sizes}
    best = {
        (arm, n): max(within(found, arm=arm, n=n), key=lambda p: p.value).value / limit[n]
        for arm in ARMS
        for n in sizes
    }
    shares = "; ".join(f"{arm} {each(f'{best[arm, n]:.2f} (n = {n})' for n in sizes)}" for arm in ARMS)
    beyond = [str(n) for n in sizes if limit[n] > 1]
    yield verdict(
        all(abs(share - 1) <= TOLERANCE for share in best.values()),
        "After the transient |m|^2 shrinks by kbar/n a generation (sphere, exact ranks): measured over kbar/n, best "
        f"of the step sizes tried: {shares}. kbar/n is what a perfect step size approaches for large n"
        + (f"; at n = {each(beyond)} it is above 1, which nothing can reach." if beyond else "."),
    )
    known = [max(within(found, arm=ARMS[0], n=n), key=lambda p: p.predicted or -1.0) for n in sizes]
    yield verdict(
        together(map(agrees, known)),
        "At finite n the law has to take the scatter of |z|^2 into account: then, with the step size that it finds "
        f"best, measured over predicted is {each(f'{1 + p.error:.3f} (n = {p.n})' for p in known)}.",
    )
    rates = [[p.value for p in within(found, arm=arm, n=n)] for arm in ARMS[1:] for n in sizes]
    spread = max(max(some) / min(some) - 1 for some in rates)
    yield verdict(
        spread <= 2 * TOLERANCE,
        "sigma0 is forgotten after the transient (10 % allowed): CSA's and TPA's rates differ by at most "
        f"{spread:.1%} over sigma0 from {min(settings.contraction.multiples):g} to "
        f"{max(settings.contraction.multiples):g} times the law's.",
    )
    yield from _block_lines(within(points, part="blocks"), settings)
    floors = within(points, part="floor", measure="floor")
    if floors:
        ends = each(f"{show(p.estimate)} ({p.arm}, threshold {p.predicted:.3f})" for p in floors)
        yield verdict(
            all(abs(point.error) <= 4 * TOLERANCE for point in floors),
            "Binary rewards end the contraction where G = |m|^2 / n has fallen to the noise threshold (20 % "
            f"allowed): |m|^2 {ends}.",
        )


def _block_lines(blocks: Sequence[Point], settings: Settings) -> Iterator[str]:
    condition, least = settings.contraction.condition, min(settings.contraction.eps)
    plain = {arm: one(blocks, arm=arm, eps=least) for arm in ("sphere", "axes", "rotated")}
    kept = {point.eps or 0.0: point.value / plain["axes"].value for point in within(blocks, arm="axes")}
    yield verdict(
        all(share >= 1 - eps - TOLERANCE for eps, share in kept.items()),
        f"Coupling costs a factor 1 - O(eps): rate over that at eps {least:g}, blocks along the axes of condition "
        f"{condition:g}: {each(f'{share:.2f} (eps {eps:g})' for eps, share in kept.items())}; tested is 1 - eps.",
    )
    yield verdict(
        abs(plain["axes"].value / plain["sphere"].value - 1) <= 2 * TOLERANCE,
        f"A diagonal rescaling is learned: along the axes the rate is {show(plain['axes'].estimate)}, on the sphere "
        f"{show(plain['sphere'].estimate)} (10 % allowed).",
    )
    yield verdict(
        abs(plain["rotated"].value / plain["axes"].value - 1) <= 2 * TOLERANCE,
        f"Within a block anything goes: with the same blocks rotated the rate is {show(plain['rotated'].estimate)}, "
        f"{plain['rotated'].value / plain['axes'].value:.2f} times that along the axes (10 % allowed).",
    )
