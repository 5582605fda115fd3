"""Learners on the world: what candidates share, what is paid for, and that a run is a function of its key."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.config import LearningSettings, PoolSettings, Sharing
from trinity_jax.errors import UserError
from trinity_jax.learning.learner import build as build_learner
from trinity_jax.world import histories
from trinity_jax.world.evolve import Rules, World, draw_questions, evolve, log_prob, play_generation, worth
from trinity_jax.world.skills import from_pool
from trinity_jax.world.states import Drifting, Table, clusters

POOL = PoolSettings.model_validate(
    {
        "simulated": [
            {"name": "a", "worker": {"x": 0.9, "y": 0.2}},
            {"name": "b", "worker": {"x": 0.2, "y": 0.9}},
        ]
    }
)
WIDTH, Q = 12, 24
N = 5 * WIDTH


def logits(vector, z):
    return z @ vector.reshape(5, WIDTH).T / np.sqrt(WIDTH)


@pytest.fixture(scope="module")
def world():
    kinds = np.arange(Q) % 2
    turns = histories.turns("full", 3)
    states = clusters(jax.random.key(0), kinds, turns, WIDTH, separability=2.0)
    skills = from_pool(POOL, ["xy"[kind] for kind in kinds])
    table = histories.build("full", 3)
    return World(states, skills, table, jnp.asarray(kinds), jnp.arange(12), jnp.arange(12, Q))


RULES = Rules(kinds=2, max_calls=3, questions=6)


def learner(**settings):
    return LearningSettings.model_validate({"population": 8, "sigma0": 0.5} | settings)


def test_questions_are_drawn_evenly_over_the_kinds():
    kinds = jnp.array([0] * 10 + [1] * 3 + [2] * 3)
    for seed in range(20):
        drawn = draw_questions(jax.random.key(seed), kinds, 7)
        assert len(set(drawn.tolist())) == 7
        assert sorted(np.bincount(np.asarray(kinds[drawn]))) == [2, 2, 3]
    assert sorted(np.bincount(np.asarray(kinds[draw_questions(jax.random.key(0), kinds, 12)]))) == [3, 3, 6]


@pytest.mark.parametrize("sharing", Sharing)
def test_what_candidates_share(world, sharing):
    X = jnp.zeros((5, N))
    played = play_generation(world, RULES, logits, X, sharing, jax.random.key(1), jax.random.key(2))
    same_questions = (played.questions == played.questions[0]).all()
    same_choices = (played.trace.model == played.trace.model[0]).all()
    assert bool(same_questions) == (not sharing.own_questions)
    assert bool(same_choices) == (not sharing.own_keys)
    assert set(np.unique(played.questions)) <= set(range(12))


def test_a_drifting_state_is_the_same_as_its_table(world):
    states = world.states
    assert isinstance(states, Drifting)
    table = Table(jax.vmap(states.every)(jnp.arange(Q)))
    vector = jax.random.normal(jax.random.key(0), (N,))
    for history in range(len(world.histories.response)):
        ours = states.policy(logits, vector, jnp.int32(3))(jnp.int32(history))
        np.testing.assert_allclose(ours, table.policy(logits, vector, jnp.int32(3))(jnp.int32(history)), atol=1e-5)


@pytest.mark.parametrize("name", ["sep_cma_es", "reinforce", "grpo", "random_search", "open_es", "isotropic_es"])
def test_a_run_is_a_function_of_its_key_and_learns_or_at_least_counts(world, name):
    built = build_learner(learner(learner=name), N, log_prob(world, RULES, logits))
    run = jax.jit(lambda keys: jax.lax.map(lambda key: evolve(built, world, RULES, logits, 8, key), keys))
    vectors, course = run(jax.random.split(jax.random.key(0), 2))
    again, _ = run(jax.random.split(jax.random.key(0), 2))
    np.testing.assert_array_equal(vectors, again)
    assert not np.array_equal(vectors[0], vectors[1])
    assert (course.made <= course.asked).all()
    assert (course.asked >= 0).all()
    assert (course.asked <= 8 * 6 * 3).all()
    np.testing.assert_allclose(course.first.sum(-1), 1, atol=1e-5)
    exact = worth(world, RULES, logits, vectors[0], world.held_out).reward.mean()
    assert float(exact) == pytest.approx(float(course.sampled[0, -1]), abs=1e-6)
    if name == "random_search":
        return
    assert float(course.sampled[:, -1].mean()) > float(course.sampled[:, 0].mean()) - 0.05


def test_sharing_pays_less_and_a_journal_of_the_run_less_still(world):
    built = build_learner(learner(), N)
    runs = {}
    for reuse in ("generation", "run"):
        rules = Rules(kinds=2, max_calls=3, questions=6, reuse=reuse)
        runs[reuse] = evolve(built, world, rules, logits, 6, jax.random.key(3))[1]
    apart = build_learner(learner(common_random_numbers=False), N)
    alone = evolve(apart, world, RULES, logits, 6, jax.random.key(3))[1]
    assert (alone.made == alone.asked).all()
    assert int(runs["generation"].made.sum()) < int(runs["generation"].asked.sum())
    assert int(runs["run"].made.sum()) < int(runs["generation"].made.sum())
    assert int(runs["run"].made[0]) > 0


def test_reuse_of_a_run_needs_shared_questions_and_room(world):
    apart = build_learner(learner(common_random_numbers=False), N)
    with pytest.raises(UserError, match="shared questions"):
        evolve(apart, world, Rules(kinds=2, max_calls=3, questions=6, reuse="run"), logits, 2, jax.random.key(0))
    rules = Rules(kinds=2, max_calls=12, questions=6, reuse="run")
    with pytest.raises(UserError, match="possible calls"):
        evolve(build_learner(learner(), N), world, rules, logits, 2, jax.random.key(0))


def test_exact_values_may_be_computed_now_and_then(world):
    built = build_learner(learner(), N)
    run = lambda rules: evolve(built, world, rules, logits, 5, jax.random.key(4))[1]  # noqa: E731
    often, seldom = run(RULES), run(replace(RULES, judge_every=2))
    known = np.array([False, True, False, True, True])
    for name in ("sampled", "greedy", "turns", "first", "roles"):
        got = np.asarray(getattr(seldom, name))
        np.testing.assert_allclose(got[known], np.asarray(getattr(often, name))[known], atol=1e-6)
        assert np.isnan(got[~known]).all()
    np.testing.assert_array_equal(seldom.asked, often.asked)
