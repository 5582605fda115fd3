"""Masks on the world: a masked model is as good as gone, exactly and in play."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.config import PoolSettings
from trinity_jax.world import histories
from trinity_jax.world.episode import log_probability, play
from trinity_jax.world.evolve import Rules, World, worth
from trinity_jax.world.skills import from_pool
from trinity_jax.world.states import clusters

WIDTH, Q, K = 6, 8, 3
MODELS = [
    {"name": "a", "worker": {"x": 0.9, "y": 0.2}},
    {"name": "b", "worker": {"x": 0.2, "y": 0.9}, "accepts_wrong": 0.6},
    {"name": "c", "worker": {"x": 0.5, "y": 0.4}, "accepts_right": 0.7},
]
RULES = Rules(kinds=2, max_calls=K)


def world(models):
    kinds = np.arange(Q) % 2
    states = clusters(jax.random.key(0), kinds, histories.turns("full", K), WIDTH)
    skills = from_pool(PoolSettings.model_validate({"simulated": models}), ["xy"[kind] for kind in kinds])
    every = jnp.arange(Q)
    return World(states, skills, histories.build("full", K), jnp.asarray(kinds), every, every)


def head(models):
    return lambda vector, z: z @ vector.reshape(models + 3, WIDTH).T / np.sqrt(WIDTH)


VECTOR = np.asarray(jax.random.normal(jax.random.key(1), (6 * WIDTH,)))


@pytest.mark.parametrize("sample", [True, False])
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_masked_model_is_worth_what_a_pool_without_it_is(gone, sample):
    masked = worth(world(MODELS).without(gone), RULES, head(3), jnp.asarray(VECTOR), jnp.arange(Q), sample)
    rest = world(MODELS[:gone] + MODELS[gone + 1 :])
    fewer = jnp.asarray(np.delete(VECTOR.reshape(6, WIDTH), gone, axis=0).ravel())
    dropped = worth(rest, RULES, head(2), fewer, jnp.arange(Q), sample)
    np.testing.assert_allclose(masked.reward, dropped.reward, atol=1e-6)
    np.testing.assert_allclose(masked.calls, dropped.calls, atol=1e-5)


def test_a_masked_model_is_never_played_and_the_probabilities_say_so():
    here = world(MODELS).without(0).without(2)
    logits = jax.vmap(here.states.policy(head(3), jnp.asarray(VECTOR), jnp.int32(0)))(
        jnp.arange(len(here.histories[1]))
    )

    def one(key):
        first, second = jax.random.split(key)
        allowed = here.allowed(jnp.int32(0))
        trace = play(lambda s: logits[s], here.skills.take(0), here.histories, first, second, K, models=allowed)[1]
        return trace, log_probability(logits[trace.history], trace, here.histories, models=allowed)

    trace, chance = jax.vmap(one)(jax.random.split(jax.random.key(2), 50))
    assert set(np.asarray(trace.model[trace.decided]).tolist()) == {1}
    assert np.isfinite(chance).all()


def test_masks_differ_by_question():
    models = jnp.ones((Q, 3), bool).at[1, 0].set(False)
    here = world(MODELS)._replace(models=models)
    vector = jnp.asarray(VECTOR)
    some = worth(here, RULES, head(3), vector, jnp.arange(Q)).reward
    every = worth(world(MODELS), RULES, head(3), vector, jnp.arange(Q)).reward
    np.testing.assert_array_equal(np.delete(some, 1), np.delete(every, 1))
    assert some[1] != every[1]
