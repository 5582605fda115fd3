"""The journal: nothing acknowledged is lost, nothing else is believed."""

import asyncio
import contextlib
import gc
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from trinity_jax.errors import UserError
from trinity_jax.pool.journal import DecisionRow, Journal, Totals
from trinity_jax.pool.ledger import most_input_tokens
from trinity_jax.pool.reply import Call, Message, Outcome, Reply, Sampling, digest

# Forks a process for every line it reads: what is imported once is not imported fifty times.
FORKS = """
import asyncio, os, sys
from trinity_jax.config import BudgetSettings
from trinity_jax.pool.journal import DecisionRow, Journal
from trinity_jax.pool.ledger import Ledger
from trinity_jax.pool.pool import Pool, Seat
from trinity_jax.pool.reply import Message, Outcome, Reply

path, log = sys.argv[1:]
LANES = 8

def say(*words):
    os.write(file, (" ".join(map(str, words)) + chr(10)).encode())

class Endpoint:
    name = "m"

    async def reply(self, call):
        say("paid", call.repeat)
        await asyncio.sleep(0.0005)
        return Reply(Outcome.OK, f"{os.getpid()}", cost=0.25)

    async def close(self):
        pass

async def lane(pool, number):
    while True:
        pool.journal.record_decisions([DecisionRow(number, 0, 0, 0, 0, 1, "worker")])
        reply = await pool.call(0, "worker", (Message("user", "x" * 500),), scope="run", repeat=number)
        say("done", number, reply.text)
        number += LANES

async def work():
    pool = Pool([Endpoint()], Journal.open(path), Ledger(BudgetSettings()), [Seat("e", "m")])
    await asyncio.gather(*(lane(pool, number) for number in range(LANES)))

file = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
for _ in sys.stdin:
    child = os.fork()
    if not child:
        asyncio.run(work())
    print(child, flush=True)
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


def call_number(i: int, scope: str = "run") -> Call:
    return Call("e", "m", "worker", (Message("user", "q"),), Sampling(), scope, repeat=i)


def test_a_reply_comes_back_as_it_was(tmp_path):
    call = call_number(1)
    reply = Reply(Outcome.TRUNCATED, "täxt", 3, 4, 0.1, 1.5, 2, "length", "detail", "thought")

    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            assert journal.lookup(call.key()) is None
            await journal.intent(call)
            assert journal.lookup(call.key()) is None
            await journal.outcome(call, reply)
            return journal.lookup(call.key())

    assert asyncio.run(go()) == reply
    with Journal.open(tmp_path / "j.sqlite") as journal:
        assert journal.lookup(call.key()) == reply


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_gradable_replies_are_reused(tmp_path, outcome):
    call = call_number(1)

    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            await journal.intent(call)
            await journal.outcome(call, Reply(outcome, "first"))
            known = journal.lookup(call.key())
            await journal.intent(call)
            await journal.outcome(call, Reply(Outcome.OK, "second"))
            return known, journal.lookup(call.key()), journal.totals().calls

    known, later, calls = asyncio.run(go())
    assert (known is not None) == (outcome in (Outcome.OK, Outcome.TRUNCATED))
    assert later is not None
    assert later.text == ("first" if known else "second")
    assert calls == 2


def test_totals_count_what_was_cut_off_at_its_worst(tmp_path):
    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            for i, scope in enumerate(["generation 1", "generation 1", "generation 2"]):
                await journal.intent(call_number(i, scope), reserved=1.0)
            await journal.outcome(call_number(0, "generation 1"), Reply(Outcome.OK, "x", 5, 6, 0.25))
            return journal.totals("generation 1"), journal.totals(), journal.totals("generation 9")

    assert asyncio.run(go()) == (Totals(2, 5, 6, 1.25), Totals(3, 5, 6, 2.25), Totals(0, 0, 0, 0.0))


def test_the_request_is_kept_for_audit_and_hashes_to_the_key(tmp_path):
    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            await journal.intent(call_number(7))

    asyncio.run(go())
    with contextlib.closing(sqlite3.connect(tmp_path / "j.sqlite")) as other:
        ((key, request),) = other.execute("SELECT key, request FROM calls").fetchall()
    assert digest(request) == key == call_number(7).key()


def test_broken_unicode_is_stored(tmp_path):
    call = Call("e", "m", "worker", (Message("user", "\ud800"),), Sampling())

    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            await journal.intent(call)
            await journal.outcome(call, Reply(Outcome.OK, "a\udfffb"))
            return journal.lookup(call.key())

    reply = asyncio.run(go())
    assert reply is not None
    assert reply.text == "a?b"


def test_decisions_by_generation(tmp_path):
    rows = [
        DecisionRow(1, 0, 5, 0, 0, 2, "worker", (0.1, 0.2, 0.7), (1 / 3, 1 / 3, 1 / 3), "abc"),
        DecisionRow(1, 0, 5, 0, 1, 0, "verifier"),
        DecisionRow(2, 0, 5, 0, 0, 1, "thinker"),
    ]

    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            await journal.record_decisions(rows)
            # NumPy's numbers are numbers too.
            probs = tuple(np.array([0.25, 0.75], dtype=np.float32))
            await journal.record_decisions([DecisionRow(*map(np.int32, [3, 0, 0, 0, 0, 1]), "worker", probs)])  # pyright: ignore
            assert (journal.writes, journal.commits) == (4, 2)
            return [journal.decisions(generation) for generation in (1, 2, 3, 4)]

    first, second, third, none = asyncio.run(go())
    assert first == {row[:5]: row for row in rows[:2]}
    assert second == {(2, 0, 5, 0, 0): rows[2]}
    assert third == {(3, 0, 0, 0, 0): DecisionRow(3, 0, 0, 0, 0, 1, "worker", (0.25, 0.75))}
    assert none == {}


def test_writes_that_wait_share_a_commit_and_close_flushes(tmp_path):
    async def go():
        journal = Journal.open(tmp_path / "j.sqlite")
        await asyncio.gather(*(journal.intent(call_number(i)) for i in range(200)))
        assert journal.writes == 200
        assert journal.commits < 50
        pending = journal.record_decisions([DecisionRow(1, 0, 0, 0, 0, 0, "worker")])
        journal.close()
        journal.close()
        await pending
        with pytest.raises(RuntimeError, match="closed"):
            journal.record_decisions([])

    asyncio.run(go())
    with Journal.open(tmp_path / "j.sqlite") as journal:
        assert journal.totals().calls == 200
        assert len(journal.decisions(1)) == 1


def test_one_process_writes_others_read(tmp_path):
    path = tmp_path / "j.sqlite"

    async def go():
        with Journal.open(path) as journal:
            await journal.intent(call_number(1))
            with pytest.raises(UserError, match="another process is writing"):
                Journal.open(path)
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as other:
                assert other.execute("SELECT COUNT(*) FROM calls").fetchone() == (1,)

    asyncio.run(go())
    Journal.open(path).close()


def _foreign(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (x)")


def _newer(path: Path) -> None:
    Journal.open(path).close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda path: path.write_text("not a database, but long enough to be taken for one. " * 20),
            "not a usable journal",
        ),
        (_foreign, "of another program"),
        (_newer, "journal format 99, this version of trinity_jax reads 1"),
        (lambda path: path.mkdir(), "not a usable journal"),
    ],
)
def test_what_is_no_journal_is_refused_and_left_alone(tmp_path, make, message):
    path = tmp_path / "j.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    for _ in range(2):  # the second attempt finds the lock free
        with pytest.raises(UserError, match=message) as caught:
            Journal.open(path)
        assert str(path) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        Journal.open(tmp_path / "nowhere" / "j.sqlite")


def test_a_row_that_cannot_be_stored_fails_instead_of_hanging(tmp_path):
    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            await journal.intent(call_number(1))
            with pytest.raises(UserError, match="cannot be written"):
                await journal.outcome(call_number(1), Reply(Outcome.OK, "x", input_tokens=2**70))

    asyncio.run(go())


def test_a_write_that_fails_reaches_everyone_who_waits(tmp_path):
    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            with contextlib.closing(sqlite3.connect(tmp_path / "j.sqlite")) as other:
                other.execute("DROP TABLE calls")
            for _ in range(2):
                with pytest.raises(UserError, match="cannot be written"):
                    await journal.intent(call_number(1))

    asyncio.run(go())


def test_decisions_that_nobody_awaits_fail_without_noise(tmp_path, caplog):
    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            with contextlib.closing(sqlite3.connect(tmp_path / "j.sqlite")) as other:
                other.execute("DROP TABLE decisions")
            journal.record_decisions([DecisionRow(0, 0, 0, 0, 0, 1, "worker")])
            await asyncio.sleep(0.1)
            with pytest.raises(UserError, match="cannot be written"):
                await journal.intent(call_number(1))
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(go())
    assert not caplog.records


def test_a_damaged_table_is_told_to_who_reads(tmp_path):
    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            key = call_number(1).key()
            await journal.intent(call_number(1))
            await journal.outcome(call_number(1), Reply(Outcome.OK, "text"))
            with contextlib.closing(sqlite3.connect(tmp_path / "j.sqlite")) as other:
                other.executescript("DROP TABLE decisions; DROP TABLE calls")
            for read in (lambda: journal.decisions(0), lambda: journal.lookup(key), journal.totals):
                with pytest.raises(UserError, match="not a usable journal"):
                    read()

    asyncio.run(go())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fifty_kills_lose_nothing_committed_and_pay_nothing_twice_but_what_was_in_flight(tmp_path):
    path, log = tmp_path / "j.sqlite", tmp_path / "log"
    log.touch()
    rng = random.Random(0)
    command = [sys.executable, "-c", FORKS, str(path), str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forks:
        assert forks.stdin is not None
        assert forks.stdout is not None
        for number in range(50):
            print(file=forks.stdin, flush=True)
            child = int(forks.stdout.readline())
            # By the clock, opening included, and by how far it has come.
            size, lines = log.stat().st_size, rng.randrange(200)
            end = time.monotonic() + (rng.uniform(0.0, 0.03) if number % 2 else 10.0)
            while time.monotonic() < end and log.stat().st_size < size + 8 * lines:
                time.sleep(0.0005)
            os.kill(child, signal.SIGKILL)
            assert forks.stdout.readline() == "gone\n"
            with log.open("a") as file:
                print("kill", file=file)

    known: dict[str, str] = {}
    in_flight: set[str] = set()
    paid, excused = Counter[str](), Counter[str]()
    for word, *rest in map(str.split, log.read_text().splitlines()):
        if word == "kill":
            excused.update(in_flight)
            in_flight.clear()
        elif word == "paid":
            assert rest[0] not in known, "paid again though its reply was committed"
            paid[rest[0]] += 1
            in_flight.add(rest[0])
        else:
            assert known.setdefault(rest[0], rest[1]) == rest[1], "another reply than before"
            in_flight.discard(rest[0])
    assert len(known) > 40
    assert excused
    assert all(count <= 1 + excused[call] for call, count in paid.items())

    with Journal.open(path) as journal:
        for number, text in known.items():
            call = Call("e", "m", "worker", (Message("user", "x" * 500),), Sampling(), "run", repeat=int(number))
            reply = journal.lookup(call.key())
            assert reply is not None
            assert reply.text == text
        # A decision is on disk before the call that follows from it is paid, though nobody awaits it.
        assert all(journal.decisions(int(number)) for number in paid)
        totals = journal.totals()
    with contextlib.closing(sqlite3.connect(path)) as other:
        ended = other.execute("SELECT COUNT(*) FROM calls WHERE outcome IS NOT NULL").fetchone()[0]
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert totals.calls >= paid.total()
    assert totals.cost == 0.25 * ended


EDITS = {
    "text": ("UPDATE calls SET text = NULL", "text: expected str, got None"),
    "tokens": ("UPDATE calls SET input_tokens = 'many'", "input_tokens: expected int, got 'many'"),
    "cost": ("UPDATE calls SET cost = 'free'", "cost: expected int or float, got 'free'"),
    "model": ("UPDATE decisions SET model = 'big'", "expected six whole numbers"),
    "role": ("UPDATE decisions SET role = 'boss'", "role: expected one of worker, thinker, verifier, got 'boss'"),
    "probabilities": ("UPDATE decisions SET model_probs = '[0.5'", "expected a list of probabilities"),
    "words": ("UPDATE decisions SET role_probs = '{\"a\": 1}'", "expected a list of probabilities"),
    "hash": (
        "UPDATE decisions SET state_hash = 7.5; UPDATE decisions SET state_hash = x'00'",
        "state_hash: expected str",
    ),
}


@pytest.mark.parametrize(("edit", "message"), EDITS.values(), ids=EDITS.keys())
def test_a_row_edited_by_hand_is_told_in_one_message(tmp_path, edit, message):
    path = tmp_path / "j.sqlite"

    async def go():
        with Journal.open(path) as journal:
            await journal.record_decisions([DecisionRow(1, 0, 0, 0, 0, 1, "worker", (0.5, 0.5), (1.0, 0.0, 0.0))])
            await journal.intent(call_number(1))
            await journal.outcome(call_number(1), Reply(Outcome.OK, "x"))

    asyncio.run(go())
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        other.executescript(edit)

    def read():
        with Journal.open(path) as journal:
            return journal.lookup(call_number(1).key()), journal.decisions(1)

    with pytest.raises(UserError) as caught:
        read()
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "was edited or is damaged" in str(caught.value)


def test_tokens_count_what_was_cut_off_at_its_worst(tmp_path):
    call = call_number(0)

    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            empty = journal.tokens()
            await journal.intent(call)
            worst = journal.tokens()
            await journal.outcome(call, Reply(Outcome.OK, "x", 5, 6))
            return empty, worst, journal.tokens()

    empty, worst, after = asyncio.run(go())
    assert (empty, after) == (0, 11)
    assert worst >= most_input_tokens(call.messages) + call.sampling.max_tokens
