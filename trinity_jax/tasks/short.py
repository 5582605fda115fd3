"""Short open answers: a quantity with its unit, a name, a few words (RLPR's are at most 30 characters).

A quantity is right to the digits that the gold answer gives, in any unit of the same kind. A name or phrase is right if
it is the same but for case, articles, punctuation and plural. What is neither clearly right nor clearly wrong is
undecided: a judge may decide it (``judge``).
"""
# ruff: noqa: RUF001 (replies hold typographic signs)

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

from trinity_jax.tasks import maths, numeric, units
from trinity_jax.tasks.latex import normalise
from trinity_jax.tasks.question import Grade, Question

_QUANTITY = re.compile(
    r"(?:about|approximately|approx\.?|around|roughly|nearly|[~≈])?\s*(?P<number>[-+−$€£]?[\d.,\s\u202f{}\\^×xe*·/+-]*\d[\d{}]*\.?\d*)\s*"
    r"(?P<unit>[%°]?[A-Za-zμµΩ°/%^²³·().\s*\d-]*)",
    re.IGNORECASE,
)
_FORMULA = re.compile(r"[\\^=+*/<>]|\d\s?-|-\s?\d|^\s*[\d.,]+\s*$")
_FEWEST_DIGITS = 2
_SYNONYMS = {
    "true": "yes", "correct": "yes", "false": "no", "incorrect": "no", "none": "no", "zero": "0", "one": "1",
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10",
}  # fmt: skip
_ARTICLES = {"a", "an", "the", "its", "it", "is", "of", "by", "in", "at", "on"}
_NOT = {"not", "no", "non", "never", "without", "un"}


class Quantity(NamedTuple):
    """``step`` is one unit of the last digit that was written."""

    value: Fraction
    step: Fraction
    unit: units.Unit | None
    percent: bool


def grade(question: Question, reply: str, strict: bool) -> Grade:
    """Right, wrong, or undecided: no answer found, or words that are akin to the gold's but not the same."""
    said = maths.find(reply, strict)
    if said is None:
        return Grade.UNDECIDED
    gold = question.answer
    wanted, given = quantity(gold), quantity(said)
    if wanted is not None and given is not None:
        return Grade.RIGHT if same_quantity(wanted, given) else Grade.WRONG
    if wanted is None and not _FORMULA.search(gold):
        return _phrases(words(gold), words(said))
    verdict = maths.same(gold, said)
    return Grade.UNDECIDED if verdict is None else Grade.RIGHT if verdict else Grade.WRONG


def problem(question: Question) -> str | None:
    """What makes the gold answer impossible to compare, or ``None``."""
    return None if words(question.answer) or quantity(question.answer) else f"answer {question.answer!r} is blank"


def quantity(text: str) -> Quantity | None:
    """A number and perhaps a unit, and nothing else."""
    text = (
        re.sub(r"\\(?:text|mathrm|mathbf)\s?\{([^{}]*)\}", r" \1 ", text.strip(" .$"))
        .replace("\\,", " ")
        .replace("\\ ", " ")
    )
    text = text.replace(r"\Omega", "Ω").replace(r"\mu", "μ")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number = numeric.whole(match["number"].strip(" $€£{}"))
    name = match["unit"].strip(" .").replace("\\", "")
    if number is None:
        return None
    percent = name in ("%", "percent") or number.percent
    unit = None if percent else units.read(name)
    if name and unit is None and not percent and len(name.split()) > 3:
        return None
    return Quantity(number.value, _step(match["number"], number), unit, percent)


def same_quantity(gold: Quantity, said: Quantity) -> bool:
    """Equal once rounded to the gold's last digit (two digits at least), in the gold's unit where both have one."""
    value, step = said.value, said.step
    if gold.unit and said.unit:
        if gold.unit.powers != said.unit.powers:
            return False
        scale = said.unit.scale / gold.unit.scale
        value, step = value * scale, step * scale
    values = [value]
    if gold.percent != said.percent:
        values.append(value / 100 if said.percent else value * 100)
    exact = gold.step == 0 and gold.value.denominator == 1
    least = Fraction(10) ** -_FEWEST_DIGITS * abs(gold.value)
    slack = Fraction(0) if exact else min(gold.step / 2, least / 2)
    # A reply that rounds more than the gold does is right to its own digits, if these are three at least.
    if not exact and step and abs(value) >= 100 * step:
        slack = max(slack, step / 2)
    return any(abs(each - gold.value) <= slack for each in values)


def words(text: str) -> tuple[str, ...]:
    """A phrase as its words: plain letters, no articles, no plural s."""
    text = re.sub(r"\\text\{([^{}]*)\}", r"\1", normalise(text)) if len(text) < 500 else text
    text = unicodedata.normalize("NFKD", text).casefold()
    text = "".join(mark for mark in text if not unicodedata.combining(mark))
    found: list[str] = re.findall(r"[^\W_]+", text.replace("'s ", " "))
    kept: list[str] = [_SYNONYMS.get(word, word) for word in found if word not in _ARTICLES] or found
    return tuple(
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in kept
    )


def _phrases(gold: tuple[str, ...], said: tuple[str, ...]) -> Grade:
    """Words in another order are right; a surname for a name is left to a judge; others are wrong."""
    if sorted(gold) == sorted(said):
        return Grade.RIGHT
    common = set(gold) & set(said)
    if _NOT & (set(gold) ^ set(said)) or not common:
        return Grade.WRONG
    return Grade.UNDECIDED if common in (set(gold), set(said)) else Grade.WRONG


def _step(written: str, number: numeric.Number) -> Fraction:
    """One unit of the last digit of a decimal; 0 for whole numbers and fractions, which are exact."""
    digits = re.search(r"\.(\d+)", written)
    if digits is None or not number.decimal:
        return Fraction(0)
    mantissa = numeric.whole(re.split(r"[eE]|\\times|×|x|\*|·", written.strip())[0].strip(" {}$"))
    scale = number.value / mantissa.value if mantissa and mantissa.value else Fraction(1)
    return abs(scale) * Fraction(10) ** -len(digits[1])
