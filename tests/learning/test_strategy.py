from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from cmaes import SepCMA
from evosax.algorithms import Sep_CMA_ES

from trinity_jax.config import LearningSettings, RepairSettings
from trinity_jax.errors import UserError
from trinity_jax.learning.separable import RepairedSepCMA
from trinity_jax.learning.strategy import Strategy

AS_IS = RepairSettings(separable_learning_rates=False, no_variance_creep=False, tie_averaged_weights=False, std_min=0.0)
KEY = jax.random.key(0)


def sphere(X):
    return (X**2).sum(axis=-1)


def ellipsoid(X):
    n = X.shape[-1]
    return (10 ** (6 * np.arange(n) / (n - 1)) * X**2).sum(axis=-1)


def make(n: int, **settings) -> Strategy:
    return Strategy(LearningSettings(**settings), n)


def evolve(strategy: Strategy, state, generations: int, fitness, seed: int = 0):
    for generation in range(generations):
        key = jax.random.fold_in(jax.random.key(seed), generation)
        X, state = strategy.ask(state, key)
        state = strategy.tell(state, X, fitness(X), key)
    return state


def generations_to(strategy: Strategy, f, target: float, seed: int, limit: int = 400) -> int:
    state = strategy.init(KEY, jnp.full(strategy.n, 3.0))
    for generation in range(1, limit + 1):
        key = jax.random.fold_in(jax.random.key(seed), generation)
        X, state = strategy.ask(state, key)
        values = f(np.asarray(X))
        if values.min() < target:
            return generation
        state = strategy.tell(state, X, -values, key)
    return limit


def test_same_populations_same_path_as_cmaes():
    n, P = 1000, 24
    with jax.enable_x64(True):
        strategy = make(n, population=P, sigma0=0.5)
        theirs = SepCMA(mean=np.full(n, 3.0), sigma=0.5, population_size=P)
        weights = np.zeros(P)
        weights[: P // 2] = theirs._weights
        strategy.params = replace(
            strategy.params,
            weights=jnp.asarray(weights),
            mu_eff=jnp.asarray(theirs._mu_eff),
            c_std=jnp.asarray(theirs._c_sigma),
            d_std=jnp.asarray(theirs._d_sigma),
            c_c=jnp.asarray(theirs._cc),
            c_1=jnp.asarray(theirs._c1),
            c_mu=jnp.asarray(theirs._cmu),
            chi_n=jnp.asarray(theirs._chi_n),
        )
        state = strategy.init(KEY, jnp.full(n, 3.0))
        for generation in range(200):
            key = jax.random.fold_in(KEY, generation)
            X, state = strategy.ask(state, key)
            rows = np.asarray(X)
            values = ellipsoid(rows)
            state = strategy.tell(state, X, -values, key)
            theirs.tell(list(zip(rows, values, strict=True)))
        assert state.mean.dtype == jnp.float64
        moved = np.abs(theirs.mean - 3.0).max()
        assert moved > 0.1
        np.testing.assert_allclose(strategy.mean(state), theirs.mean, atol=1e-9)
        np.testing.assert_allclose(strategy.sigma(state), theirs._sigma, rtol=1e-9)
        np.testing.assert_allclose(state.C, theirs._C, rtol=1e-9)
        assert np.std(theirs._C) > 0.01


@pytest.mark.parametrize("f", [sphere, ellipsoid])
def test_generations_to_target_are_those_of_cmaes(f):
    n, P, seeds = 10, 32, range(5)

    def cmaes_generations(seed: int) -> int:
        theirs = SepCMA(mean=np.full(n, 3.0), sigma=1.0, population_size=P, seed=seed)
        for generation in range(1, 401):
            rows = np.array([theirs.ask() for _ in range(P)])
            values = f(rows)
            if values.min() < 1e-8:
                return generation
            theirs.tell(list(zip(rows, values, strict=True)))
        return 400

    strategy = make(n, population=P, sigma0=1.0)
    ours = np.median([generations_to(strategy, f, 1e-8, seed) for seed in seeds])
    reference = np.median([cmaes_generations(seed) for seed in seeds])
    assert reference < 150
    assert reference / 1.2 <= ours <= 1.2 * reference


@pytest.mark.parametrize("n", [1, 10, 1000, 10_240])
def test_learning_rates_are_the_separable_ones(n):
    params = make(n, population=32).params
    assert 0 < float(params.c_1 + params.c_mu) <= 1
    as_is = make(n, population=32, repairs=AS_IS).params
    assert float(params.c_mu / as_is.c_mu) == pytest.approx((n + 2) / 3, rel=1e-5)
    if n > 1:
        theirs = SepCMA(mean=np.zeros(n), sigma=1.0, population_size=32)
        assert float(params.c_mu) == pytest.approx(theirs._cmu, rel=0.25)


def test_learning_rates_of_a_huge_population_are_capped():
    params = make(2, population=2000).params
    assert float(params.c_1 + params.c_mu) == pytest.approx(1, abs=1e-6)


def test_without_repairs_this_is_evosax_bit_for_bit():
    n, P = 10, 8
    strategy = make(n, population=P, sigma0=0.7, repairs=AS_IS)
    state = strategy.init(KEY, jnp.full(n, 3.0))
    raw = Sep_CMA_ES(P, jnp.zeros(n))
    params = raw.default_params.replace(std_init=0.7)
    theirs = raw.init(KEY, jnp.full(n, 3.0), params)
    for generation in range(40):
        key = jax.random.fold_in(KEY, generation)
        X, state = strategy.ask(state, key)
        X_raw, theirs = raw.ask(key, theirs, params)
        np.testing.assert_array_equal(np.asarray(X), np.asarray(X_raw))
        values = jnp.round(sphere(X))  # some ties
        values = values.at[0].set(jnp.nan)
        state = strategy.tell(state, X, -values, key)
        theirs, _ = raw.tell(key, X_raw, values, theirs, params)
    for ours, other in zip(jax.tree.leaves(state), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(other))


def all_equal(X):
    return np.zeros(len(X))


def test_ties_leave_the_step_size_and_the_variances_on_average():
    def after(repairs) -> tuple[float, float]:
        strategy = make(200, population=32, repairs=repairs, sigma0=1.0)
        state = evolve(strategy, strategy.init(KEY), 200, all_equal)
        return float(jnp.log(strategy.sigma(state))), float(state.C.mean())

    # An evolution path that starts at 0 costs about 0.4 until it is as long as it should be, ties or not.
    sigma, variance = after(RepairSettings())
    assert -1 < sigma < 0.5
    assert 0.9 < variance < 1.1
    sigma, variance = after(RepairSettings(tie_averaged_weights=False))
    assert sigma < -3
    assert variance < 0.5


def test_ties_move_the_mean_to_the_plain_average():
    strategy = make(10, population=8)
    X, state = strategy.ask(strategy.init(KEY), KEY)
    state = strategy.tell(state, X, all_equal(X), KEY)
    np.testing.assert_allclose(strategy.mean(state), np.asarray(X).mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("repaired", [True, False])
def test_small_variances_do_not_creep(repaired):
    strategy = make(10, population=8, repairs=RepairSettings(no_variance_creep=repaired))
    state = strategy.init(KEY)
    state = evolve(strategy, state.replace(C=jnp.full(10, 1e-12)), 50, all_equal)
    assert (float(state.C.max()) < 1e-10) == repaired


@pytest.mark.parametrize("std_min", [1e-12, 0.0])
def test_float32_survives_convergence(std_min):
    strategy = make(10, population=8, sigma0=1.0, repairs=RepairSettings(std_min=std_min))
    state = evolve(strategy, strategy.init(KEY, jnp.ones(10)), 1000, lambda X: -sphere(X - 1))
    finite = all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in (state.mean, state.std, state.C, state.p_c, state.p_std))
    assert finite == (std_min > 0)


@pytest.mark.parametrize("step_size", ["csa", "tpa"])
def test_a_candidate_without_fitness_is_the_worst(step_size):
    strategy = make(10, population=8, step_size=step_size)
    X, state = strategy.ask(strategy.init(KEY), KEY)
    values = np.arange(8.0)
    missing = strategy.tell(state, X, np.where(values < 2, np.nan, values), KEY)
    worst = strategy.tell(state, X, values, KEY)
    np.testing.assert_array_equal(np.asarray(missing.mean), np.asarray(worst.mean))
    np.testing.assert_array_equal(np.asarray(missing.C), np.asarray(worst.C))


@pytest.mark.parametrize("step_size", ["csa", "tpa"])
def test_a_generation_without_any_fitness_changes_nothing(step_size):
    strategy = make(10, population=8, step_size=step_size)
    before = evolve(strategy, strategy.init(KEY), 3, lambda X: -sphere(X - 1))
    X, before = strategy.ask(before, KEY)
    after = strategy.tell(before, X, np.full(8, np.nan), KEY)
    for name in ("mean", "std", "C", "p_c", "p_std"):
        np.testing.assert_array_equal(np.asarray(getattr(after, name)), np.asarray(getattr(before, name)))
    assert int(after.generation_counter) == int(before.generation_counter) + 1


def test_fitness_is_maximised():
    strategy = make(10, population=8, sigma0=0.3)
    state = evolve(strategy, strategy.init(KEY), 30, lambda X: X[:, 0])
    assert float(strategy.mean(state)[0]) > 3


def test_population_is_the_papers():
    assert make(10_240).population == 32
    assert make(19_456).population == 34
    assert make(19_456, population=32).population == 32


def test_diagonal_spread():
    strategy = make(4)
    state = strategy.init(KEY)
    assert float(strategy.diagonal_spread(state)) == 0
    state = state.replace(C=jnp.array([1.0, 1.0, 9.0, 9.0]))
    assert float(strategy.diagonal_spread(state)) == pytest.approx(0.5)


@pytest.mark.parametrize("mean, message", [(np.zeros(3), r"\(4,\), got \(3,\)"), (np.full(4, np.nan), "finite")])
def test_a_bad_start_is_refused(mean, message):
    with pytest.raises(UserError, match=message):
        make(4).init(KEY, mean)


def test_a_checkpoint_continues_bit_for_bit(tmp_path):
    strategy = make(10, population=8, step_size="tpa")
    state = evolve(strategy, strategy.init(KEY), 5, lambda X: -sphere(X - 1))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", state)
        checkpointer.wait_until_finished()
        fresh = make(10, population=8, step_size="tpa")
        restored = checkpointer.restore(tmp_path / "state", fresh.init(KEY))
    state = evolve(strategy, state, 5, lambda X: -sphere(X - 1), seed=1)
    restored = evolve(fresh, restored, 5, lambda X: -sphere(X - 1), seed=1)
    for ours, other in zip(jax.tree.leaves(state), jax.tree.leaves(restored), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(other))


def test_a_run_compiles_once_and_strategies_share_it(monkeypatch):
    traces = []
    original = RepairedSepCMA._tell
    monkeypatch.setattr(RepairedSepCMA, "_tell", lambda *args: traces.append(1) or original(*args))
    for sigma0 in (0.1, 1.0):
        strategy = make(11, population=8, sigma0=sigma0)
        evolve(strategy, strategy.init(KEY), 3, lambda X: -sphere(X))
    assert len(traces) == 1


def test_a_whole_run_can_be_one_scan():
    strategy = make(10, population=8, sigma0=0.5)

    def generation(state, key):
        X, state = strategy.ask(state, key)
        return strategy.tell(state, X, -sphere(X - 1), key), strategy.sigma(state)

    state, sigma = jax.jit(lambda key: jax.lax.scan(generation, strategy.init(key), jax.random.split(key, 100)))(KEY)
    assert sigma.shape == (100,)
    np.testing.assert_allclose(strategy.mean(state), 1, atol=0.05)
