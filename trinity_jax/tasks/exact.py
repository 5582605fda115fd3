"""Answers that are a word or a short list: equal after normalising space, quotes, list marks and a trailing dot."""
# ruff: noqa: RUF001 (replies hold typographic quotes, dashes and signs)

import re

from trinity_jax.reasoning import visible
from trinity_jax.tasks import extract
from trinity_jax.tasks.question import Grade, Question

_QUOTES = str.maketrans("", "", "\"“”`*'‘’")
_LEAD = re.compile(r"(?:(?:is|the|an?|word|[:=])\s+)+", re.IGNORECASE)
_STATED = re.compile(r"\b(?:is|are|was|becomes)\b:?|:\s", re.IGNORECASE)
_OWNER = re.compile(r"^\w+['’]s\s+|\s(?:of|to)\s\w+\W*$")
_CLAUSE = re.compile(r"[.;]\s|\s\(|\s(?:because|since|as|which|when)\b", re.IGNORECASE)


def normalise(text: str, keep_case: bool = False) -> str:
    """One space between words, ``", "`` between items, no quotes, brackets or closing punctuation around."""
    text = extract.plain(text).translate(_QUOTES)
    text = " ".join(text.split()).strip(" .,;:!()[]{}")
    text = re.sub(r" ?, ?", ", ", text)
    return text if keep_case else text.casefold()


def grade(question: Question, reply: str, strict: bool, keep_case: bool = False) -> Grade:
    """Compare the tag, or the last anchored piece, or the last line.

    Without tag or anchor the last line answers: what it states ("... is X") or, if it has the gold's number of words,
    all of it. More than three words beyond the gold's are no answer: undecided.
    """
    text = visible(reply)
    gold = normalise(question.answer, keep_case)
    tag = extract.tagged(text, unclosed=not strict)
    if tag is not None:
        piece = tag
    elif strict:
        return Grade.UNDECIDED
    else:
        anchored, rows = extract.candidates(text), extract.lines(text)
        piece = anchored[0] if anchored else rows[-1] if rows else ""
        if not anchored and normalise(piece, keep_case) != gold:
            stated = extract.after_last(_STATED, piece)
            if len(rows) > 1 and stated is None and len(piece.split()) != len(gold.split()):
                return Grade.UNDECIDED
            piece = piece if stated is None else stated if "," in gold else _OWNER.sub("", stated)
    if "," not in gold:
        piece = _CLAUSE.split(piece)[0]
    said = normalise(piece, keep_case)
    lead = _LEAD.match(said)
    if gold in (said, said[lead.end() :] if lead else said):
        return Grade.RIGHT
    return Grade.WRONG if said and len(said.split()) <= len(gold.split()) + 3 else Grade.UNDECIDED


def grade_case(question: Question, reply: str, strict: bool) -> Grade:
    """As ``grade``, upper and lower case apart."""
    return grade(question, reply, strict, keep_case=True)


def problem(question: Question) -> str | None:
    """What makes the gold answer impossible to compare, or ``None``."""
    return None if normalise(question.answer) else f"answer {question.answer!r} is blank once punctuation is off"
