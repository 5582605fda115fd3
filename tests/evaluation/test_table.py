import io
import json

import numpy as np
import pytest
from rich.console import Console

from trinity_jax.evaluation.scores import Scores
from trinity_jax.evaluation.table import COLUMNS, OF_AN_EVALUATION, Row, render, row, summary

RNG = np.random.default_rng(0)


def scores(name: str, rate: float, questions: int = 80, note: str = "") -> Scores:
    """Exactly ``rate`` of the questions right, the first ones."""
    rewards = (np.arange(questions) < rate * questions).astype(float)[:, None]
    return Scores(name, rewards, np.zeros((questions, 1), bool), np.full((questions, 1), 2), note)


def table(single: float, fixed: float | None, ours: float = 0.7, questions: int = 80) -> list[Row]:
    coordinator = scores("coordinator", ours, questions)
    rivals = [scores("m0 x2", single, questions), scores("m1 x2", single / 2, questions)]
    rivals += [] if fixed is None else [scores("fixed", fixed, questions, "Worker m0")]
    kinds = ["even", "odd"] * (questions // 2)
    return [row(s, kinds, None if s is coordinator else coordinator, 500, 0) for s in (coordinator, *rivals)]


def conclude(rows: list[Row], questions: int = 80) -> dict:
    fixed = "fixed" if rows[-1].name == "fixed" else None
    return summary(rows, "coordinator", "m0 x2", fixed, questions)


def test_a_row_by_hand():
    rewards = np.array([[1, 0], [np.nan, np.nan], [1, np.nan], [0, 0]])
    undecided = np.array([[0, 1], [0, 0], [0, 0], [1, 1]], bool)
    calls = np.array([[1, 2], [3, 4], [5, 5], [2, 2]])
    ours = Scores("ours", np.ones((4, 2)), np.zeros((4, 2), bool), np.ones((4, 2), int))
    line = row(Scores("x", rewards, undecided, calls), ["a", "b", "a", "a"], ours, 200, 0)
    assert line.accuracy.mean == pytest.approx((0.5 + 1 + 0) / 3)
    assert line.difference is not None
    assert line.difference.mean == pytest.approx((0.5 + 0 + 1) / 3)
    assert (line.calls, line.calls_per_question) == (24, 3.0)
    assert (line.undecided_share, line.incomplete_share) == (3 / 8, 3 / 8)
    assert line.by_kind["a"] == pytest.approx(0.5)
    assert np.isnan(line.by_kind["b"])


@pytest.mark.parametrize(
    ("single", "fixed", "said", "not_said"),
    [
        (0.4, 0.5, ["it beats m0 x2", "; beats fixed (+20.0", "Every interval lies above 0"], ["does not show"]),
        (0.4, 0.7, ["beats m0 x2", "is not told apart from fixed (+0.0", "does not show"], ["Every interval"]),
        (0.9, 0.5, ["is worse than m0 x2 (-20.0", "beats fixed", "does not show"], ["Every interval"]),
        (0.4, None, ["beats m0 x2", "The interval lies above 0"], ["fixed", "does not show"]),
        (0.7, None, ["is not told apart from m0 x2", "does not show that the coordinator is better"], ["fixed"]),
    ],
)
def test_the_verdict_says_what_the_intervals_say(single, fixed, said, not_said):
    verdict = conclude(table(single, fixed))["verdict"]
    assert verdict.startswith("On 80 held-out questions the coordinator answered 70.0 % right")
    for part in said:
        assert part in verdict
    for part in not_said:
        assert part not in verdict


def test_few_questions_prove_nothing():
    verdict = conclude(table(0.0, 0.0, ours=1.0, questions=4), 4)["verdict"]
    assert "it shares too few questions with m0 x2 (+100.0 points)" in verdict
    assert "no interval to rely on" in verdict
    assert "above 0" not in verdict
    assert "95 %" not in verdict


def test_a_difference_says_on_how_many_questions_it_stands():
    """What a failed call took from one side is missing in the difference alone."""
    ours, theirs = scores("coordinator", 0.7), scores("m0 x2", 0.4)
    ours.rewards[-3:], theirs.rewards[-5:-1] = np.nan, np.nan
    single = scores("m1 x2", 0.4)
    line = row(theirs, ["a"] * 80, ours, 200, 0, single)
    assert (line.difference_questions, line.over_single_questions) == (75, 76)
    assert COLUMNS["coordinator minus it"](line).endswith("] on 75")
    assert COLUMNS["it minus best single"](line).endswith("] on 76")
    found = summary([row(ours, ["a"] * 80, None, 200, 0), line], "coordinator", "m0 x2", None, 80)
    assert " points on 75 questions)" in found["verdict"]
    assert found["rows"][1]["difference_questions"] == 75
    # With 19 questions in common there is nothing to tell.
    theirs.rewards[:56] = np.nan
    few = row(theirs, ["a"] * 80, ours, 200, 0)
    assert few.difference_questions == 19
    assert COLUMNS["coordinator minus it"](few) == "+0.0 on 19"


@pytest.mark.parametrize(
    ("calls", "budget"), [([1, 1], "fewer"), ([2, 1], "equal"), ([2, 2], "equal"), ([2, 3], "more"), ([0, 0], "fewer")]
)
def test_a_row_says_whether_it_takes_more_calls_than_the_coordinator(calls, budget):
    """The coordinator's 1.5 calls are 2 votes."""

    def one(name: str, taken: list[int]) -> Scores:
        return Scores(name, np.ones((2, 1)), np.zeros((2, 1), bool), np.array(taken)[:, None])

    ours = one("coordinator", [2, 1])
    assert row(one("x", calls), ["a"] * 2, ours, 200, 0).budget == budget
    assert row(ours, ["a"] * 2, None, 200, 0).budget is None


def test_the_best_single_is_the_best_by_plurality():
    found = conclude(table(0.4, 0.5))
    assert (found["best_single"], found["best_single_equal_calls"]) == ("m0 x2", 0.4)
    assert found["fixed_policy"] == "Worker m0"
    assert found["ci_low"] < found["paired_diff_fixed"] < found["ci_high"]
    assert found["single_ci_low"] < found["paired_diff_single"] < found["single_ci_high"]
    assert [r["name"] for r in found["rows"]] == ["coordinator", "m0 x2", "m1 x2", "fixed"]
    assert found["rows"][0]["difference"] is None
    assert found["rows"][3]["difference"]["mean"] == found["paired_diff_fixed"]


def test_nothing_completed_is_said_and_is_json():
    empty = Scores("coordinator", np.full((3, 1), np.nan), np.zeros((3, 1), bool), np.ones((3, 1), int))
    rows = [row(empty, ["a"] * 3, None, 100, 0), row(scores("m0 x2", 1.0, 3), ["a"] * 3, empty, 100, 0)]
    found = summary(rows, "coordinator", "m0 x2", None, 3)
    assert found["coordinator_accuracy"] is None
    assert "could be completed" in found["verdict"]
    json.dumps(found, allow_nan=False)


def test_failed_episodes_are_mentioned():
    rows = table(0.4, 0.5)
    partial = scores("coordinator", 0.7)
    partial.rewards[-8:] = np.nan
    rows[0] = row(partial, ["a"] * 80, None, 100, 0)
    assert "10.0 % of its episodes could not be completed" in conclude(rows)["verdict"]


def test_the_terminal_table_holds_every_row():
    out = io.StringIO()
    Console(file=out, width=140).print(render(table(0.4, 0.5)))
    assert "best single" not in out.getvalue()
    Console(file=out, width=180).print(render(table(0.4, 0.5), OF_AN_EVALUATION))
    text = out.getvalue()
    for part in ("coordinator", "m0 x2", "fixed", "70.0 [", "+20.0 [+", "160"):
        assert part in text
