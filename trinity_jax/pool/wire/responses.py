"""OpenAI's Responses: the reply is a list of items (reasoning, messages, tool calls).

Source: https://platform.openai.com/docs/api-reference/responses.
"""

import json
from typing import Any

from trinity_jax.pool.reply import Call, Outcome
from trinity_jax.pool.wire.chat import bearer
from trinity_jax.pool.wire.common import Answer, Format, billed, count, joined, merged, objects, text_of

_REASONS = {"max_output_tokens": Outcome.TRUNCATED, "content_filter": Outcome.FILTERED}


def body(call: Call) -> dict[str, Any]:
    """The JSON object to send; ``None`` leaves a field out, also one set to null in ``extra_body``."""
    sampling = call.sampling
    made = {
        "model": call.model,
        "input": [{"role": message.role, "content": message.content} for message in call.messages],
        "max_output_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "reasoning": {"effort": sampling.reasoning_effort} if sampling.reasoning_effort else None,
        # Without this the server keeps every reply for later turns; no call of ours refers to one.
        "store": False,
    }
    return merged(made, json.loads(sampling.extra_body))


def read(data: dict[str, Any]) -> Answer | None:
    """What the messages among the output's items say."""
    if not isinstance(data.get("output"), list):
        return None
    items = objects(data["output"])
    said = [part for item in items if item.get("type") == "message" for part in objects(item.get("content"))]
    thought = [item for item in items if item.get("type") == "reasoning"]
    text = joined(said, "text", "output_text")
    # Open models give the reasoning itself, OpenAI a summary of it.
    reasoning = "\n".join(
        filter(
            None,
            (
                joined(objects(item.get("content")), "text", "reasoning_text")
                or joined(objects(item.get("summary")), "text", "summary_text")
                for item in thought
            ),
        )
    )
    finish, outcome = _end(data)
    detail = None
    if not text.strip():
        refusal = joined(said, "refusal", "refusal")
        if refusal and outcome is not Outcome.ERROR:
            outcome, detail = Outcome.FILTERED, f"refused: {refusal}"
        elif any(text_of(item.get("type")).endswith("_call") for item in items):
            detail = "a tool call instead of an answer"
    usage = billed(*(count(data.get("usage"), field) for field in ("input_tokens", "output_tokens", "total_tokens")))
    return Answer(text, reasoning, finish, outcome, usage, detail)


def _end(data: dict[str, Any]) -> tuple[str | None, Outcome]:
    """Why the response ended: its status, or the reason why it is incomplete."""
    status = text_of(data.get("status")) or None
    if status == "incomplete":
        details = data.get("incomplete_details")
        reason = text_of(details.get("reason")) if isinstance(details, dict) else ""
        return reason or status, _REASONS.get(reason, Outcome.TRUNCATED)
    # Failed, cancelled, or still queued: a background response, which this client never asks for.
    return status, Outcome.OK if status in ("completed", None) else Outcome.ERROR


RESPONSES = Format(
    path=lambda model: "responses",
    headers=bearer,
    body=body,
    read=read,
    holds="output",
    own=frozenset({"model", "input", "instructions", "stream", "background", "max_output_tokens"}),
)
