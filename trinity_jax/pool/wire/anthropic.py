"""Anthropic's Messages: the system prompt stands apart, the reply is a list of blocks.

Source: https://docs.anthropic.com/en/api/messages.
"""

import json
from typing import Any

from trinity_jax.pool.reply import Call, Outcome
from trinity_jax.pool.wire.common import Answer, Format, billed, count, joined, merged, objects, text_of

_VERSION = "2023-06-01"
_ENDS = {
    "max_tokens": Outcome.TRUNCATED,
    "model_context_window_exceeded": Outcome.TRUNCATED,
    "refusal": Outcome.FILTERED,
}


def headers(key: str) -> dict[str, str]:
    """The key's header, and the version of the interface."""
    return {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})


def body(call: Call) -> dict[str, Any]:
    """The JSON object to send; ``None`` leaves a field out, also one set to null in ``extra_body``."""
    sampling = call.sampling
    turns = [message for message in call.messages if message.role != "system"]
    made = {
        "model": call.model,
        "system": "\n\n".join(message.content for message in call.messages if message.role == "system") or None,
        "messages": [{"role": message.role, "content": message.content} for message in turns],
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "output_config": {"effort": sampling.reasoning_effort} if sampling.reasoning_effort else None,
    }
    return merged(made, json.loads(sampling.extra_body))


def read(data: dict[str, Any]) -> Answer | None:
    """What the text blocks say."""
    if not isinstance(data.get("content"), list):
        return None
    blocks = objects(data["content"])
    text = joined(blocks, "text", "text")
    finish = text_of(data.get("stop_reason")) or None
    # Blocks of the kind redacted_thinking are ciphers: neither text nor reasoning.
    tool = any(text_of(block.get("type")).endswith("tool_use") for block in blocks)
    detail = "a tool call instead of an answer" if tool and not text.strip() else None
    outcome = _ENDS.get(finish or "", Outcome.OK)
    return Answer(text, joined(blocks, "thinking", "thinking"), finish, outcome, _usage(data.get("usage")), detail)


def _usage(usage: Any) -> tuple[int, int] | None:
    """Tokens in and out; input_tokens excludes those written to and read from the cache, which are charged in full."""
    sent = count(usage, "input_tokens")
    cached = (count(usage, f"cache_{what}_input_tokens") or 0 for what in ("creation", "read"))
    return billed(None if sent is None else sent + sum(cached), count(usage, "output_tokens"), None)


ANTHROPIC = Format(
    path=lambda model: "messages",
    headers=headers,
    body=body,
    read=read,
    holds="content",
    own=frozenset({"model", "messages", "system", "stream", "max_tokens"}),
)
