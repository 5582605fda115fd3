"""What all wire formats share: what a format is, what it reads of a reply, and the one way from there to a `Reply`."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trinity_jax.config import PriceSettings
from trinity_jax.pool.ledger import most_input_tokens, price_of
from trinity_jax.pool.reply import TOOL_CALLS, Call, Outcome, Reply

_DETAIL_CHARS = 300
_MOST_TOKENS = 10**9


@dataclass(frozen=True)
class Answer:
    """What a format finds in a reply, before it is counted and priced.

    Attributes:
        text: what the model says.
        reasoning: what it thought before, never part of ``text``.
        finish: the server's own word for why it stopped.
        outcome: ``ok``, ``truncated``, ``filtered`` or ``error``; a text without a word becomes ``empty`` later.
        usage: tokens billed (sent, received), if the server says.
        detail: what else is worth knowing, such as a refusal's words.
        message: the assistant's message where it calls tools.
    """

    text: str
    reasoning: str = ""
    finish: str | None = None
    outcome: Outcome = Outcome.OK
    usage: tuple[int, int] | None = None
    detail: str | None = None
    message: dict[str, Any] | None = None


@dataclass(frozen=True)
class Format:
    """One wire format as pure functions.

    Attributes:
        path: model name to the path below the base address.
        headers: key ("" for none) to the headers that carry it.
        body: call to the JSON object to send.
        read: JSON object of a reply to what it says, or ``None`` where it holds none.
        holds: what a reply must have, for the message when it has not.
        own: fields that ``extra_body`` may not set, dots leading inwards.
        rich: whether it carries `RichMessage`, tools and a response format as chat completions have them.
    """

    path: Callable[[str], str]
    headers: Callable[[str], dict[str, str]]
    body: Callable[[Call], dict[str, Any]]
    read: Callable[[dict[str, Any]], Answer | None]
    holds: str
    own: frozenset[str]
    rich: bool = False


class Failed(Exception):  # noqa: N818 (an outcome on its way to a reply, not an error of this program)
    """An attempt that gave no reply.

    Attributes:
        outcome: what it is if it stays so.
        again: whether another attempt may end differently.
        after: seconds the server asked to wait, if it did.
        billed: whether the server may have generated, and billed, something.
    """

    def __init__(
        self, outcome: Outcome, detail: str, *, again: bool = False, after: float | None = None, billed: bool = False
    ):
        super().__init__(detail)
        self.outcome = outcome
        self.again = again
        self.after = after
        self.billed = billed


def fit(call: Call) -> Call:
    """The call with ``max_tokens`` clipped to what its prompt leaves of ``context``.

    Without the model's tokenizer the prompt counts one token a byte, which is safe and about four times too much for
    English: set ``context`` where a server refuses what does not fit, and leave it out where it does not.

    Raises:
        Failed: the prompt may fill the context alone (``context_overflow``); nothing needs to be sent.
    """
    context, most = call.sampling.context, most_input_tokens(call.messages, call.sampling)
    if context is None or most + call.sampling.max_tokens <= context:
        return call
    if most >= context:
        raise Failed(Outcome.CONTEXT_OVERFLOW, f"not sent: a prompt of up to {most} tokens, a context of {context}")
    return dataclasses.replace(call, sampling=dataclasses.replace(call.sampling, max_tokens=context - most))


def merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body with ``extra_body`` laid over it, objects into objects; a field that ends as ``None`` is left out."""
    inner = {
        field: merged(body[field], value) if isinstance(value, dict) and isinstance(body.get(field), dict) else value
        for field, value in extra.items()
    }
    return {field: value for field, value in {**body, **inner}.items() if value is not None}


def clashes(own: frozenset[str], extra: Mapping[str, Any]) -> list[str]:
    """The fields in ``extra`` that are the client's own to set, sorted."""

    def has(path: str) -> bool:
        found: Any = extra
        for field in path.split("."):
            if not isinstance(found, Mapping):
                return True  # it replaces the object that holds the field
            if field not in found:
                return False
            found = found[field]
        return True

    return sorted(path for path in own if has(path))


def reply_of(call: Call, price: PriceSettings, answer: Answer) -> Reply:
    """The reply of an answer: reasoning taken off its front, tokens counted, money charged."""
    content, inline = split_reasoning(answer.text)
    reasoning = answer.reasoning or inline
    outcome = answer.outcome
    detail, finish = short(answer.detail) if answer.detail else None, answer.finish
    offered = '"tools"' in call.sampling.extra_body and "tools" in json.loads(call.sampling.extra_body)
    if offered and outcome is Outcome.OK:
        # Whoever offers tools reads the finish reason: it says so where there is one to be called, and nowhere else.
        finish = TOOL_CALLS if answer.message else None if finish == TOOL_CALLS else finish
        content, detail = (json.dumps(answer.message), None) if answer.message else (content, detail)
    if outcome in (Outcome.OK, Outcome.TRUNCATED) and not content.strip():
        outcome = Outcome.EMPTY
    counts = answer.usage
    if counts is None:
        said = len((content + reasoning).encode("utf-8", "replace"))
        counts = most_input_tokens(call.messages, call.sampling), min(said, call.sampling.max_tokens)
        detail = "; ".join(filter(None, (detail, "the server counts no tokens: bounded by bytes")))
    return Reply(outcome, content, *counts, price_of(price, *counts), 0.0, 1, finish, detail, reasoning)


def split_reasoning(content: str) -> tuple[str, str]:
    """Content and the reasoning that a server left in front of it (``<think> ... </think>``, opened or not).

    Reasoning that was never closed leaves no content.
    """
    head, closed, tail = content.partition("</think>")
    opened = head.lstrip().startswith("<think>")
    if closed and (opened or "<think>" not in head):
        return tail.lstrip(), head.lstrip().removeprefix("<think>").strip()
    if opened:
        return "", head.lstrip().removeprefix("<think>").strip()
    return content, ""


def text_of(value: Any) -> str:
    """A text as it can be stored; anything else is no text.

    Half of a surrogate pair becomes a question mark: neither a tokenizer nor SQLite takes it.
    """
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; anything else holds none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def joined(parts: list[dict[str, Any]], field: str, *kinds: str | None) -> str:
    """The texts in one field of the parts whose ``type`` is of these kinds (``None``: parts without a type)."""
    return "".join(text_of(part.get(field)) for part in parts if part.get("type") in kinds)


def count(usage: Any, field: str) -> int | None:
    """A number of tokens, or ``None`` where there is none that makes sense."""
    number = usage.get(field) if isinstance(usage, dict) else None
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    return number if 0 <= number < _MOST_TOKENS else None


def billed(sent: int | None, received: int | None, total: int | None) -> tuple[int, int] | None:
    """Tokens (sent, received), or ``None`` unless both are known.

    Some servers (xAI, Gemini's OpenAI address) leave reasoning out of what was received and count it in the total only.
    """
    if sent is None or received is None:
        return None
    return sent, max(received, (total or 0) - sent)


def parsed(text: str) -> Any:
    """The JSON value in a text; ``None`` where it is none, or too deep to be one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def short(text: str) -> str:
    """The beginning of a text on one line."""
    return text_of(" ".join(text[: 4 * _DETAIL_CHARS].split())[:_DETAIL_CHARS])
