"""What each format sends: address, headers, body; what settings and context make of it."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from trinity_jax.config import ModelSettings
from trinity_jax.pool.client import sampling_of
from trinity_jax.pool.ledger import most_input_tokens
from trinity_jax.pool.reply import Call, Message, Outcome, Sampling
from trinity_jax.pool.wire import FORMATS, Failed, clashes, fit, request_body

MESSAGES = (
    Message("system", "Be a Worker."),
    Message("user", "q1"),
    Message("assistant", "a1"),
    Message("user", "q2"),
)
SAMPLING: dict[str, Any] = {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "reasoning_effort": "low"}
TURNS = [{"role": message.role, "content": message.content} for message in MESSAGES]


def call(messages: tuple[Message, ...] = MESSAGES, **sampling: Any) -> Call:
    return Call("http://a/v1", "m-1", "worker", messages, Sampling(**sampling))


@pytest.mark.parametrize(
    "form, more, expected",
    [
        (
            "chat",
            {"top_k": 5, "presence_penalty": 1.0, "extra_body": '{"seed": 7, "top_p": null}'},
            {
                "model": "m-1",
                "messages": TURNS,
                "max_tokens": 100,
                "temperature": 0.5,
                "top_k": 5,
                "presence_penalty": 1.0,
                "reasoning_effort": "low",
                "seed": 7,
            },
        ),
        (
            "responses",
            {"extra_body": '{"reasoning": {"summary": "auto"}, "temperature": null}'},
            {
                "model": "m-1",
                "input": TURNS,
                "max_output_tokens": 100,
                "top_p": 0.9,
                "reasoning": {"effort": "low", "summary": "auto"},
                "store": False,
            },
        ),
        (
            "anthropic",
            {"top_k": 5, "extra_body": '{"thinking": {"type": "adaptive"}}'},
            {
                "model": "m-1",
                "system": "Be a Worker.",
                "messages": TURNS[1:],
                "max_tokens": 100,
                "temperature": 0.5,
                "top_p": 0.9,
                "top_k": 5,
                "output_config": {"effort": "low"},
                "thinking": {"type": "adaptive"},
            },
        ),
        (
            "gemini",
            {"top_k": 5, "extra_body": '{"generationConfig": {"topP": null, "seed": 7}}'},
            {
                "systemInstruction": {"parts": [{"text": "Be a Worker."}]},
                "contents": [
                    {"role": "user", "parts": [{"text": "q1"}]},
                    {"role": "model", "parts": [{"text": "a1"}]},
                    {"role": "user", "parts": [{"text": "q2"}]},
                ],
                "generationConfig": {
                    "maxOutputTokens": 100,
                    "temperature": 0.5,
                    "topK": 5,
                    "seed": 7,
                    "thinkingConfig": {"thinkingLevel": "low"},
                },
            },
        ),
    ],
)
def test_the_body_of_a_call(form, more, expected):
    assert request_body(call(format=form, **SAMPLING | more)) == expected


def test_what_is_not_set_is_not_sent():
    bare = {"max_tokens": 100, "temperature": None}
    users = (Message("user", "q"),)
    sent = {form: request_body(call(users, format=form, **bare)) for form in FORMATS}
    assert {form: sorted(body) for form, body in sent.items()} == {
        "chat": ["max_tokens", "messages", "model"],
        "responses": ["input", "max_output_tokens", "model", "store"],
        "anthropic": ["max_tokens", "messages", "model"],
        "gemini": ["contents", "generationConfig"],
    }
    assert sent["gemini"]["generationConfig"] == {"maxOutputTokens": 100}


def test_paths_and_the_key():
    assert {
        form: (record.path("m-1"), record.headers("k"), record.headers("")) for form, record in FORMATS.items()
    } == {
        "chat": ("chat/completions", {"Authorization": "Bearer k"}, {}),
        "responses": ("responses", {"Authorization": "Bearer k"}, {}),
        "anthropic": (
            "messages",
            {"x-api-key": "k", "anthropic-version": "2023-06-01"},
            {"anthropic-version": "2023-06-01"},
        ),
        "gemini": ("models/m-1:generateContent", {"x-goog-api-key": "k"}, {}),
    }
    assert FORMATS["gemini"].path("tunedModels/x") == "tunedModels/x:generateContent"


def test_the_newer_name_of_max_tokens():
    body = request_body(call(max_tokens=9, max_tokens_field="max_completion_tokens"))
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body


@pytest.mark.parametrize(
    "form, extra, expected",
    [
        ("chat", {"seed": 1, "stream": True, "n": 2}, ["n", "stream"]),
        ("responses", {"max_output_tokens": 9, "store": True, "background": True}, ["background", "max_output_tokens"]),
        ("anthropic", {"max_tokens": 9, "thinking": {}}, ["max_tokens"]),
        ("gemini", {"generationConfig": {"seed": 1}}, []),
        ("gemini", {"generationConfig": {"maxOutputTokens": 9}}, ["generationConfig.maxOutputTokens"]),
        # The whole object gone would take the limit with it.
        ("gemini", {"generationConfig": None}, ["generationConfig.candidateCount", "generationConfig.maxOutputTokens"]),
    ],
)
def test_what_extra_body_may_not_set(form, extra, expected):
    assert clashes(FORMATS[form].own, extra) == expected


@pytest.mark.parametrize(
    "chosen",
    [
        {"format": "anthropic", "presence_penalty": 0.5},
        {"format": "responses", "top_k": 5},
        {"format": "gemini", "max_tokens_field": "max_completion_tokens"},
    ],
)
def test_settings_that_a_format_cannot_send_are_refused(chosen):
    with pytest.raises(ValidationError, match=f"format {chosen['format']} has no {list(chosen)[1]}"):
        ModelSettings(name="m", model="m-1", base_url="http://a/v1", **chosen)


def test_what_changes_the_request_changes_the_identity():
    plain = ModelSettings(name="m", model="m-1", base_url="http://a/v1")
    keys = {
        dataclasses.replace(call(), sampling=sampling_of(plain.model_copy(update=change))).key()
        for change in (
            {},
            {"format": "responses"},
            {"format": "anthropic"},
            {"format": "gemini"},
            {"max_tokens_field": "max_completion_tokens"},
            {"context": 4096},
            {"context": 8192},
        )
    }
    assert len(keys) == 7


@settings(deadline=None)
@given(st.integers(1, 400), st.integers(1, 200), st.text(max_size=60))
def test_max_tokens_are_what_the_context_leaves(context, limit, text):
    asked = call((Message("user", text),), context=context, max_tokens=limit)
    most = most_input_tokens(asked.messages)
    if most >= context:
        with pytest.raises(Failed, match="not sent") as caught:
            fit(asked)
        assert caught.value.outcome is Outcome.CONTEXT_OVERFLOW
        assert not caught.value.again
    else:
        fitting = fit(asked)
        assert fitting.sampling.max_tokens == min(limit, context - most)
        assert dataclasses.replace(fitting, sampling=asked.sampling) == asked


def test_without_a_context_nothing_is_clipped():
    asked = call((Message("user", "x" * 10_000),), max_tokens=10**6)
    assert fit(asked) is asked


@pytest.mark.parametrize(
    "form, place",
    [
        ("chat", ("max_tokens",)),
        ("responses", ("max_output_tokens",)),
        ("anthropic", ("max_tokens",)),
        ("gemini", ("generationConfig", "maxOutputTokens")),
    ],
)
def test_the_clipped_limit_is_what_is_sent(form, place):
    body = request_body(fit(call((Message("user", "x" * 60),), format=form, context=100, max_tokens=50)))
    for field in place:
        body = body[field]
    assert body == 100 - 60 - 16


def test_a_limit_in_extra_body_is_clipped_too():
    extra = json.dumps({"max_tokens": None, "max_completion_tokens": 40})
    context = 100 + len(extra)  # the server may render all of it into the prompt
    body = request_body(fit(call((Message("user", "x" * 60),), context=context, max_tokens=50, extra_body=extra)))
    assert (body.get("max_tokens"), body["max_completion_tokens"]) == (None, 24)
