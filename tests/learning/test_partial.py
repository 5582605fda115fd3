"""A learner of some of the numbers: the others never move, and those that do learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.config import LearningSettings
from trinity_jax.learning.learner import build
from trinity_jax.learning.partial import Partial

SETTINGS = LearningSettings(population=8, sigma0=0.5, step_size="tpa")
START = np.linspace(-1, 1, 7).astype(np.float32)


def learner(places):
    return Partial(places, 7, lambda m: build(SETTINGS, m))


def test_frozen_numbers_never_move_and_the_others_reach_their_optimum():
    places, target = [1, 4, 5], jnp.array([0.3, -2.0, 1.5])
    ours = learner(places)
    state = ours.init(jax.random.key(0), START)
    for generation in range(60):
        ask, tell = jax.random.split(jax.random.key(generation))
        X, state = ours.ask(state, ask)
        np.testing.assert_array_equal(np.delete(X, places, 1), np.tile(np.delete(START, places), (8, 1)))
        state = ours.tell(state, X, -((X[:, jnp.array(places)] - target) ** 2).sum(axis=1), tell)
    end = np.asarray(ours.mean(state))
    np.testing.assert_array_equal(np.delete(end, places), np.delete(START, places))
    np.testing.assert_allclose(end[places], target, atol=0.05)


def test_on_all_numbers_it_is_the_learner_itself():
    whole, inner = learner(range(7)), build(SETTINGS, 7)
    ours, theirs = whole.init(jax.random.key(1), START), inner.init(jax.random.key(1), START)
    (X, ours), (Y, theirs) = whole.ask(ours, jax.random.key(2)), inner.ask(theirs, jax.random.key(2))
    np.testing.assert_array_equal(X, Y)
    fitness = jnp.arange(8.0)
    ours, theirs = (one.tell(s, X, fitness, jax.random.key(3)) for one, s in ((whole, ours), (inner, theirs)))
    np.testing.assert_array_equal(whole.mean(ours), inner.mean(theirs))
    assert whole.population == inner.population


@pytest.mark.parametrize("places", [[1, 1], [7], [-1]])
def test_places_that_are_none_are_refused(places):
    with pytest.raises(ValueError, match="places"):
        learner(places)
