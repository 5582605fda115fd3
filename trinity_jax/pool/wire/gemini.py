"""Google's generateContent: the model stands in the address, the reply is a list of parts.

Source: https://ai.google.dev/api/generate-content.
"""

import json
from typing import Any

from trinity_jax.pool.reply import Call, Outcome
from trinity_jax.pool.wire.common import Answer, Format, billed, count, merged, objects, text_of

_FILTERS = (
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "LANGUAGE",
    "IMAGE_SAFETY",
    "MODEL_ARMOR",
)
_ENDS = {"MAX_TOKENS": Outcome.TRUNCATED} | dict.fromkeys(_FILTERS, Outcome.FILTERED)


def path(model: str) -> str:
    """``models/NAME:generateContent``; a name with a slash (``tunedModels/x``) is a whole path already."""
    return f"{model if '/' in model else f'models/{model}'}:generateContent"


def body(call: Call) -> dict[str, Any]:
    """The JSON object to send; ``None`` leaves a field out, also one set to null in ``extra_body``."""
    sampling = call.sampling
    system = [{"text": message.content} for message in call.messages if message.role == "system"]
    turns = [message for message in call.messages if message.role != "system"]
    config = {
        "maxOutputTokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "topK": sampling.top_k,
        "presencePenalty": sampling.presence_penalty,
        "thinkingConfig": {"thinkingLevel": sampling.reasoning_effort} if sampling.reasoning_effort else None,
    }
    made = {
        "systemInstruction": {"parts": system} if system else None,
        "contents": [
            {"role": "model" if turn.role == "assistant" else turn.role, "parts": [{"text": turn.content}]}
            for turn in turns
        ],
        "generationConfig": merged(config, {}),
    }
    return merged(made, json.loads(sampling.extra_body))


def read(data: dict[str, Any]) -> Answer | None:
    """What the first candidate says, or that the prompt was blocked."""
    candidates = objects(data.get("candidates"))
    usage = _usage(data.get("usageMetadata"))
    if not candidates:
        feedback = data.get("promptFeedback")
        reason = text_of(feedback.get("blockReason")) if isinstance(feedback, dict) else ""
        return Answer("", "", reason, Outcome.FILTERED, usage, "the prompt was blocked") if reason else None
    content = candidates[0].get("content")
    parts = objects(content.get("parts")) if isinstance(content, dict) else []
    text = "".join(text_of(part.get("text")) for part in parts if not part.get("thought"))
    reasoning = "".join(text_of(part.get("text")) for part in parts if part.get("thought"))
    finish = text_of(candidates[0].get("finishReason")) or None
    detail = None
    if not text.strip() and (any("functionCall" in part for part in parts) or (finish or "").endswith("_CALL")):
        detail = "a tool call instead of an answer"
    return Answer(text, reasoning, finish, _ENDS.get(finish or "", Outcome.OK), usage, detail)


def _usage(usage: Any) -> tuple[int, int] | None:
    """Tokens in and out. Thoughts are billed as output but counted apart; a count of zero is left out."""
    said, thought = (count(usage, field) for field in ("candidatesTokenCount", "thoughtsTokenCount"))
    total = count(usage, "totalTokenCount")
    received = None if said is thought is total is None else (said or 0) + (thought or 0)
    return billed(count(usage, "promptTokenCount"), received, total)


GEMINI = Format(
    path=path,
    headers=lambda key: {"x-goog-api-key": key} if key else {},
    body=body,
    read=read,
    holds="candidates",
    own=frozenset(
        {"contents", "systemInstruction", "generationConfig.candidateCount", "generationConfig.maxOutputTokens"}
    ),
)
