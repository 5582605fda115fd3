"""Each format through the client, against a server on loopback that answers in it."""

import asyncio
import time
from typing import Any

import pytest
from aiohttp import web

from trinity_jax.config import ModelSettings
from trinity_jax.pool.client import endpoint_responders, open_session, sampling_of
from trinity_jax.pool.reply import Call, Message, Outcome, Reply

KEY = "sk-test-0123456789abcdef"
MESSAGES = (Message("system", "Be a Worker."), Message("user", "q"))
SAID = {
    "chat": {"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]},
    "responses": {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "42"}]}],
    },
    "anthropic": {"content": [{"type": "text", "text": "42"}], "stop_reason": "end_turn"},
    "gemini": {"candidates": [{"content": {"parts": [{"text": "42"}]}, "finishReason": "STOP"}]},
}


def ask(
    form: str, *script: web.Response, messages: tuple[Message, ...] = MESSAGES, **changes: Any
) -> tuple[Reply, list[tuple[str, Any, dict[str, str]]]]:
    """The reply to one call, and the (path, headers, body) of every request it took; after the script all is well."""
    seen: list[tuple[str, Any, dict[str, str]]] = []
    answers = list(script)

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers, await request.json()))
        return answers.pop(0) if answers else web.json_response(SAID[form])

    async def go() -> Reply:
        app = web.Application()
        app.router.add_post("/{path:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.05)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        model = ModelSettings(name="m", model="m-1", base_url=url, format=form, **changes)  # pyright: ignore
        try:
            async with open_session() as session:
                (client,) = endpoint_responders([model], session)
                return await client.reply(Call(url, model.model, "worker", messages, sampling_of(model)))
        finally:
            await runner.cleanup()

    return asyncio.run(go()), seen


@pytest.mark.parametrize(
    "form, path, header, value",
    [
        ("chat", "/v1/chat/completions", "Authorization", f"Bearer {KEY}"),
        ("responses", "/v1/responses", "Authorization", f"Bearer {KEY}"),
        ("anthropic", "/v1/messages", "x-api-key", KEY),
        ("gemini", "/v1/models/m-1:generateContent", "x-goog-api-key", KEY),
    ],
)
def test_a_call_in_each_format(form, path, header, value, monkeypatch):
    monkeypatch.setenv("TRINITY_TEST_KEY", KEY)
    reply, [(asked, headers, body)] = ask(form, api_key_env="TRINITY_TEST_KEY")
    assert (reply.outcome, reply.text, reply.attempts) == (Outcome.OK, "42", 1)
    assert asked == path
    assert headers[header] == value
    assert sum(KEY in text for text in headers.values()) == 1
    assert "Be a Worker." in str(body)


def test_a_prompt_that_fills_the_context_is_not_sent():
    reply, seen = ask("chat", messages=(Message("user", "x" * 100),), context=100)
    assert (reply.outcome, reply.attempts, reply.cost) == (Outcome.CONTEXT_OVERFLOW, 0, 0.0)
    assert not seen


def test_the_context_clips_what_is_asked_for():
    _, [(_, _, body)] = ask("anthropic", messages=(Message("user", "x" * 60),), context=100)
    assert body["max_tokens"] == 24


@pytest.mark.parametrize(
    "busy",
    [
        lambda: web.json_response({"error": "busy"}, status=429, headers={"retry-after-ms": "80", "Retry-After": "60"}),
        lambda: web.json_response({"error": {"message": "Please try again in 80ms."}}, status=429),
    ],
)
def test_the_wait_asked_in_ms_or_in_the_body_is_kept(busy):
    start = time.monotonic()
    reply, seen = ask("chat", busy())
    assert (reply.outcome, len(seen)) == (Outcome.OK, 2)
    assert time.monotonic() - start >= 0.08
