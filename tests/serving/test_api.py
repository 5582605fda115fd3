"""From Python: blocking, awaited, inside and outside a running loop."""

import asyncio
import contextlib
import threading
import time

import pytest

import trinity_jax
from tests.serving.served import chooser, met, pool_file
from trinity_jax.errors import UserError
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.simulated_server import Latency, SimulatedServer
from trinity_jax.serving.chooser import Chooser
from trinity_jax.serving.refused import Refused


@pytest.fixture
def quick(monkeypatch, coordinator):
    monkeypatch.setattr(Chooser, "load", lambda folder, settings: chooser(folder))
    return coordinator


@contextlib.asynccontextmanager
async def pool(**endpoint):
    async with SimulatedServer(**endpoint) as server:
        yield pool_file([server.url] * 2), server


def test_five_lines(quick):
    async def go():
        async with pool() as (file, _):
            return await asyncio.to_thread(ask, file)

    def ask(file):
        with trinity_jax.open(quick, pool=file) as trinity:
            answer = trinity.ask("What is 6 * 7?", max_calls=1)
            with pytest.raises(Refused, match="max_calls"):
                trinity.ask("q", max_calls=0)
        with pytest.raises(RuntimeError, match="with"):
            trinity.ask("too late")
        return answer

    answer = asyncio.run(go())
    assert (answer.text, answer.finish) == ("7", "stop")
    assert [turn.role for turn in answer.trace.turns] == ["worker"]


def test_awaited_many_at_once_and_blocking_inside_a_loop(quick):
    async def go():
        async with pool() as (file, server), trinity_jax.open(quick, file) as trinity:
            answers = await asyncio.gather(*(trinity.ask_async(f"Say {i}", max_calls=1) for i in range(10)))
            blocking = await asyncio.to_thread(trinity.ask, [{"role": "user", "content": "Say 4"}], dry_run=True)
            return answers, blocking, len(server.requests)

    answers, blocking, made = asyncio.run(go())
    assert [answer.text for answer in answers] == [str(i) for i in range(10)]
    assert blocking.trace.end == "dry_run"
    assert made == 10


def test_a_cancelled_question_stops_its_call(quick):
    async def go():
        async with pool(latency=Latency("constant", 30.0)) as (file, server), trinity_jax.open(quick, file) as trinity:
            task = asyncio.create_task(trinity.ask_async("q"))
            await met(lambda: server.requests)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            service = trinity._service
            assert service is not None
            await met(lambda: list(service.traces.latest(1)))
            return next(iter(service.traces.latest(1)))["end"]

    assert asyncio.run(go()) == "cancelled"


def test_what_is_wrong_is_told_on_entering(quick, tmp_path):
    with pytest.raises(UserError, match="cannot be read"), trinity_jax.open(quick, tmp_path / "none.yaml"):
        pass
    (tmp_path / "pool.yaml").write_text("pool: {kind: simulated, simulated: [{name: ada, worker: {default: 1}}]}")
    with pytest.raises(UserError, match="expected endpoints"), trinity_jax.open(quick, tmp_path / "pool.yaml"):
        pass


def test_a_misspelt_option_is_told(quick):
    async def go():
        async with pool() as (file, server), trinity_jax.open(quick, file) as trinity:
            with pytest.raises(TypeError, match=r"max_call; known are .*max_calls"):
                await trinity.ask_async("q", max_call=3)
            with pytest.raises(TypeError, match="trinity"):
                await trinity.ask_async("q", max_calls=1, trinity={})
            return len(server.requests)

    assert asyncio.run(go()) == 0


def test_an_interrupted_question_stops_its_calls(quick, monkeypatch):
    async def go():
        async with pool(latency=Latency("constant", 0.5)) as (file, server):
            made = await asyncio.to_thread(interrupted, file, server)
            await asyncio.sleep(1.2)
            return made, len(server.requests)

    def interrupted(file, server):
        with trinity_jax.open(quick, file) as trinity:
            submit = trinity._submit

            class Interrupted:
                def __init__(self, future):
                    self.future = future

                def result(self):
                    while not server.requests:
                        time.sleep(0.01)
                    raise KeyboardInterrupt

                def cancel(self):
                    self.future.cancel()

            monkeypatch.setattr(trinity, "_submit", lambda work: Interrupted(submit(work)))
            with pytest.raises(KeyboardInterrupt):
                trinity.ask("q")
            monkeypatch.undo()
            time.sleep(1.2)  # still open: a request that went on would make its next call
            return len(server.requests)

    assert asyncio.run(go()) == (1, 1)


def test_cancelled_while_it_loads_everything_is_closed(coordinator, monkeypatch, tmp_path):
    def slow(folder, settings):
        time.sleep(0.5)
        return chooser(folder)

    monkeypatch.setattr(Chooser, "load", slow)

    async def go():
        async with pool() as (file, _):
            opened = trinity_jax.open(coordinator, file, journal=tmp_path / "j.sqlite")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await opened.__aenter__()
            while "trinity" in {thread.name for thread in threading.enumerate()}:  # noqa: ASYNC110 (a thread has no event)
                await asyncio.sleep(0.05)
            with Journal.open(tmp_path / "j.sqlite"):
                return

    asyncio.run(go())


def test_opened_once(quick):
    async def go():
        async with pool() as (file, _), trinity_jax.open(quick, file) as trinity:
            with pytest.raises(RuntimeError, match="opened already"):
                await trinity.__aenter__()

    asyncio.run(go())
