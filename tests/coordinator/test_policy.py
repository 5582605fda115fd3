"""Two independent softmax groups, masks, keys."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.coordinator.policy import choose, decision_key

LOGITS = jnp.array([1.0, 0.0, -0.5, 2.0, 0.3, -0.2, 0.9])
ALL = jnp.ones(3, bool)
ROOT = jax.random.key(0)
draw = jax.jit(jax.vmap(choose, (None, 0, None, None)))


def softmax(x):
    return np.exp(x) / np.exp(x).sum()


def test_sampled_frequencies_are_two_independent_softmaxes():
    n = 20_000
    chosen = draw(LOGITS, jax.random.split(ROOT, n), True, ALL)
    joint = np.zeros((4, 3))
    np.add.at(joint, (np.asarray(chosen.model), np.asarray(chosen.role)), 1 / n)
    expected = np.outer(softmax(np.asarray(LOGITS[:4])), softmax(np.asarray(LOGITS[4:])))
    np.testing.assert_allclose(joint, expected, atol=4 * np.sqrt(0.25 / n))
    np.testing.assert_allclose(chosen.model_probs[0], expected.sum(1), rtol=1e-5)
    np.testing.assert_allclose(chosen.role_probs[0], expected.sum(0), rtol=1e-5)


def test_argmax_ignores_the_key():
    chosen = draw(LOGITS, jax.random.split(ROOT, 50), False, ALL)
    assert set(chosen.model.tolist()) == {3}
    assert set(chosen.role.tolist()) == {2}
    assert draw(jnp.zeros(7), jax.random.split(ROOT, 1), False, ALL).model.tolist() == [0]


@pytest.mark.parametrize("sample", [True, False])
def test_a_masked_role_is_never_chosen(sample):
    mask = jnp.array([True, True, False])
    chosen = draw(LOGITS.at[6].set(50.0), jax.random.split(ROOT, 500), sample, mask)
    assert 2 not in chosen.role.tolist()
    assert chosen.role_probs[0, 2] == 0
    np.testing.assert_allclose(chosen.role_probs[0, :2], softmax(np.asarray(LOGITS[4:6])), rtol=1e-5)


def test_every_part_of_the_key_matters_and_their_order():
    keys = [
        tuple(jax.random.key_data(decision_key(ROOT, *parts)).tolist())
        for parts in itertools.product(range(2), repeat=5)
    ]
    assert len(set(keys)) == 32


def test_equal_keys_give_equal_choices():
    key = decision_key(ROOT, 3, 0, 7, 1, 2)
    assert choose(LOGITS, key, True, ALL).model == choose(LOGITS, decision_key(ROOT, 3, 0, 7, 1, 2), True, ALL).model
