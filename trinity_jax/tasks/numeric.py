r"""Numbers in replies: 1,234  \$5  -3/4  \frac{1}{2}  3 1/2  2.5e-3  4 \times 10^{5}  12%  7 apples."""
# ruff: noqa: RUF001 (replies hold typographic quotes, dashes and signs)

import re
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from trinity_jax.errors import UserError
from trinity_jax.reasoning import visible
from trinity_jax.tasks import extract
from trinity_jax.tasks.question import Grade, Question

RELATIVE_TOLERANCE = Fraction(1, 1_000_000)
_MAX_DIGITS = 400
_ROW_CHARS = 2000

_INT = r"\d(?:[,\u00a0\u2009\u202f]?\d)*+"
_NUM = rf"(?:{_INT}(?:\.\d++)?|\.\d++)"
_TEN = r"\s{0,2}(?:[×x*·]|\\times|\\cdot|\btimes)\s{0,2}10\s?\^\s?[{(]?\s?(?P<e2>[-+]?\d{1,4})\b\s?[})]?"
_WORDS = r"\stimes\s(?:ten|10)\sto\sthe\s(?:power\s(?:of\s)?)?(?P<e3>[-+]?\d{1,4})(?:st|nd|rd|th)?"
_NUMBER = re.compile(
    rf"(?P<sign>(?<![\w)])(?:[-+]\s?|(?:minus|negative)\s))?(?<![\w.])(?:\$\s?|[€£]\s?)?(?P<inner>-\s?)?"
    rf"(?:(?P<whole>\d{{1,18}})\s{{1,3}}(?P<mixed_n>\d{{1,18}})\s?/\s?(?P<mixed_d>\d{{1,18}})"
    rf"|10\^[{{(]?(?P<power>[-+]?\d{{1,4}})\b[}})]?"
    rf"|(?P<num>{_NUM})(?:[eE](?P<e1>[-+]?\d{{1,4}})\b|{_TEN}|{_WORDS})?(?:\s?/\s?(?P<den>-?{_NUM}))?)"
    r"(?P<percent>\s{0,2}(?:%|percent\b))?"
)
_THOUSANDS = re.compile(r"\d{1,3}(?:[,\u00a0\u2009\u202f]\d{3})++")
_FRAC = re.compile(r"\\[dtc]?frac\s{0,3}(?:\{([^{}]*)\}\s{0,3}\{([^{}]*)\}|(\d)\s?(\d))")
_SPACES = re.compile(r"\\[,;: ]|\\q?quad\b|~")
_SUPERSCRIPT = re.compile(r"(?<=\d)[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_FROM_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_UNREADABLE = "\ufffd"
_CLAUSE = re.compile(
    r"\n|[.;](?:\s|$)|,(?:\s+(?![-\d(\\$])|$)|(?<=\S)\s\(|(?<=\S)\s(?:because|since|as|which|where|so)\b", re.IGNORECASE
)
_RELATION = re.compile(r"(?<![<>=!])=(?!=)|[≈≃]|\\approx|\\equiv|\bequals\b")
_STATED = re.compile(
    rf"{_RELATION.pattern}|\b(?:is|are|was|be|becomes|gives|makes|yields|leaves|totals|gets?|has|have)\b", re.IGNORECASE
)
_GOES_ON = re.compile(
    r"\s{0,3}(?:[=+*/×÷·^√π<>±|]|\\[a-zA-Z]|[-−]\s?[\d(\w]|x\s?\d|[eE:][-+]?\d|\.\d|\((?!s\)))|\s?i\b|[A-Za-z]?[_^]"
)
_FUNCTION = re.compile(r"(?:sqrt|root|√|\^|_|\b(?:log|ln|sin|cos|tan|mod)|[a-zA-Z)\d]\s?[-+*/×])\s?[{(]?\s?$")


@dataclass(frozen=True)
class Number:
    """An exact value; ``decimal`` if it was written with a point or exponent, ``percent`` if with a percent sign."""

    value: Fraction
    decimal: bool = False
    percent: bool = False


class _Missing(Enum):
    NONE = "no number"
    UNCLEAR = "numbers, but not one"


def grade(question: Question, reply: str, strict: bool) -> Grade:
    """Right, wrong, or undecided where no single number is committed to; see ``find`` and ``same``.

    Raises:
        UserError: if the gold answer is no number.
    """
    gold = parse(question.answer)
    if gold is None:
        raise UserError(f"question {question.id}: answer {question.answer!r} is not a number")
    said = find(reply, strict)
    if said is None:
        return Grade.UNDECIDED
    return Grade.RIGHT if same(gold, said) else Grade.WRONG


def problem(question: Question) -> str | None:
    """What makes the gold answer impossible to compare, or ``None``."""
    return None if parse(question.answer) else f"answer {question.answer!r} is not a number"


def same(gold: Number, said: Number) -> bool:
    """Exact for an integer gold, and between fractions; where a decimal is involved within 1e-6 of the gold.

    A percent sign on one side only may be read both ways: 25% is 25 to a question in percent, and 0.25.
    """
    if gold.percent == said.percent:
        pairs = [(gold.value, said.value)]
    elif said.percent:
        pairs = [(gold.value, said.value), (gold.value, said.value / 100)]
    else:
        pairs = [(gold.value, said.value), (gold.value / 100, said.value)]
    return any(_close(a, b, gold.decimal or said.decimal) for a, b in pairs)


def parse(text: str) -> Number | None:
    """The one number in a short text, units and dress allowed; ``None`` if there is none or more than one."""
    number = _read(text)
    return number if isinstance(number, Number) else None


def whole(text: str) -> Number | None:
    """The number that a text is, from its first sign to its last; ``None`` for anything with more to it."""
    match = _NUMBER.fullmatch(_clean(text))
    return _value(match) if match else None


def find(reply: str, strict: bool = False) -> Number | None:
    """The number a reply commits to, or ``None``.

    Looked at in this order: the last ``<answer>`` tag (alone, if ``strict``); the last boxed or anchored piece that
    holds a number; what the last line states or its only number; what follows the last equals sign.
    """
    text = visible(reply)
    tag = extract.tagged(text, unclosed=not strict)
    if tag is not None:
        inner = [*extract.candidates(tag)[:1], tag] if len(tag) > 40 or "\\" in tag or ":" in tag else [tag]
        return _first(inner)
    if strict:
        return None
    rows = [row[-_ROW_CHARS:] for row in extract.lines(text)]
    return _first(extract.candidates(text) + _unanchored(rows) if rows else [])


def _unanchored(rows: list[str]) -> list[str]:
    """What the last line states, or its only number; else what follows the last equals sign."""
    stated = extract.after_last(_STATED, rows[-1])
    pieces = [] if stated is None else [stated]
    if len(_NUMBER.findall(_clean(rows[-1]))) == 1:
        pieces.append(rows[-1])
    equation = next((row for row in reversed(rows) if _RELATION.search(row)), None)
    return pieces if equation is None else [*pieces, _RELATION.split(equation)[-1]]


def _first(pieces: list[str]) -> Number | None:
    """The first piece with numbers decides, even if it decides that nothing is clear."""
    for piece in pieces:
        number = _read(piece)
        if number is not _Missing.NONE:
            return number if isinstance(number, Number) else None
    return None


def _close(gold: Fraction, said: Fraction, loose: bool) -> bool:
    if gold == said:
        return True
    return loose and gold.denominator != 1 and abs(gold - said) <= RELATIVE_TOLERANCE * abs(gold)


def _read(text: str) -> Number | _Missing:
    text = _clean(text).lstrip("([{ ")
    cut = _CLAUSE.search(text)
    clause = text[: cut.start()] if cut else text
    clause = _RELATION.split(clause)[-1]
    matches = list(_NUMBER.finditer(clause))
    if not matches:
        return _Missing.UNCLEAR if _UNREADABLE in clause else _Missing.NONE
    match, before, after = matches[0], clause[: matches[0].start()], clause[matches[0].end() :]
    if len(matches) > 1 or _UNREADABLE in clause or _GOES_ON.match(after) or _FUNCTION.search(before):
        return _Missing.UNCLEAR
    return _value(match) or _Missing.UNCLEAR


def _clean(text: str) -> str:
    text = text.replace("{,}", ",").replace("\\$", " ").replace("\\%", "%")
    text = text.replace("−", "-").replace("–", "-").replace("‐", "-").replace("‑", "-")
    text = re.sub(r"(?<=\d)\\,(?=\d{3})", ",", text)
    text = re.sub(r"(?<=\d)\*\*(?=[-\d])", "^", text)
    text = _SPACES.sub(" ", extract.plain(text))
    text = _SUPERSCRIPT.sub(lambda match: "^" + match[0].translate(_FROM_SUPERSCRIPT), text)
    text = re.sub(r"(?<=\d)\s?(?:\^\s?\{?\s?\\circ\s?\}?|°)", " degrees", text)
    for _ in range(4):
        text, changes = _FRAC.subn(_flatten, text)
        if not changes:
            break
    return re.sub(r"(?<=10\^)\{\s?([-+]?\d{1,4})\s?\}", r"\1", text).strip()


def _flatten(match: re.Match[str]) -> str:
    parts = [match[1] or match[3], match[2] or match[4]]
    values = [_value(found) if (found := _NUMBER.fullmatch((part or "").strip())) else None for part in parts]
    if values[0] is None or values[1] is None or values[1].value == 0:
        return _UNREADABLE
    ratio = values[0].value / values[1].value
    return f" {ratio.numerator}/{ratio.denominator} "


def _value(match: re.Match[str]) -> Number | None:
    """The number of a match, or ``None`` for misplaced commas, a zero denominator or an absurd size."""
    if match.end() - match.start() > _MAX_DIGITS:
        return None
    sign = -1 if (match["sign"] or "+")[0] in "-mn" else 1
    sign = -sign if match["inner"] else sign
    percent, decimal = match["percent"] is not None, False
    if match["whole"]:
        if int(match["mixed_d"]) == 0:
            return None
        value = int(match["whole"]) + Fraction(int(match["mixed_n"]), int(match["mixed_d"]))
    elif match["power"]:
        value = _power_of_ten(match["power"])
    else:
        top, bottom = _digits(match["num"]), _digits(match["den"] or "1")
        if top is None or bottom is None or bottom == 0:
            return None
        exponent = match["e1"] or match["e2"] or match["e3"]
        scale = _power_of_ten(exponent) if exponent else Fraction(1)
        value = None if scale is None else top * scale / bottom
        decimal = "." in match["num"] or exponent is not None or "." in (match["den"] or "")
    return None if value is None else Number(sign * value, decimal, percent)


def _power_of_ten(exponent: str) -> Fraction | None:
    power = int(exponent)
    return Fraction(10) ** power if abs(power) <= _MAX_DIGITS else None


def _digits(text: str) -> Fraction | None:
    sign, text = (-1, text[1:]) if text.startswith("-") else (1, text)
    whole = text.partition(".")[0]
    if not whole.isdecimal() and whole and not _THOUSANDS.fullmatch(whole):
        return None
    return sign * Fraction(re.sub(r"[,\u00a0\u2009\u202f]", "", text))
