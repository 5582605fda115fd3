"""Policy gradients against exact expectations and numpy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.config import GradientSettings, LearningSettings
from trinity_jax.learning.gradient import PolicyGradient, advantages, gradient
from trinity_jax.learning.protocol import Experience

KEY = jax.random.key(0)
SKILL = np.array([[0.9, 0.2], [0.1, 0.6]])  # of two models on two questions
VECTOR = np.array([0.3, -0.4, 0.1, 0.5])


def log_prob(vector, trace):
    questions, models = trace
    return jnp.take_along_axis(jax.nn.log_softmax(vector.reshape(2, 2))[questions], models[..., None], -1)[..., 0]


@pytest.mark.parametrize("grouped", [False, True], ids=["reinforce", "grpo"])
def test_the_estimate_is_unbiased(grouped):
    """Over every outcome of a batch of two episodes of each of two questions, weighed by its probability."""
    questions = np.array([[0, 1], [0, 1]])
    cells = list(itertools.product(range(2), range(2)))  # (model, reward) of one episode
    outcomes = np.array(list(itertools.product(cells, repeat=4))).reshape(-1, 2, 2, 2)
    models, rewards = outcomes[..., 0], outcomes[..., 1]
    with jax.enable_x64(True):
        policy = np.asarray(jax.nn.softmax(VECTOR.reshape(2, 2)))
        right = np.where(rewards == 1, SKILL[questions, models], 1 - SKILL[questions, models])
        chance = np.prod(policy[questions, models] * right, axis=(1, 2))
        assert chance.sum() == pytest.approx(1)
        groups = questions if grouped else np.zeros_like(questions)

        def estimate(models, rewards):
            advantage = advantages(rewards.astype(float), jnp.asarray(groups))
            return gradient(log_prob, jnp.asarray(VECTOR), advantage, 4, (questions, models))

        estimates = jax.vmap(estimate)(jnp.asarray(models), jnp.asarray(rewards))
        exact = jax.grad(lambda v: jnp.mean(jnp.sum(jax.nn.softmax(v.reshape(2, 2)) * SKILL, axis=1)))(VECTOR)
        np.testing.assert_allclose(chance @ np.asarray(estimates), exact, atol=1e-12)
        assert float(jnp.abs(exact).max()) > 0.05


@pytest.mark.parametrize("standardise", [False, True])
def test_advantages_are_those_of_numpy(standardise):
    rng = np.random.default_rng(0)
    rewards = rng.integers(0, 2, (6, 20)).astype(float)
    rewards[rng.random(rewards.shape) < 0.2] = np.nan
    groups = rng.permutation(np.arange(120) % 31 * 7 - 5).reshape(6, 20)
    groups[0, 0] = 1000  # alone
    expected = np.zeros_like(rewards)
    for group in np.unique(groups):
        rows = (groups == group) & ~np.isnan(rewards)
        values = rewards[rows]
        if standardise and values.size and values.std() > 0:
            expected[rows] = (values - values.mean()) / values.std()
        elif not standardise and values.size > 1:
            expected[rows] = values - (values.sum() - values) / (values.size - 1)
    np.testing.assert_allclose(advantages(jnp.asarray(rewards), jnp.asarray(groups), standardise), expected, atol=1e-5)


def test_equal_rewards_of_any_size_give_no_advantage():
    rewards, groups = jnp.full((4, 25), 0.7), jnp.zeros((4, 25), int)
    for standardise in (False, True):
        np.testing.assert_allclose(advantages(rewards, groups, standardise), 0, atol=1e-5)


def test_a_step_is_adams_up_the_gradient():
    learner = PolicyGradient(
        LearningSettings(learner="grpo", population=4, gradient=GradientSettings(learning_rate=0.1)), 4, log_prob
    )
    state = learner.init(KEY)
    X, state = learner.ask(state, KEY)
    questions, models = jnp.zeros((4, 1), int), jnp.array([[0], [0], [1], [1]])
    seen = Experience(jnp.array([[1.0], [1.0], [0.0], [0.0]]), questions, (questions, models))
    after = learner.tell(state, X, np.zeros(4), KEY, seen)
    # The first step of Adam is the learning rate along the gradient's sign.
    np.testing.assert_allclose(learner.mean(after), [0.1, -0.1, 0, 0], atol=1e-5)
