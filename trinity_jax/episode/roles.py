"""The three roles: what each is told, and what is read out of its reply.

Every parser first cuts reasoning blocks off, is total (any string gives a result, never an exception) and takes time
linear in the length of the reply: patterns have no nested or adjacent unbounded repeats.
"""

import re
from enum import StrEnum

from trinity_jax.reasoning import visible


class Role(StrEnum):
    """Roles in the released head's row order: Worker, Thinker, Verifier."""

    WORKER = "worker"
    THINKER = "thinker"
    VERIFIER = "verifier"


ROLES = (Role.WORKER, Role.THINKER, Role.VERIFIER)

INSTRUCTIONS = {
    Role.WORKER: (
        "You are the Worker. Solve the task. Use a reference thought or the suggestion only where it holds up. "
        "First give your approach and result in one sentence: <idea>...</idea>. Then work it out, and end with the "
        "final answer alone: <answer>...</answer>"
    ),
    Role.THINKER: (
        "You are the Thinker. Do not solve the task. Say what should be done next and by whom: a worker who makes a "
        "new attempt, or a verifier who checks the current response. Reply with exactly "
        "<suggestion>one or two sentences of advice</suggestion>"
        "<suggested_role>worker or verifier</suggested_role>"
    ),
    Role.VERIFIER: (
        "You are the Verifier. Check whether the current response answers the task correctly and completely. Give a "
        "reason in one sentence, then a last line that is either\nVERDICT: ACCEPT\nor\nVERDICT: REJECT"
    ),
}

COLLABORATION = "Several models work on this in turns; their thoughts so far follow."


def conversation(prompt: str, thoughts: tuple[str, ...] = ()) -> str:
    """The user message that every role starts from: the task, one line on the collaboration, the thoughts."""
    tagged = (f"<reference_thought_{i}>{thought}</reference_thought_{i}>" for i, thought in enumerate(thoughts))
    return "\n".join((prompt, "", COLLABORATION, *tagged))


def idea(text: str, limit: int) -> str:
    """The Worker's condensed thought: its ``<idea>``, else the reply without tags; at most ``limit`` characters."""
    said = visible(text).strip()
    return (_tagged(said, "idea") or _ANY_TAG.sub("", said).strip())[:limit].rstrip()


def suggestion(text: str) -> tuple[str, Role] | None:
    """The Thinker's advice and the role it wants next (Worker or Verifier); ``None`` unless both are there."""
    said = visible(text).strip()
    advice, wanted = _tagged(said, "suggestion"), _tagged(said, "suggested_role")
    if advice is None or wanted is None:
        return None
    words = set(_words(wanted))
    named = {role for role in ROLES if role in words} | ({Role.WORKER} if "solver" in words else set())
    if len(named) != 1 or Role.THINKER in named:
        return None
    return advice, named.pop()


def verdict(text: str) -> bool:
    """Whether a Verifier's reply accepts. Anything unclear rejects.

    The last ``VERDICT:`` decides by the sentence behind it. Without one, some sentence must speak for acceptance and
    nothing in the reply against it.
    """
    plain = _plain(visible(text).strip())
    for anchor in _ANCHORS:
        if found := list(anchor.finditer(plain)):
            return _accepts(_clause(plain[found[-1].end() :]), anchored=True)
    if (_REJECT | _FAULT).intersection(_words(plain)):
        return False
    speaking = [sentence for sentence in _sentences(plain) if _SPEAKS.search(sentence)]
    return bool(speaking) and all(_accepts(sentence, anchored=False) for sentence in speaking)


def reason(text: str, limit: int) -> str:
    """The Verifier's reply without the lines that hold its verdict; at most ``limit`` characters."""
    lines = (line.strip() for line in visible(text).strip().splitlines())
    return " ".join(line for line in lines if line and not _states_verdict(_plain(line)))[:limit].rstrip()


_NAMES = ("answer", "idea", "suggestion", "suggested_role")
_TAGS = {name: re.compile(rf"<(/?){name}\s{{0,3}}>", re.IGNORECASE) for name in _NAMES}
_ANY_TAG = re.compile(rf"</?(?:{'|'.join(_NAMES)})\s{{0,3}}>", re.IGNORECASE)

_MARKUP = re.compile(r"[*_`#~\"\u201c\u201d]")
_VERDICT_TAG = re.compile(r"<verdict>", re.IGNORECASE)
_BEHIND = r"[ \t\r]{0,9}(?:[:=\u2013\u2014]|-[ \t]|\n)"
# Weaker forms count only where no stronger one stands: "VERDICT: ACCEPT. Ground of this decision: ..."
_ANCHORS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (rf"\bverdict{_BEHIND}", rf"\b(?:decision|judge?ment){_BEHIND}", r"\b(?:verdict|decision) is\b")
)
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_SENTENCE = re.compile(r"[.!;](?=\s|$)|\n")
_SPEAKS = re.compile(r"\baccept(?:ed|able)?\b", re.IGNORECASE)
# "I accept that", "generally accepted", "an acceptable range" are no verdicts; these are.
_THE_REPLY = r"(?:it|this|(?:the|this) (?:\w+ )?(?:response|answer|solution|reply|result))"
_IN_A_SENTENCE = re.compile(
    rf"\bACCEPT(?:ED)?\b|(?i:\b(?:i|we)(?:'d|'ll)?(?: \w+){{0,2}} accept(?:$| {_THE_REPLY}\b)"
    rf"|^to accept$|\b{_THE_REPLY} (?:is|can be|may be|should be) accept(?:ed|able)$)"
)
_ACCEPT = {"accept", "accepted", "acceptable"}
_REJECT = {"reject", "rejected", "rejecting", "rejection", "revise", "revised", "revision", "revisions"}
_FAULT = {"wrong", "incorrect", "unacceptable"}
_CONDITION = {"if", "unless", "until", "once", "provided", "providing", "pending", "but", "after"}
_NEGATION = {
    "not", "no", "never", "cannot", "cant", "dont", "wont", "unable", "neither", "nor", "refuse", "hardly", "hesitate",
    "decline", "impossible", "hard", "difficult", "reluctant", "fail", "fails", "failed",
}  # fmt: skip


def _tagged(text: str, name: str) -> str | None:
    """Content of the last complete ``<name>...</name>`` with something in it; ``None`` if there is none."""
    opened, content = None, None
    for tag in _TAGS[name].finditer(text):
        if not tag[1]:
            opened = tag.end()
        elif opened is not None:
            content, opened = text[opened : tag.start()].strip() or content, None
    return content


def _plain(text: str) -> str:
    """Text with markup taken off, ``<verdict>`` as ``verdict:``, straight apostrophes."""
    return _MARKUP.sub("", _VERDICT_TAG.sub("verdict: ", text).replace("</", "\n</").replace("\u2019", "'"))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


def _clause(text: str) -> str:
    """The first sentence that has a word in it."""
    return next((sentence for sentence in _sentences(text) if _words(sentence)), "")


def _accepts(sentence: str, anchored: bool) -> bool:
    words = _words(sentence)
    if not words or "?" in sentence or (_REJECT | _CONDITION).intersection(words):
        return False
    if words[0] in _ACCEPT and (anchored or len(words) == 1):
        return True
    if (_FAULT | _NEGATION).intersection(words) or any(word.endswith("n't") for word in words):
        return False
    return _IN_A_SENTENCE.search(sentence) is not None


def _states_verdict(line: str) -> bool:
    words = _words(line)
    return any(a.search(line + "\n") for a in _ANCHORS) or (len(words) == 1 and words[0] in _ACCEPT | _REJECT)
