"""Routers on states whose best choice is known."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from trinity_jax.evaluation.routers import Learned, knn, logistic


def separable(n: int, noise: float, rng: np.random.Generator):
    """Three groups of states in 12 dimensions; model g is right on group g, wrong elsewhere, but for ``noise``."""
    groups = np.arange(n) % 3
    centres = np.zeros((3, 12))
    centres[range(3), range(3)] = 3.0
    states = 100.0 + centres[groups] + rng.normal(0, 0.5, (n, 12))  # a large component that all share
    right = (groups[:, None] == np.arange(3)) ^ (rng.random((n, 3)) < noise)
    return states, right.astype(float), groups


@pytest.mark.parametrize("router", [knn, logistic])
@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_a_separable_set_is_routed_rightly(router, noise):
    rng = np.random.default_rng(1)
    states, rewards, _ = separable(90, noise, rng)
    asked, _, groups = separable(60, 0.0, rng)
    choice, how = router(states, rewards, asked)
    assert np.mean(choice == groups) >= (0.98 if noise == 0 else 0.9)
    assert how


@pytest.mark.parametrize("router", [knn, logistic])
def test_on_states_that_tell_nothing_it_is_no_better_than_the_best_model(router):
    rng = np.random.default_rng(2)
    states, asked = rng.normal(size=(100, 8)), rng.normal(size=(400, 8))
    rewards = (rng.random((100, 2)) < (0.9, 0.2)).astype(float)
    choice, _ = router(states, rewards, asked)
    assert np.mean(choice == 0) > 0.9


@pytest.mark.parametrize("router", [knn, logistic])
def test_failed_calls_and_one_sided_models_are_no_obstacle(router):
    rng = np.random.default_rng(3)
    states, rewards, groups = separable(90, 0.0, rng)
    rewards[::7, 1] = np.nan
    lost = np.full((90, 1), np.nan)
    never = np.zeros((90, 1))
    choice, _ = router(states, np.hstack([lost, never, rewards]), states)
    assert np.mean(choice == groups + 2) >= 0.98


@pytest.mark.parametrize("router", [knn, logistic])
def test_a_single_training_question_is_enough_to_say_something(router):
    choice, _ = router(np.ones((1, 4)), np.array([[0.0, 1.0]]), np.zeros((2, 4)))
    assert_array_equal(choice, [1, 1])


def test_the_best_on_training_questions():
    rewards = np.array([[1, 0, np.nan], [0, 1, np.nan], [1, 1, np.nan]])
    learned = Learned(rewards, ("a", "b", "b"))
    assert learned.calls == 9
    assert learned.best() == 0  # a tie goes to the first
    assert (learned.best("a"), learned.best("b"), learned.best("never seen")) == (0, 1, 0)
