"""Replay: what a journal holds is a run's whole world; what it lacks is told."""

import asyncio
import socket
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console

from tests.tiny import make_encoder, tiny_run
from trinity_jax import config
from trinity_jax.config import BudgetSettings, PoolSettings
from trinity_jax.coordinator.export import load_coordinator
from trinity_jax.errors import UserError
from trinity_jax.pool.client import sampling_of
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.pool import Pool, build_pool
from trinity_jax.pool.reply import Call, Message, Outcome, Reply
from trinity_jax.tasks.jsonl import Tasks
from trinity_jax.training.rig import open_pool
from trinity_jax.training.train import train

MODEL = {"name": "big", "model": "org/big", "base_url": "https://example.org/v1/"}
MESSAGES = (Message("system", "Work."), Message("user", "What is 6 * 7?"))


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def recorded(path: Path, **changes) -> PoolSettings:
    data = {"kind": "recorded", "journal": str(path), "models": [MODEL | changes]}
    return config.parse(data, "test", PoolSettings)


def record(path: Path, *replies: Reply) -> None:
    """The same call, once for each reply."""
    settings = recorded(path).models[0]
    call = Call("https://example.org/v1", "org/big", "worker", MESSAGES, sampling_of(settings), "run")

    async def go():
        with Journal.open(path) as journal:
            for reply in replies:
                await journal.intent(call)
                await journal.outcome(call, reply)

    asyncio.run(go())


def ask(tmp_path: Path, settings: PoolSettings, scope: str = "run", times: int = 1) -> tuple[list[Reply], Pool]:
    async def go():
        journal = Journal.open(tmp_path / "own.sqlite")
        async with await build_pool(settings, journal, BudgetSettings()) as pool:
            calls = (pool.call(0, "worker", MESSAGES, scope=scope, repeat=i) for i in range(times))
            return list(await asyncio.gather(*calls)), pool

    return asyncio.run(go())


def test_what_costly_graders_said_is_replayed_too(tmp_path):
    class Terms:
        pool, seed, budget = recorded(tmp_path / "j.sqlite"), 0, BudgetSettings()

    async def go():
        with Journal.open(tmp_path / "j.sqlite") as source:
            await source.take_grades({"k": "wrong"})
        journal = Journal.open(tmp_path / "own.sqlite")
        async with await open_pool(cast(Any, Terms), Tasks((), (), ()), journal):
            return journal.grades()

    assert asyncio.run(go()) == {"k": "wrong"}


@pytest.mark.usefixtures("no_network")
def test_a_recorded_reply_comes_back_with_its_cost_and_needs_no_key_and_no_network(tmp_path):
    reply = Reply(Outcome.OK, "<answer>42</answer>", 10, 5, 0.25, 1.5, 2, "stop", None, "hm")
    record(tmp_path / "j.sqlite", Reply(Outcome.TIMEOUT, detail="slow"), reply)
    replies, pool = ask(tmp_path, recorded(tmp_path / "j.sqlite", api_key_env="NOT_SET_ANYWHERE"))
    assert replies == [reply]
    assert pool.ledger.spent == 0.25


def test_a_call_that_never_succeeded_fails_again(tmp_path):
    record(tmp_path / "j.sqlite", Reply(Outcome.TIMEOUT), Reply(Outcome.FILTERED, detail="no"))
    replies, _ = ask(tmp_path, recorded(tmp_path / "j.sqlite"))
    assert replies == [Reply(Outcome.FILTERED, detail="no")]


def test_a_missing_call_is_an_error_that_says_what_differs(tmp_path):
    record(tmp_path / "j.sqlite", Reply(Outcome.OK, "x"))
    with pytest.raises(UserError) as caught:
        ask(tmp_path, recorded(tmp_path / "j.sqlite", temperature=0.7), scope="generation 3")
    said = str(caught.value)
    assert f"{tmp_path / 'j.sqlite'} lacks a call" in said
    assert "temperature: recorded 0.1, asked 0.7" in said
    assert 'recorded "run", asked "generation 3"' in said


def test_a_journal_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.sqlite: no such journal"):
        ask(tmp_path, recorded(tmp_path / "nowhere.sqlite"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "recorded", "models": [MODEL]}, "pool.journal"),
        ({"kind": "endpoints", "models": [MODEL], "journal": "j"}, "pool.journal"),
        ({"kind": "recorded", "journal": "j"}, "pool.simulated or pool.models"),
    ],
)
def test_settings_that_do_not_go_together(data, message):
    with pytest.raises(UserError, match=message):
        config.parse(data, "test", PoolSettings)


@pytest.mark.usefixtures("no_network")
def test_a_run_replayed_from_its_journal_is_the_same_run(tmp_path):
    def run(name: str, settings: dict) -> dict:
        parsed = config.parse(settings, "test")
        return train(parsed, tmp_path / name, resume=False, console=Console(quiet=True))

    settings = tiny_run(make_encoder(tmp_path / "encoder"), learning__generations=2, evaluation__fixed_policy=False)
    first = run("first", settings)
    replay = {"kind": "recorded", "journal": str(tmp_path / "first" / "journal.sqlite")}
    second = run("second", settings | {"pool": settings["pool"] | replay})
    one, other = (load_coordinator(tmp_path / name / "coordinator").vector for name in ("first", "second"))
    assert np.array_equal(one, other)
    timing = {"seconds", "compilations", "compiled"}
    assert {k: v for k, v in first.items() if k not in timing} == {k: v for k, v in second.items() if k not in timing}
    assert second["calls"] > 0

    with pytest.raises(UserError, match="lacks a call"):
        run("third", settings | {"pool": settings["pool"] | replay, "seed": 8})
