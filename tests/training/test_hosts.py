"""Several processes on this machine: the same run as one; one that dies or never comes ends the others with a word."""

import asyncio
import json
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

from scripts.bench_hosts import free_ports, metrics
from tests.tiny import make_encoder, paid, tiny_run, vector
from trinity_jax.config import BudgetSettings, HostsSettings
from trinity_jax.pool.journal import DecisionRow, Journal
from trinity_jax.pool.ledger import Ledger
from trinity_jax.pool.reply import Call, Message, Outcome, Reply, Sampling
from trinity_jax.training.hosts import Hosts

ROOT = Path(__file__).parent.parent.parent


def start(config, folder, processes, timeout=60.0, only=None, more=()):
    """Processes of one run, or those in ``only``."""
    command = [sys.executable, "experiments/run.py", "--config", str(config), "--run-dir", str(folder), *more]
    hosts = [f"hosts.coordinator=127.0.0.1:{free_ports()}", f"hosts.processes={processes}"]
    hosts += [f"hosts.timeout_seconds={timeout}"]
    shared = [part for one in hosts for part in ("--set", one)] if processes > 1 else []
    each = [[*shared, "--set", f"hosts.process={i}"] for i in range(processes)] if processes > 1 else [[]]
    # Compiled once for all the processes here.
    cache = {"DIR": Path(config).parent / "compiled", "MIN_COMPILE_TIME_SECS": 0, "MIN_ENTRY_SIZE_BYTES": -1}
    names = {"DIR": "JAX_COMPILATION_CACHE_DIR"}
    told = {names.get(key, f"JAX_PERSISTENT_CACHE_{key}"): str(value) for key, value in cache.items()}
    options = {"cwd": ROOT, "env": os.environ | told, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return [
        subprocess.Popen([*command, *each[i]], text=True, **options)
        for i in (range(processes) if only is None else only)
    ]


def finish(running):
    said = [process.communicate(timeout=100)[0] for process in running]
    return [process.returncode for process in running], said


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    # What is shared out: warm-up, probes, generations, validation, evaluation; replies are reused over the run.
    settings = tiny_run(
        make_encoder(folder / "encoder"),
        evaluation__fixed_policy=False,
        readout__source="script",
        learning__warm_start={"kind": "ridge", "roles": "script"},
        journal={"reuse": "run"},
        budget={"calls": 5000},
        learning__generations=2,
        encoder__buckets=[1024],
    )
    for model in settings["pool"]["simulated"]:
        model["latency_seconds"] = 0.02
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.fixture(scope="module")
def alone(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "alone"
    codes, said = finish(start(config, folder, 1))
    assert codes == [0], said
    return folder


@pytest.mark.timeout(300)
def test_two_processes_are_the_same_run_as_one(config, alone, tmp_path):
    codes, said = finish(start(config, tmp_path / "two", 2))
    assert codes == [0, 0], said
    assert np.array_equal(vector(tmp_path / "two"), vector(alone))
    assert metrics(tmp_path / "two") == metrics(alone)
    assert paid(tmp_path / "two") == paid(alone)
    one, two = (json.loads((folder / "summary.json").read_text()) for folder in (alone, tmp_path / "two"))
    same = one.keys() - {"seconds", "compilations", "compiled"}
    assert {key: two[key] for key in same} == {key: one[key] for key in same}
    assert {path.name for path in (tmp_path / "two").iterdir()} == {path.name for path in alone.iterdir()}


@pytest.mark.timeout(300)
def test_a_process_that_dies_ends_the_other_and_resume_goes_on(config, alone, tmp_path):
    folder = tmp_path / "killed"
    # Process 1 in the first generation, process 0 in the second, which two processes have taken up; one does the rest.
    for generation, victim in enumerate((1, 0)):
        running = start(config, folder, 2, more=["--resume"] if generation else [])
        own = folder / f"journal.sqlite{'.1' if victim else ''}"
        while not decided(own, generation) and running[victim].poll() is None:
            time.sleep(0.02)
        running[victim].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        codes, said = finish(running)
        assert codes[victim] == -signal.SIGKILL, said
        assert codes[1 - victim] == 2, said
        assert f"process {victim} is gone" in said[1 - victim]
        assert "--resume" in said[1 - victim]
        assert time.monotonic() - killed < 60
    assert not (folder / "coordinator").exists()
    codes, said = finish(start(config, folder, 1, more=["--resume"]))
    assert codes == [0], said
    assert np.array_equal(vector(folder), vector(alone))
    assert paid(folder)[1] == paid(alone)[1]
    assert not list(folder.glob("journal.sqlite.*[0-9]"))


def decided(path, generation):
    with suppress(sqlite3.Error):
        if path.exists():
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
                query = "SELECT COUNT(*) FROM decisions WHERE generation = ?"
                return connection.execute(query, (generation,)).fetchone()[0]
    return 0


@pytest.mark.timeout(120)
def test_a_host_that_never_joins_is_named(config, tmp_path):
    codes, (first, third) = finish(start(config, tmp_path / "run", 3, timeout=5, only=(0, 2)))
    assert codes == [2, 2], (first, third)
    # Started together, so both hear of it from process 0, or the late one finds nobody.
    assert re.search(r"process 1(, 2)? of 3 did not join", first), first
    assert "hosts:" in third
    assert not (tmp_path / "run").exists()


def call(text, **changes):
    return Call("here", "m", "worker", (Message("user", text),), Sampling(), **changes)


async def journal_with(path, texts, generation):
    journal = Journal.open(path)
    for text in texts:
        await journal.intent(call(text), 0.5)
        await journal.outcome(call(text), Reply(Outcome.OK, f"re {text}", cost=0.25))
    await journal.record_decisions([DecisionRow(generation, 0, 0, 0, 0, 1, "worker", (0.5, 0.5))])
    return journal


def test_merging_journals_twice_is_merging_them_once(tmp_path):
    async def merged():
        theirs = await journal_with(tmp_path / "b", ["x", "y"], 1)
        with await journal_with(tmp_path / "a", ["w", "x"], 0) as ours, theirs:
            await theirs.whole()
            last = await ours.merge(tmp_path / "b")
            once = ours.totals()
            assert await ours.merge(tmp_path / "b") == last == 2
            assert ours.totals() == once
            # Both asked for x, and both paid.
            assert (once.calls, once.cost) == (4, 1.0)
            reply = ours.lookup(call("y").key())
            assert reply is not None
            assert reply.text == "re y"
            assert set(ours.decisions(1)) == {(1, 0, 0, 0, 0)}
            await theirs.intent(call("z"))
            await theirs.whole()
            assert await ours.merge(tmp_path / "b", last, generation=-1) == 3
            assert ours.totals().calls == 5
            await ours.intent(call("later"))  # ids go on beyond what was merged
            assert ours.totals().calls == 6

    asyncio.run(merged())


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("spent", [0.0, 0.1, 0.7 / 3])
def test_parts_of_the_budget_never_exceed_it(parts, spent):
    async def most(part):
        ledger = Ledger(BudgetSettings(calls=20, cost=0.7), 3, spent)
        ledger.allot(part, parts)
        made = 0
        while await ledger.reserve(0.0) is None:
            ledger.settle(0.0, 0.0)
            made += 1
        return made, ledger._most_cost - spent

    each = [asyncio.run(most(part)) for part in range(parts)]
    assert sum(made for made, _ in each) == 17
    assert math.fsum(cost for _, cost in each) <= 0.7 - spent


def test_alone_nothing_is_exchanged():
    hosts = Hosts()
    assert hosts.first
    assert hosts.share([4, 0, 9]) == [0, 1, 2]
    assert hosts.once(lambda: 7) == 7
    assert hosts.joined([1, 0], ["b", "a"]) == ["a", "b"]


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_every_item_has_one_process_and_equal_questions_the_same(processes):
    questions = [5, 1, 5, 2, 0, 1]
    shares = [Hosts(process, processes).share(questions) for process in range(processes)]
    assert sorted(place for share in shares for place in share) == list(range(6))
    assert all(len({questions[place] % processes for place in share}) <= 1 for share in shares)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"processes": 2}, "need the host:port"),
        ({"processes": 2, "process": 2, "coordinator": "a:7000"}, "below hosts.processes 2"),
        ({"coordinator": "a"}, "expected host:port"),
        ({"coordinator": "a:99999"}, "expected host:port"),
    ],
)
def test_bad_settings_are_told(settings, message):
    with pytest.raises(ValidationError, match=message):
        HostsSettings(**settings)
