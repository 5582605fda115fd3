"""The OpenAI-compatible wire format as pure functions: a call to a request body, a response body to a reply."""

import json
from typing import Any

from trinity_jax.config import PriceSettings
from trinity_jax.pool.ledger import most_input_tokens, price_of
from trinity_jax.pool.reply import Call, Outcome, Reply

_DETAIL_CHARS = 300
_MOST_TOKENS = 10**9
_OVERFLOW = (
    "context_length",
    "context length",
    "context window",
    "context size",
    "exceed_context",
    "maximum context",
    "maximum prompt length",
    "max_model_len",
    "prompt is too long",
    "input is too long",
    "input length",
    "too many tokens",
    "reduce the length",
    "token limit exceeded",
)
_FILTERED = ("content_filter", "content_policy", "content management policy", "responsibleaipolicy", "data_inspection")
_RATE = ("rate_limit", "rate limit", "too many requests", "overloaded")
_QUOTA = ("insufficient_quota", "billing_hard_limit", "insufficient balance")
_RETRIED = frozenset({408, 409, 429})


def request_body(call: Call) -> dict[str, Any]:
    """The JSON object to send; ``None`` leaves a field out, also one set to null in ``extra_body``."""
    sampling = dict(vars(call.sampling))
    extra = json.loads(sampling.pop("extra_body"))
    messages = [{"role": message.role, "content": message.content} for message in call.messages]
    body = {"model": call.model, "messages": messages, **sampling, **extra}
    return {field: value for field, value in body.items() if value is not None}


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


def read_reply(call: Call, price: PriceSettings, status: int, body: bytes, after: float | None = None) -> Reply:
    """The reply in a complete HTTP response.

    Args:
        call: what was asked, to bound the tokens where the server does not count them.
        price: prices per million tokens.
        status: HTTP status.
        body: the body's bytes.
        after: the Retry-After header in seconds.

    Raises:
        Failed: there is none.
    """
    text = body.decode("utf-8", "replace")
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not 200 <= status < 300:
        raise _failure(data if isinstance(data, dict) else {}, text, status, after)
    if not isinstance(data, dict):
        # A cut object is worth another attempt, a page of HTML is not.
        cut = data is None and text.lstrip().startswith("{")
        what = "JSON that breaks off" if cut else "something other than a JSON object"
        raise Failed(Outcome.MALFORMED, f"HTTP {status} with {what}: {_short(text)}", again=cut, billed=True)
    if data.get("error"):
        raise _failure(data, text, status, after)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Failed(Outcome.MALFORMED, f"HTTP {status} without choices: {_short(text)}", billed=True)
    if choices[0].get("error"):
        raise _failure(choices[0], text, status, after)
    return _choice(call, price, choices[0], data.get("usage"))


def _choice(call: Call, price: PriceSettings, choice: dict[str, Any], usage: Any) -> Reply:
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    content, inline = split_reasoning(_text(message.get("content")))
    reasoning = _text(message.get("reasoning_content")) or _text(message.get("reasoning")) or inline
    finish = choice.get("finish_reason")
    finish = finish if isinstance(finish, str) else None
    empty = not content.strip()
    if finish == "content_filter" or (empty and message.get("refusal")):
        outcome = Outcome.FILTERED
    elif finish == "error":
        outcome = Outcome.ERROR
    elif empty:
        outcome = Outcome.EMPTY
    else:
        outcome = Outcome.TRUNCATED if finish == "length" else Outcome.OK
    counts = _usage(usage)
    detail = None
    if counts is None:
        said = len((content + reasoning).encode("utf-8", "replace"))
        counts = most_input_tokens(call.messages), min(said, call.sampling.max_tokens)
        detail = "the server counts no tokens: bounded by bytes"
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


def _text(content: Any) -> str:
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        content = "".join(part for part in parts if isinstance(part, str))
    # Half of a surrogate pair is no text: neither a tokenizer nor SQLite takes it.
    return content.encode("utf-8", "replace").decode() if isinstance(content, str) else ""


def _usage(usage: Any) -> tuple[int, int] | None:
    if not isinstance(usage, dict):
        return None
    sent, received = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(sent, int) or not isinstance(received, int):
        return None
    return (sent, received) if min(sent, received) >= 0 and max(sent, received) < _MOST_TOKENS else None


def _failure(data: dict[str, Any], text: str, status: int, after: float | None) -> Failed:
    error = data.get("error")
    said = json.dumps(error, ensure_ascii=False) if error else text
    detail = f"HTTP {status}: {_short(said)}"
    if status < 300:
        # Some gateways answer 200 and put the real status into the error.
        code = str(error.get("code")) if isinstance(error, dict) else ""
        status = int(code) if code.isdecimal() and len(code) == 3 else status
    low = said.lower()

    def says(words: tuple[str, ...]) -> bool:
        return any(word in low for word in words)

    if status not in (401, 403, 404, 429) and says(_OVERFLOW):
        return Failed(Outcome.CONTEXT_OVERFLOW, detail)
    if status != 429 and says(_FILTERED):
        return Failed(Outcome.FILTERED, detail)
    if status == 429 or (status < 300 and says(_RATE)):
        return Failed(Outcome.RATE_LIMITED, detail, again=not says(_QUOTA), after=after)
    outcome = Outcome.TIMEOUT if status in (408, 504) else Outcome.ERROR
    return Failed(outcome, detail, again=status in _RETRIED or status >= 500, after=after, billed=status == 504)


def _short(text: str) -> str:
    return " ".join(text[: 4 * _DETAIL_CHARS].split())[:_DETAIL_CHARS]
