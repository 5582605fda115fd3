import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trinity_jax.episode import roles
from trinity_jax.episode.roles import Role

CORPUS = yaml.safe_load((Path(__file__).parent / "corpus.yaml").read_text(encoding="utf-8"))
PIECES = ["<answer>", "</answer>", "<idea>", "</idea>", "<think>", "</think>", "<suggestion>", "</suggestion>"]
PIECES += ["<suggested_role>", "</suggested_role>", "worker", "VERDICT:", "accept", "REJECT", "not ", "**", "\n", ". "]
REPLIES = st.one_of(st.text(), st.lists(st.sampled_from([*PIECES, "x", "İ", " "]), max_size=20).map("".join))


def test_the_corpus_is_a_corpus():
    assert sum(map(len, CORPUS.values())) >= 60
    assert len({case["text"] for case in CORPUS["verdicts"]}) == len(CORPUS["verdicts"])


@pytest.mark.parametrize("case", CORPUS["verdicts"], ids=lambda case: case["text"][:40])
def test_verdicts(case):
    assert roles.verdict(case["text"]) is case["accepts"]


@pytest.mark.parametrize("case", CORPUS["suggestions"], ids=lambda case: case["text"][:40])
def test_suggestions(case):
    expected = case["reads"] and (case["reads"][0], Role(case["reads"][1]))
    assert roles.suggestion(case["text"]) == expected


@pytest.mark.parametrize("case", CORPUS["ideas"], ids=lambda case: case["text"][:40])
def test_ideas(case):
    assert roles.idea(case["text"], 12) == case["reads"]


def test_reason_leaves_the_verdict_out_and_the_text_as_it_was():
    assert roles.reason("<think>hm</think>2*3_4 holds.\n\n**VERDICT:** ACCEPT", 99) == "2*3_4 holds."
    assert roles.reason("VERDICT:\n**REJECT**\nThe sign is lost.", 99) == "The sign is lost."
    assert roles.reason("The sign is lost.\nVERDICT: REJECT", 8) == "The sign"
    assert roles.reason("VERDICT: REJECT", 99) == ""


def test_instructions_name_the_tags_that_are_parsed():
    assert all(tag in roles.INSTRUCTIONS[Role.WORKER] for tag in ("<idea>", "</idea>", "<answer>", "</answer>"))
    assert all(tag in roles.INSTRUCTIONS[Role.THINKER] for tag in ("<suggestion>", "<suggested_role>"))
    lines = roles.INSTRUCTIONS[Role.VERIFIER].splitlines()
    assert [roles.verdict(line) for line in lines if line.startswith("VERDICT")] == [True, False]


@given(REPLIES, st.integers(1, 30))
def test_parsers_are_total_and_hold_their_limits(text, limit):
    for condensed in (roles.idea(text, limit), roles.reason(text, limit)):
        assert len(condensed) <= limit
    assert isinstance(roles.verdict(text), bool)
    plan = roles.suggestion(text)
    assert plan is None or (plan[0] in text and plan[1] in (Role.WORKER, Role.VERIFIER))


@given(REPLIES, st.text(alphabet="abc ,\n", min_size=1))
def test_reasoning_in_front_never_counts(text, thinking):
    wrapped = f"<think>{thinking} <answer>9</answer> VERDICT: ACCEPT <idea>z</idea></think>{text}"
    assert roles.verdict(wrapped) == roles.verdict(text)
    assert roles.idea(wrapped, 50) == roles.idea(text, 50)
    assert roles.suggestion(wrapped) == roles.suggestion(text)


@pytest.mark.parametrize(
    "unit",
    ["<answer>", "</answer>", "<idea>", "<think>", "</think>", "verdict", "VERDICT: ", "accept ", "i accept ", "\n",
     " ", "the the ", "a'", ". ", "<", "i ", "the a ", "<suggestion></suggestion>"],
)  # fmt: skip
def test_time_is_linear(unit):
    text = unit * (200_000 // len(unit))
    begin = time.process_time()
    roles.verdict(text)
    roles.idea(text, 100)
    roles.reason(text, 100)
    roles.suggestion(text)
    # Quadratic time on 200,000 characters would be minutes.
    assert time.process_time() - begin < 2.0
