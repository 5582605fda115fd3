from types import SimpleNamespace

import cma
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cma.sigma_adaptation import CMAAdaptSigmaTPA

from trinity_jax.config import LearningSettings
from trinity_jax.learning.strategy import Strategy

KEY = jax.random.key(0)


def make(n: int, **settings) -> Strategy:
    return Strategy(LearningSettings(step_size="tpa", **settings), n)


def weighted_sphere(X):
    return (np.linspace(1, 3, X.shape[-1]) * X**2).sum(axis=-1)


def test_damping_and_multiplier_are_those_of_pycma():
    n, P = 40, 16
    strategy = make(n, population=P)
    reference = CMAAdaptSigmaTPA(dimension=n, popsize=P).initialize(n, {}, P)
    X, state = strategy.ask(strategy.init(KEY), KEY)
    state = strategy.tell(state, X, -weighted_sphere(np.asarray(X) - 1), KEY)
    values = np.random.default_rng(0).integers(0, 6, (20, P)).astype(float)
    for generation, row in enumerate(values):
        X, state = strategy.ask(state, jax.random.fold_in(KEY, generation))
        before = float(strategy.sigma(state))
        state = strategy.tell(state, X, -row, KEY)
        multiplier = reference.update2(SimpleNamespace(opts={"TPA_dampfac": 1}), row)
        assert float(strategy.sigma(state)) / before == pytest.approx(multiplier, rel=1e-5)


def test_the_pair_lies_on_the_last_shift_and_is_as_long_as_the_others():
    n = 40
    strategy = make(n, population=16, sigma0=0.5)
    X, state = strategy.ask(strategy.init(KEY), KEY)
    start = np.asarray(strategy.mean(state))
    state = strategy.tell(state, X, -weighted_sphere(np.asarray(X) - 1), KEY)
    shift = np.asarray(strategy.mean(state)) - start
    X, state = strategy.ask(state, jax.random.key(1))
    forward, backward = np.asarray(X[:2]) - np.asarray(strategy.mean(state))
    np.testing.assert_allclose(forward, -backward, atol=1e-6)
    assert forward @ shift / np.linalg.norm(forward) / np.linalg.norm(shift) == pytest.approx(1, abs=1e-5)
    length = np.linalg.norm(forward / np.asarray(state.D)) / float(strategy.sigma(state))
    assert length == pytest.approx(np.sqrt(n), rel=0.4)


def test_the_first_generation_leaves_the_step_size_alone():
    strategy = make(40, population=16, sigma0=0.5)
    X, state = strategy.ask(strategy.init(KEY), KEY)
    state = strategy.tell(state, X, np.arange(16.0), KEY)
    assert float(strategy.sigma(state)) == 0.5


def test_generations_to_target_are_those_of_pycma():
    n, P, seeds = 40, 16, range(1, 4)

    def pycma_generations(seed: int) -> int:
        options = cma.CMAOptions()
        options.update(
            {
                "CMA_diagonal": True,
                "AdaptSigma": CMAAdaptSigmaTPA,
                "CMA_active": False,
                "popsize": P,
                "seed": seed,
                "verbose": -9,
                "ftarget": 1e-6,
            }
        )
        es = cma.CMAEvolutionStrategy(n * [3.0], 1.0, options)
        while not es.stop():
            X = es.ask()
            es.tell(X, [weighted_sphere(np.asarray(x)) for x in X])
        assert es.best.f < 1e-6
        return es.countiter

    def our_generations(seed: int) -> int:
        state = strategy.init(KEY, jnp.full(n, 3.0))
        for generation in range(1, 2000):
            key = jax.random.fold_in(jax.random.key(seed), generation)
            X, state = strategy.ask(state, key)
            values = weighted_sphere(np.asarray(X))
            if values.min() < 1e-6:
                return generation
            state = strategy.tell(state, X, -values, key)
        return 2000

    strategy = make(n, population=P, sigma0=1.0)
    ours = np.median([our_generations(seed) for seed in seeds])
    reference = np.median([pycma_generations(seed) for seed in seeds])
    assert reference / 1.2 <= ours <= 1.2 * reference
