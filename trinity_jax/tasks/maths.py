r"""Mathematics: is \frac{\sqrt{12}}{4} what was asked for? By spelling, by value, and only then by symbolic algebra.

The cheap steps decide almost everything: equal once normalised (``latex``), equal or different in value at a few points
(``evaluate``). Lists, tuples, intervals, unions and matrices are compared piece by piece (``shape``). The rest goes to
math-verify in a process that can be killed (``symbolic``).
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from importlib.metadata import version

from trinity_jax.reasoning import visible
from trinity_jax.tasks import evaluate, extract, numeric, symbolic, units
from trinity_jax.tasks.latex import MOST_CHARS, normalise, ungroup
from trinity_jax.tasks.question import Grade, Question
from trinity_jax.tasks.shape import Kind, Shape, rows_of, shape, sides

Verdict = bool | None
Same = Callable[[str, str], Verdict]

_EQUAL, _DIFFERENT, _LOOSE = 1e-12, 1e-9, 1e-6
_DECIMAL = re.compile(r"\d\.\d|(?<!\d)\.\d|\d[eE][-+]?\d")
_UNIT = re.compile(
    r"(?P<value>.*?[\w})!.])\s*(?P<unit>(?:\\text\{[^{}]*\}(?:\s?\^\s?\{?-?\d\}?)?[\s/·]*(?:\\cdot)?\s*)+|(?<=\s)[a-zA-Z]{1,2}(?:/[a-zA-Z]{1,2})?(?:\^\{?\d\}?)?)(?P<rest>\s*\(.*\))?$"
)
_BASE = re.compile(r"\(?(?P<digits>[0-9A-F]+)\)?_\{?\(?(?:\\text\{)?(?P<base>\d+)\}?\)?\}?")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?:\s?\\text\{\s?([ap])\.?\s?m\.?\s?\})?", re.IGNORECASE)
_RATIO = re.compile(r"([\d.]+)\s?(?::|\\text\{to\})\s?([\d.]+)")
_ONLY_TEXT = re.compile(r"\(?\\text\{([^{}]*)\}\)?")
_INFINITY = re.compile(r"([-+]?)\s?\\infty")
_FILLERS = {"a", "an", "the", "on", "at", "in", "is", "it", "function", "number", "only", "option", "answer"}
_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_SENTENCE = re.compile(
    r"(?<!sq)\.(?:\s|$)|(?<!\\);\s(?=[a-z]{2})|\s(?:because|since|which|where|so|when|as)\b|,\s(?=(?!and|or)[a-z]{2,}\s)"
)
_LEAD = re.compile(
    r"(?:(?:at|the|point|interval|pair|vector|value|about|approximately|exactly|simply|equal|to)\s+)+(?=[-\d(\[{\\])",
    re.IGNORECASE,
)
_MATHS = re.compile(r"\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_JOIN = re.compile(r"\s*(?:,|;|,?\s*\b(?:and|or)\b|\b(?:to)\b)?\s*(?=\$|\\\()")
_TAIL = re.compile(r"\s*(?:%|°|(?:square|cubic|sq\.?)?\s?[a-zA-Z]{1,12}(?:\^?\d)?)(?=[\s.,;!*]*$)")
_STATED = re.compile(r"\b(?:is|are|equals|gives|get|have|be)\b:?")
_EQUALS = re.compile(r"(?<![<>=!\\])=(?!=)|\\implies|\\Rightarrow")


def grade(question: Question, reply: str, strict: bool) -> Grade:
    """Right, wrong, or undecided where no answer stands in the reply or nothing could be shown in time."""
    said = find(reply, strict)
    if said is None:
        return Grade.UNDECIDED
    verdict = same(question.answer, said)
    return Grade.UNDECIDED if verdict is None else Grade.RIGHT if verdict else Grade.WRONG


@cache
def terms() -> str:
    """The library whose algebra decides."""
    return f"math-verify {version('math-verify')}"


def problem(question: Question) -> str | None:
    """What makes the gold answer impossible to compare, or ``None``."""
    if len(question.answer) > MOST_CHARS:
        return f"answer is longer than {MOST_CHARS} characters"
    return None if normalise(question.answer) else f"answer {question.answer!r} is blank once its dress is off"


def find(reply: str, strict: bool = False) -> str | None:
    """The answer a reply commits to, or ``None``.

    Looked at in this order: the last ``<answer>`` tag (alone, if ``strict``); the last box, with others on its line;
    the last anchored piece ("answer is"); what the last line states.
    """
    text = visible(reply)
    tag = extract.tagged(text, unclosed=not strict)
    if tag is not None:
        text = tag
    elif strict:
        return None
    boxes = extract.boxed(text)
    if boxes:
        line = text.count("\n", 0, boxes[-1][0])
        said = [content for start, content in boxes if text.count("\n", 0, start) == line]
        inner = [content for content in said if not any(content in other for other in said if other is not content)]
        return ", ".join(dict.fromkeys(inner)).strip() or None
    anchored = [piece for _, piece in extract.anchored(text)]
    if anchored:
        return _clause(anchored[-1])
    if tag is not None:
        return tag
    rows = extract.lines(text)
    if not rows:
        return None
    row = rows[-1][-2000:]
    if len(rows) == 1 and (len(row.split()) <= 2 or (len(row.split()) <= 4 and re.search(r"[\d\\^=]", row))):
        return _clause(row)
    stated, formulas = extract.after_last(_STATED, row), list(_MATHS.finditer(row))
    if formulas and (stated is None or not _MATHS.search(stated)):
        return next(filter(None, formulas[-1].groups())).strip()
    stated = stated or extract.after_last(_EQUALS, row)
    return None if stated is None else _clause(stated)


def _clause(piece: str) -> str | None:
    """The formulas a sentence begins with, joined as it joins them; without formulas its first clause."""
    piece = re.sub(r"(?<![\w)}])\*\*|\*\*(?!\w)|__", "", piece).strip()
    first = _MATHS.search(piece)
    if first is None or len(piece[: first.start()].split()) > 6:
        piece = _LEAD.sub("", piece)
        cut = _SENTENCE.search(piece)
        return (piece[: cut.start()] if cut else piece).strip() or None
    said, end = next(filter(None, first.groups())), first.end()
    while (join := _JOIN.match(piece, end)) and (more := _MATHS.match(piece, join.end())):
        said += ("," if join[0].strip() else " ") + next(filter(None, more.groups()))
        end = more.end()
    tail = _TAIL.match(piece, end)
    return said + (f" {tail[0]}" if tail else "")


def same(gold: str, said: str, by_algebra: Same | None = None) -> Verdict:
    r"""Whether two answers are the same; ``None`` where that could not be shown.

    Args:
        gold: the answer that is asked for, LaTeX or plain.
        said: what a reply says, without the words around it.
        by_algebra: decides about two expressions that the cheap steps cannot; by default ``symbolic.same``.
    """
    if len(said) > MOST_CHARS:
        return None
    gold, said = normalise(gold), normalise(said)
    if not said:
        return None
    if _bare(gold) == _bare(said):
        return True
    wanted = shape(gold)
    return _shapes(wanted, shape(said, listed=wanted.kind is Kind.LIST), by_algebra or symbolic.same)


def _bare(text: str) -> str:
    """Without spaces and braces that mean nothing: those inside 3 1/2 and around more than one sign do."""
    return re.sub(r"(?<=[\^_])\{(\w)\}", r"\1", re.sub(r"(?<!\w) | (?!\w)", "", text))


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    if any(verdict is False for verdict in verdicts):
        return False
    return None if any(verdict is None for verdict in verdicts) else True


def _shapes(gold: Shape, said: Shape, by_algebra: Same) -> Verdict:
    """Same kind and same pieces, in order where order counts."""
    pair = gold.kind, said.kind
    if pair == (Kind.ATOM, Kind.ATOM):
        return _atoms(gold.text, said.text, by_algebra)
    if pair == (Kind.MATRIX, Kind.MATRIX):
        wanted, given = rows_of(gold), rows_of(said)
        if [len(row) for row in wanted] != [len(row) for row in given]:
            return False
        return _all([_shapes(a, b, by_algebra) for a, b in zip(gold.items, said.items, strict=True)])
    if len(gold.items) != len(said.items):
        return False
    half_open = "[" in gold.brackets + said.brackets or "]" in gold.brackets + said.brackets
    if pair == (Kind.TUPLE, Kind.TUPLE):
        if gold.brackets != said.brackets:
            return False
    elif set(pair) == {Kind.TUPLE, Kind.LIST}:
        if half_open or said.brackets == "{}" or (gold.kind is Kind.LIST and gold.brackets == "" and said.brackets):
            return False if half_open or said.brackets == "{}" else _unordered(gold, said, by_algebra)
    elif set(pair) == {Kind.TUPLE, Kind.MATRIX}:
        matrix = gold if gold.kind is Kind.MATRIX else said
        if half_open or any(len(row) > 1 for row in rows_of(matrix)):
            return False
    elif pair in ((Kind.LIST, Kind.LIST), (Kind.UNION, Kind.UNION)):
        return _unordered(gold, said, by_algebra)
    else:
        return False
    return _all([_shapes(a, b, by_algebra) for a, b in zip(gold.items, said.items, strict=True)])


def _unordered(gold: Shape, said: Shape, by_algebra: Same) -> Verdict:
    """Every piece has a partner; being the same is transitive, so the first partner found will do."""
    left, doubt = list(said.items), False
    for item in gold.items:
        verdicts = [_shapes(item, other, by_algebra) for other in left]
        if True in verdicts:
            del left[verdicts.index(True)]
        elif None in verdicts:
            doubt = True
        else:
            return False
    return None if doubt else True


def _atoms(gold: str, said: str, by_algebra: Same) -> Verdict:
    """Two single things: words, times, ratios, numbers of a base, equations, quantities."""
    gold, said = ungroup(gold), ungroup(said)
    if _bare(gold) == _bare(said):
        return True
    if r"\emptyset" in (gold, said):
        return False
    endless = _INFINITY.fullmatch(gold), _INFINITY.fullmatch(said)
    if any(endless):
        return all(endless) and (endless[0][1] == "-") == (endless[1][1] == "-")  # type: ignore[index]
    for special in (_words, _times, _ratios, _based):
        verdict = special(gold, said)
        if verdict is not None:
            return verdict
    left, right = sides(gold), sides(said)
    if left and right and not (left[0] == right[0] and _is_name(left[0])):
        if _is_name(left[0]) and _is_name(right[0]) and not evaluate.variables(left[1] + right[1]):
            return False
        return _equations(left, right) or by_algebra(gold, said)
    return _quantities(left[1] if left else gold, right[1] if right else said, by_algebra)


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[a-zA-Z](?:_(?:\w|\{\w+\}))?(?:\([a-z]\))?", text.strip()) is not None


def _words(gold: str, said: str) -> Verdict:
    """Where one of the two is words: the same words but for articles and their like."""
    wanted, given = _ONLY_TEXT.fullmatch(gold), _ONLY_TEXT.fullmatch(said)
    if wanted is None and given is None:
        return None
    if wanted is None or given is None:
        word, other = (wanted or given)[1].strip().casefold(), said if wanted else gold  # type: ignore[index]
        if word in _WORDS:
            value = evaluate.evaluate(other)
            return value == _WORDS.index(word) if value is not None else None
        return units.read(word) is not None and None
    one, two = ([w.strip(".,!'\"()") for w in text[1].casefold().split()] for text in (wanted, given))
    if one == two:
        return True
    return [w for w in one if w not in _FILLERS] == [w for w in two if w not in _FILLERS] != []


def _times(gold: str, said: str) -> Verdict:
    wanted, given = _TIME.fullmatch(gold), _TIME.fullmatch(said)
    if wanted is None or given is None:
        return None
    halves = {match[3].lower() for match in (wanted, given) if match[3]}
    if wanted[1] == given[1] and wanted[2] == given[2]:
        return len(halves) < 2
    return False if halves else None


def _ratios(gold: str, said: str) -> Verdict:
    wanted, given = _RATIO.fullmatch(gold), _RATIO.fullmatch(said)
    if wanted is None and given is None:
        return None
    values = [
        evaluate.evaluate(f"({match[1]})/({match[2]})" if match else text)
        for match, text in ((wanted, gold), (given, said))
    ]
    return None if None in values else values[0] == values[1]


def _based(gold: str, said: str) -> Verdict:
    r"""Numbers such as 2516_8; without its base, said in words of the question, the digits alone will do."""
    wanted, given = _BASE.fullmatch(gold), _BASE.fullmatch(said)
    if wanted is None or not wanted["digits"].isdigit():
        return None
    if given is None:
        return said == wanted["digits"] if said.isdigit() else None
    return wanted.group("digits", "base") == given.group("digits", "base")


def _equations(gold: tuple[str, str], said: tuple[str, str]) -> Verdict:
    """Equal up to a factor at every point; what is not may still be the same curve."""
    texts = [f"({left})-({right})" for left, right in (gold, said)]
    pairs = _at_points(*texts)
    if len(pairs) < 3 or any(b == 0 for _, b in pairs):
        return None
    ratios = [complex(a) / complex(b) for a, b in pairs]
    return True if ratios[0] and all(abs(ratio - ratios[0]) < _DIFFERENT * abs(ratios[0]) for ratio in ratios) else None


def _quantities(gold: str, said: str, by_algebra: Same) -> Verdict:
    """Values with or without a unit; units are compared where both stand and both are known."""
    gold, gold_unit = _measure(gold)
    said, said_unit = _measure(said)
    scale = Fraction(1)
    if gold_unit and said_unit:
        if gold_unit.powers != said_unit.powers:
            return False
        scale = said_unit.scale / gold_unit.scale
    if not re.search(r"\\pi|\\(?:sin|cos|tan|cot|sec|csc)", gold + said):
        gold, said = gold.replace(r"^\circ", ""), said.replace(r"^\circ", "")
    a, b = numeric.whole(gold), numeric.whole(said)
    if a is not None and b is not None:
        return numeric.same(a, numeric.Number(b.value * scale, b.decimal, b.percent))
    if (a and a.percent) or (b and b.percent):
        gold, said = gold.replace("%", ""), said.replace("%", "")
    verdict = _values(gold, said, scale)
    return by_algebra(gold, said) if verdict is None and scale == 1 else verdict


def _measure(text: str) -> tuple[str, units.Unit | None]:
    """A value and its unit: ``None`` for none, and for "apples"."""
    match = _UNIT.fullmatch(text)
    if match is None:
        return text, None
    name = re.sub(r"\\text\{([^{}]*)\}", r" \1 ", match["unit"]).replace(r"\cdot", " ")
    found = units.read(name)
    bare = r"\text" not in match["unit"]
    return (text, None) if bare and found is None else (match["value"].strip(), found)


def _at_points(gold: str, said: str) -> list[tuple[evaluate.Value, evaluate.Value]]:
    """Both values where both exist, at a few points; letters that count things are whole numbers there."""
    names = sorted(evaluate.variables(gold) | evaluate.variables(said))
    pairs = []
    for number in range(6 if names else 1):
        at = {name: _point(name, number) for name in names}
        a, b = evaluate.evaluate(gold, at), evaluate.evaluate(said, at)
        if a is not None and b is not None:
            pairs.append((a, b))
    return pairs


def _point(name: str, number: int) -> Fraction:
    spread = sum(map(ord, name)) % 89
    if name[0] in "nkmjN":
        return Fraction(2 + 2 * number + spread % 3)
    return Fraction((-1) ** number * (7 * number + 3 + spread), 29)


def _values(gold: str, said: str, scale: Fraction = Fraction(1)) -> Verdict:
    pairs = _at_points(gold, said)
    if len(pairs) < (3 if evaluate.variables(gold + " " + said) else 1):
        return None
    loose = bool(_DECIMAL.search(gold) or _DECIMAL.search(said))
    return _all([_close(a, b * scale if isinstance(b, Fraction) else b * float(scale), loose) for a, b in pairs])


def _close(gold: evaluate.Value, said: evaluate.Value, loose: bool) -> Verdict:
    if gold == said:
        return True
    exact = isinstance(gold, Fraction) and isinstance(said, Fraction)
    if exact and (not loose or gold.denominator == 1):  # type: ignore[union-attr]
        return False
    distance = abs(complex(gold) - complex(said)) / max(abs(complex(gold)), abs(complex(said)))
    if gold == 0:
        distance = abs(complex(said))
    if distance <= (_LOOSE if loose else _EQUAL):
        return True
    return False if loose or distance > _DIFFERENT else None
