from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from trinity_jax.episode.episode import EpisodeState
from trinity_jax.evaluation.baselines import per_question_best
from trinity_jax.evaluation.scores import Scores, by_question, episode_keys, from_results
from trinity_jax.evaluation.voting import plurality, vote, winner
from trinity_jax.pool.reply import Outcome, Reply
from trinity_jax.rollout.decide import EpisodeKey
from trinity_jax.rollout.engine import EpisodeResult
from trinity_jax.tasks import grade
from trinity_jax.tasks.question import Grade, Question

SEVEN = Question("n", "sum", "3 + 4?", "7", "numeric")
CHOICE = Question("c", "choice", "Which?", "B", "choice", options=("red", "green", "blue"))
WORD = Question("w", "word", "Say it", "tree", "exact")


def result(question: Question, text: str | None, index: int = 0, repeat: int = 0) -> EpisodeResult:
    graded = None if text is None else grade(question, text, False)
    reply = Reply(Outcome.TIMEOUT if text is None else Outcome.OK, text or "")
    reward = None if text is None else float(graded is Grade.RIGHT)
    return EpisodeResult(
        EpisodeKey(0, 0, index, repeat), reward, graded, EpisodeState(question.prompt, response=text), (), (reply,)
    )


@given(st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=9))
def test_the_winner_is_the_first_of_the_most_frequent(votes):
    elected = winner(votes)
    counts = Counter(v for v in votes if v is not None)
    if not counts:
        assert elected is None
        return
    most = max(counts.values())
    assert elected == min(i for i, v in enumerate(votes) if v is not None and counts[v] == most)


@pytest.mark.parametrize(
    ("question", "same", "other"),
    [
        (SEVEN, ("<answer>1,000</answer>", "The answer is 1000."), "<answer>8</answer>"),
        (SEVEN, ("<answer>7</answer>", "The answer is 7.0"), "<answer>8</answer>"),
        (CHOICE, ("<answer>C</answer>", "The answer is (C) blue."), "<answer>A</answer>"),
        (WORD, ("<answer>Stone.</answer>", "Answer: stone"), "<answer>leaf</answer>"),
    ],
)
def test_forms_of_one_answer_are_one_vote(question, same, other):
    votes = [vote(question, result(question, text), False) for text in same]
    assert votes[0] == votes[1] is not None
    assert vote(question, result(question, other), False) not in (None, votes[0])


def test_votes_by_question_and_repeat():
    texts = {  # sample s votes in repeat s mod 2
        0: ["7", "9", "8", "9", "7", "7"],
        1: ["C", "no idea", "C", None, "B", "no idea"],
    }
    results = [
        result(q, None if t is None else t if t == "no idea" else f"<answer>{t}</answer>", index, sample)
        for index, q in enumerate((SEVEN, CHOICE))
        for sample, t in enumerate(texts[index])
    ]
    scores = plurality("x", [SEVEN, CHOICE], results[::-1], repeats=2, strict=False)
    assert_array_equal(scores.rewards, [[1, 0], [0, 0]])
    assert_array_equal(scores.undecided, [[False, False], [False, True]])
    assert_array_equal(scores.calls, [[3, 3], [3, 3]])


def test_all_calls_failed_is_not_a_wrong_answer():
    scores = plurality("x", [SEVEN], [result(SEVEN, None, 0, s) for s in range(3)], repeats=1, strict=False)
    assert np.isnan(scores.rewards).all()
    assert not scores.undecided.any()


def test_a_plurality_that_goes_on_without_most_of_its_calls_has_failed_as_much():
    """It is complete, and yet no more to be trusted than an episode that lost its call."""
    texts = ["<answer>7</answer>", None, None, "<answer>7</answer>", None, "<answer>8</answer>"]
    scores = plurality("x", [SEVEN], [result(SEVEN, t, 0, s) for s, t in enumerate(texts)], repeats=2, strict=False)
    assert not np.isnan(scores.rewards).any()
    assert scores.failed_share == 3 / 6
    routed = by_question("r", [scores, scores], np.array([1]))
    assert routed.failed_share == 3 / 6
    assert per_question_best([scores, scores]).failed_share == 3 / 6
    once = from_results("x", [result(SEVEN, t, 0, s) for s, t in enumerate(texts[:3])])
    assert once.failed_share == 2 / 3


def test_scores_are_arranged_by_key_and_average_what_was_completed():
    keys = episode_keys(2, 2)
    texts = ["<answer>7</answer>", None, "<answer>8</answer>", "<answer>7</answer>"]
    results = [result(SEVEN, text, key.question, key.repeat) for key, text in zip(keys, texts, strict=True)]
    scores = from_results("x", results[::-1])
    assert_array_equal(scores.rewards, [[1, np.nan], [0, 1]])
    assert_array_equal(scores.per_question, [1, 0.5])
    assert np.isnan(Scores("x", np.full((1, 2), np.nan), np.zeros((1, 2), bool), np.ones((1, 2), int)).per_question)
    with pytest.raises(ValueError, match="2 x 2"):
        from_results("x", results[:-2] + results[-1:])
