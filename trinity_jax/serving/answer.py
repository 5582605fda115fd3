"""What the coordinator's models made of one request: the text for the client, and what is told on the way."""

import json
import re
from dataclasses import dataclass
from typing import Any

from trinity_jax.reasoning import visible
from trinity_jax.serving.trace import Trace

_IDEA = re.compile(r"<idea\s{0,3}>(.*?)</idea\s{0,3}>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"</?(?:idea|answer)\s{0,3}>", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """A request's answer.

    Attributes:
        text: what the client reads; "" where tools are called alone.
        calls: tool calls as chat completions have them.
        finish: ``stop``, ``length`` or ``tool_calls``.
        trace: how it came about.
        reasoning: the turns in a few lines.
    """

    text: str
    finish: str
    trace: Trace
    calls: tuple[dict[str, Any], ...] = ()
    reasoning: str = ""


def plain(reply: str) -> str:
    """A Worker's reply without the protocol's marks: the sentence in ``<idea>`` goes, what is in ``<answer>`` stays.

    A reply that is nothing but its idea is that idea.
    """
    said = visible(reply).strip()
    rest = _TAG.sub("", _IDEA.sub("", said, count=1)).strip()
    return rest or _TAG.sub("", said).strip()


def shortened(text: str, stop: tuple[str, ...]) -> str:
    """The text up to the first of these."""
    ends = [place for mark in stop if mark and (place := text.find(mark)) >= 0]
    return text[: min(ends)] if ends else text


def called(reply: str) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Text and tool calls of a reply that calls tools (`pool.reply.Reply`)."""
    message = json.loads(reply)
    return message.get("content") or "", tuple(message["tool_calls"])
