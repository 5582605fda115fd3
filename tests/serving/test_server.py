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
from trinity_jax.serving.session import Session

BODY = {"model": "trinity", "messages": [{"role": "user", "content": "Say 42"}]}
CHAT = "/v1/chat/completions"
JSON_BODY = {"Content-Type": "application/json"}


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


def nested(depth):
    made = {}
    for _ in range(depth):
        made = {"type": "function", "function": {"name": "add", "inside": made}}
    return made


def in_form(data):
    error = data["error"]
    assert len(error["message"]) <= 1000
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
            async with session.post(url + path, data=content, headers=JSON_BODY) as response:
                seen.add(response.status)
                data = await response.read()
                assert response.status < 500, data
                if response.status != 200:
                    in_form(json.loads(data))
                return response.status

        @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
        @given(st.sampled_from((CHAT, "/v1/responses")), BODIES)
        def fuzz(path, content):
            asyncio.run_coroutine_threadsafe(send(path, content), loop).result(60)

        await send(CHAT, json.dumps(BODY))  # compiles
        await asyncio.to_thread(fuzz)
        for wrong in (
            b'{"model": "trinity", "messages": [{"role": "user", "content": "\\ud83d"}]}',
            b"[" * 100_000,
            b"NaN",
            b'{"temperature": 1e999}',
            json.dumps({**BODY, "user": "x"}).encode().replace(b'"x"', b'"\xed\xa0\x80"'),  # a half as raw bytes
            json.dumps(BODY).encode("utf-16"),
            b'{"model": "trinity", "tools": ' + b"[" * 300 + b"]" * 300 + b"}",
            json.dumps({**BODY, "tools": [nested(300)]}).encode(),
            json.dumps({**BODY, "functions": [{"name": "add"}]}).encode(),
            json.dumps({**BODY, "trinity": {"x" * 100_000: 1}}).encode(),
            json.dumps({**BODY, "trinity": {"models": ["x" * 100] * 2000}}).encode(),
        ):
            assert await send(CHAT, wrong) == (200 if b"ud83d" in wrong else 400)
        return seen, ours.in_flight, ours.held

    seen, in_flight, held = play(coordinator, body)
    assert {200, 400} <= seen
    assert in_flight == held == 0


@pytest.mark.parametrize(
    "method, path, status, code",
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("GET", "/v1/traces/trace_x", 404, "trace_not_found"),
        ("GET", "/v1/models/gpt", 404, "model_not_found"),
        ("POST", CHAT, 400, None),
        ("GET", "/v1/traces?limit=" + "9" * 4400, 400, None),
        ("GET", "/v1/traces?limit=0", 400, None),
    ],
)
def test_errors_have_openais_form(coordinator, method, path, status, code):
    async def body(url, ours, session, server):
        async with session.request(method, url + path, headers=JSON_BODY) as response:
            return response.status, in_form(await response.json())["code"]

    assert play(coordinator, body) == (status, code)


def test_a_body_that_is_too_large_is_refused(coordinator):
    async def body(url, ours, session, server):
        async with session.post(url + CHAT, data=b" " * 20_000, headers=JSON_BODY) as response:
            return response.status, in_form(await response.json())["code"]

    assert play(coordinator, body, limits={"max_body_mb": 0.01}) == (413, "request_too_large")


def test_bodies_of_all_requests_together_are_bounded(coordinator):
    large = {**BODY, "user": "x" * 9000}

    async def body(url, ours, session, server):
        async def ask(fields):
            async with session.post(url + CHAT, json=fields) as response:
                return response.status

        found = await asyncio.gather(*(ask(large) for _ in range(4)), ask(BODY))
        return sorted(found), await ask(large), ours.held

    limits = {"max_body_mb": 0.01, "max_in_flight_mb": 0.02}
    found, later, held = play(coordinator, body, limits=limits, latency=Latency("constant", 0.2))
    assert found == [200, 200, 200, 429, 429]
    assert (later, held) == (200, 0)


def test_a_web_page_cannot_spend_the_money_of_a_server_without_keys(coordinator):
    """A page can send what a form can, and reach this machine by a name of its own; it can send no JSON."""

    async def body(url, ours, session, server):
        async def ask(method, path, **headers):
            content = json.dumps(BODY) if method == "POST" else None
            async with session.request(method, url + path, data=content, headers=headers) as response:
                return response.status, in_form(await response.json())["code"] if response.status != 200 else None

        port = url.rpartition(":")[2]
        form, foreign = (
            {"Content-Type": "text/plain", "Origin": "http://evil.example"},
            {"Host": f"evil.example:{port}"},
        )
        refused = [await ask("POST", path, **form) for path in (CHAT, "/v1/responses", "/admin/reload")]
        rebound = [await ask("GET", path, **foreign) for path in ("/v1/traces", "/dashboard/runs.json", "/metrics")]
        rebound.append(await ask("POST", CHAT, **JSON_BODY, **foreign))
        own = [await ask("POST", CHAT, **JSON_BODY, Host=host) for host in (f"localhost:{port}", f"[::1]:{port}")]
        return refused, rebound, own, len(server.requests) > 0, len(ours.service.traces.latest(9))

    refused, rebound, own, asked, answered = play(coordinator, body)
    assert refused == [(415, "unsupported_media_type")] * 3
    assert rebound == [(403, "forbidden_host")] * 4
    assert own == [(200, None)] * 2
    assert (asked, answered) == (True, 2)


def test_a_client_sees_its_own_requests_alone_and_an_admin_all(coordinator, tmp_path):
    path = tmp_path / "keys"
    names = {name: new_key(path, name, name == "ann") for name in ("ann", "bob", "cy")}

    async def body(url, ours, session, server):
        async def ask(who, path, **fields):
            headers = {"Authorization": f"Bearer {names[who]}"}
            method = "POST" if fields else "GET"
            async with session.request(method, url + path, headers=headers, json=fields or None) as response:
                return response.status, await response.json() if response.content_type == "application/json" else {}

        number = (await ask("bob", CHAT, **BODY))[1]["trinity"]["id"]
        seen = {who: [t["id"] for t in (await ask(who, "/v1/traces"))[1]["data"]] for who in names}
        one = {who: (await ask(who, f"/v1/traces/{number}"))[0] for who in names}
        rest = {who: [(await ask(who, p))[0] for p in ("/metrics", "/dashboard/runs.json")] for who in names}
        return number, seen, one, rest

    number, seen, one, rest = play(coordinator, body, keys=Keys.read(path))
    assert seen == {"ann": [number], "bob": [number], "cy": []}
    assert one == {"ann": 200, "bob": 200, "cy": 404}
    assert rest == {"ann": [200, 200], "bob": [403, 403], "cy": [403, 403]}


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


def line(name: object = "a", admin: object = False, digest: str = "0" * 64) -> str:
    return json.dumps({"name": name, "admin": admin, "sha256": digest})


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", '{"name": "a"}', '{"name": "a", "sha256": "12"}', "[]"),
        *(line(admin="false"), line(admin=1), line(name=""), line(name=3)),
        *(line(digest="g" * 64), line(digest="0" * 65)),
    ],
)
def test_a_bad_file_of_keys_is_refused(tmp_path, text):
    path = tmp_path / "keys.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match="keys"):
        Keys.read(path)


def test_a_key_is_added_to_a_file_without_a_last_newline_and_capitals_count(tmp_path):
    path = tmp_path / "keys"
    key = new_key(path, "ann", False)
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "sha256": written["sha256"].upper()}))
    other = new_key(path, "bob", True)
    keys = Keys.read(path)
    assert keys.client(f"Bearer {key}") == ("ann", False)
    assert keys.client(f"Bearer {other}") == ("bob", True)


def test_a_file_that_cannot_be_read_or_written_is_told(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff")
    for path in (tmp_path, tmp_path / "binary", tmp_path / "none" / "keys"):
        with pytest.raises(UserError, match=f"{path}: cannot be"):
            new_key(path, "ann", False)


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
        async def ask():
            async with session.post(url + CHAT, json={**BODY, "stream": stream}) as response:
                await response.read()

        asking = asyncio.create_task(ask())
        await met(lambda: server.requests)
        asking.cancel()
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


@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
@pytest.mark.parametrize("fault", [ZeroDivisionError, ConnectionResetError])
def test_a_fault_inside_a_stream_ends_it_in_its_own_form(coordinator, monkeypatch, path, fault):
    async def body(url, ours, session, server):
        said = Session._say

        async def faulty(self, thought):
            await said(self, thought)
            raise fault

        monkeypatch.setattr(Session, "_say", faulty)
        fields = {**BODY, "input": "Say 42", "stream": True}
        async with asyncio.timeout(5), session.post(url + path, json=fields) as response:
            return response.status, await response.text(), ours.in_flight, list(ours.service.traces.latest(1))

    status, text, in_flight, (trace,) = play(coordinator, body)
    assert (status, in_flight, trace["end"]) == (200, 0, "failed")
    assert "HTTP/1.1" not in text
    blocks = [block for block in text.split("\n\n") if block]
    if path == CHAT:
        assert blocks.pop() == "data: [DONE]"
    last = json.loads(blocks[-1].partition("data: ")[2])
    error = last["response"]["error"] if path != CHAT else in_form(last)
    assert error["code"] == "internal_error"


def test_a_fault_that_looks_like_a_lost_connection_is_no_lost_client(coordinator, monkeypatch):
    async def faulty(self):
        raise ConnectionResetError

    monkeypatch.setattr(Session, "run", faulty)

    async def body(url, ours, session, server):
        async with session.post(url + CHAT, json=BODY) as response:
            return response.status, in_form(await response.json())["code"]

    assert play(coordinator, body) == (500, "internal_error")


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
                await met(lambda: server.draining)
                assert await ask() == 503
                async with session.get(f"{url}/health") as response:
                    assert (response.status, (await response.json())["status"]) == (503, "draining")
                found = await first, await second
                await running
                with pytest.raises(aiohttp.ClientConnectorError):
                    await ask()
            await made.close()
            return found, server.draining

    assert asyncio.run(go()) == ((200, 200), True)


def test_a_revoked_key_is_refused_though_the_pool_cannot_be_loaded(coordinator, tmp_path):
    path = tmp_path / "keys"
    gone, stays = new_key(path, "ann", True), new_key(path, "bob", True)

    async def go():
        async with (
            SimulatedServer() as endpoint,
            service(coordinator, pool_file([endpoint.url] * 2)) as made,
        ):
            server = Server(made, Keys.read(path), path)
            path.write_text(path.read_text().splitlines()[1] + "\n")
            with pytest.raises(UserError, match="not loaded from files"):
                await server.reload()
            assert server._keys is not None
            return [server._keys.client(f"Bearer {key}") for key in (gone, stays)]

    assert asyncio.run(go()) == [None, ("bob", True)]


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
