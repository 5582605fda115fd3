import numpy as np
import pytest

from trinity_jax.config import FitnessSettings
from trinity_jax.learning.fitness import choice_entropy, fitness, mean_reward

NAN = np.nan
REWARDS = np.array([[1.0, 0.0, NAN], [1.0, 1.0, 1.0], [NAN, NAN, NAN]])
MODELS = np.array([[4, 0], [3, 3], [0, 0]])
CALLS = np.array([[5, 1, 5], [2, 2, 2], [1, 0, 0]])
COSTS = np.array([[0.2, 0.4, 9.0], [0.1, 0.1, 0.1], [0.0, 0.0, 0.0]])


def test_unfinished_episodes_are_left_out_and_not_counted_as_wrong():
    np.testing.assert_array_equal(mean_reward(REWARDS), [0.5, 1.0, NAN])


def test_entropy_is_in_nats():
    np.testing.assert_allclose(choice_entropy(MODELS), [0, np.log(2), 0], atol=1e-12)
    np.testing.assert_allclose(choice_entropy(np.full((1, 7), 3)), [np.log(7)])


def test_by_default_fitness_is_the_mean_reward():
    np.testing.assert_array_equal(fitness(FitnessSettings(), REWARDS, MODELS, CALLS, COSTS, 5), mean_reward(REWARDS))


@pytest.mark.parametrize(
    "weights, expected",
    [
        ({"entropy_weight": 0.15}, [0.5, 1 + 0.15 * np.log(2)]),
        ({"turn_weight": 0.1}, [0.5 - 0.1 * 3 / 5, 1 - 0.1 * 2 / 5]),
        ({"cost_weight": 2.0}, [0.5 - 2 * 0.3, 1 - 2 * 0.1]),
    ],
)
def test_terms(weights, expected):
    value = fitness(FitnessSettings(**weights), REWARDS, MODELS, CALLS, COSTS, 5)
    np.testing.assert_allclose(value[:2], expected)
    assert np.isnan(value[2])
