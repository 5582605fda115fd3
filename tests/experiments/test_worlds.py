"""Jitted worlds from generated questions: what the coordinator reads is what a run would show it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.study_settings import STRATEGY, WorldSettings, check_read
from experiments.worlds import build_ground, coordinator, on_ground, questions, read, transcripts
from trinity_jax.config import HeadSettings, LearningSettings, PoolSettings, ReadoutSettings
from trinity_jax.errors import UserError
from trinity_jax.world import histories
from trinity_jax.world.histories import Event

POOL = PoolSettings.model_validate({"simulated": [{"name": "a", "worker": {"default": 0.5}}]})


def test_transcripts_of_every_history_hold_what_was_said():
    settings = WorldSettings(max_calls=3, train=4, held_out=4)
    question = questions(settings)[0]
    texts = dict(zip(histories.sequences("full", 3), transcripts(question, settings), strict=True))
    assert len(set(texts.values())) == len(texts) == 14
    assert all(question.prompt in text for text in texts.values())
    assert "REJECT" in texts[Event.RIGHT, Event.REJECT]
    assert question.answer in texts[(Event.RIGHT,)].replace(question.prompt, "")
    assert "as thinker" in texts[(Event.THINKER,)]


def test_synthetic_states_have_the_sizes_asked_for_and_are_a_function_of_the_seed():
    settings = WorldSettings.model_validate(
        {"states": "synthetic", "train": 6, "held_out": 5, "max_calls": 3, "synthetic": {"width": 10}}
    )
    ground = build_ground(settings, 1)
    world = on_ground(ground, POOL)
    assert (len(ground.kinds), len(world.train), len(world.held_out)) == (11, 6, 5)
    again = build_ground(settings, 1)
    np.testing.assert_array_equal(jax.tree.leaves(ground.states)[0], jax.tree.leaves(again.states)[0])


def test_a_read_out_of_episodes_counts_their_calls_and_whitens_what_they_met():
    settings = WorldSettings.model_validate(
        {"states": "synthetic", "train": 40, "held_out": 4, "max_calls": 3, "synthetic": {"width": 10}}
    )
    world = on_ground(build_ground(settings, 1), POOL)
    chosen = ReadoutSettings(kind="whitened", k=4, source="episodes")
    seen = read(world, chosen, 3, jax.random.key(0))
    assert 40 * 0.3 < seen.calls <= 40 * 3
    assert seen.world.states.every(jnp.int32(0)).shape == (14, 4)
    free = read(world, ReadoutSettings(kind="centred"), 3, jax.random.key(0))
    assert free.calls == 0
    start = np.stack([np.asarray(free.world.states.every(jnp.int32(q)))[0] for q in range(40)])
    np.testing.assert_allclose(start.mean(axis=0), 0, atol=1e-5)


def test_a_head_that_does_not_fit_is_told():
    with pytest.raises(UserError, match=r"head\.blocks"):
        coordinator(HeadSettings(kind="block_diagonal", blocks=9), ReadoutSettings(kind="raw"), 64, 2)
    head = coordinator(HeadSettings(), ReadoutSettings(kind="whitened", k=4), 64, 2)
    assert head.layout.size == 5 * 4 + 5


def test_settings_that_a_study_does_not_read_are_refused():
    check_read(LearningSettings(generations=3, sigma0=1.0), STRATEGY, "learning")
    for field, value, default in (("questions", 3, "16"), ("learner", "grpo", "sep_cma_es")):
        with pytest.raises(ValueError, match=f"learning.{field}: does not count in this study; leave it at {default}"):
            check_read(LearningSettings.model_validate({field: value}), STRATEGY, "learning")
