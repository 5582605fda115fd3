"""Profiles: what is kept, and the error rate of the test that says a model has moved."""

import numpy as np
import pytest

from trinity_jax.coordinator.profile import Profile, alarms, anchor, as_answers, moved
from trinity_jax.errors import UserError

KINDS = ["x", "y", "z"] * 8
RNG = np.random.default_rng(0)


def answers(chance, samples=2):
    return (RNG.random((len(chance), samples)) < np.asarray(chance)[:, None]).astype(float)


def test_a_model_that_has_not_moved_is_called_so_no_more_often_than_stated(monkeypatch):
    monkeypatch.setattr("trinity_jax.coordinator.profile.FLIPS", 999)
    # Questions of every difficulty, which is what a test on pooled counts gets wrong.
    chance = RNG.random(len(KINDS))
    p = np.array([moved(answers(chance), answers(chance), KINDS, seed).p for seed in range(1500)])
    for level in (0.05, 0.2):
        share = (p <= level).mean()
        assert share <= level + 3 * np.sqrt(level * (1 - level) / len(p))
    assert (p <= 0.2).mean() > 0.1  # exact, not merely careful


def test_several_models_share_one_level():
    RNG2 = np.random.default_rng(1)
    p = RNG2.random((4000, 5))
    false = np.mean([any(alarms(row.tolist(), 0.05)) for row in p])
    assert false <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)
    assert alarms([0.001, 0.04, 0.012], 0.05) == [True, True, True]
    assert alarms([0.02, 0.04, 0.03], 0.05) == [False, False, False]


def test_it_sees_one_kind_rise_while_another_falls():
    before = answers(np.where(np.array(KINDS) == "x", 0.95, 0.05), 4)
    after = answers(np.where(np.array(KINDS) == "y", 0.95, 0.05), 4)
    found = moved(before, after, KINDS)
    assert found.p < 0.01
    assert found.kind in ("x", "y")
    assert abs(found.change) > 0.5
    assert abs(found.after - found.before) < 0.2


def test_answers_without_a_grade_are_left_out():
    before = answers([0.5] * len(KINDS))
    before[0] = np.nan
    kept = Profile(anchors=tuple(map(str, range(len(KINDS)))), kinds=tuple(KINDS), answers={"a": as_answers(before)})
    np.testing.assert_array_equal(kept.rewards(["a"])[:, 0], before)
    assert moved(before, before, KINDS).p == 1
    with pytest.raises(UserError, match="no question has answers from both times"):
        moved(np.full((3, 1), np.nan), np.ones((3, 1)), KINDS[:3])


def test_another_anchor_set_and_an_unknown_model_are_told():
    kept = Profile(anchors=("1", "2"), kinds=("x", "y"), answers={"a": ((1,), (0,))})
    kept.matches(("1", "2"), "tasks")
    with pytest.raises(UserError, match=r"another anchor set: .* 2 questions, got 2, of which 1"):
        kept.matches(("2", "3"), "tasks")
    with pytest.raises(UserError, match="no answers of b; profiled are a"):
        kept.rewards(["a", "b"])
    assert kept.without("a").answers == {}
    assert anchor("one") != anchor("two")
    # Models may have answered different numbers of times.
    more = kept.with_answers("b", np.array([[1.0, 0.0], [np.nan, 1.0]])).rewards(["a", "b"])
    np.testing.assert_array_equal(more, [[[1, np.nan], [1, 0]], [[0, np.nan], [np.nan, 1]]])
