import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity_jax.errors import UserError
from trinity_jax.tasks import GRADERS, Grade, Question, exact, grade

R, W, U = Grade.RIGHT, Grade.WRONG, Grade.UNDECIDED

# (grader, gold, reply, grade)
EXACT = [
    ("exact", "olleh", "olleh", R),
    ("exact", "olleh", "Olleh.", R),
    ("exact", "olleh", '"olleh"', R),
    ("exact", "olleh", "<answer> olleh </answer>", R),
    ("exact", "olleh", "The answer is olleh.", R),
    ("exact", "olleh", "The answer is the word **olleh**", R),
    ("exact", "olleh", "Reversed:\nolleh", R),
    ("exact", "olleh", "\\boxed{\\text{olleh}}", R),
    ("exact", "telloc", 'The word "collet" spelled backward is "telloc".', R),
    ("exact", "telloc", "First the letters, then:\nspelled backward it is tolec.", W),
    ("exact", "telloc", "Backward: **telloc**", R),
    ("exact", "mother", "Willow is Mason's mother.", R),
    ("exact", "mother", "Willow is the mother of Mason.", R),
    ("exact", "mother", "Willow is Mason's aunt.", W),
    ("exact_case", "either, one, withal", "Sorted: either, one, withal", R),
    ("exact_case", "either, one, withal", "The sorted list is:\neither, withal, one", W),
    ("exact", "olleh", "ollhe", W),
    ("exact", "olleh", "The answer is olleh because hello ends in o.", R),
    ("exact", "olleh", "The answer is olleh (backwards).", R),
    ("exact", "olleh", "The answer is something that I would rather not say.", U),
    ("exact_case", "of, as, by", "of, as, by", R),
    ("exact_case", "of, as, by", "of, as, by, the", W),
    ("exact", "olleh", "The answer is hello.", W),
    ("exact", "olleh", "I can't spell, so I will only talk about it at length.", U),
    ("exact", "olleh", "<think>olleh</think>", U),
    ("exact", "mother", "She is his mother, so the answer is: mother", R),
    ("exact", "mother", "<answer>the mother</answer>", R),
    ("exact_case", "Only, and, the", "Only, and, the", R),
    ("exact_case", "Only, and, the", "Only,and , the.", R),
    ("exact_case", "Only, and, the", "<answer>[Only, and, the]</answer>", R),
    ("exact_case", "Only, and, the", "only, and, the", W),
    ("exact_case", "Only, and, the", "Answer: and, Only, the", W),
]


@pytest.mark.parametrize("grader, gold, reply, expected", EXACT)
def test_corpus(grader, gold, reply, expected):
    assert grade(Question("q", "k", "p", gold, grader), reply, False) is expected


@pytest.mark.parametrize(
    "reply, expected", [("olleh", U), ("<answer>olleh</answer>", R), ("<answer>hello</answer>", W)]
)
def test_strict_wants_the_closed_tag(reply, expected):
    assert grade(Question("q", "k", "p", "olleh", "exact"), reply, True) is expected


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_normalising_twice_changes_nothing_and_nothing_raises(text):
    once = exact.normalise(text, keep_case=True)
    assert exact.normalise(once, keep_case=True) == once
    assert grade(Question("q", "k", "p", "olleh", "exact"), text, False) in Grade


def test_unknown_grader_names_the_known_ones():
    with pytest.raises(UserError, match=r"unknown grader 'guess'.*choice.*numeric"):
        grade(Question("q", "k", "p", "1", "guess"), "1", False)
    assert set(GRADERS) >= {"choice", "numeric", "exact", "exact_case", "math"}


def test_blank_gold_is_a_problem():
    assert exact.problem(Question("q", "k", "p", " . ", "exact"))
