"""Multiple choice: which letter a reply commits to. The article "A" and the word "I" are not letters."""
# ruff: noqa: RUF001 (replies hold typographic quotes, dashes and signs)

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from string import ascii_uppercase

from trinity_jax.reasoning import visible
from trinity_jax.tasks import extract
from trinity_jax.tasks.question import Grade, Question

_PICKED = re.compile(
    r"\b(?:choose|choosing|pick|select|opt for|go(?:ing)? with|(?:option|choice|letter|one) is)\b", re.IGNORECASE
)
_CONFIRMED = re.compile(
    r"(?<![\w'’])(?P<letter>[A-Z])(?![\w'’])[)\].]?\*{0,2}\s{1,3}(?:is|must be|seems)\s{1,3}"
    r"(?:the\s{1,3})?(?:most\s{1,3}|only\s{1,3}|best\s{1,3})?(?:correct|right|answer|option)\b"
)
_HYPOTHESIS = re.compile(
    r"\b(?:if|whether|suppose|assume|assuming|say|not)\s+(?:that\s+)?(?:option\s+|\()?$", re.IGNORECASE
)
_LEAD = re.compile(
    r"(?:(?:most\s+likely|likely|probably|clearly|definitely|therefore|thus|indeed|simply|-)\s+)?"
    r"(?:the\s+)?(?:(?:option|choice|letter|answer)(?:\s+is)?\s*[:#]?\s*)?[\s\[({\"'“‘]{0,4}",
    re.IGNORECASE,
)
_LETTER = re.compile(r"[A-Z](?=$|[\s)\]}.,:;!?\"”])")
_MORE = re.compile(r"[)\]}.\s]{0,3}(?:\s(?:or|and)\s|[,/&])\s{0,3}(?:option\s)?\(?(?P<letter>[A-Z])(?![\w'’])")
_AFTER_A_OR_I = re.compile(r"\s+(?:because|since|as|which|given|due|based|by|[-–—=(→])")
_LINE = re.compile(r"\(?(?P<letter>[A-Z])(?P<mark>[).:]|\.\))\s+(?P<text>.+)")
_LONE = re.compile(r"[\s(\[{\"'“*_]*+([A-Za-z])[\s)\]}.,:;!\"'”*_]*+")
_BOLD = re.compile(r"\*\*\(?([A-Z])(?:[).:]{0,2}\*\*|[).:]{1,2} )")
_PARENTHESISED = re.compile(r"(?<!\w)\(([A-Z])\)|\b(?:[Oo]ption|[Cc]hoice) ([A-Z])(?![\w'’])")
_NEGATION = re.compile(r"\b(?:not|no|never|neither|nor|cannot|incorrect|wrong|unsure)\b|n['’]t\b", re.IGNORECASE)


def render(stem: str, options: Sequence[str]) -> str:
    """The prompt of a multiple-choice question: the stem, then one ``A) text`` line per option."""
    rows = (f"{letter}) {option}" for letter, option in zip(ascii_uppercase, options, strict=False))
    return "\n".join((stem.rstrip(), *rows))


def grade(question: Question, reply: str, strict: bool) -> Grade:
    """Right, wrong, or undecided where no single existing option is committed to; see ``pick``."""
    letter = pick(question.options, reply, strict)
    if letter is None:
        return Grade.UNDECIDED
    return Grade.RIGHT if letter == question.answer.strip() else Grade.WRONG


def problem(question: Question) -> str | None:
    """What makes the question impossible to grade, or ``None``."""
    count = len(question.options)
    if not 2 <= count <= 26:
        return f"a multiple-choice question needs 2 to 26 options, got {count}"
    if any(not _normalise(option) for option in question.options):
        return "an option is blank"
    if len(set(question.options)) < count:
        return "two options are the same"
    letters = ascii_uppercase[:count]
    if question.answer.strip() not in tuple(letters):
        return f"answer must be a letter from A to {letters[-1]}, got {question.answer!r}"
    return None


def pick(options: Sequence[str], reply: str, strict: bool = False) -> str | None:
    """The letter a reply commits to, or ``None``.

    Looked at in this order: the last ``<answer>`` tag (alone, if ``strict``); the last boxed or anchored piece that
    names an option; then, without anchor, the only option named by a line, in bold, in parentheses, or by its text.
    """
    text = visible(reply)
    tag = extract.tagged(text, unclosed=not strict)
    if tag is not None:
        inner = extract.candidates(tag)
        return _named(tag, options) or next(filter(None, (_named(piece, options) for piece in inner)), None)
    if strict:
        return None
    found = extract.boxed(text) + extract.anchored(text) + extract.anchored(text, _PICKED)
    found += [
        (match.start(), match["letter"])
        for match in _CONFIRMED.finditer(text)
        if not _HYPOTHESIS.search(text, max(0, match.start() - 30), match.start())
    ]
    for _, piece in sorted(found, key=lambda item: item[0], reverse=True):
        if letter := _named(piece, options):
            return letter
        if _several(piece, options):
            return None
    return _unanchored(text, options)


def _letters(options: Sequence[str]) -> str:
    return ascii_uppercase[: len(options)]


@lru_cache(maxsize=1024)
def _texts(options: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """The options as replies are compared with them, and whether case counts: where they differ in nothing else."""
    texts = tuple(map(_normalise, options))
    if len(set(texts)) == len(texts):
        return texts, False
    return tuple(_normalise(option, True) for option in options), True


def _normalise(text: str, keep_case: bool = False) -> str:
    text = extract.plain(text)
    return " ".join((text if keep_case else text.casefold()).split()).strip(" .,:;!?\"'“”‘’()[]")


def _named(piece: str, options: Sequence[str]) -> str | None:
    """The option that a short piece begins with: a lone letter, a text, a letter and more, a text and more."""
    piece = extract.plain(piece)
    letters = _letters(options)
    texts, keep_case = _texts(tuple(options))
    said = _normalise(piece, keep_case)
    lone = _LONE.fullmatch(piece)
    if lone and lone[1] in letters:
        return lone[1]
    if texts.count(said) == 1:
        return letters[texts.index(said)]
    if lone:
        return lone[1].upper() if lone[1].upper() in letters else None
    lead = _LEAD.match(piece)
    start = lead.end() if lead else 0
    letter = _LETTER.match(piece, start)
    if letter and letter[0] in letters:
        rest = piece[letter.end() :]
        if _several(piece, options):
            return None
        text = texts[letters.index(letter[0])]
        plain_word = letter[0] in "AI" and rest[:1].isspace()
        if not plain_word or _AFTER_A_OR_I.match(rest) or _begins(_normalise(rest, keep_case), text):
            return letter[0]
    said = _normalise(piece[start:], keep_case)
    begun = [index for index, text in enumerate(texts) if _begins(said, text)]
    longest = max(begun, key=lambda index: len(texts[index]), default=None)
    return None if longest is None else letters[longest]


def _several(piece: str, options: Sequence[str]) -> bool:
    """Whether a piece begins with two letters: "B or C", "A, D"."""
    piece = extract.plain(piece)
    lead = _LEAD.match(piece)
    start = lead.end() if lead else 0
    letters = _letters(options)
    more = _MORE.match(piece, start + 1)
    return bool(more and piece[start] in letters and more["letter"] in letters)


def _begins(said: str, text: str) -> bool:
    rest = said[len(text) :]
    return said.startswith(text) and not re.match(r"[\w+#%/^-]|[.,]\d", rest)


def _only(found: Iterable[str]) -> str | None:
    distinct = set(found)
    return distinct.pop() if len(distinct) == 1 else None


def _unanchored(text: str, options: Sequence[str]) -> str | None:
    letters = _letters(options)
    rows = extract.lines(text)
    if not rows:
        return None
    lone = [match[1] for row in rows if (match := _LONE.fullmatch(extract.plain(row))) and match[1] in letters]
    if len(rows) == 1 and (letter := _whole(rows[0], options)):
        return letter
    if lone:
        return _only(lone)
    listed = {letter for row in rows if (letter := _lettered(extract.plain(row), options))}
    if listed:
        return _only(listed)
    for pattern in (_BOLD, _PARENTHESISED):
        named = {group for match in pattern.finditer(text) for group in match.groups() if group and group in letters}
        if named:
            return _only(named)
    return _mentioned(rows[-1][-400:], options)


def _whole(row: str, options: Sequence[str]) -> str | None:
    """A reply of one line that is a letter or an option's text and nothing else."""
    match = _LONE.fullmatch(extract.plain(row))
    texts, keep_case = _texts(tuple(options))
    if match:
        return match[1] if match[1] in _letters(options) else None
    return _letters(options)[texts.index(said)] if texts.count(said := _normalise(row, keep_case)) == 1 else None


def _lettered(row: str, options: Sequence[str]) -> str | None:
    """A line such as ``B) text``; after a colon ("A: ...") or an "I." only the option's own text will do."""
    match = _LINE.match(row)
    letters = _letters(options)
    if not match or match["letter"] not in letters:
        return None
    letter = match["letter"]
    texts, keep_case = _texts(tuple(options))
    own_text = _begins(_normalise(match["text"], keep_case), texts[letters.index(letter)])
    return letter if own_text or (match["mark"] != ":" and letter != "I") else None


def _mentioned(row: str, options: Sequence[str]) -> str | None:
    """The one option whose text stands in a line that denies nothing."""
    if _NEGATION.search(row):
        return None
    texts, keep_case = _texts(tuple(options))
    said = " ".join((extract.plain(row) if keep_case else extract.plain(row).casefold()).split())
    named = []
    for text in sorted(texts, key=len, reverse=True):
        whole = re.compile(rf"(?<![\w.+#/^-]){re.escape(text)}(?![\w+#%/^-]|[.,]\d)")
        said, count = whole.subn(" ", said)
        if count and (len(text) > 1 or text.isdigit()):
            named.append(text)
    return _letters(options)[texts.index(named[0])] if len(named) == 1 and texts.count(named[0]) == 1 else None
