"""Whatever a server sends, in every format: a reply or a typed failure, never another exception."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity_jax.config import PriceSettings
from trinity_jax.pool.reply import Call, Message, Outcome, Reply, Sampling
from trinity_jax.pool.wire import FORMATS, Failed, read_reply

# Names that the parsers look at, so that random objects reach deep.
_NAMES = st.sampled_from(
    [
        *(
            "choices",
            "message",
            "content",
            "text",
            "type",
            "finish_reason",
            "tool_calls",
            "refusal",
            "reasoning",
            "error",
        ),
        *("usage", "prompt_tokens", "completion_tokens", "total_tokens", "code", "details", "retryDelay", "object"),
        *("output", "status", "summary", "incomplete_details", "reason", "stop_reason", "thinking", "input_tokens"),
        *("candidates", "parts", "thought", "finishReason", "promptFeedback", "blockReason", "usageMetadata"),
    ]
)
_WORDS = st.sampled_from(
    ["message", "text", "output_text", "reasoning", "refusal", "thinking", "incomplete", "error", "try again in 3s"]
)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | _WORDS
_JSON = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=25,
)
_BODIES = st.dictionaries(_NAMES, _JSON, max_size=6) | _JSON


def ends(form: str, status: int, body: bytes) -> Reply | Failed:
    call = Call("http://a/v1", "m", "worker", (Message("user", "q"),), Sampling(format=form))
    try:
        end = read_reply(call, PriceSettings(input=1.0, output=1.0), status, body)
    except Failed as failed:
        end = failed
    if isinstance(end, Failed):
        assert end.outcome in Outcome
        assert not end.outcome.gradable
        assert end.after is None or end.after >= 0
        texts = [str(end)]
    else:
        assert 200 <= status < 300
        assert end.cost >= 0
        assert not end.outcome.gradable or end.text.strip()
        texts = [end.text, end.reasoning, end.detail or "", end.finish_reason or ""]
    # As SQLite will: half of a surrogate pair would raise.
    assert all(text.encode().decode() == text for text in texts)
    return end


@settings(max_examples=200, deadline=None)
@given(form=st.sampled_from(sorted(FORMATS)), body=_BODIES, status=st.sampled_from([200, 200, 200, 400, 429, 529]))
def test_any_json(form, body, status):
    ends(form, status, json.dumps(body).encode())


@settings(max_examples=100, deadline=None)
@given(form=st.sampled_from(sorted(FORMATS)), body=st.binary(max_size=200), status=st.integers(100, 599))
def test_any_bytes(form, body, status):
    assert isinstance(ends(form, status, body), Failed)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"error":' * 100_000,
        b'{"error":' * 500 + b"1" + b"}" * 500,
        b'{"usage": {"prompt_tokens": ' + b"9" * 5000 + b"}}",
        rb'{"error": {"message": "\ud83d", "code": "\u0664\u0664\u0664"}}',
        b"\xef\xbb\xbf{}",
    ],
)
def test_hostile_bodies(form, body):
    assert isinstance(ends(form, 200, body), Failed)
    assert isinstance(ends(form, 500, body), Failed)


@pytest.mark.parametrize(
    "form, body",
    [
        ("chat", rb'{"choices": [{"message": {"content": "4\ud83d2", "reasoning": "\udc00"}}]}'),
        (
            "responses",
            rb'{"output": [{"type": "message", "content": [{"type": "output_text", "text": "4\ud83d2"}]},'
            rb' {"type": "reasoning", "summary": [{"type": "summary_text", "text": "\udc00"}]}]}',
        ),
        (
            "anthropic",
            rb'{"content": [{"type": "thinking", "thinking": "\udc00"}, {"type": "text", "text": "4\ud83d2"}]}',
        ),
        (
            "gemini",
            rb'{"candidates": [{"content": {"parts": [{"text": "\udc00", "thought": true}, {"text": "4\ud83d2"}]}}]}',
        ),
    ],
)
def test_half_a_surrogate_pair_becomes_text(form, body):
    reply = ends(form, 200, body)
    assert isinstance(reply, Reply)
    assert (reply.text, reply.reasoning) == ("4?2", "?")
