from collections import Counter

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity_jax.config import LearningSettings
from trinity_jax.training.draw import draw_questions, generation_keys


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30), st.data())
def test_draws_are_distinct_and_even_over_kinds(kinds, data):
    count = data.draw(st.integers(1, len(kinds)))
    drawn = draw_questions(jax.random.key(data.draw(st.integers(0, 9))), kinds, count)
    assert len(set(drawn)) == len(drawn) == count
    have, got = Counter(kinds), Counter(kinds[i] for i in drawn)
    # A kind lags behind another only where it has no question left.
    most = max(got.values())
    assert all(got[kind] >= min(have[kind], most - 1) for kind in have)


def test_draws_follow_the_key_alone():
    kinds = ["a", "b"] * 20
    one, same, other = (draw_questions(jax.random.key(seed), kinds, 10) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_common_random_numbers_share_questions_and_repeats():
    learning = LearningSettings(questions=4, repeats=2)
    keys = generation_keys(jax.random.key(0), learning, ["a"] * 30, generation=7, population=5)
    by_candidate = [[key[2:] for key in keys if key.candidate == p] for p in range(5)]
    assert all(one == by_candidate[0] for one in by_candidate)
    assert len(keys) == 5 * 4 * 2
    assert {key.generation for key in keys} == {7}


def test_own_questions_keep_calls_apart():
    learning = LearningSettings(questions=4, repeats=2, common_random_numbers=False)
    keys = generation_keys(jax.random.key(0), learning, ["a"] * 30, generation=0, population=5)
    assert len({tuple(key.question for key in keys if key.candidate == p) for p in range(5)}) > 1
    repeats = [{key.repeat for key in keys if key.candidate == p} for p in range(5)]
    assert all(not a & b for i, a in enumerate(repeats) for b in repeats[:i])


@pytest.mark.parametrize("learner", ["reinforce", "grpo"])
def test_what_candidates_that_are_one_vector_play(learner):
    learning = LearningSettings(learner=learner, questions=4, repeats=2)
    keys = generation_keys(jax.random.key(0), learning, ["a"] * 30, generation=0, population=3)
    played = [{key[2:] for key in keys if key.candidate == p} for p in range(3)]
    if learner == "grpo":  # the same questions and calls, so that episodes of one question can be compared
        assert played[0] == played[1] == played[2]
    else:
        assert not played[0] & played[1]
