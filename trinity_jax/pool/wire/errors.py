"""What an error says, in each provider's words: its outcome, whether to try again, and when."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from trinity_jax.pool.reply import Outcome
from trinity_jax.pool.wire.common import Failed, objects, short, text_of

_OVERFLOW = (
    "context_length",  # OpenAI, vLLM (code)
    "context length",  # OpenAI, vLLM, SGLang, Mistral, LM Studio
    "context window",  # OpenAI Responses, MiniMax
    "contextwindow",  # LiteLLM
    "context size",  # llama.cpp
    "context limit",  # Anthropic: input and max_tokens together
    "exceed_context",  # llama.cpp (type)
    "maximum context",
    "maximum prompt length",  # xAI
    "max_model_len",  # vLLM
    "max_new_tokens` must be",  # TGI
    "maximum number of tokens allowed",  # Gemini
    "prompt is too long",  # Anthropic
    "input is too long",  # Bedrock
    "input length",
    "too many tokens",  # Cohere
    "reduce the length",  # Groq
    "token limit exceeded",
    "model token limit",  # Kimi
    "request_too_large",  # Anthropic (type, HTTP 413)
    "string_above_max_length",  # OpenAI (code)
)
_FILTERED = (
    "content_filter",
    "content_policy",
    "content management policy",  # Azure
    "responsibleaipolicy",  # Azure
    "content filtering policy",  # Anthropic
    "usage policy",  # OpenAI Responses: invalid_prompt
    "usage guidelines",  # xAI
    "flagged_input",  # OpenRouter
    "data_inspection",  # Alibaba
    "content exists risk",  # DeepSeek
)
_RATE = ("rate_limit", "rate limit", "too many requests", "resource_exhausted", "overloaded", "at capacity")
# Waiting does not help. Gemini says "exceeded your current quota" of a minute's requests too, so that is not here.
_QUOTA = (
    "insufficient_quota",  # OpenAI
    "billing_hard_limit",  # OpenAI
    "insufficient balance",  # DeepSeek
    "insufficient credits",  # OpenRouter
    "credit balance",  # Anthropic
    "requestsperday",  # Gemini
    "request too large",  # OpenAI, Groq: one request above the tokens of a minute
)
_BROKEN = ("server_error", "internal_error", "internal server error", "api_error", "timeout_error")
_RETRIED = frozenset({408, 409, 425, 429})
_REFUSALS = frozenset({400, 402, 403, 413, 429})
_OVERLOADED = 529  # Anthropic

_ASKED = re.compile(r"(?:try|retry)(?: again)? (?:in|after) ", re.IGNORECASE)
_SPAN = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})?) ?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)(?![a-z]),? ?"
)
_UNITS = {"ms": 1e-3, "mi": 60.0, "s": 1.0, "se": 1.0, "m": 60.0, "h": 3600.0, "ho": 3600.0}


def error_in(data: Mapping[str, Any]) -> Any:
    """The error in a JSON object, wherever it stands: in a field, as the object (vLLM), in a choice (OpenRouter)."""
    if data.get("error"):
        return data["error"]
    if data.get("object") == "error":
        return data
    first = objects(data.get("choices"))[:1]
    return first[0].get("error") if first else None


def failure(error: Any, text: str, status: int, after: float | None) -> Failed:
    """The outcome of an error.

    Args:
        error: what `error_in` found, or nothing.
        text: the whole body, read where there is no such thing.
        status: HTTP status; below 300 where a gateway puts the real one into the error.
        after: seconds that the headers ask to wait; they go before what the body asks.
    """
    said = _dumped(error) if error else text
    detail = f"HTTP {status}: {short(said)}"
    if status < 300:
        code = str(error.get("code")) if isinstance(error, dict) else ""
        status = int(code) if code.isascii() and code.isdecimal() and len(code) == 3 else status
    after = body_wait(error, said) if after is None else after
    low = said.lower()

    def says(words: tuple[str, ...]) -> bool:
        return any(word in low for word in words)

    if (status < 300 or status in _REFUSALS) and says(_QUOTA):
        return Failed(Outcome.RATE_LIMITED, detail)
    if status not in (401, 403, 404, 429) and says(_OVERFLOW):
        return Failed(Outcome.CONTEXT_OVERFLOW, detail)
    if status != 429 and says(_FILTERED):
        return Failed(Outcome.FILTERED, detail)
    if status in (429, _OVERLOADED) or ((status < 300 or status >= 500) and says(_RATE)):
        return Failed(Outcome.RATE_LIMITED, detail, again=True, after=after)
    outcome = Outcome.TIMEOUT if status in (408, 504) else Outcome.ERROR
    again = status in _RETRIED or status >= 500 or (status < 300 and says(_BROKEN))
    return Failed(outcome, detail, again=again, after=after, billed=status == 504)


def header_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response's headers ask to wait, or ``None``.

    Args:
        headers: looked up as ``retry-after-ms`` (OpenAI, Azure; the more precise one) and ``Retry-After``.
    """
    precise = _seconds(headers.get("retry-after-ms"))
    return precise / 1e3 if precise is not None else retry_after(headers.get("Retry-After"))


def retry_after(header: str | None) -> float | None:
    """Seconds in a Retry-After header, which holds a number or an HTTP date; ``None`` where it holds neither."""
    seconds = _seconds(header)
    if header is None or seconds is not None:
        return seconds
    try:
        date = parsedate_to_datetime(header)
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max((date - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, OverflowError):
        return None


def body_wait(error: Any, said: str) -> float | None:
    """Seconds that an error asks to wait, or ``None``.

    Gemini has a field for it (``RetryInfo``: ``retryDelay: "34.07s"``); others write "Please try again in 6m0s",
    "retry after 26 seconds" or "try again in 20ms".
    """
    for detail in objects(error.get("details") if isinstance(error, dict) else None):
        if (span := _span(text_of(detail.get("retryDelay")), 0)) is not None:
            return span
    asked = _ASKED.search(said)
    return _span(said, asked.end()) if asked else None


def _span(text: str, start: int) -> float | None:
    """Seconds in a span of time such as ``1h2m3.5s`` that begins at ``start``."""
    total, found = 0.0, None
    while found := _SPAN.match(text, start):
        unit = found[2] if found[2] == "ms" else "ms" if found[2].startswith("milli") else found[2][:2]
        total, start = total + float(found[1]) * _UNITS[unit], found.end()
    return total if start and total else None


def _seconds(header: str | None) -> float | None:
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return max(seconds, 0.0) if seconds < float("inf") else None


def _dumped(error: Any) -> str:
    try:
        return json.dumps(error, ensure_ascii=False)
    except RecursionError:
        return "an error too deep to read"
