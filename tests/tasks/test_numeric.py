# ruff: noqa: RUF001 (replies hold typographic signs)
import time
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trinity_jax.errors import UserError
from trinity_jax.tasks import Grade, Question, grade, numeric

R, W, U = Grade.RIGHT, Grade.WRONG, Grade.UNDECIDED

# (gold, reply, grade)
NUMERIC = [
    ("42", "42", R),
    ("42", "42.", R),
    ("42", "42.0", R),
    ("42", "**42**", R),
    ("42", "+42", R),
    ("42", "<answer>42</answer>", R),
    ("42", "<answer> 42 apples </answer>", R),
    ("42", "<answer>$42$</answer>", R),
    ("42", "<answer>x = 42</answer>", R),
    ("42", "<answer>6 * 7 = 42</answer>", R),
    ("42", "<answer>41</answer> then <answer>42</answer>", R),
    ("42", "<answer>42 or 43</answer>", U),
    ("42", "<answer>forty-two</answer>", U),
    ("42", "<answer></answer>", U),
    ("42", "<answer>42", R),
    ("42", "The answer is 42.", R),
    ("42", "The answer is 43.", W),
    ("42", "<answer>24</answer>", W),
    ("42", "#### 4.2", W),
    ("42", "The answer is 420.", W),
    ("42", "So the sum = 41", W),
    ("42", "The answer is 42. No: the answer is 44.", W),
    ("42", "-42", W),
    ("3/4", "\\frac{4}{3}", W),
    ("42", "The answer is **42**.", R),
    ("42", "The final answer is $\\boxed{42}$.", R),
    ("42", "Answer: 42", R),
    ("42", "### Answer\n42", R),
    ("42", "#### 42", R),
    ("42", "The answer to 6 * 7 is 42.", R),
    ("42", "The answer is 6 * 7 = 42.", R),
    ("42", "The answer is 42 because 40 + 2 = 42.", R),
    ("42", "The answer is 42 (not 43).", R),
    ("42", "The answer is 42, not 43.", R),
    ("42", "The answer is 6 * 7.", U),
    ("42", "The answer is between 40 and 44.", U),
    ("42", "First answer: 41. Correction, the answer is 42.", R),
    ("42", "So 40 + 2 = 42", R),
    ("42", "40 + 1 = 41\n41 + 1 = 42", R),
    ("42", "We have 40.\nWe add 2.\nThat makes 42 in all.", R),
    ("11", "The greatest common divisor of 33 and 77 is 11.", R),
    ("11", "33 = 3 * 11 and 77 = 7 * 11, so the divisor is 11.", R),
    ("11", "33 = 3 * 11\nThe divisor of both is 7.", W),
    ("10", "2 ducks have 4 legs and 3 humans have 6 legs, so together they have 10 legs.", R),
    ("3", "There are 3 'u's in \"equal number of telephones\".", R),
    ("3", 'The letter "u" appears 3 times.', R),
    ("13", "So x = 13.\nI hope this helps!", R),
    ("11", "11 is the greatest common divisor.", R),
    ("-78", "The next number in the sequence is -78.", R),
    ("42", "We have 40, add 2, and get there.", U),
    ("42", "<think>It is 41.</think>42", R),
    ("42", "<think>It is 42.", U),
    ("42", "<think>= 42</think>No idea.", U),
    ("42", "", U),
    ("42", "No idea.", U),
    ("42", "42 km", R),
    ("42", "42°", R),
    ("42", "$42", R),
    ("42", "The price is \\$42.", R),
    ("42", "x=42", R),
    ("42", "12:42", U),
    ("42", "2042-01-42", U),
    ("1", "\\boxed{(1, 2)}", U),
    ("1", "The answer is 1, 2, 3.", U),
    ("-4", "-4", R),
    ("-4", "−4", R),
    ("-4", "(-4)", R),
    ("-4", "- 4", R),
    ("-4", "minus 4", R),
    ("-4", "The answer is −4.", R),
    ("-4", "4", W),
    ("-4", "4 - 1 - 7 = -4", R),
    ("1234567", "1,234,567", R),
    ("1234567", "The answer is 1{,}234{,}567", R),
    ("1234567", "1\u202f234\u202f567", R),
    ("1234567", "1\\,234\\,567", R),
    ("1,234", "1234", R),
    ("1234", "12,34", U),
    ("1234.5", "\\$1,234.50", R),
    ("1/2", "1/2", R),
    ("1/2", "2/4", R),
    ("1/2", "0.5", R),
    ("1/2", "50%", R),
    ("1/2", "\\frac{1}{2}", R),
    ("1/2", "$\\dfrac12$", R),
    ("1/2", "\\boxed{\\left(\\frac{1}{2}\\right)}", R),
    ("1/6", "\\frac{\\frac{1}{2}}{3}", R),
    ("-3/4", "-\\frac{3}{4}", R),
    ("-3/4", "\\frac{-3}{4}", R),
    ("7/2", "3 1/2", R),
    ("7/2", "$3\\frac{1}{2}$", R),
    ("-7/2", "-3 1/2", R),
    ("1/3", "0.3333333", R),
    ("1/3", "0.333", W),
    ("1/3", "1/0", U),
    ("0.3125", "5/16", R),
    ("0.3125", ".3125", R),
    ("0.3125", "31.25%", R),
    ("0.3125", "0.31250001", R),
    ("0.3125", "0.3126", W),
    ("25", "25%", R),
    ("25%", "0.25", R),
    ("25%", "0.25%", W),
    ("25", "25 percent", R),
    ("25", "25\\%", R),
    ("0.0025", "2.5e-3", R),
    ("0.0025", "2.5E-03", R),
    ("250000", "2.5 \\times 10^{5}", R),
    ("250000", "2.5 × 10⁵", R),
    ("250000", "2.5*10^5", R),
    ("250000", "2.5 x 10^5", R),
    ("250000", "2.5 times ten to the 5th", R),
    ("250000", "2.5 times 10 to the power of 5", R),
    ("0.00001", "10^{-5}", R),
    ("1000000", "1000000.5", W),
    ("0", "0.0000001", W),
    ("8", "2^3 = 8", R),
    ("8", "2^3", U),
    ("2", "\\sqrt{2}", U),
    ("2", "2\\pi", U),
    ("2", "2\\sqrt{3}", U),
    ("5", "1e999999999", U),
    ("5", "9" * 5000, U),
    ("5", "The answer is 5/", U),
    ("5", "5 < 6", U),
]


def ask(gold):
    return Question("q", "k", "p", gold, "numeric")


@pytest.mark.parametrize("gold, reply, expected", NUMERIC)
def test_corpus(gold, reply, expected):
    assert grade(ask(gold), reply, False) is expected


def test_corpus_covers_every_grade():
    counts = {each: sum(row[2] is each for row in NUMERIC) for each in Grade}
    assert len(NUMERIC) >= 80
    assert min(counts.values()) >= 8, counts


@pytest.mark.parametrize(
    "reply, expected", [("42", U), ("\\boxed{42}", U), ("<answer>42", U), ("<answer>42</answer>", R)]
)
def test_strict_wants_the_closed_tag(reply, expected):
    assert grade(ask("42"), reply, True) is expected


DRESS = [
    "{}",
    "**{}**",
    "<answer>{}</answer>",
    "The answer is {}.",
    "The answer is ${}$.",
    "\\boxed{{{}}}",
    "Final answer: {} apples.",
    "We got 7 and 8 first.\nIn the end x = {}",
    "<think>= 17</think>#### {}",
]


def plain(number):
    return [str(number), f"{number}.0", f"{number:,}", f"{number:,}".replace(",", "{,}"), str(number).replace("-", "−")]


def scientific(number):
    digits = f"{number:.12e}".partition("e")
    power = int(digits[2])
    return [f"{digits[0]}e{power}", f"{digits[0]} \\times 10^{{{power}}}", f"{digits[0]} × 10^{power}"]


def fractions(number):
    top, bottom = number.numerator, number.denominator
    minus, size = ("-" if top < 0 else ""), abs(top)
    forms = [f"{top}/{bottom}", f"{minus}\\frac{{{size}}}{{{bottom}}}", f"{minus}\\dfrac{{{size}}}{{{bottom}}}"]
    forms.append(f"\\frac{{{top}}}{{{bottom}}}")
    forms.append(f"{minus}\\frac{{\\frac{{{size}}}{{2}}}}{{\\frac{{{bottom}}}{{2}}}}")
    if size > bottom > 1:
        forms.append(f"{minus}{size // bottom} {size % bottom}/{bottom}")
        forms.append(f"{minus}{size // bottom}\\frac{{{size % bottom}}}{{{bottom}}}")
    return forms


WHOLE = st.integers(-(10**12), 10**12)


@given(WHOLE, WHOLE, st.sampled_from(DRESS), st.data())
@settings(max_examples=200, deadline=None)
def test_a_whole_number_in_any_form_is_right_and_another_one_wrong(gold, other, dress, data):
    assume(gold != other)
    form = data.draw(st.sampled_from(range(len(plain(gold)) + 3)))
    right, wrong = (([*plain(number), *scientific(number)])[form] for number in (gold, other))
    assert grade(ask(str(gold)), dress.format(right), False) is R
    assert grade(ask(str(gold)), dress.format(wrong), False) is W


@given(st.fractions(-1000, 1000, max_denominator=999), st.fractions(-1000, 1000, max_denominator=999), st.data())
@settings(max_examples=100, deadline=None)
def test_a_fraction_in_any_form_is_right_and_another_one_wrong(gold, other, data):
    assume(gold != other)
    dress = data.draw(st.sampled_from(DRESS))
    right, wrong = (data.draw(st.sampled_from(fractions(number))) for number in (gold, other))
    assert grade(ask(str(gold)), dress.format(right), False) is R
    assert grade(ask(str(gold)), dress.format(wrong), False) is W


@given(st.decimals(-1000, 1000, places=4), st.sampled_from(DRESS))
@settings(max_examples=200, deadline=None)
def test_a_decimal_is_right_within_a_millionth_and_wrong_beyond(gold, dress):
    value = Fraction(gold)
    assume(value.denominator != 1)
    near, far = (float(value * (1 + Fraction(step, 10_000_000))) for step in (5, 25))
    assert grade(ask(str(gold)), dress.format(f"{near:.12f}"), False) is R
    assert grade(ask(str(gold)), dress.format(f"{far:.12f}"), False) is W


@given(st.text() | st.text(alphabet="0123456789 .,:+-−*/^=%$()e\\{}<>frac\nx×⁵½"))
@settings(max_examples=400, deadline=None)
def test_any_text_is_graded_without_raising(reply):
    for strict in (False, True):
        assert grade(ask("3"), reply, strict) in Grade


HOSTILE = [
    "1", "1,234", "1,", "1.1", "-", "- 1", "1/", "\\frac{", "\\frac{1}{2}", "{", "10^", "1e5",
    "=", "= 1", "answer ", "1 1/2 ", "answer is 1 ", "####", "####1\n", "\\boxed{1", "<answer>1", " ", "\n", "⁵",
    "1⁵", "**", "\\text{", "$", "2**",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_linearly(piece):
    def seconds(size):
        reply = piece * (size // len(piece))
        started = time.process_time()
        grade(ask("42"), reply, False)
        grade(ask("42"), f"<answer>{reply}</answer>", False)
        return time.process_time() - started

    assert seconds(120_000) < max(1.0, 16 * min(seconds(15_000) for _ in range(2)))


def test_a_gold_answer_that_is_no_number_is_the_users_to_fix():
    with pytest.raises(UserError, match=r"q.*'many'.*not a number"):
        grade(ask("many"), "42", False)
    assert "not a number" in (numeric.problem(ask("many")) or "")
    assert numeric.problem(ask("1,234.5")) is None
