"""Where separability shows: isotropic, separable and full covariance on badly conditioned curvature, exact ranks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import PRNGKeyArray
from threadpoolctl import threadpool_limits

from experiments.efficiency import laws
from experiments.efficiency.arms import evolve, new_key, strategy
from experiments.efficiency.objective import Objective, block, centred
from experiments.efficiency.points import Point, one, within
from experiments.efficiency.settings import Settings
from experiments.efficiency.verdict import each, note, verdict
from experiments.results import markdown, over_seeds
from trinity_jax.evaluation.intervals import Estimate

ARMS = {"isotropic": "isotropic", "separable": "csa", "full": "full"}


@dataclass(frozen=True)
class Problem:
    """Curvature whose eigenvalues differ by ``condition`` and where they lie.

    Attributes:
        name: ``axes``: along the axes. ``within``: rotated within blocks that each hold all of them. ``between``: as
            many blocks, each isotropic, rotated within. ``across``: rotated over all coordinates.
        block: size of a block.
        eps: coupling of blocks.
    """

    name: str
    block: int
    eps: float

    def objective(self, n: int, condition: float, rng: np.random.Generator) -> Objective:
        """Optimum at the origin, tr H = n."""
        if self.name == "between":
            curvature = np.repeat(np.geomspace(1, condition, n // self.block), self.block)
            scales = np.sqrt(curvature / curvature.mean())
            return centred(block(self.block, 1.0, rng), self.eps, scales, 0.0)
        root = block(self.block, condition, None if self.name == "axes" else rng)
        return centred(root, self.eps, np.ones(n), 0.0)


def problems(settings: Settings) -> list[Problem]:
    """Every placement, with each eps where there are blocks to couple."""
    about = settings.separability
    placed = [Problem(name, about.block, eps) for name in ("axes", "between", "within") for eps in about.eps]
    return [*placed, Problem("across", about.n, 0.0)]


def measure(settings: Settings, rng: np.random.Generator) -> Iterator[Point]:
    """Sweep of every arm on the blocks rotated within, then f / f_0 by generation on every problem."""
    # LAPACK's threads gain nothing on matrices of this size and, where cores are shared, wait for each other for ever.
    with threadpool_limits(1):
        yield from _measure(settings, rng)


def _measure(settings: Settings, rng: np.random.Generator) -> Iterator[Point]:
    about, n, T = settings.separability, settings.separability.n, settings.separability.generations
    start, tuning_key, run_key = rng.standard_normal(n), new_key(rng), new_key(rng)
    objectives = {problem: problem.objective(n, about.condition, rng) for problem in problems(settings)}
    unit = float(laws.es_spread(1.0, settings.population) * np.linalg.norm(start) / n)

    def points(part: str, arm: str, problem: Problem, multiple: float, seeds: int, key: PRNGKeyArray) -> list[Point]:
        kind = ARMS[arm]
        trace = evolve(kind, objectives[problem], key, seeds, multiple * unit, settings.population, T, start=start)
        point = Point(
            part=part, arm=arm, measure="f/f0", problem=problem.name, n=n, block=problem.block, eps=problem.eps,
            condition=about.condition, ranks="exact", sigma0=multiple * unit, multiple=multiple, seeds=seeds,
        )  # fmt: skip
        # f is divided before its logarithm is taken: it may leave the range of float32.
        ratios = np.maximum(trace.logit / trace.logit[:, :1], np.finfo(np.float32).tiny)
        c_mu = strategy(kind, n, settings.population).c_mu
        times = sorted({*range(0, T + 1, max(1, T // 100)), about.early, T})
        means = {t: Estimate(*np.exp(over_seeds(np.log(ratios[:, t])))) for t in times}
        return [point.but(mean, T=t, c_mu_T=c_mu * t) for t, mean in means.items()]

    rotated = Problem("within", about.block, about.eps[0])
    for arm in ARMS:
        seeds = about.full_seeds if arm == "full" else about.seeds
        swept = [points("separability sweep", arm, rotated, x, seeds, tuning_key) for x in about.multiples]
        tries = [one(curve, T=about.early) for curve in swept]
        yield from tries
        best = min(tries, key=lambda point: point.value).multiple
        assert best is not None
        for problem in objectives:
            yield from points("separability", arm, problem, best, seeds, run_key)


def lines(points: Sequence[Point], settings: Settings) -> Iterator[str]:
    """What the run says about separability."""
    about = settings.separability
    found = within(points, part="separability")
    least, early, late = about.eps[0], about.early, about.generations

    def ahead(problem: str, eps: float, arm: str, t: int) -> float:
        """Powers of ten below the isotropic arm."""
        ours, isotropic = (one(found, problem=problem, eps=eps, arm=a, T=t).value for a in (arm, "isotropic"))
        return math.log10(isotropic / ours)

    axes, between = (ahead(problem, least, "separable", early) for problem in ("axes", "between"))
    yield verdict(
        min(axes, between) >= 1,
        f"Where curvature lies along the axes, or blocks are isotropic each, separable adaptation helps: {axes:.1f} "
        f"and {between:.1f} powers of ten ahead of isotropic after {early} generations (n = {about.n}, condition "
        f"{about.condition:g}; 1 demanded).",
    )
    inside, across = ahead("within", least, "separable", early), ahead("across", 0.0, "separable", early)
    yield verdict(
        min(inside, across) >= 1,
        f"It helps where curvature is rotated within blocks, or across all coordinates: {inside:.1f} and "
        f"{across:.1f} powers of ten.",
    )
    kept = each(f"{ahead('axes', eps, 'separable', early):.1f} (eps {eps:g})" for eps in about.eps)
    yield note(f"Powers of ten ahead along the axes, by eps: {kept}.")
    full = {t: (ahead("within", least, "full", t), ahead("across", 0.0, "full", t)) for t in (early, late)}
    c_mu = {arm: one(found, problem="across", arm=arm, T=late).c_mu_T or 0.0 for arm in ("full", "separable")}
    yield note(
        f"Full covariance, which does not know the axes, on those two: {full[early][0]:.1f} and "
        f"{full[early][1]:.1f} powers of ten ahead of isotropic after {early} generations, {full[late][0]:.1f} and "
        f"{full[late][1]:.1f} after {late}, where its c_mu T is {c_mu['full']:.2f} (separable: "
        f"{c_mu['separable']:.1f})."
    )
    swept = {arm: [p for p in points if p.part == "separability sweep" and p.arm == arm] for arm in ARMS}
    tries = "; ".join(f"{arm} {each(f'{p.value:.1e} ({p.multiple:g})' for p in curve)}" for arm, curve in swept.items())
    yield note(f"Sweep of sigma0 (f/f0 after {early} generations on the blocks rotated within): {tries}.")
    rows = []
    for problem, eps in dict.fromkeys((point.problem, point.eps) for point in found):
        for t in dict.fromkeys((early, late)):
            cells = [one(found, problem=problem, eps=eps, arm=arm, T=t) for arm in ARMS]
            rows.append([problem, eps, t, *(f"{p.value:.1e} [{p.low:.1e}, {p.high:.1e}]" for p in cells)])
    yield "\n" + markdown(["curvature", "eps", "generation", *(f"f/f0, {arm}" for arm in ARMS)], rows)
