import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.config import LearningSettings
from trinity_jax.learning.random_search import RandomSearch

KEY = jax.random.key(0)


def make(n=4, **settings):
    return RandomSearch(LearningSettings(learner="random_search", **settings), n)


@pytest.mark.parametrize(
    ("settings", "spread", "most"),
    [
        ({"search": {"half_width": 0.5}}, 0.5 / np.sqrt(3), 0.5),
        ({"search": {"box": "gaussian"}, "sigma0": 0.3}, 0.3, np.inf),
    ],
)
def test_draws_are_the_papers_box_or_the_theorems_gaussian(settings, spread, most):
    learner = make(1000, population=32, **settings)
    X, _ = learner.ask(learner.init(KEY, np.full(1000, 2.0)), KEY)
    assert float(jnp.mean(X)) == pytest.approx(2, abs=0.01)
    assert float(jnp.std(X)) == pytest.approx(spread, rel=0.02)
    assert float(jnp.abs(X - 2).max()) <= most


def test_the_best_noisy_fitness_so_far_is_kept():
    learner = make(population=4)
    rng = np.random.default_rng(0)
    state, best, kept = learner.init(KEY), -np.inf, np.zeros(4)
    for generation in range(12):
        X, state = learner.ask(state, jax.random.fold_in(KEY, generation))
        fitness = np.where(rng.random(4) < 0.3, np.nan, rng.integers(0, 5, 4) / 4 + generation / 100)
        state = learner.tell(state, X, fitness, KEY)
        for x, f in zip(np.asarray(X), fitness.astype(np.float32), strict=True):
            if f > best:
                best, kept = f, x
        np.testing.assert_array_equal(np.asarray(learner.mean(state)), kept)
