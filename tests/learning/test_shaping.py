from itertools import permutations
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
from evosax.algorithms import Sep_CMA_ES
from evosax.core.fitness_shaping import weights_fitness_shaping_fn
from evosax.types import State
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity_jax.learning.shaping import tie_averaged_weights

P = 6
WEIGHTS = np.array([0.5, 0.3, 0.2, 0.0, 0.0, 0.0])


PARAMS: Any = SimpleNamespace(weights=WEIGHTS)
POPULATION, STATE = jnp.zeros((P, 1)), State()  # not read


def shape(fitness) -> np.ndarray:
    return np.asarray(tie_averaged_weights(POPULATION, jnp.asarray(fitness), STATE, PARAMS))


def mean_over_tie_breaks(fitness) -> np.ndarray:
    """Every order in which the candidates could be listed before a stable sort, averaged."""
    total = np.zeros(P)
    orders = list(permutations(range(P)))
    for order in orders:
        ranked = sorted(order, key=lambda i: fitness[i])
        total[ranked] += WEIGHTS
    return total / len(orders)


levels = st.lists(st.integers(0, 3).map(float), min_size=P, max_size=P)


@settings(max_examples=25, deadline=None)
@given(levels)
def test_weights_are_the_mean_over_random_tie_breaks(fitness):
    np.testing.assert_allclose(shape(fitness), mean_over_tie_breaks(fitness), atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(levels, st.permutations(range(P)))
def test_order_of_candidates_does_not_matter(fitness, order):
    order = list(order)
    np.testing.assert_allclose(shape(np.array(fitness)[order]), shape(fitness)[order], atol=1e-7)


def test_all_equal_share_everything():
    np.testing.assert_allclose(shape(np.full(P, 0.25)), np.full(P, 1 / P), rtol=1e-6)


def test_without_ties_these_are_evosax_weights():
    params = Sep_CMA_ES(32, jnp.zeros(10)).default_params
    fitness = jnp.asarray(np.random.default_rng(0).permutation(32).astype(np.float32))
    ours = tie_averaged_weights(POPULATION, fitness, STATE, params)
    theirs = weights_fitness_shaping_fn(POPULATION, fitness, STATE, params)
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    assert abs(float(ours.sum()) - 1) < 1e-6


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.just(np.nan), st.integers(0, 2).map(float)), min_size=P, max_size=P))
def test_missing_weighs_nothing_and_numbers_keep_their_ranks(fitness):
    fitness = np.array(fitness)
    missing = np.isnan(fitness)
    weights = shape(fitness)
    assert np.all(weights[missing] == 0)
    np.testing.assert_allclose(
        weights[~missing], mean_over_tie_breaks(np.where(missing, 9, fitness))[~missing], atol=1e-6
    )
    if missing.sum() <= P // 2:
        assert abs(weights.sum() - 1) < 1e-6
