"""OpenAI-compatible chat completions: vLLM, SGLang, llama.cpp, Ollama, OpenRouter, LiteLLM proxy and many more.

Source: https://platform.openai.com/docs/api-reference/chat.
"""

import json
from typing import Any

from trinity_jax.pool.reply import Call, Message, Outcome, RichMessage
from trinity_jax.pool.wire.common import Answer, Format, billed, count, joined, merged, objects, text_of

LIMITS = ("max_tokens", "max_completion_tokens")
_SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "reasoning_effort")
_ENDS = {
    "length": Outcome.TRUNCATED,
    "max_tokens": Outcome.TRUNCATED,
    "model_length": Outcome.TRUNCATED,  # Mistral
    "content_filter": Outcome.FILTERED,
    "sensitive": Outcome.FILTERED,  # Zhipu
    "error": Outcome.ERROR,  # OpenRouter
    "insufficient_system_resource": Outcome.ERROR,  # DeepSeek
    "network_error": Outcome.ERROR,  # Zhipu
}


def bearer(key: str) -> dict[str, str]:
    """The header of both OpenAI formats."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def body(call: Call) -> dict[str, Any]:
    """The JSON object to send; ``None`` leaves a field out, also one set to null in ``extra_body``."""
    sampling = call.sampling
    messages = [_sent(message) for message in call.messages]
    made = {"model": call.model, "messages": messages, sampling.max_tokens_field: sampling.max_tokens}
    made |= {field: getattr(sampling, field) for field in _SAMPLING}
    sent = merged(made, json.loads(sampling.extra_body))
    # A limit in extra_body is at most the configured one, but the context may have clipped that.
    return sent | {field: min(sent[field], sampling.max_tokens) for field in LIMITS if field in sent}


def _sent(message: Message) -> dict[str, Any]:
    plain = {"role": message.role, "content": message.content}
    return plain | json.loads(message.fields) if isinstance(message, RichMessage) else plain


def read(data: dict[str, Any]) -> Answer | None:
    """What the first choice says."""
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    message = choices[0].get("message")
    message = message if isinstance(message, dict) else {}
    parts = objects(message.get("content"))
    text = text_of(message.get("content")) or joined(parts, "text", "text", "output_text", None)
    finish = text_of(choices[0].get("finish_reason")) or None
    # Gemini behind this format writes "content_filter: RECITATION".
    outcome, detail = _ENDS.get((finish or "").partition(":")[0], Outcome.OK), None
    if not text.strip():
        refusal = text_of(message.get("refusal")) or joined(parts, "refusal", "refusal")
        if refusal and outcome is not Outcome.ERROR:
            outcome, detail = Outcome.FILTERED, f"refused: {refusal}"
        elif message.get("tool_calls") or message.get("function_call"):
            detail = "a tool call instead of an answer"
    calls = _tool_calls(message)
    said = {"role": "assistant", "content": text or None, "tool_calls": calls} if calls else None
    return Answer(text, _reasoning(message, parts), finish, outcome, _usage(data.get("usage")), detail, said)


def _tool_calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls that can be passed on: with an id, a name, and arguments as text."""
    calls = []
    for call in objects(message.get("tool_calls")):
        function = call.get("function")
        name = text_of(function.get("name")) if isinstance(function, dict) else ""
        if isinstance(function, dict) and name:
            arguments = function.get("arguments")
            arguments = arguments if isinstance(arguments, str) else json.dumps(arguments or {})  # Ollama: an object
            number = text_of(call.get("id")) or f"call_{len(calls)}"
            calls.append(
                {"id": number, "type": "function", "function": {"name": name, "arguments": text_of(arguments)}}
            )
    return calls


def _reasoning(message: dict[str, Any], parts: list[dict[str, Any]]) -> str:
    """Reasoning under any of the names that servers give it; Mistral's parts nest theirs."""
    nested = [inner for part in parts if part.get("type") == "thinking" for inner in objects(part.get("thinking"))]
    return (
        text_of(message.get("reasoning_content"))
        or text_of(message.get("reasoning"))
        or joined(nested, "text", "text", None)
    )


def _usage(usage: Any) -> tuple[int, int] | None:
    # prompt_tokens includes cached ones: their rebate is not known here, so they are charged in full.
    return billed(*(count(usage, field) for field in ("prompt_tokens", "completion_tokens", "total_tokens")))


CHAT = Format(
    path=lambda model: "chat/completions",
    headers=bearer,
    body=body,
    read=read,
    holds="choices",
    own=frozenset({"model", "messages", "stream", "n"}),
    rich=True,
)
