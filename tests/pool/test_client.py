"""The client against a server that fails in every way users of such clients have reported."""

import asyncio
import logging
import socket
import time
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from trinity_jax.config import BudgetSettings, ModelSettings, PoolSettings, PriceSettings
from trinity_jax.errors import UserError
from trinity_jax.pool.client import Endpoint, open_session, sampling_of
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.ledger import most_input_tokens, price_of
from trinity_jax.pool.limits import Circuit
from trinity_jax.pool.pool import build_pool
from trinity_jax.pool.reply import Call, Message, Outcome, Reply
from trinity_jax.pool.simulated_server import Latency, SimulatedServer
from trinity_jax.pool.wire.errors import retry_after

KEY = "sk-test-0123456789abcdef"
MESSAGES = (Message("system", "You are a Worker."), Message("user", "What is 6 times 7?"))


def settings(url: str = "http://127.0.0.1:9/v1", **changes: Any) -> ModelSettings:
    return ModelSettings(
        **{"name": "m", "model": "m-1", "base_url": url, "attempts": 3, "total_seconds": 2.0, "connect_seconds": 1.0}
        | changes
    )


def call_for(model: ModelSettings) -> Call:
    return Call(model.base_url, model.model, "worker", MESSAGES, sampling_of(model))


@asynccontextmanager
async def client_of(server: SimulatedServer, **changes: Any):
    model = settings(server.url, **changes)
    async with open_session() as session:
        yield Endpoint(model, session, backoff=0.002), call_for(model)


def ask(*script: str, **changes: Any) -> tuple[Reply, SimulatedServer]:
    async def go():
        async with SimulatedServer(*script, *["ok"] * 3) as server, client_of(server, **changes) as (client, call):
            return await client.reply(call), server

    return asyncio.run(go())


def test_a_plain_reply_and_what_was_sent():
    reply, server = ask(
        top_k=20, temperature=None, price={"input": 2.0, "output": 8.0}, extra_body={"seed": 7, "max_tokens": None}
    )
    assert (reply.outcome, reply.text, reply.finish_reason, reply.attempts) == (Outcome.OK, "fine", "stop", 1)
    assert (reply.input_tokens, reply.output_tokens) == (11, 7)
    assert reply.cost == pytest.approx((11 * 2 + 7 * 8) / 1e6)
    assert server.requests == [
        {"model": "m-1", "messages": [vars(message) for message in MESSAGES], "top_k": 20, "seed": 7}
    ]
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize(
    "fault",
    [
        "429",
        "429 seconds",
        "429 date",
        "429 nonsense",
        "429 milliseconds",
        "429 message",
        "429 details",
        "500",
        "503 html",
        "408",
        "409",
        "reset",
        "cut body",
        "half json",
        "200 rate error",
        "200 502 error",
        "choice error",
    ],
)
def test_passing_faults_are_retried(fault):
    reply, server = ask(fault, fault)
    assert (reply.outcome, reply.text, reply.attempts, len(server.requests)) == (Outcome.OK, "fine", 3, 3)


@pytest.mark.parametrize(
    "fault, outcome",
    [
        ("500", Outcome.ERROR),
        ("408", Outcome.TIMEOUT),
        ("reset", Outcome.ERROR),
        ("cut body", Outcome.ERROR),
        ("half json", Outcome.MALFORMED),
    ],
)
def test_lasting_faults_end_after_the_attempts(fault, outcome):
    reply, server = ask(*[fault] * 4)
    assert (reply.outcome, reply.attempts, len(server.requests)) == (outcome, 3, 3)
    assert reply.detail


def test_refusals_are_tried_again_beyond_the_attempts():
    reply, server = ask(*["429"] * 6)
    assert (reply.outcome, reply.attempts, len(server.requests)) == (Outcome.OK, 7, 7)


def test_refusals_end_with_the_patience():
    reply, server = ask(*["429"] * 100, patience_seconds=0.1)
    assert reply.outcome is Outcome.RATE_LIMITED
    assert 3 < reply.attempts == len(server.requests) < 100
    assert "slow down" in str(reply.detail)
    assert reply.seconds < 1


@pytest.mark.parametrize(
    "fault, outcome",
    [
        ("400", Outcome.ERROR),
        ("401", Outcome.ERROR),
        ("403", Outcome.ERROR),
        ("404", Outcome.ERROR),
        ("429 quota", Outcome.RATE_LIMITED),
        ("429 an hour", Outcome.RATE_LIMITED),
        ("429 date in an hour", Outcome.RATE_LIMITED),
        ("400 overflow", Outcome.CONTEXT_OVERFLOW),
        ("400 overflow llama", Outcome.CONTEXT_OVERFLOW),
        ("200 overflow", Outcome.CONTEXT_OVERFLOW),
        ("400 filtered", Outcome.FILTERED),
        ("200 error", Outcome.ERROR),
        ("html", Outcome.MALFORMED),
        ("json list", Outcome.MALFORMED),
        ("empty choices", Outcome.MALFORMED),
        ("no choices", Outcome.MALFORMED),
        ("redirect", Outcome.ERROR),
    ],
)
def test_final_faults_are_asked_once(fault, outcome):
    reply, server = ask(fault)
    assert (reply.outcome, reply.attempts, reply.text, len(server.requests)) == (outcome, 1, "", 1)
    assert reply.detail
    assert "token=t" not in reply.detail


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("null content", (Outcome.EMPTY, "", "")),
        ("reasoning only", (Outcome.EMPTY, "", "hmm")),
        ("open reasoning", (Outcome.EMPTY, "", "hmm")),
        ("reasoning", (Outcome.OK, "fine", "hmm")),
        ("inline reasoning", (Outcome.OK, "fine", "hmm")),
        ("parts", (Outcome.OK, "fine", "")),
        ("text/plain", (Outcome.OK, "fine", "")),
        ("length", (Outcome.TRUNCATED, "fin", "")),
        ("content_filter", (Outcome.FILTERED, "fi", "")),
        ("refusal", (Outcome.FILTERED, "", "")),
    ],
)
def test_odd_replies_have_their_outcome(kind, expected):
    reply, server = ask(kind)
    assert (reply.outcome, reply.text, reply.reasoning) == expected
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", ["null usage", "partial usage"])
def test_missing_usage_still_moves_the_budget(kind):
    reply, _ = ask(kind, price={"input": 1.0, "output": 1.0})
    assert reply.outcome is Outcome.OK
    assert reply.input_tokens == most_input_tokens(MESSAGES)
    assert reply.output_tokens == len("fine")
    assert reply.cost == pytest.approx((reply.input_tokens + reply.output_tokens) / 1e6)


def test_a_server_that_hangs_is_a_timeout_counted_at_its_worst():
    reply, server = ask(
        "hang", "hang", attempts=2, total_seconds=0.2, price={"input": 1.0, "output": 1.0}, max_tokens=9
    )
    assert (reply.outcome, reply.attempts, len(server.requests)) == (Outcome.TIMEOUT, 2, 2)
    worst = price_of(PriceSettings(input=1.0, output=1.0), most_input_tokens(MESSAGES), 9)
    assert reply.cost == pytest.approx(2 * worst)
    assert 0.4 <= reply.seconds < 2.0


def test_retry_after_is_waited_for():
    start = time.monotonic()
    reply, _ = ask("429 seconds", "429 seconds")
    assert reply.outcome is Outcome.OK
    assert time.monotonic() - start >= 0.1


def test_retry_after_in_seconds_or_as_a_date():
    assert retry_after("7") == 7.0
    assert retry_after("-3") == 0.0
    soon = retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True))
    assert soon == pytest.approx(90, abs=2)
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert [retry_after(header) for header in (None, "soon", "inf", "nan", "")] == [None] * 5


@pytest.mark.parametrize("fault", ["429 seconds", "429 milliseconds", "429 message", "429 details"])
def test_every_form_of_retry_after_is_waited_for(fault):
    reply, _ = ask(fault, fault)
    assert reply.outcome is Outcome.OK
    assert reply.seconds >= 0.1


@pytest.mark.parametrize(
    "fault, limit, message",
    [
        ("slow first byte", "first_byte_seconds", "no reply began within 0.1 s"),
        ("slow body", "idle_seconds", "the reply stopped for 0.1 s"),
        ("slow body", "total_seconds", "no whole reply within 0.1 s"),
    ],
)
def test_each_time_limit_is_its_own(fault, limit, message):
    reply, _ = ask(fault, attempts=1, **{limit: 0.1})
    assert (reply.outcome, reply.attempts) == (Outcome.TIMEOUT, 1)
    assert message in str(reply.detail)
    reply, _ = ask(fault, attempts=1)
    assert reply.outcome is Outcome.OK


def test_a_connection_that_is_closed_behind_a_reply_costs_no_call():
    async def go():
        async with SimulatedServer(*["closes"] * 20) as server, client_of(server) as (client, call):
            return [await client.reply(call) for _ in range(20)]

    assert {reply.text for reply in asyncio.run(go())} == {"fine"}


def test_a_server_that_is_down_for_a_while_costs_patience_and_no_call():
    async def go():
        async with SimulatedServer() as server:
            model = settings(server.url, attempts=1)
        async with open_session() as session:
            client = Endpoint(model, session, backoff=0.002)
            client.limits.circuit = Circuit(failures=10, cool_down=0.05)
            calls = [asyncio.create_task(client.reply(call_for(model))) for _ in range(40)]
            await asyncio.sleep(0.3)
            was_open = client.limits.circuit.open
            async with SimulatedServer(port=server.port) as again:
                replies = await asyncio.gather(*calls)
            return replies, was_open, len(again.requests)

    replies, was_open, requests = asyncio.run(go())
    assert {(reply.outcome, reply.attempts) for reply in replies} == {(Outcome.OK, 1)}
    assert (was_open, requests) == (True, 40)


def test_a_slow_endpoint_does_not_hold_up_another():
    async def go():
        slow_server = SimulatedServer(*["hang"] * 8)
        async with slow_server, SimulatedServer() as server, open_session() as session:
            slow, quick = settings(slow_server.url, concurrency=2), settings(server.url)
            hung, other = Endpoint(slow, session), Endpoint(quick, session)
            waiting = [asyncio.create_task(hung.reply(call_for(slow))) for _ in range(8)]
            replies = await asyncio.gather(*(other.reply(call_for(quick)) for _ in range(50)))
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            return replies, hung.limits.gate.in_flight

    replies, left = asyncio.run(go())
    assert {reply.outcome for reply in replies} == {Outcome.OK}
    assert max(reply.seconds for reply in replies) < 1.5
    assert left == 0


def test_a_long_retry_after_holds_no_place():
    async def go():
        server = SimulatedServer("429 an hour")
        async with server, client_of(server, concurrency=1, patience_seconds=7200) as (client, call):
            first = asyncio.create_task(client.reply(call))
            await asyncio.sleep(0.2)
            assert len(server.requests) == 1
            others = await asyncio.gather(*(client.reply(call) for _ in range(5)))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            return {reply.outcome for reply in others}

    assert asyncio.run(go()) == {Outcome.OK}


def test_waiting_for_a_slot_counts_into_no_time_limit():
    async def go():
        async with (
            SimulatedServer(latency=Latency(mean=0.05)) as server,
            client_of(server, concurrency=4, total_seconds=0.5) as (client, call),
        ):
            replies = await asyncio.gather(*(client.reply(call) for _ in range(60)))
            return {reply.outcome for reply in replies}, server.most

    # 60 calls through 4 slots take 0.75 s, more than the limit of one call.
    assert asyncio.run(go()) == ({Outcome.OK}, 4)


def test_1024_calls_at_once():
    async def go():
        async with (
            SimulatedServer(latency=Latency(mean=0.2)) as server,
            client_of(server, concurrency=1024, connect_seconds=30.0, total_seconds=60.0) as (client, call),
        ):
            replies = await asyncio.gather(*(client.reply(call) for _ in range(1024)))
            return {(reply.outcome, reply.attempts) for reply in replies}, server.most

    outcomes, most = asyncio.run(go())
    assert outcomes == {(Outcome.OK, 1)}
    assert most > 100


def test_an_endpoint_that_is_not_there_is_named_before_any_work(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"

    async def go():
        pool = PoolSettings(kind="endpoints", models=(settings(url, name="qwen"),))
        with Journal.open(tmp_path / "journal.sqlite") as journal:
            await build_pool(pool, journal, BudgetSettings())

    with pytest.raises(UserError, match=rf"pool model qwen: {url}: cannot be reached") as caught:
        asyncio.run(go())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "fault, message",
    [("401", "refuses requests without a key"), ("hang", "no answer within 0.3 s"), ("404", None), ("", None)],
)
def test_check_of_an_endpoint(fault, message):
    async def go():
        async with SimulatedServer(fault) as server, client_of(server, connect_seconds=0.3) as (client, _):
            await client.check()

    if message is None:
        asyncio.run(go())
    else:
        with pytest.raises(UserError, match=message):
            asyncio.run(go())


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"base_url": "localhost:8000/v1"}, "expected http"),
        ({"base_url": f"http://{'a' * 300}.com/v1"}, "not an address"),
        ({"extra_body": {"since": date(2025, 1, 1)}}, "cannot be sent as JSON"),
        ({"extra_body": {"bias": float("nan")}}, "cannot be sent as JSON"),
        ({"base_url": "http://user:secret-password@host/v1"}, "may hold no user"),
        ({"base_url": "https://host/v1?key=secret-password"}, "may hold no user, password, query"),
        ({"base_url": "ftp://user:secret-password@host"}, "got 'host'"),
        ({"extra_body": {"stream": True, "n": 2}}, "extra_body: may not set n, stream"),
        ({"extra_body": {"max_completion_tokens": 5000}}, r"expected at most max_tokens \(4096\), got 5000"),
        ({"api_key_env": "TRINITY_TEST_NO_KEY"}, "TRINITY_TEST_NO_KEY"),
        ({"api_key_env": "TRINITY_TEST_BROKEN_KEY"}, "TRINITY_TEST_BROKEN_KEY"),
    ],
)
def test_bad_settings_stop_at_construction(changes, message, monkeypatch):
    monkeypatch.delenv("TRINITY_TEST_NO_KEY", raising=False)
    monkeypatch.setenv("TRINITY_TEST_BROKEN_KEY", "two words\nsecret-password")

    async def go():
        async with open_session() as session:
            Endpoint(settings(**changes), session)

    with pytest.raises(UserError, match=message) as caught:
        asyncio.run(go())
    assert "secret-password" not in str(caught.value)


def test_no_key_in_journal_logs_or_replies(tmp_path, monkeypatch, caplog, capfd):
    monkeypatch.setenv("TRINITY_TEST_KEY", KEY + "\n")
    caplog.set_level(logging.DEBUG)
    script = ["ok", "echo key", "echo key as content", "cut body", "500", "401", "hang"]

    async def go():
        async with SimulatedServer(*script) as server:
            model = settings(server.url, api_key_env="TRINITY_TEST_KEY", attempts=1, total_seconds=0.5)
            journal = Journal.open(tmp_path / "journal.sqlite")
            async with await build_pool(
                PoolSettings(kind="endpoints", models=(model,)), journal, BudgetSettings()
            ) as pool:
                replies = [await pool.call(0, "worker", MESSAGES, scope="run", repeat=i) for i in range(len(script))]
                # The bytes are read while the write-ahead log still holds them, and again once it is folded in.
                files = [path.read_bytes() for path in tmp_path.iterdir()]
            files += [path.read_bytes() for path in tmp_path.iterdir()]
            return replies, server.headers, files, repr(pool.responders[0])

    replies, headers, files, shown = asyncio.run(go())
    assert [header["Authorization"] for header in headers] == [f"Bearer {KEY}"] * len(script)
    assert [reply.outcome.value for reply in replies] == ["ok", "error", "ok", "error", "error", "error", "timeout"]
    assert "***" in replies[2].text
    assert "***" in str(replies[1].detail)
    output = capfd.readouterr()
    assert not [file for file in files if KEY.encode() in file]
    assert any(b"you sent" in file for file in files)
    assert KEY not in caplog.text + output.out + output.err + shown + str(replies)


def test_a_placeholder_key_leaves_replies_alone(monkeypatch):
    monkeypatch.setenv("TRINITY_TEST_KEY", "fine")
    reply, server = ask(api_key_env="TRINITY_TEST_KEY")
    assert reply.text == "fine"
    assert server.headers[0]["Authorization"] == "Bearer fine"
