"""What goes to a model and what comes back: calls with an identity, replies with a typed outcome."""

import hashlib
import json
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import Protocol

TOOL_CALLS = "tool_calls"
"""The ``finish_reason`` of a reply that calls a tool the call offered."""


class Outcome(StrEnum):
    """The closed set of ways a call can end (a failure is data, never an exception)."""

    OK = "ok"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    FILTERED = "filtered"
    CONTEXT_OVERFLOW = "context_overflow"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    MALFORMED = "malformed"
    REFUSED_BUDGET = "refused_budget"
    ERROR = "error"

    @property
    def gradable(self) -> bool:
        """Whether the text may enter an episode; only such replies are reused from the journal."""
        return self in (Outcome.OK, Outcome.TRUNCATED)


@dataclass(frozen=True)
class Message:
    """One chat message; ``role`` is the wire's ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True)
class RichMessage(Message):
    """A message with more to it than text: images, tool calls, a tool's result.

    ``content`` is its text, ``fields`` a JSON object that is laid over the message on the chat wire (``content`` as a
    list of parts, ``tool_calls``, ``tool_call_id``), kept as text so that it is part of the call's identity. ``images``
    counts the images in it. A class of its own, so that the identity of plain calls stays as it is.
    """

    fields: str = "{}"
    images: int = 0


@dataclass(frozen=True)
class Sampling:
    """Decoding settings and how they go on the wire; ``None`` leaves the server's default.

    ``extra_body`` is a JSON object of further fields, kept as text so that it is part of the call's identity. So are
    ``format``, the name of ``max_tokens`` and the ``context`` that clips it: each changes what is sent.
    """

    max_tokens: int = 4096
    temperature: float | None = 0.1
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    extra_body: str = "{}"
    format: str = "chat"
    max_tokens_field: str = "max_tokens"
    context: int | None = None


@dataclass(frozen=True)
class Call:
    """One paid request. Its identity decides which calls are the same call.

    ``scope`` is ``"generation 7"`` or ``"run"`` (setting ``journal.reuse``), ``occurrence`` counts the identical
    requests the same episode made before: a second Verifier after a rejection may answer differently.
    """

    endpoint: str
    model: str
    role: str
    messages: tuple[Message, ...]
    sampling: Sampling
    scope: str = "run"
    repeat: int = 0
    occurrence: int = 0

    def canonical(self) -> str:
        """JSON of every field, keys sorted, no spaces: equal calls give equal text."""
        return self._canonical

    def key(self) -> str:
        """Hex SHA-256 of the canonical JSON."""
        return self._key

    # Asked for by the pool, the journal and a simulated model: made once.
    @cached_property
    def _canonical(self) -> str:
        return _CANONICAL.encode({name: getattr(self, name) for name in _FIELDS})

    @cached_property
    def _key(self) -> str:
        return digest(self._canonical)


_FIELDS = tuple(field.name for field in fields(Call))
# json.dumps makes an encoder for each call of it that is not plain.
_CANONICAL = json.JSONEncoder(default=vars, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(canonical: str) -> str:
    """The key of a call from its canonical JSON (lone surrogates, which UTF-8 cannot hold, are kept apart)."""
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Reply:
    """What came back. ``cost`` in the price table's currency, ``seconds`` of wall time over all attempts.

    ``reasoning`` is what a reasoning model thought before ``text``; it never enters a transcript. Where a call offers
    tools and the model calls one, ``finish_reason`` is `TOOL_CALLS` and ``text`` the JSON of the assistant's message.
    """

    outcome: Outcome
    text: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    attempts: int = 1
    finish_reason: str | None = None
    detail: str | None = None
    reasoning: str = ""


class Responder(Protocol):
    """One model of the pool, real or simulated. It never raises for what a server does."""

    name: str

    async def reply(self, call: Call) -> Reply:
        """Answer one call."""
        ...

    async def close(self) -> None:
        """Free connections."""
        ...
