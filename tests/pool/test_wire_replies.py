"""Odd replies in every format, each as a body that a server has been seen to send."""

import json
from typing import Any

import pytest

from trinity_jax.config import PriceSettings
from trinity_jax.pool.ledger import most_input_tokens
from trinity_jax.pool.reply import Call, Message, Outcome, Reply, Sampling
from trinity_jax.pool.wire import FORMATS, Failed, read_reply

MESSAGES = (Message("user", "What is 6 times 7?"),)
TOOL = "a tool call instead of an answer"
NO_COUNT = "the server counts no tokens: bounded by bytes"


def read(form: str, body: dict[str, Any], status: int = 200) -> Reply:
    call = Call("http://a/v1", "m", "worker", MESSAGES, Sampling(format=form))
    return read_reply(call, PriceSettings(input=1.0, output=10.0), status, json.dumps(body).encode())


def chat(content: Any = "42", finish: Any = "stop", usage: Any = None, **message: Any) -> dict[str, Any]:
    usage = usage or {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return {"choices": [{"message": {"content": content, **message}, "finish_reason": finish}], "usage": usage}


def responses(*output: Any, status: str = "completed", **fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    return {"object": "response", "status": status, "error": None, "output": list(output), "usage": usage, **fields}


def said(text: str, kind: str = "output_text", field: str = "text") -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": kind, field: text, "annotations": []}]}


def anthropic(*content: Any, stop: Any = "end_turn", usage: Any = None) -> dict[str, Any]:
    usage = usage or {"input_tokens": 11, "output_tokens": 7}
    return {"type": "message", "role": "assistant", "content": list(content), "stop_reason": stop, "usage": usage}


def block(text: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, kind: text}


def gemini(*parts: Any, finish: Any = "STOP", usage: Any = None) -> dict[str, Any]:
    usage = usage or {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": finish, "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage}


INCOMPLETE: dict[str, Any] = {"status": "incomplete"}
CALLED = {"type": "function_call", "name": "add", "arguments": "{}"}
USED = {"type": "tool_use", "name": "add", "input": {}}

# format, body, outcome, text, reasoning, detail
REPLIES = {
    "chat": ("chat", chat(), "ok", "42", "", None),
    "chat, content in parts": (
        "chat",
        chat([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]),
        "ok",
        "42",
        "",
        None,
    ),
    "chat, null content": ("chat", chat(None), "empty", "", "", None),
    "chat, no message": ("chat", {"choices": [{}]}, "empty", "", "", NO_COUNT),
    "chat, reasoning_content": ("chat", chat("42", reasoning_content="hmm"), "ok", "42", "hmm", None),
    "chat, reasoning": ("chat", chat("42", reasoning="hmm", reasoning_content=None), "ok", "42", "hmm", None),
    "chat, think tags": ("chat", chat("<think>hmm</think>\n42"), "ok", "42", "hmm", None),
    "chat, only the closing tag": ("chat", chat("hmm</think>\n42"), "ok", "42", "hmm", None),
    "chat, Mistral's thinking part": (
        "chat",
        chat([{"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}, {"type": "text", "text": "42"}]),
        "ok",
        "42",
        "hmm",
        None,
    ),
    "chat, reasoning ate the limit": ("chat", chat(None, "length", reasoning="hmm"), "empty", "", "hmm", None),
    "chat, a tool call": ("chat", chat(None, "tool_calls", tool_calls=[{"id": "1"}]), "empty", "", "", TOOL),
    "chat, a tool call on the side": ("chat", chat("42", tool_calls=[{"id": "1"}]), "ok", "42", "", None),
    "chat, length": ("chat", chat("4", "length"), "truncated", "4", "", None),
    "chat, content_filter": ("chat", chat("4", "content_filter"), "filtered", "4", "", None),
    "chat, content_filter with its reason": (
        "chat",
        chat(None, "content_filter: RECITATION"),
        "filtered",
        "",
        "",
        None,
    ),
    "chat, refusal": ("chat", chat(None, refusal="I can't"), "filtered", "", "", "refused: I can't"),
    "chat, refusal null": ("chat", chat("42", refusal=None), "ok", "42", "", None),
    "chat, error as the end": ("chat", chat("4", "error"), "error", "4", "", None),
    "responses": ("responses", responses(said("42")), "ok", "42", "", None),
    "responses, no items": ("responses", responses(), "empty", "", "", None),
    "responses, null content": ("responses", responses({"type": "message", "content": None}), "empty", "", "", None),
    "responses, a summary of the reasoning": (
        "responses",
        responses({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hmm"}]}, said("42")),
        "ok",
        "42",
        "hmm",
        None,
    ),
    "responses, the reasoning": (
        "responses",
        responses(
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hmm"}]}, said("42")
        ),
        "ok",
        "42",
        "hmm",
        None,
    ),
    "responses, encrypted reasoning": (
        "responses",
        responses({"type": "reasoning", "summary": [], "encrypted_content": "x"}, said("42")),
        "ok",
        "42",
        "",
        None,
    ),
    "responses, reasoning ate the limit": (
        "responses",
        responses(
            {"type": "reasoning", "summary": []}, incomplete_details={"reason": "max_output_tokens"}, **INCOMPLETE
        ),
        "empty",
        "",
        "",
        None,
    ),
    "responses, a tool call": ("responses", responses(CALLED), "empty", "", "", TOOL),
    "responses, max_output_tokens": (
        "responses",
        responses(said("4"), incomplete_details={"reason": "max_output_tokens"}, **INCOMPLETE),
        "truncated",
        "4",
        "",
        None,
    ),
    "responses, content_filter": (
        "responses",
        responses(said("4"), incomplete_details={"reason": "content_filter"}, **INCOMPLETE),
        "filtered",
        "4",
        "",
        None,
    ),
    "responses, incomplete without details": (
        "responses",
        responses(said("4"), incomplete_details=None, **INCOMPLETE),
        "truncated",
        "4",
        "",
        None,
    ),
    "responses, refusal": (
        "responses",
        responses(said("I can't", "refusal", "refusal")),
        "filtered",
        "",
        "",
        "refused: I can't",
    ),
    "responses, failed without an error": ("responses", responses(status="failed"), "error", "", "", None),
    "responses, still queued": ("responses", responses(status="queued"), "error", "", "", None),
    "anthropic": ("anthropic", anthropic(block("42")), "ok", "42", "", None),
    "anthropic, two blocks": ("anthropic", anthropic(block("4"), block("2")), "ok", "42", "", None),
    "anthropic, no blocks": ("anthropic", anthropic(), "empty", "", "", None),
    "anthropic, null text": ("anthropic", anthropic({"type": "text", "text": None}), "empty", "", "", None),
    "anthropic, thinking": ("anthropic", anthropic(block("hmm", "thinking"), block("42")), "ok", "42", "hmm", None),
    "anthropic, redacted thinking": (
        "anthropic",
        anthropic({"type": "redacted_thinking", "data": "x"}, block("42")),
        "ok",
        "42",
        "",
        None,
    ),
    "anthropic, thinking ate the limit": (
        "anthropic",
        anthropic(block("hmm", "thinking"), stop="max_tokens"),
        "empty",
        "",
        "hmm",
        None,
    ),
    "anthropic, a tool call": ("anthropic", anthropic(USED, stop="tool_use"), "empty", "", "", TOOL),
    "anthropic, max_tokens": ("anthropic", anthropic(block("4"), stop="max_tokens"), "truncated", "4", "", None),
    "anthropic, context full": (
        "anthropic",
        anthropic(block("4"), stop="model_context_window_exceeded"),
        "truncated",
        "4",
        "",
        None,
    ),
    "anthropic, refusal": ("anthropic", anthropic(block("I"), stop="refusal"), "filtered", "I", "", None),
    "gemini": ("gemini", gemini({"text": "42"}), "ok", "42", "", None),
    "gemini, two parts": ("gemini", gemini({"text": "4"}, {"text": "2"}), "ok", "42", "", None),
    "gemini, no parts": ("gemini", gemini(), "empty", "", "", None),
    "gemini, no content": ("gemini", {"candidates": [{"finishReason": "STOP"}]}, "empty", "", "", NO_COUNT),
    "gemini, a thought": ("gemini", gemini({"text": "hmm", "thought": True}, {"text": "42"}), "ok", "42", "hmm", None),
    "gemini, thoughts ate the limit": ("gemini", gemini(finish="MAX_TOKENS"), "empty", "", "", None),
    "gemini, a tool call": ("gemini", gemini({"functionCall": {"name": "add"}}), "empty", "", "", TOOL),
    "gemini, a broken tool call": ("gemini", gemini(finish="MALFORMED_FUNCTION_CALL"), "empty", "", "", TOOL),
    "gemini, MAX_TOKENS": ("gemini", gemini({"text": "4"}, finish="MAX_TOKENS"), "truncated", "4", "", None),
    "gemini, SAFETY": ("gemini", gemini(finish="SAFETY"), "filtered", "", "", None),
    "gemini, RECITATION": ("gemini", gemini({"text": "4"}, finish="RECITATION"), "filtered", "4", "", None),
    "gemini, a blocked prompt": (
        "gemini",
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 11}},
        "filtered",
        "",
        "",
        f"the prompt was blocked; {NO_COUNT}",
    ),
}


@pytest.mark.parametrize("form, body, outcome, text, reasoning, detail", REPLIES.values(), ids=REPLIES.keys())
def test_odd_replies(form, body, outcome, text, reasoning, detail):
    reply = read(form, body)
    assert (reply.outcome.value, reply.text, reply.reasoning, reply.detail) == (outcome, text, reasoning, detail)


@pytest.mark.parametrize(
    "form, body",
    [
        ("chat", {"choices": []}),
        ("chat", {"choices": None}),
        ("chat", {"id": "x"}),
        ("responses", {"status": "completed", "output": None}),
        ("responses", chat()),
        ("anthropic", {"type": "message", "content": None}),
        ("anthropic", chat()),
        ("gemini", {"candidates": []}),
        ("gemini", {"promptFeedback": {}}),
        ("gemini", chat()),
    ],
)
def test_a_body_that_holds_no_reply_is_malformed(form, body):
    with pytest.raises(Failed, match=f"HTTP 200 without {FORMATS[form].holds}") as caught:
        read(form, body)
    assert (caught.value.outcome, caught.value.again, caught.value.billed) == (Outcome.MALFORMED, False, True)


@pytest.mark.parametrize(
    "form, body, words",
    [
        ("chat", chat("42", "stop"), "stop"),
        ("responses", responses(incomplete_details={"reason": "content_filter"}, **INCOMPLETE), "content_filter"),
        ("responses", responses(said("42")), "completed"),
        ("anthropic", anthropic(block("42")), "end_turn"),
        ("gemini", gemini(finish="SAFETY"), "SAFETY"),
        ("gemini", {"promptFeedback": {"blockReason": "OTHER"}}, "OTHER"),
    ],
)
def test_the_reason_keeps_the_servers_words(form, body, words):
    assert read(form, body).finish_reason == words


@pytest.mark.parametrize(
    "form, usage, counts",
    [
        ("chat", {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 8}}, (11, 7)),
        (
            "chat",
            {"prompt_tokens": 11, "completion_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 5}},
            (11, 7),
        ),
        # xAI counts reasoning in the total only.
        ("chat", {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 118}, (11, 107)),
        ("chat", {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": None}, (11, 7)),
        (
            "responses",
            {
                "input_tokens": 11,
                "output_tokens": 107,
                "total_tokens": 118,
                "output_tokens_details": {"reasoning_tokens": 100},
            },
            (11, 107),
        ),
        (
            "anthropic",
            {"input_tokens": 1, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 6, "output_tokens": 7},
            (11, 7),
        ),
        ("anthropic", {"input_tokens": 11, "cache_read_input_tokens": None, "output_tokens": 7}, (11, 7)),
        (
            "gemini",
            {"promptTokenCount": 11, "candidatesTokenCount": 7, "thoughtsTokenCount": 100, "totalTokenCount": 118},
            (11, 107),
        ),
        ("gemini", {"promptTokenCount": 11, "thoughtsTokenCount": 100}, (11, 100)),
        ("gemini", {"promptTokenCount": 11, "totalTokenCount": 11}, (11, 0)),
    ],
)
def test_tokens_are_what_is_billed(form, usage, counts):
    maker = {"chat": chat, "anthropic": anthropic, "gemini": gemini}.get(form)
    reply = read(form, maker(usage=usage) if maker else responses(usage=usage))
    assert (reply.input_tokens, reply.output_tokens) == counts
    assert reply.cost == pytest.approx((counts[0] * 1.0 + counts[1] * 10.0) / 1e6)


USAGE = {"chat": "usage", "responses": "usage", "anthropic": "usage", "gemini": "usageMetadata"}
FINE = {
    "chat": chat(),
    "responses": responses(said("42")),
    "anthropic": anthropic(block("42")),
    "gemini": gemini({"text": "42"}),
}


@pytest.mark.parametrize("usage", [None, {}, [], {"prompt_tokens": 3}, {"prompt_tokens": -1, "completion_tokens": 1e9}])
@pytest.mark.parametrize("form", FORMATS)
def test_without_usage_the_tokens_are_bounded_by_bytes(form, usage):
    reply = read(form, FINE[form] | {USAGE[form]: usage})
    assert (reply.outcome, reply.text, reply.detail) == (Outcome.OK, "42", NO_COUNT)
    assert (reply.input_tokens, reply.output_tokens) == (most_input_tokens(MESSAGES), 2)
    assert reply.cost > 0
