"""Identity of calls, and the wire format's parsers on arbitrary input."""

import dataclasses
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trinity_jax.config import PriceSettings
from trinity_jax.pool.reply import Call, Message, Outcome, Reply, Sampling
from trinity_jax.pool.wire import Failed, read_reply, split_reasoning

CALL = Call("http://a/v1", "m", "worker", (Message("user", "q"),), Sampling(), "generation 1", 2, 3)

_REPLY_FIELDS = ("choices", "message", "content", "finish_reason", "text", "reasoning_content", "refusal")
_FIELDS = (*_REPLY_FIELDS, "usage", "prompt_tokens", "completion_tokens", "error", "code")
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=5),
    max_leaves=25,
)


def test_key_is_the_hash_of_every_field():
    plain = json.dumps(dataclasses.asdict(CALL), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert CALL.canonical() == plain
    assert CALL.key() == hashlib.sha256(plain.encode()).hexdigest()


@pytest.mark.parametrize(
    "changes",
    [
        {"endpoint": "http://b/v1"},
        {"model": "n"},
        {"role": "thinker"},
        {"messages": (Message("system", "q"),)},
        {"messages": (Message("user", "q"), Message("user", ""))},
        {"sampling": Sampling(temperature=0.2)},
        {"sampling": Sampling(extra_body='{"seed": 1}')},
        {"scope": "generation 2"},
        {"repeat": 0},
        {"occurrence": 0},
    ],
)
def test_every_field_is_part_of_the_identity(changes):
    assert dataclasses.replace(CALL, **changes).key() != CALL.key()
    assert dataclasses.replace(CALL).key() == CALL.key()


def test_broken_unicode_has_an_identity_of_its_own():
    keys = {dataclasses.replace(CALL, messages=(Message("user", text),)).key() for text in ("\ud800", "\ud801", "?")}
    assert len(keys) == 3


def test_half_a_surrogate_pair_becomes_text():
    body = rb'{"choices": [{"message": {"content": "4\ud83d2", "reasoning": "\udc00"}, "finish_reason": "stop"}]}'
    reply = read_reply(CALL, PriceSettings(), 200, body)
    assert (reply.text, reply.reasoning) == ("4?2", "?")


@given(_json, st.sampled_from([200, 400, 429, 500]))
def test_any_json_ends_in_a_reply_or_a_typed_failure(data, status):
    try:
        reply = read_reply(CALL, PriceSettings(input=1.0, output=1.0), status, json.dumps(data).encode())
    except Failed as failed:
        outcome = failed.outcome
    else:
        outcome = reply.outcome
        assert status == 200
        assert isinstance(reply, Reply)
        assert reply.cost >= 0
        assert not outcome.gradable or reply.text.strip()
    assert outcome in Outcome


@given(st.binary(max_size=200), st.integers(100, 599))
def test_any_bytes_end_in_a_reply_or_a_typed_failure(body, status):
    with pytest.raises(Failed):
        read_reply(CALL, PriceSettings(), status, body)


@pytest.mark.parametrize(
    "content, text, reasoning",
    [
        ("plain", "plain", ""),
        ("<think>a</think>b", "b", "a"),
        ("\n<think>\na\n</think>\n\nb", "b", "a"),
        ("a</think>\nb", "b", "a"),
        ("<think>a", "", "a"),
        ("<think></think>b", "b", ""),
        ("the tags <think> and </think>", "the tags <think> and </think>", ""),
        ("<answer>5</answer>", "<answer>5</answer>", ""),
    ],
)
def test_reasoning_in_front_of_content(content, text, reasoning):
    assert split_reasoning(content) == (text, reasoning)
