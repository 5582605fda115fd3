"""Ctrl-C in the middle of a generation, in a real process: quick, and every call that was sent is in the journal."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from trinity_jax.pool.simulated_server import Latency, SimulatedServer

PLAY = """
import asyncio, sys
from trinity_jax.config import BudgetSettings, EpisodeSettings, ModelSettings, PoolSettings
from trinity_jax.evaluation.deciders import FixedPolicy
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.pool import build_pool
from trinity_jax.rollout.decide import EpisodeKey
from trinity_jax.rollout.engine import rollout
from trinity_jax.tasks.question import Question

url, path = sys.argv[1:]

async def main():
    model = ModelSettings(name="m", model="m", base_url=url, concurrency=200)
    with Journal.open(path) as journal:
        async with await build_pool(PoolSettings(kind="endpoints", models=(model,)), journal, BudgetSettings()) as pool:
            questions = [Question("q", "sum", "What is 1 + 1?", "2", "numeric")]
            keys = [EpisodeKey(0, 0, 0, repeat) for repeat in range(400)]
            await rollout(keys, questions, FixedPolicy(0, 0), pool, EpisodeSettings(max_calls=50), "run")

asyncio.run(main())
"""


@pytest.mark.parametrize("moment", [100, 700])
def test_ctrl_c_ends_quickly_with_everything_journaled(tmp_path, moment):
    path = tmp_path / "journal.sqlite"

    async def go():
        async with SimulatedServer(latency=Latency("exponential", 0.2)) as server:
            command = [sys.executable, "-c", PLAY, server.url, str(path)]
            process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
            async with asyncio.timeout(60):
                while len(server.requests) < moment:  # noqa: ASYNC110 (the server is watched, it tells nobody)
                    await asyncio.sleep(0.01)
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, errors = await process.communicate()
            return time.monotonic() - start, errors.decode(), len(server.requests)

    seconds, errors, sent = asyncio.run(go())
    assert seconds < 2.0
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert "never retrieved" not in errors
    with closing(sqlite3.connect(path)) as journal:
        [(intents, outcomes)] = journal.execute("SELECT COUNT(*), COUNT(outcome) FROM calls").fetchall()
    # Intents come before requests; calls in flight have no outcome yet, and there are at most 200 of them.
    assert intents >= sent
    assert sent - 200 <= outcomes <= sent
