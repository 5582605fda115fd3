"""Active adaptation against pycma itself, generation by generation."""

from dataclasses import replace
from typing import Any

import cma
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cma.sigma_adaptation import CMAAdaptSigmaNone, CMAAdaptSigmaTPA

from trinity_jax.config import LearningSettings, RepairSettings
from trinity_jax.learning.strategy import Strategy

KEY = jax.random.key(0)


def make(n, **settings):
    return Strategy(LearningSettings(active=True, **settings), n)


def pycma(n, P, sigma0, seed=1, **more):
    options = cma.CMAOptions()
    options.update({"CMA_diagonal": True, "popsize": P, "seed": seed, "verbose": -9, **more})
    return cma.CMAEvolutionStrategy(n * [3.0], sigma0, options)


def ellipsoid(X):
    n = X.shape[-1]
    return (10 ** (4 * np.arange(n) / (n - 1)) * X**2).sum(axis=-1)


@pytest.mark.parametrize(("n", "P"), [(10, 8), (40, 17), (200, 32)])
def test_constants_are_those_of_pycma(n, P):
    ours: Any = make(n, population=P).params
    theirs: Any = pycma(n, P, 1.0).sp
    np.testing.assert_allclose(ours.weights, list(theirs.weights), atol=1e-6)
    for mine, name in ((ours.c_1, "c1_sep"), (ours.c_mu, "cmu_sep"), (ours.c_c, "cc_sep")):
        assert float(mine) == pytest.approx(getattr(theirs, name), rel=1e-5), name


def test_same_populations_same_variances_as_pycma():
    n, P, generations = 30, 14, 60
    theirs = pycma(n, P, 0.5, AdaptSigma=CMAAdaptSigmaNone)
    with jax.enable_x64(True):
        strategy = make(n, population=P, sigma0=0.5)
        strategy.params = replace(strategy.params, d_std=jnp.asarray(1e300))  # a step size that stays, as theirs
        state = strategy.init(KEY, np.full(n, 3.0))
        for _ in range(generations):
            X = np.asarray(theirs.ask())
            values = ellipsoid(X)
            theirs.tell(list(X), values)
            _, state = strategy.ask(state, KEY)
            state = strategy.tell(state, jnp.asarray(X), -values, KEY)
        decoding: Any = theirs.sigma_vec
        scales = np.asarray(decoding.scaling)
        assert scales.max() / scales.min() > 5
        np.testing.assert_allclose(strategy.mean(state), theirs.mean, atol=1e-9)
        np.testing.assert_allclose(jnp.sqrt(state.C), scales, rtol=1e-9)


def test_ties_leave_the_variances_on_average():
    strategy = make(200, population=32, sigma0=1.0)
    state = strategy.init(KEY)
    for generation in range(200):
        key = jax.random.fold_in(KEY, generation)
        X, state = strategy.ask(state, key)
        state = strategy.tell(state, X, np.zeros(32), key)
    # An evolution path that starts at 0 takes a little of them first.
    assert 0.6 < float(state.C.mean()) < 1.3
    assert -1 < float(jnp.log(strategy.sigma(state))) < 0.5


@pytest.mark.parametrize("step_size", ["csa", "tpa"])
def test_nothing_known_changes_nothing_and_a_missing_one_blames_nobody(step_size):
    strategy = make(10, population=8, step_size=step_size)
    X, state = strategy.ask(strategy.init(KEY), KEY)
    lost = strategy.tell(state, X, np.full(8, np.nan), KEY)
    for name in ("mean", "std", "C", "p_c", "p_std"):
        np.testing.assert_array_equal(np.asarray(getattr(lost, name)), np.asarray(getattr(state, name)))
    values = np.arange(8.0)
    missing = strategy.tell(state, X, np.where(values < 4, np.nan, values), KEY)
    # The best four are known and move the mean as ever; nobody stands on a negative weight.
    np.testing.assert_array_equal(np.asarray(missing.mean), np.asarray(strategy.tell(state, X, values, KEY).mean))
    weights = strategy._algorithm.fitness_shaping_fn(X, -jnp.where(values < 4, jnp.nan, values), state, strategy.params)
    assert float(weights[1].min()) == 0


def test_variances_stay_positive_whatever_comes():
    strategy = make(4, population=64, sigma0=1.0)
    state = strategy.init(KEY)
    for generation in range(30):
        key = jax.random.fold_in(KEY, generation)
        X, state = strategy.ask(state, key)
        state = strategy.tell(state, X, -jnp.abs(X[:, 0]) + 1e3 * X[:, 1], key)
    assert bool(jnp.all(state.C > 0))
    assert bool(jnp.all(jnp.isfinite(state.C)))


def test_generations_to_target_are_those_of_pycma():
    """The short version of scripts/bench_strategies.py."""
    n, P, seeds = 40, 16, range(1, 4)

    def theirs(seed):
        es = pycma(n, P, 1.0, seed, AdaptSigma=CMAAdaptSigmaTPA, ftarget=1e-6)
        while not es.stop():
            X = es.ask()
            es.tell(X, list(ellipsoid(np.asarray(X))))
        assert es.best.f < 1e-6
        return es.countiter

    strategy = make(n, population=P, sigma0=1.0, step_size="tpa")
    factors = jnp.asarray(10 ** (4 * np.arange(n) / (n - 1)))

    @jax.jit
    def ours(key):
        def generation(carry):
            state, count, _ = carry
            key = jax.random.fold_in(KEY, count)
            X, state = strategy.ask(state, jax.random.fold_in(key, 0))
            values = (factors * X**2).sum(axis=1)
            return strategy.tell(state, X, -values, key), count + 1, values.min()

        start = (strategy.init(key, jnp.full(n, 3.0)), jax.random.randint(key, (), 0, 2**20), jnp.inf)
        return jax.lax.while_loop(lambda carry: carry[2] >= 1e-6, generation, start)[1] - start[1]

    ratio = np.median([ours(jax.random.key(s)) for s in seeds]) / np.median([theirs(s) for s in seeds])
    assert 1 / 1.2 < ratio < 1.2


@pytest.mark.parametrize(
    "settings", [{"learner": "isotropic_es"}, {"repairs": RepairSettings(tie_averaged_weights=False)}]
)
def test_active_weights_are_of_the_repaired_separable_strategy(settings):
    with pytest.raises(ValueError, match=r"learning\.active"):
        LearningSettings(active=True, **settings)
