"""Answers that are a word or a short list: equal after normalising space, quotes, list marks and a trailing dot."""
# ruff: noqa: RUF001 (replies hold typographic quotes, dashes and signs)

import re

from trinity_jax.tasks import extract
from trinity_jax.tasks.question import Grade, Question

_QUOTES = str.maketrans("", "", "\"“”`*'‘’")
_ARTICLE = re.compile(r"(?:is|the|an?|word|[:=])\s+", re.IGNORECASE)


def normalise(text: str, keep_case: bool = False) -> str:
    """One space between words, ``", "`` between items, no quotes, brackets or closing punctuation around."""
    text = extract.plain(text).translate(_QUOTES)
    text = " ".join(text.split()).strip(" .,;:!()[]{}")
    text = re.sub(r" ?, ?", ", ", text)
    return text if keep_case else text.casefold()


def grade(question: Question, reply: str, strict: bool, keep_case: bool = False) -> Grade:
    """Compare the last anchored piece of the reply; without one a reply that is a single short line is the answer."""
    text = extract.visible(reply)
    gold = normalise(question.answer, keep_case)
    tag = extract.tagged(text, unclosed=not strict)
    if tag is not None:
        pieces = [tag]
    elif strict:
        return Grade.UNDECIDED
    else:
        pieces = extract.candidates(text)[:1]
        rows = extract.lines(text)
        if not pieces and rows and normalise(rows[-1], keep_case) == gold:
            return Grade.RIGHT
        if not pieces and len(rows) == 1 and len(rows[0].split()) <= len(gold.split()) + 3:
            pieces = rows
    for piece in pieces:
        said = normalise(piece, keep_case)
        if not said:
            continue
        lead = _ARTICLE.match(said)
        return Grade.RIGHT if gold in (said, said[lead.end() :] if lead else said) else Grade.WRONG
    return Grade.UNDECIDED


def grade_case(question: Question, reply: str, strict: bool) -> Grade:
    """As ``grade``, upper and lower case apart."""
    return grade(question, reply, strict, keep_case=True)


def problem(question: Question) -> str | None:
    """What makes the gold answer impossible to compare, or ``None``."""
    return None if normalise(question.answer) else f"answer {question.answer!r} is blank once punctuation is off"
