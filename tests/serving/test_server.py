"""The HTTP side: keys, limits, errors in one form whatever comes, streams, clients that leave, draining, reload."""

import asyncio
import json
import os
import signal
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serving.served import chooser, met, pool_file, service, serving
from trinity_jax.errors import UserError
from trinity_jax.pool.simulated_server import Latency, SimulatedServer
from trinity_jax.serving.chooser import Chooser
from trinity_jax.serving.keys import Keys, new_key
from trinity_jax.serving.server import Server, check_bind, run
from trinity_jax.serving.service import Service

BODY = {"model": "trinity", "messages": [{"role": "user", "content": "Say 42"}]}
CHAT = "/v1/chat/completions"


@asynccontextmanager
async def opened(coordinator, *script, keys=None, limits=None, **endpoint):
    async with (
        SimulatedServer(*script, **endpoint) as server,
        service(coordinator, pool_file([server.url] * 2, limits)) as made,
        serving(made, keys) as (url, ours, session),
    ):
        yield url, ours, session, server


def play(coordinator, body, *script, **options):
    async def go():
        async with opened(coordinator, *script, **options) as (url, ours, session, server):
            return await body(url, ours, session, server)

    return asyncio.run(go())


def in_form(data):
    error = data["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
    return error


WORDS = st.sampled_from(["user", "trinity"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KNOWN = """model messages input stream stream_options max_tokens temperature stop seed n tools tool_choice text
    response_format instructions trinity previous_response_id"""
FIELDS = st.sampled_from(KNOWN.split())
MUTATED = st.dictionaries(FIELDS, JSON, max_size=4).map(lambda some: json.dumps({**BODY, "input": "Say 42", **some}))
BODIES = st.binary(max_size=30) | JSON.map(json.dumps).map(str.encode) | MUTATED.map(str.encode)


def test_whatever_comes_is_answered_or_refused_in_openais_form(coordinator):
    async def body(url, ours, session, server):
        loop, seen = asyncio.get_running_loop(), set()

        async def send(path, content):
            async with session.post(url + path, data=content) as response:
                seen.add(response.status)
                data = await response.read()
                assert response.status < 500, data
                if response.status != 200:
                    in_form(json.loads(data))

        @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
        @given(st.sampled_from((CHAT, "/v1/responses")), BODIES)
        def fuzz(path, content):
            asyncio.run_coroutine_threadsafe(send(path, content), loop).result(20)

        await asyncio.to_thread(fuzz)
        for wrong in (
            b'{"model": "trinity", "messages": [{"role": "user", "content": "\\ud83d"}]}',
            b"[" * 100_000,
            b"NaN",
        ):
            await send(CHAT, wrong)
        return seen, ours.in_flight

    seen, in_flight = play(coordinator, body)
    assert {200, 400} <= seen
    assert in_flight == 0


@pytest.mark.parametrize(
    "method, path, status, code",
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("GET", "/v1/traces/trace_x", 404, "trace_not_found"),
        ("GET", "/v1/models/gpt", 404, "model_not_found"),
        ("POST", CHAT, 400, None),
    ],
)
def test_errors_have_openais_form(coordinator, method, path, status, code):
    async def body(url, ours, session, server):
        async with session.request(method, url + path) as response:
            return response.status, in_form(await response.json())["code"]

    assert play(coordinator, body) == (status, code)


def test_a_body_that_is_too_large_is_refused(coordinator):
    async def body(url, ours, session, server):
        async with session.post(url + CHAT, data=b" " * 20_000) as response:
            return response.status, in_form(await response.json())["code"]

    assert play(coordinator, body, limits={"max_body_mb": 0.01}) == (413, "request_too_large")


def test_keys_are_asked_for_and_only_their_hashes_are_kept(coordinator, tmp_path):
    path = tmp_path / "keys.jsonl"
    key, admin = new_key(path, "ann", False), new_key(path, "bob", True)
    assert path.stat().st_mode & 0o077 == 0
    assert key not in path.read_text()
    with pytest.raises(UserError, match="ann has a key"):
        new_key(path, "ann", False)

    async def body(url, ours, session, server):
        async def status(method, path, key):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            async with session.request(method, url + path, json=BODY, headers=headers) as response:
                return response.status

        asked = [await status("POST", CHAT, k) for k in (None, "wrong", key)]
        asked += [await status("GET", path, None) for path in ("/v1/models", "/v1/traces", "/metrics", "/health")]
        return asked + [await status("POST", "/admin/reload", k) for k in (key, admin)]

    assert play(coordinator, body, keys=Keys.read(path)) == [401, 401, 200, 401, 401, 401, 200, 403, 409]


@pytest.mark.parametrize("text", ["", "{", '{"name": "a"}', '{"name": "a", "sha256": "12"}', "[]"])
def test_a_bad_file_of_keys_is_refused(tmp_path, text):
    path = tmp_path / "keys.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match="keys"):
        Keys.read(path)


@pytest.mark.parametrize(
    "host, refused",
    [("127.0.0.1", False), ("::1", False), ("localhost", False)]
    + [(host, True) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org")],
)
def test_a_public_address_needs_keys(tmp_path, host, refused):
    new_key(tmp_path / "keys", "ann", False)
    check_bind(host, Keys.read(tmp_path / "keys"))
    if refused:
        with pytest.raises(UserError, match="--keys"):
            check_bind(host, None)
    else:
        check_bind(host, None)


def test_more_requests_than_may_be_answered_are_told_to_come_again(coordinator):
    async def body(url, ours, session, server):
        async def ask():
            async with session.post(url + CHAT, json=BODY) as response:
                return response.status, response.headers.get("Retry-After"), await response.json()

        found = await asyncio.gather(*(ask() for _ in range(5)))
        return found, await ask()

    found, later = play(coordinator, body, limits={"max_in_flight": 2}, latency=Latency("constant", 0.1))
    refused = [one for one in found if one[0] == 429]
    assert len(refused) == 3
    assert all(after == "1" and in_form(data)["code"] == "rate_limit_exceeded" for _, after, data in refused)
    assert later[0] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_stops_its_calls(coordinator, stream):
    async def body(url, ours, session, server):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), session.post(url + CHAT, json={**BODY, "stream": stream}) as response:
                await response.read()
        await met(lambda: not ours.in_flight)
        pool = ours.service.engine.pool
        in_flight = sum(responder.limits.gate.in_flight for responder in pool.responders)
        async with session.get(url + "/metrics") as response:
            return len(server.requests), ours.in_flight, in_flight, await response.text()

    made, requests, calls, metrics = play(coordinator, body, latency=Latency("constant", 30.0))
    assert (made, requests, calls) == (1, 0, 0)
    assert 'trinity_requests_total{route="/v1/chat/completions",status="499"} 1.0' in metrics
    assert 'trinity_ends_total{end="cancelled"} 1.0' in metrics


def test_a_stream_that_fails_before_and_after_it_began(coordinator):
    async def body(url, ours, session, server):
        found = []
        for fields in ({"model": "trinity"}, {**BODY, "trinity": {"models": ["x"]}}):
            async with session.post(url + CHAT, json={**fields, "stream": True}) as response:
                found.append((response.status, in_form(await response.json())["param"]))
        for seed in range(40):  # until a Thinker has spoken, then all fails
            server.script = ["ok", "500", "500"]
            asked = {**BODY, "stream": True, "seed": seed}
            async with session.post(url + CHAT, json=asked) as response:
                text = await response.text()
            if 'data: {"error"' in text:
                break
        return found, text

    found, text = play(coordinator, body)
    assert found == [(400, "messages"), (400, "trinity.models")]
    lines = [line for line in text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    assert in_form(json.loads(lines[-2].removeprefix("data: ")))["code"] == "pool_unavailable"


def test_traces_are_found_by_id_and_bounded(coordinator):
    async def body(url, ours, session, server):
        numbers = []
        for _ in range(4):
            async with session.post(url + CHAT, json=BODY) as response:
                numbers.append((await response.json())["trinity"]["id"])
        async with session.get(f"{url}/v1/traces/{numbers[-1]}") as response:
            one = await response.json()
        async with session.get(f"{url}/v1/traces/{numbers[0]}") as response:
            gone = response.status
        async with session.get(f"{url}/v1/traces?limit=10") as response:
            listed = [trace["id"] for trace in (await response.json())["data"]]
        return numbers, one, gone, listed

    numbers, one, gone, listed = play(coordinator, body, limits={"traces": 2})
    assert one["id"] == numbers[-1]
    assert gone == 404
    assert listed == numbers[:1:-1]
    turn = one["turns"][0]
    assert {"model", "role", "model_probability", "role_probability", "input_tokens", "cost", "call_ms"} <= turn.keys()


def test_a_signal_drains_and_another_one_loads_anew(coordinator, monkeypatch):
    monkeypatch.setattr(Chooser, "load", lambda folder, settings: chooser(folder))

    async def go():
        async with SimulatedServer(latency=Latency("constant", 0.3)) as endpoint:
            made = await Service.open(coordinator, pool_file([endpoint.url] * 2))
            server, told = Server(made), asyncio.get_running_loop().create_future()
            running = asyncio.create_task(run(server, "127.0.0.1", 0, told.set_result))
            url = await told
            async with aiohttp.ClientSession() as session:

                async def ask():
                    async with session.post(url + CHAT, json=BODY) as response:
                        return response.status

                first = asyncio.create_task(ask())
                await asyncio.sleep(0.1)
                old = made.engine
                os.kill(os.getpid(), signal.SIGHUP)
                await met(lambda: made.engine is not old)
                second = asyncio.create_task(ask())
                await asyncio.sleep(0.1)
                os.kill(os.getpid(), signal.SIGTERM)
                found = await first, await second
                await running
                with pytest.raises(aiohttp.ClientConnectorError):
                    await ask()
            await made.close()
            return found, server.draining

    assert asyncio.run(go()) == ((200, 200), True)


def test_a_taken_port_is_named(coordinator):
    async def body(url, ours, session, server):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(UserError, match="cannot be bound"):
                await run(Server(ours.service), "127.0.0.1", taken.getsockname()[1], print)

    play(coordinator, body)


def test_the_dashboard_is_open_and_its_data_are_not(coordinator, tmp_path):
    new_key(tmp_path / "keys", "ann", False)

    async def body(url, ours, session, server):
        found = []
        for path in ("/dashboard", "/dashboard/runs.json", "/dashboard/runs/nix"):
            async with session.get(url + path) as response:
                found.append((response.status, response.content_type))
        return found

    closed = play(coordinator, body, keys=Keys.read(tmp_path / "keys"))
    assert closed == [(200, "text/html"), (401, "application/json"), (401, "application/json")]
    assert play(coordinator, body) == [(200, "text/html"), (200, "application/json"), (404, "application/json")]
