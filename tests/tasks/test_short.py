import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tasks.corpora import load
from trinity_jax.tasks import Grade, Question, grade, short

CORPUS = load("short")
DRESS = ["<answer>{}</answer>", "The answer is {}.", "<think>7 V?</think>Some words first.\n\n**Answer:** {}"]
WANTED = {"right": Grade.RIGHT, "wrong": Grade.WRONG, "unsure": Grade.UNDECIDED}


def ask(gold):
    return Question("q", "k", "p", gold, "short")


@pytest.mark.parametrize("wanted", WANTED)
def test_corpus(wanted):
    rows = [
        (dress.format(form), entry["gold"], grade(ask(entry["gold"]), dress.format(form), False))
        for entry in CORPUS
        for form in entry.get(wanted, [])
        for dress in DRESS
    ]
    missed = [row for row in rows if row[2] is not WANTED[wanted]]
    assert rows
    assert not missed


@given(st.integers(-999_999, 999_999), st.integers(1, 5), st.sampled_from(["m", "kg", "s"]))
@settings(max_examples=100, deadline=None)
def test_a_thousandth_of_a_larger_unit_is_the_same_and_twice_as_much_is_not(digits, places, unit):
    value = f"{digits / 10**places:.{places}f}"
    larger = {"m": "km", "kg": "g", "s": "ms"}[unit]
    factor = 3 if unit == "m" else -3
    shifted = f"{digits}e{-places - factor}"
    question = ask(f"{value} {unit}")
    assert grade(question, f"<answer>{value} {unit}</answer>", True) is Grade.RIGHT
    assert grade(question, f"<answer>{shifted} {larger}</answer>", True) is Grade.RIGHT
    if digits:
        assert grade(question, f"<answer>{2 * digits / 10**places:.{places}f} {unit}</answer>", True) is Grade.WRONG


@given(st.text() | st.text(alphabet="0123456789.,-+ mkgs/^%()abc\\{}$"))
@settings(max_examples=300, deadline=None)
def test_any_text_is_graded_without_raising(reply):
    short.words(reply)
    short.quantity(reply)


@pytest.mark.parametrize("piece", ["1", "1 ", "1,", "a", "a ", "-", "m/", "\\text{", "(", "1.1"])
def test_long_answers_take_no_time(piece):
    text = piece * (20_000 // len(piece))
    started = time.process_time()
    short.quantity(text)
    short.words(text)
    grade(ask("5 kg"), f"<answer>{text}</answer>", False)
    assert time.process_time() - started < 2


def test_problems():
    assert "blank" in (short.problem(ask(" . ")) or "")
    assert short.problem(ask("5 kg")) is None
