"""Our separable CMA-ES beside cmaes (CSA) and pycma (two-point step size, active weights), on the same problems.

cmaes scales only the rank-mu rate for the diagonal, we scale the rank-one rate too (Ros & Hansen 2008), which adapts
faster on the large ellipsoid; that problem is therefore also run with cmaes's rank-one rate.

Prints, per problem, the median over seeds of the generations to 1e-8 or of log10 f at the end, and ours over theirs.
``--json`` prints the same as one JSON object on the last line. Ten minutes on one core; ``--quick``: n = 10 only.
"""

import argparse
import json
import os

# More threads make numpy's small products ten times slower, and with them both references.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import cma
import jax
import jax.numpy as jnp
import numpy as np
from cma.sigma_adaptation import CMAAdaptSigmaTPA
from cmaes import SepCMA
from rich.console import Console
from rich.table import Table

from trinity_jax.config import LearningSettings
from trinity_jax.learning.strategy import Strategy

P, START, SIGMA0, TARGET = 32, 3.0, 1.0, 1e-8


class Problem(NamedTuple):
    """Minimise sum f_i x_i^2: generations to the target are counted, or log10 f is taken after ``generations``."""

    name: str
    n: int
    condition: float
    seeds: int
    generations: int | None = None

    @property
    def factors(self) -> np.ndarray:
        """Curvatures, from 1 to the condition number."""
        return self.condition ** (np.arange(self.n) / max(self.n - 1, 1))


PROBLEMS = (
    Problem("sphere", 10, 1, 21),
    Problem("ellipsoid 1e6", 10, 1e6, 21),
    Problem("sphere", 1000, 1, 5),
    Problem("ellipsoid 1e6", 1000, 1e6, 5, 4000),
)


def ours(problem: Problem, seed: int, **settings: Any) -> tuple[int, float]:
    """Generations played, and the best value of the last one."""
    return jax.tree.map(lambda leaf: leaf.item(), _program(problem, tuple(settings.items()))(seed))


_programs: dict[Any, Callable[[int], Any]] = {}


def _program(problem: Problem, settings: tuple[tuple[str, Any], ...]) -> Callable[[int], Any]:
    if (problem, settings) in _programs:
        return _programs[problem, settings]
    chosen = dict(settings)
    c_1 = chosen.pop("c_1", None)
    strategy = Strategy(LearningSettings(population=P, sigma0=SIGMA0, **chosen), problem.n)
    if c_1 is not None:
        strategy.params = replace(strategy.params, c_1=jnp.asarray(c_1))
    factors, limit = jnp.asarray(problem.factors, jnp.float32), problem.generations or 20_000
    target = TARGET if problem.generations is None else 0.0

    @jax.jit
    def run(seed):
        root = jax.random.key(seed)

        def generation(carry):
            state, count, _ = carry
            key = jax.random.fold_in(root, count)
            X, state = strategy.ask(state, key)
            values = (factors * X**2).sum(axis=1)
            return strategy.tell(state, X, -values, key), count + 1, values.min()

        start = (strategy.init(root, jnp.full(problem.n, START)), 0, jnp.inf)
        _, count, best = jax.lax.while_loop(lambda c: (c[1] < limit) & (c[2] >= target), generation, start)
        return count, best

    _programs[problem, settings] = run
    return run


def cmaes_csa(problem: Problem, seed: int) -> tuple[int, float]:
    """cmaes.SepCMA, which has cumulative step-size adaptation and no negative weights."""
    es = SepCMA(mean=np.full(problem.n, START), sigma=SIGMA0, population_size=P, seed=seed)

    def tell(X: list[np.ndarray], values: np.ndarray) -> None:
        es.tell(list(zip(X, values, strict=True)))

    return _drive(problem, lambda: [es.ask() for _ in range(P)], tell)


def pycma_tpa(problem: Problem, seed: int) -> tuple[int, float]:
    """pycma with a diagonal covariance: what it takes for n >= 300, forced for small n."""
    options = cma.CMAOptions()
    options.update(
        {"CMA_diagonal": True, "AdaptSigma": CMAAdaptSigmaTPA, "popsize": P, "seed": seed + 1, "verbose": -9}
    )
    es = cma.CMAEvolutionStrategy(problem.n * [START], SIGMA0, options)
    return _drive(problem, es.ask, lambda X, values: es.tell(X, list(values)))


def _drive(problem: Problem, ask: Callable[[], Any], tell: Callable[[Any, Any], None]) -> tuple[int, float]:
    factors, limit = problem.factors, problem.generations or 20_000
    best = math.inf
    for generation in range(1, limit + 1):
        X = ask()
        values = (factors * np.asarray(X) ** 2).sum(axis=1)
        best = values.min()
        if problem.generations is None and best < TARGET:
            return generation, best
        tell(X, values)
    return limit, best


def compare(problem: Problem, reference: Callable[..., tuple[int, float]], **settings: Any) -> dict[str, Any]:
    """Medians of both, over the same number of seeds."""

    def median(run: Callable[..., tuple[int, float]], **more: Any) -> float:
        results = [run(problem, seed, **more) for seed in range(problem.seeds)]
        return float(np.median([math.log10(f) if problem.generations else count for count, f in results]))

    mine, other = median(ours, **settings), median(reference)
    measure = f"log10 f at {problem.generations}" if problem.generations else "generations to 1e-8"
    return {
        "problem": problem.name,
        "n": problem.n,
        "reference": reference.__name__ + (", its c_1" if "c_1" in settings else ""),
        "measure": measure,
        "ours": mine,
        "theirs": other,
        "ours_over_theirs": None if problem.generations else mine / other,
        "difference": mine - other if problem.generations else None,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help="n = 10 only")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "elements of z2")  # pycma, whenever a coordinate of the pair is long
    started, rows = time.perf_counter(), []
    table = Table("problem", "n", "against", "measured", "ours", "theirs", "ratio or difference")
    for problem in PROBLEMS:
        if arguments.quick and problem.n > 10:
            continue
        arms = [(cmaes_csa, {}), (pycma_tpa, {"step_size": "tpa", "active": True})]
        if problem.generations:
            arms.append((cmaes_csa, {"c_1": SepCMA(np.zeros(problem.n), SIGMA0, population_size=P)._c1}))
        for reference, settings in arms:
            row = compare(problem, reference, **settings)
            rows.append(row)
            judged = row["difference"] if problem.generations else row["ours_over_theirs"]
            cells = (row["problem"], str(row["n"]), row["reference"], row["measure"])
            table.add_row(*cells, f"{row['ours']:.4g}", f"{row['theirs']:.4g}", f"{judged:.3f}")
    Console().print(table)
    if arguments.json:
        print(json.dumps({"rows": rows, "seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main()
