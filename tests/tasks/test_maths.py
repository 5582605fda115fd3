# ruff: noqa: RUF001 (replies hold typographic signs)
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tasks.corpora import load
from trinity_jax.tasks import Grade, Question, evaluate, grade, latex, maths, units

R, W, U = Grade.RIGHT, Grade.WRONG, Grade.UNDECIDED
CORPUS = load("maths")
DRESS = [
    "<answer>{}</answer>",
    "So we get\n$$\\boxed{{{}}}$$\nand that is it.",
    "The answer is ${}$.",
    "Therefore, the final answer is: \\[{}\\]",
    "<think>5 or 7?</think>\nAdding up, $2+2=4$. We conclude that the result is ${}$",
]

# (gold, reply, grade): where in a reply the answer stands.
REPLIES = [
    ("42", "First $\\boxed{41}$; no, on reflection:\n\n$\\boxed{42}$", R),
    ("42", "\\boxed{\\boxed{42}}", R),
    ("42", "\\boxed{\\text{42}}", R),
    ("42", "$\\fbox{42}$", R),
    ("42", "<answer>$\\boxed{42}$</answer>", R),
    ("42", "<answer>The sum is $40+2 = 42$, so the answer is $42$.</answer>", R),
    ("1, 2", "$x = \\boxed{1}$ and $x = \\boxed{2}$", R),
    ("1, 2", "The answer is $x=1$ or $x=2$.", R),
    ("1, 2", "The answers are 1 and 2.", R),
    ("2", "$x = \\boxed{1}$ and $x = \\boxed{2}$", W),
    ("\\frac{3}{4}", "The answer is \\(\\frac{3}{4}\\), since half of it is \\(\\frac38\\).", R),
    ("\\frac{3}{4}", "The answer is 3/4 because half of it is 3/8.", R),
    ("\\frac{3}{4}", "**Final Answer:** $\\dfrac{3}{4}$", R),
    ("\\frac{3}{4}", "### Answer\n\n$$\\frac34$$", R),
    ("\\frac{3}{4}", "<think>\\boxed{\\frac{1}{4}}</think>\\boxed{\\frac34}", R),
    ("\\frac{3}{4}", "<think>\\boxed{\\frac34}", U),
    ("\\frac{3}{4}", "3/4", R),
    ("\\frac{3}{4}", "p = 3/4", R),
    ("\\frac{3}{4}", "Hence $P = \\frac{6}{8} = \\frac{3}{4}$", R),
    ("\\frac{3}{4}", "Hence $P = \\frac{6}{8} = \\frac{3}{5}$", W),
    ("\\frac{3}{4}", "I don't know.", U),
    ("\\frac{3}{4}", "", U),
    ("\\frac{3}{4}", "\\boxed{}", U),
    ("\\frac{3}{4}", "It is hard to say what this amounts to without more thought.", W),
    ("(3,-4)", "The vertex is $(3, -4)$.", R),
    ("(3,-4)", "So the vertex is at the point (3, -4).", R),
    ("5\\text{ cm}", "The answer is $5$ cm.", R),
    ("5\\text{ cm}", "The answer is $5$ km.", W),
    ("5\\text{ cm}", "The answer is 5 cm.", R),
    ("\\text{Evelyn}", "The answer is Evelyn, because her speed is the greatest.", R),
    ("\\text{Evelyn}", "The answer is **Evelyn**.", R),
    ("x^2+2x+1", "The polynomial is $(x+1)^2$.", R),
    ("100, 200", "\\boxed{100,200}", R),
    ("100200", "\\boxed{100,200}", R),
    ("\\$5", "The answer is \\$5.", R),
    ("2^{n}", "The answer is $2^n$ for all $n$.", R),
]  # fmt: skip


def ask(gold):
    return Question("q", "k", "p", gold, "math")


def verdicts(wanted):
    """What every form of the corpus is graded as, in every dress it can wear."""
    for entry in CORPUS:
        for form in entry[wanted]:
            for dress in DRESS:
                if "$" not in form or "$" not in dress:
                    yield grade(ask(entry["gold"]), dress.format(form), False), entry["gold"], dress.format(form)


@pytest.mark.parametrize("wanted", [R, W])
def test_corpus(wanted):
    graded = list(verdicts(wanted))
    assert sum(len(entry[wanted]) for entry in CORPUS) >= 150
    missed = [row for row in graded if row[0] is not wanted]
    assert len(missed) <= 0.01 * len(graded), missed
    assert sum(row[0] is U for row in missed) <= 0.01 * len(graded), missed


@pytest.mark.parametrize("gold, reply, expected", REPLIES)
def test_where_the_answer_stands(gold, reply, expected):
    assert grade(ask(gold), reply, False) is expected


def test_every_gold_is_right():
    for entry in CORPUS:
        assert grade(ask(entry["gold"]), f"<answer>{entry['gold']}</answer>", False) is R


@pytest.mark.parametrize("reply, expected", [("\\boxed{42}", U), ("<answer>42", U), ("<answer>42</answer>", R)])
def test_strict_wants_the_closed_tag(reply, expected):
    assert grade(ask("42"), reply, True) is expected


@pytest.mark.parametrize(
    "gold, said, verdict",
    [("\\gamma(3)", "\\gamma(4)", True), ("\\gamma(3)", "\\zeta(4)", False), ("\\gamma(3)", "\\zeta(4)", None)],
)
def test_what_the_cheap_steps_cannot_decide_is_left_to_algebra(gold, said, verdict):
    asked = []

    def algebra(one, two):
        asked.append((one, two))
        return verdict

    assert maths.same(gold, said, algebra) is verdict
    assert asked == [(gold, said)]


def test_an_infrastructure_failure_is_never_wrong(monkeypatch):
    monkeypatch.setattr(maths.symbolic, "same", lambda gold, said: None)
    assert grade(ask("\\gamma(3)"), "\\boxed{\\zeta(4)}", False) is U


@given(st.text() | st.text(alphabet="0123456789 .,:+-*/^=%$()[]e\\{}<>frac|sqrtpm\nx×⁵½|"))
@settings(max_examples=300, deadline=None)
def test_any_text_is_graded_without_raising(reply):
    for gold in ("3", "(1, 2)", "x^2", "[0, 1)"):
        assert maths.same(gold, reply, lambda *_: None) in (True, False, None)
    maths.find(reply)


HOSTILE = [
    "$", "$$", "\\boxed{", "\\boxed{1}", "{", "\\frac{1}{", "answer is ", "$1$ and ", "(", "1,", "\\text{",
    "\\text{a} ", "a ",
    "^{", "1^", "=", "= 1", "\\\\", "\\[", "\\(", " ", "\n", "**", "sq. ", "x = 1, ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_takes_no_longer_than_a_megabyte(piece):
    reply = piece * (1_000_000 // len(piece))
    started = time.process_time()
    maths.find(reply)
    maths.same("42", reply[: latex.MOST_CHARS], lambda *_: None)
    maths.same("42", f"<answer>{reply}</answer>", lambda *_: None)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "text, value",
    [
        (r"\frac{6}{4}", 1.5),
        (r"2\sqrt{3}", 3.4641016151377544),
        (r"\sqrt[3]{8}", 2),
        (r"3\frac{1}{2}", 3.5),
        ("-2^2", -4),
        ("2^{3^2}", 512),
        (r"\sin^2 30^\circ", 0.25),
        (r"\log_2 8", 3),
        (r"|3-5|\cdot 2", 4),
        ("3!", 6),
        (r"0.\overline{3}", 1 / 3),
        ("1/2/2", 0.25),
        (r"2\pi", 6.283185307179586),
        (r"e^{i\pi}", -1),
        (r"\binom{5}{2}", 10),
    ],
)
def test_values(text, value):
    found = evaluate.evaluate(text)
    assert found is not None
    assert complex(found) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("text", ["", "1/0", "10^{10^{10}}", "((((", "x", r"\gamma", "1000!", "9" * 9000 + "^{9999}"])
def test_what_has_no_value(text):
    assert evaluate.evaluate(text) is None


@pytest.mark.parametrize(
    "one, two, equal",
    [
        ("km", "kilometers", True),
        ("m/s", "meters per second", True),
        ("kg m^2", "kg*m^2", True),
        ("N", "kg m/s^2", True),
        ("square feet", "ft^2", True),
        ("cm", "m", False),
        ("J", "W", False),
        ("mL", "cm^3", True),
    ],
)
def test_units(one, two, equal):
    a, b = units.read(one), units.read(two)
    assert a is not None
    assert (a == b) is equal


@pytest.mark.parametrize("word", ["apples", "ways", "", "x y z", "qubits"])
def test_what_is_no_unit(word):
    assert units.read(word) is None


def test_problems():
    assert "blank" in (maths.problem(ask("$ $")) or "")
    assert "longer" in (maths.problem(ask("1+" * 900 + "1")) or "")
    assert maths.problem(ask("\\frac12")) is None
