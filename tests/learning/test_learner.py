"""What holds for every learner, on a small routing task: three kinds of question, three models, one best at each."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from trinity_jax.config import LearningSettings, Sharing
from trinity_jax.errors import UserError
from trinity_jax.learning.learner import Experience, build

KEY = jax.random.key(0)
LEARNERS = ("sep_cma_es", "isotropic_es", "open_es", "random_search", "reinforce", "grpo")
GRADIENT = ("reinforce", "grpo")
P, R, KINDS, MODELS = 8, 12, 3, 3
N = KINDS * MODELS
SKILL = 0.1 + 0.8 * jnp.eye(KINDS, MODELS)


def log_prob(vector, trace):
    kinds, models = trace
    return jnp.take_along_axis(jax.nn.log_softmax(vector.reshape(KINDS, MODELS))[kinds], models[..., None], -1)[..., 0]


def make(learner, **settings):
    defaults = {"population": P, "sigma0": 0.5, "search": {"half_width": 2.0}, "gradient": {"learning_rate": 0.1}}
    return build(LearningSettings(learner=learner, **(defaults | settings)), N, log_prob)


def value(vector):
    """Exact success of the sampled policy."""
    return jnp.mean(jnp.sum(jax.nn.softmax(vector.reshape(KINDS, MODELS)) * SKILL, axis=1))


def play(learner, X, key):
    """Rewards of R episodes per candidate, with the keys that the learner's sharing asks for."""
    question, choice, luck = jax.random.split(key, 3)

    def draw(sampler, key, own, *shape):
        return jnp.broadcast_to(sampler(key, (P if own else 1, R, *shape)), (P, R, *shape))

    own = learner.sharing.own_questions
    kinds = jnp.floor(KINDS * draw(jax.random.uniform, question, own)).astype(int)
    noise = draw(jax.random.gumbel, choice, learner.sharing.own_keys, MODELS)
    answers = draw(jax.random.uniform, luck, own, MODELS) < SKILL[kinds]  # equal calls have equal answers
    logits = jax.vmap(lambda x, k: x.reshape(KINDS, MODELS)[k])(X, kinds)
    models = jnp.argmax(logits + noise, axis=-1)
    groups = jnp.arange(P * R).reshape(P, R) if own else jnp.broadcast_to(jnp.arange(R), (P, R))
    rewards = jnp.take_along_axis(answers, models[..., None], -1)[..., 0]
    return Experience(rewards.astype(float), groups, (kinds, models))


@lru_cache
def programs(name):
    """One learner, and its generation compiled once: ``lost`` [P, R] marks the episodes without a reward."""
    learner = make(name)

    def generation(state, key, lost):
        ask_key, play_key, tell_key = jax.random.split(key, 3)
        X, state = learner.ask(state, ask_key)
        seen = play(learner, X, play_key)
        seen = seen._replace(rewards=jnp.where(lost, jnp.nan, seen.rewards))
        return learner.tell(state, X, jnp.nanmean(seen.rewards, axis=1), tell_key, seen)

    return learner, generation, jax.jit(generation)


NONE, ALL = np.zeros((P, R), bool), np.ones((P, R), bool)


def run(name, generations, state=None, lost=NONE):
    learner, _, generation = programs(name)
    state = learner.init(KEY) if state is None else state
    for key in jax.random.split(jax.random.key(generations), generations):
        state = generation(state, key, lost)
    return state


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_improves_as_one_scan_over_many_seeds(name):
    learner, generation, _ = programs(name)

    def whole(key):
        keys = jax.random.split(key, 60)
        return jax.lax.scan(lambda state, key: (generation(state, key, NONE), None), learner.init(key), keys)[0]

    learned = jax.jit(jax.vmap(lambda key: value(learner.mean(whole(key)))))(jax.random.split(KEY, 8))
    assert float(value(jnp.zeros(N))) == pytest.approx(1.1 / 3)
    assert float(learned.mean()) > {"random_search": 0.47}.get(name, 0.6)


@pytest.mark.parametrize("name", LEARNERS)
def test_lost_episodes_are_survived(name):
    learner = programs(name)[0]
    before = run(name, 3)
    lost = run(name, 2, before, ALL)
    np.testing.assert_array_equal(np.asarray(learner.mean(lost)), np.asarray(learner.mean(before)))
    some = NONE.copy()
    some[0], some[:, 0] = True, True
    after = run(name, 3, lost, some)
    assert bool(jnp.all(jnp.isfinite(learner.mean(after))))
    assert bool(jnp.any(learner.mean(after) != 0))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_starts_where_it_is_told(name):
    learner, start = make(name), np.linspace(-1, 1, N)
    state = learner.init(KEY, start)
    np.testing.assert_allclose(learner.mean(state), start, rtol=1e-6)
    X, _ = learner.ask(state, KEY)
    assert X.shape == (learner.population, N)
    assert float(jnp.abs(X - start).mean()) < 1.5
    with pytest.raises(UserError, match=r"\(9,\), got \(3,\)"):
        learner.init(KEY, np.zeros(3))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_checkpoint_continues_bit_for_bit(name, tmp_path):
    state = run(name, 3)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", state)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "state", make(name).init(KEY))
    for ours, other in zip(*(jax.tree.leaves(run(name, 2, one)) for one in (state, restored)), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(other))


@pytest.mark.parametrize("name", LEARNERS)
def test_the_state_keeps_its_types(name):
    states = [programs(name)[0].init(KEY), run(name, 1)]
    types = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(state)] for state in states]
    assert types[0] == types[1]
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(states[0]))


def test_what_means_nothing_is_nan():
    for name in LEARNERS:
        learner = make(name)
        state = learner.init(KEY)
        assert bool(jnp.isnan(learner.sigma(state))) == (name in (*GRADIENT, "random_search"))
        assert bool(jnp.isnan(learner.diagonal_spread(state))) == (name not in ("sep_cma_es", "isotropic_es"))
        assert np.isnan(learner.c_mu) == (name not in ("sep_cma_es", "isotropic_es"))


def test_candidates_that_are_one_vector_do_not_share_their_keys():
    assert {name: make(name).sharing for name in LEARNERS} == {
        "sep_cma_es": Sharing.EVERYTHING,
        "isotropic_es": Sharing.EVERYTHING,
        "open_es": Sharing.EVERYTHING,
        "random_search": Sharing.EVERYTHING,
        "reinforce": Sharing.NOTHING,
        "grpo": Sharing.QUESTIONS,
    }
    assert make("sep_cma_es", common_random_numbers=False).sharing is Sharing.NOTHING


def test_a_gradient_learner_needs_what_it_reads():
    for name in GRADIENT:
        with pytest.raises(ValueError, match="log_prob"):
            build(LearningSettings(learner=name), N)
        learner = make(name)
        state = learner.init(KEY)
        with pytest.raises(ValueError, match="experience"):
            learner.tell(state, learner.ask(state, KEY)[0], np.zeros(P), KEY)


def test_the_isotropic_control_adapts_its_step_size_and_nothing_else():
    learner, state = programs("isotropic_es")[0], run("isotropic_es", 10)
    assert float(learner.diagonal_spread(state)) == 0
    assert float(learner.sigma(state)) != 0.5
    assert learner.c_mu == 0


def test_a_population_of_pairs_is_rounded_up_to_even():
    assert build(LearningSettings(), N).population == 11
    assert build(LearningSettings(learner="open_es"), N).population == 12
