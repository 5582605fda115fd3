"""Propositions 1 and 2: laws against Monte Carlo, objectives against matrices, runs against plain loops."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cmaes import CMA
from rich.console import Console
from scipy import stats
from scipy.special import expit

from experiments.efficiency import laws
from experiments.efficiency.arms import GENERATIONS_A_CALL, evolve, new_key, strategy
from experiments.efficiency.cases import Case
from experiments.efficiency.objective import Objective, block, centred, dense, eigenvalues, hessian, sloped
from experiments.efficiency.points import Point, line, ratio
from experiments.efficiency.random_search import draw, search
from experiments.efficiency.settings import Settings
from experiments.efficiency.study import run
from experiments.efficiency.threshold import _crossing
from experiments.efficiency.verdict import agrees, together, verdict
from experiments.results import Results
from trinity_jax import config
from trinity_jax.errors import UserError
from trinity_jax.evaluation.intervals import Estimate
from trinity_jax.learning.shaping import shared_by_rank

CONFIG = Path(__file__).resolve().parents[2] / "experiments" / "configs" / "efficiency.yaml"
P = 32
N = 64
"""One length for all runs: what is compiled for one test serves the next."""


def settings(*overrides: str) -> Settings:
    return config.parse(config.read(CONFIG, overrides), "efficiency.yaml", Settings)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# --- laws ---


def test_the_papers_constants():
    assert laws.mu_eff(P) == pytest.approx(9.18, abs=0.005)
    assert laws.kappa(P) == pytest.approx(1.261, abs=0.0005)
    assert laws.kbar(P) == pytest.approx(14.6, abs=0.05)
    assert 1 / laws.es_threshold(P, 16) == pytest.approx(46.3, abs=0.05)
    # Proposition 1: T / ln(16 T) at T = 60 is 8.74.
    assert laws.ratio_bound(P, 60, 960) == pytest.approx(laws.kbar(P) / 2 * 8.74, rel=1e-3)
    # The bound with equal replications, and the ratio that the laws predict.
    assert laws.ratio_bound(P, 60, 1920) == pytest.approx(57.9, abs=0.05)
    law = laws.es_slope(1.0, laws.es_spread(1.0, P), P) * 60 / (laws.expected_maximum(1920) ** 2 / 2)
    assert law == pytest.approx(75, abs=0.7)


def test_order_statistics():
    # Known in closed form: E max of 2 and of 3 normals.
    assert laws.expected_maximum(2) == pytest.approx(1 / math.sqrt(math.pi), rel=1e-6)
    assert laws.expected_maximum(3) == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-6)
    means = laws.order_means(P)
    assert means[0] == pytest.approx(laws.expected_maximum(P), rel=1e-6)
    np.testing.assert_allclose(means, -means[::-1], atol=1e-6)


def standing(rng, level, spread, replications, count, runs):
    """Standardised logits and counts of successes of some candidates."""
    z = rng.standard_normal((runs, count))
    return z, rng.binomial(replications, expit(level + spread * z))


@pytest.mark.parametrize(("level", "replications", "spread"), [(0.0, 16, 0.5), (-1.5, 16, 0.8), (0.0, 400, 0.3)])
def test_selection_with_ties_against_monte_carlo(rng, level, replications, spread):
    z, successes = standing(rng, level, spread, replications, P, 10_000)
    by_rank = jnp.asarray(laws.weights(P))
    weights = np.asarray(jax.vmap(lambda f: shared_by_rank(by_rank, -f))(jnp.asarray(successes, float)), float)
    law = laws.selection(expit(level + spread * laws.nodes()), P, replications)
    per_run = [(weights * z).sum(axis=1), (weights**2).sum(axis=1), (weights**2 * z).sum(axis=1)]
    for value, values in zip(law, per_run, strict=True):
        # Four standard errors, and what ties among many replications are worth.
        assert value == pytest.approx(values.mean(), abs=4 * values.std() / 100 + 2e-3 * abs(value))


@pytest.mark.parametrize(("level", "replications"), [(0.0, 32), (-1.0, 32), (0.0, 1000)])
def test_the_winner_of_noisy_candidates_against_monte_carlo(rng, level, replications):
    z, successes = standing(rng, level, 0.4, replications, 160, 10_000)
    best = np.argmax(successes, axis=1)
    pull = z[np.arange(len(z)), best]
    law = laws.winner_pull(expit(level + 0.4 * laws.nodes()), 160, replications)
    # Successes in a thousand draws are taken for normal.
    assert law == pytest.approx(pull.mean(), abs=4 * pull.std() / 100 + (0.01 if replications > laws.MANY else 0))


def test_rho_is_the_correlation_for_small_signals():
    chances = expit(0.05 * laws.nodes())
    exact = laws.selection(chances, P, 16).pull / laws.kappa(P)
    assert laws.rho(0.05 / 4, 0.5, 16) == pytest.approx(exact, rel=0.02)


def test_selection_is_continuous_where_the_approximation_begins():
    chances = expit(0.1 * laws.nodes())
    exact, approximate = (laws.selection(chances, P, R) for R in (laws.MANY, laws.MANY + 1))
    assert exact.pull == pytest.approx(approximate.pull, rel=0.005)
    assert exact.squares == pytest.approx(approximate.squares, rel=0.01)


# --- objectives ---


def coupled(rng, n=24, size=4, eps=0.6) -> Objective:
    root = block(size, 100.0, rng)
    return Objective(0.3, rng.standard_normal(n), root, eps, rng.uniform(0.5, 2, n))


def test_logit_and_gradient_are_those_of_the_matrix(rng):
    objective = coupled(rng)
    H, X = hessian(objective), rng.standard_normal((5, 24))
    expected = 0.3 + X @ objective.slope - 0.5 * np.einsum("pi,ij,pj->p", X, H, X)
    np.testing.assert_allclose(objective.logit(jnp.asarray(X)), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(objective.logit)(jnp.asarray(X[0])), objective.slope - H @ X[0], rtol=1e-4)
    np.testing.assert_allclose(objective.gradient(jnp.asarray(X[0])), objective.slope - H @ X[0], rtol=1e-4)
    np.testing.assert_allclose(dense(objective).logit(jnp.asarray(X)), expected, rtol=1e-5)


@pytest.mark.parametrize("blocks", [2, 4, 6])
def test_eps_is_the_norm_between_blocks_relative_to_the_diagonal(rng, blocks):
    size, eps = 4, 0.7
    objective = centred(block(size, 50.0), eps, np.ones(blocks * size), 0.0)
    H = hessian(objective)
    rescaled = H / np.sqrt(np.outer(np.diag(H), np.diag(H)))
    between = rescaled * (1 - np.kron(np.eye(blocks), np.ones((size, size))))
    assert np.linalg.norm(between, 2) == pytest.approx(eps)
    assert np.abs(between).sum(axis=1).max() <= eps + 1e-9
    plain = hessian(objective._replace(eps=0.0))
    np.testing.assert_allclose(np.diag(H), np.diag(plain))
    assert np.linalg.eigvalsh(H).min() > 0


def test_the_spectrum_in_closed_form(rng):
    objective = centred(block(4, 30.0, rng), 0.5, np.ones(20), 0.0)
    expected = np.linalg.eigvalsh(hessian(objective))
    np.testing.assert_allclose(np.sort(eigenvalues(objective.root, 0.5, 20)), expected)


def test_a_slope_has_the_strength_it_should(rng):
    objective = sloped(block(4, 30.0, rng), 0.5, 0.02, 0.0, rng.standard_normal(40))
    assert np.sum(objective.slope**2) / np.trace(hessian(objective)) == pytest.approx(0.02)
    case = Case("", 40, 4, condition=30.0, eps=0.5, G=0.02)
    expected = np.linalg.eigvalsh(hessian(case.objective(rng)))
    np.testing.assert_allclose(np.sort(case.curvatures()), expected)


# --- random search as scalars ---


def ks(some, others) -> float:
    """p value of two samples of one distribution."""
    result: Any = stats.ks_2samp(some, others)
    return result.pvalue


@pytest.mark.parametrize("proposal", ["gaussian", "box"])
def test_scalars_are_as_good_as_vectors(rng, proposal):
    """Winners of the direct simulation have the same distribution of true gains."""
    n, runs, count, spread, G = 300 if proposal == "box" else 12, 600, 20, 0.8, 0.3
    slope = rng.standard_normal(n)
    objective = sloped(np.eye(1), 0.0, G, 0.0, slope)
    unit = rng.uniform(-1, 1, (runs, count, n)) * math.sqrt(3) if proposal == "box" else None
    X = spread * (unit if unit is not None else rng.standard_normal((runs, count, n)))
    gains = X @ objective.slope - np.sum(X**2, axis=-1) / (2 * n * G)
    scalar = search(draw(rng, runs, count, n, proposal), spread, G)
    assert ks(gains.max(axis=1), scalar.gain) > 1e-3
    noisy = rng.binomial(8, expit(gains))
    direct = np.take_along_axis(gains, np.argmax(noisy, axis=1)[:, None], axis=1)[:, 0]
    scalar = search(draw(rng, runs, count, n, proposal), spread, G, lambda gain: rng.binomial(8, expit(gain)))
    assert ks(direct, scalar.gain) > 1e-3


def test_short_searches_are_the_beginning_of_long_ones(rng):
    candidates = draw(rng, 5, 30, 100)
    np.testing.assert_array_equal(candidates.first(10).a, candidates.a[:, :10])
    assert (search(candidates, 0.1, 1.0).reported >= search(candidates.first(10), 0.1, 1.0).reported).all()


# --- runs ---


def test_full_covariance_has_the_right_learning_rates():
    ours, theirs = strategy("full", 20, P).params, CMA(mean=np.zeros(20), sigma=1.0, population_size=P)
    for name in ("c_1", "c_c", "mu_eff"):
        assert float(getattr(ours, name)) == pytest.approx(
            getattr(theirs, f"_{name.replace('c_1', 'c1').replace('c_c', 'cc')}")
        )
    assert float(ours.c_mu) == pytest.approx(theirs._cmu, rel=0.1)
    assert float(ours.c_std) == pytest.approx(theirs._c_sigma)
    assert float(ours.d_std) == pytest.approx(theirs._d_sigma)


@pytest.fixture(scope="module")
def climbed():
    """A case, an objective of it, key, step size and 40 runs."""
    rng = np.random.default_rng(1)
    case = Case("", N, 16, condition=10.0, eps=0.3)
    objective, key, sigma0 = case.objective(rng), new_key(rng), 0.5 * laws.es_spread(1.0, P)
    return case, objective, key, sigma0, case.run(objective, key, 40, sigma0, P, 25)


def test_a_run_is_a_plain_loop_of_ask_and_tell(climbed):
    case, objective, key, sigma0, trace = climbed
    plain, number = strategy("csa", case.n, P), 37
    state = plain.init(key).replace(std=jnp.asarray(sigma0, jnp.float32))
    for t in range(3):
        start = jax.random.fold_in(jax.random.fold_in(key, number), t // GENERATIONS_A_CALL * GENERATIONS_A_CALL)
        ask_key, _, tell_key = jax.random.split(start, (GENERATIONS_A_CALL, 3))[t % GENERATIONS_A_CALL]
        X, state = plain.ask(state, ask_key)
        H = hessian(objective)
        rows = np.asarray(X, float)
        fitness = rows @ objective.slope - 0.5 * np.einsum("pi,ij,pj->p", rows, H, rows)
        assert trace.crowd[number, t] == pytest.approx(fitness.mean(), rel=1e-4)
        state = plain.tell(state, X, fitness, tell_key)
        assert trace.distance2[number, t + 1] == pytest.approx(float(jnp.sum(state.mean**2)), rel=1e-4)
        assert trace.sigma[number, t + 1] == pytest.approx(float(state.std), rel=1e-5)
    assert trace.logit.shape == (40, 26)
    assert trace.pull.shape == (40, 25)


def test_fewer_runs_and_generations_are_the_beginning_of_more(climbed):
    case, objective, key, sigma0, trace = climbed
    short = case.run(objective, key, 3, sigma0, P, 10)
    np.testing.assert_array_equal(short.logit, trace.logit[:3, :11])


def test_the_law_follows_the_runs():
    rng = np.random.default_rng(3)
    case = Case("", N, 16)
    trace = case.run(case.objective(rng), new_key(rng), 100, 0.5 * laws.es_spread(1.0, P), P, 20)
    path = case.path(trace.sigma.mean(axis=0)[:-1], P)
    for t in (2, 10, 20):
        error = trace.logit[:, t].std() / 10
        assert trace.logit[:, t].mean() == pytest.approx(path.gain[t], abs=3.5 * error + 0.01 * path.gain[t])


def test_the_law_follows_binary_runs():
    rng = np.random.default_rng(2)
    case = Case("", N, 16, G=0.06, start=0.4, replications=16)
    sigma0 = 0.4 * laws.es_spread(case.G, P)
    trace = case.run(case.objective(rng), new_key(rng), 60, sigma0, P, 20)
    path = case.path(trace.sigma.mean(axis=0)[:-1], P)
    gain = trace.logit[:, -1] - case.level
    assert gain.mean() == pytest.approx(path.gain[-1], abs=3.5 * gain.std() / math.sqrt(60))
    # Half of what is seen is noise, and the candidates do worse than their mean.
    assert (trace.pull.mean() < 0.75 * trace.exact_pull.mean()) & (
        trace.crowd[:, -1].mean() < trace.logit[:, -1].mean()
    )


def test_isotropic_runs_keep_to_the_step_size_told(rng):
    objective = centred(np.eye(1), 0.0, np.ones(N), 0.0)
    trace = evolve("isotropic", objective, new_key(rng), 16, 0.08, P, 20, start=np.ones(N), follow=True)
    np.testing.assert_allclose(trace.sigma[:, 0], 0.08 * math.sqrt(N), rtol=1e-6)
    expected = laws.sphere_contraction(N, 0.08 * N / laws.kappa(P) / laws.mu_eff(P), P)
    measured = 1 - (trace.distance2[:, -1] / N) ** (1 / 20)
    assert measured.mean() == pytest.approx(expected, rel=0.05)


# --- points and verdicts ---


def test_a_line(rng):
    x, y = np.arange(8.0), rng.standard_normal((3, 8)) + 2 * np.arange(8.0)
    slopes, r2 = line(x, y)
    np.testing.assert_allclose(slopes, [np.polyfit(x, row, 1)[0] for row in y])
    assert r2 == pytest.approx(np.corrcoef(x, y.mean(axis=0))[0, 1] ** 2)


def test_a_ratio_has_the_errors_of_both():
    found = ratio(Estimate(10.0, 9.0, 11.0), Estimate(2.0, 1.8, 2.2))
    assert found.mean == 5
    assert math.log(found.high / found.mean) == pytest.approx(math.sqrt(2) * 0.1)


def test_a_crossing_is_where_the_line_in_1_over_g_is_zero(rng):
    points = [
        Point(part="", arm="", G=G, value=1 - 0.02 / G, low=0.99 - 0.02 / G, high=1.01 - 0.02 / G)
        for G in (0.01, 0.02, 0.04)
    ]
    found = _crossing(points, rng)
    assert found.mean == pytest.approx(0.02)
    assert found.low < 0.02 < found.high


def test_verdicts():
    point = Point(part="", arm="", value=1.03, low=1.02, high=1.04, predicted=1.0)
    assert agrees(point) is True
    assert agrees(point.but(Estimate(1.2, 0.9, 1.5))) is None
    assert agrees(point.but(Estimate(1.2, 1.1, 1.3))) is False
    assert together([True, None]) is None
    assert together([None, False]) is False
    assert verdict(None, "x") == "- **Undecided.** x"


# --- the study ---


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("gain.n=100", "multiple of the block size 16, got 100"),
        ("gain.n=16", "at least two of size 16 in n, got n = 16"),
        ("gain.noisy.1.G=0.032", "same name"),
        ("generations=[5, 2, 10]", "must ascend"),
        ("separability.early=2000", "at most generations"),
        ("gain.eps=1", "less than 1"),
        ("gain.replications=1", "unknown key"),
    ],
)
def test_bad_settings_are_told(override, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        settings(override)


TINY = (
    "study.preset=smoke",
    "generations=[2, 5, 20]",
    "gain={n: 64, seeds: 4, tuning_seeds: 2, search_seeds: 200, smaller: []}",
    "threshold={n: 64, seeds: 4, spreads: [0.1], strengths: [0.5, 2.0]}",
    "contraction={n: [64], blocks_n: 64, seeds: 3, eps: [0.0], replications: [16]}",
    "separability={n: 64, block: 8, eps: [0.0], generations: 20, early: 20, seeds: 3, full_seeds: 3, multiples: [0.3]}",
)


def test_a_study_leaves_points_figures_and_verdicts(tmp_path):
    found = settings(*TINY)
    with Results.begin(tmp_path / "run", found) as results:
        run(found, results, Console(quiet=True))
        results.check()
    page = (tmp_path / "run" / "results.md").read_text()
    for title in ("exact ranks", "binary rewards", "noise threshold", "Proposition 2", "Separability", "fail"):
        assert f"{title}\n" in page
    assert page.count("onfirmed.**") + page.count("Undecided.**") >= 18
    assert "nan" not in page.replace("nan]", "")
    rows = (tmp_path / "run" / "results.csv").read_text().splitlines()
    assert rows[0].startswith("part,arm,measure,value,low,high,predicted")
    names = {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    assert len(names) == 14
    assert "ratio.svg" in names
