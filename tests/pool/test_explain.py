"""Why a call missed, in words."""

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import fields, replace

import pytest

from trinity_jax.cli import main
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.records import Records
from trinity_jax.pool.reply import Call, Message, Outcome, Reply, Sampling

CALL = Call(
    "http://e/v1", "big", "worker", (Message("system", "Work."), Message("user", "What is 6 * 7?")), Sampling(), "run"
)
OTHER = replace(CALL, model="small", messages=(Message("user", "Something else."),))


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "j.sqlite"

    async def go():
        with Journal.open(path) as journal:
            for call, reply in (
                (OTHER, Reply(Outcome.OK, "y", 1, 1)),
                (CALL, Reply(Outcome.OK, "42", 10, 5, 0.5, 2.0)),
            ):
                await journal.intent(call)
                await journal.outcome(call, reply)

    asyncio.run(go())
    return path


def said(capsys, *arguments: object) -> str:
    code = main(["journal", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert (code == 0) == (err == "")
    assert code in (0, 2)
    return out or err


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"model": "huge"}, "model", 'recorded "big", asked "huge"'),
        ({"role": "verifier"}, "role", 'recorded "worker", asked "verifier"'),
        ({"scope": "generation 1"}, "scope", 'recorded "run", asked "generation 1" (replies are shared within a scope'),
        ({"repeat": 2}, "repeat", "recorded 0, asked 2"),
        ({"occurrence": 1}, "occurrence", "recorded 0, asked 1"),
        ({"endpoint": "http://f/v1"}, "endpoint", 'recorded "http://e/v1", asked "http://f/v1"'),
        ({"sampling": Sampling(temperature=None)}, "sampling", "temperature: recorded 0.1, asked null"),
        (
            {"messages": (CALL.messages[0], Message("user", "What is 6 * 8?"))},
            "messages",
            "message 2 (user) from character 12: recorded ...'What is 6 * 7?', asked ...'What is 6 * 8?'",
        ),
        ({"messages": CALL.messages[:1]}, "messages", "recorded 2 messages, asked 1 messages"),
    ],
)
def test_the_field_that_differs_is_told_and_the_others_are_the_same(journal, capsys, changes, field, words):
    text = said(capsys, "explain", journal, "--call", replace(CALL, **changes).canonical())
    lines = {line.split()[0]: line for line in text.splitlines()[2:]}
    assert CALL.key() in text
    assert set(lines) == {field.name for field in fields(CALL)}
    assert words in lines.pop(field)
    assert all(line.endswith("the same") for line in lines.values())


def test_a_call_that_is_there_is_told_with_its_outcome(journal, capsys):
    assert "ended ok; it is answered from there" in said(capsys, "explain", journal, "--call", CALL.key()[:8])
    with closing(sqlite3.connect(journal)) as connection, connection:
        connection.execute("UPDATE calls SET outcome = 'timeout' WHERE key = ?", (CALL.key(),))
    assert "ended timeout; only a reply that can be graded" in said(capsys, "explain", journal, "--call", CALL.key())
    with closing(sqlite3.connect(journal)) as connection, connection:
        connection.execute("UPDATE calls SET outcome = NULL WHERE key = ?", (CALL.key(),))
    assert "the process died while it was in flight" in said(capsys, "explain", journal, "--call", CALL.canonical())


def test_a_call_of_another_journal_is_looked_up_there(journal, tmp_path, capsys):
    async def go():
        with Journal.open(tmp_path / "other.sqlite") as other:
            await other.intent(replace(CALL, repeat=7))
            return replace(CALL, repeat=7).key()

    key = asyncio.run(go())
    assert "no call with key" in said(capsys, "explain", journal, "--call", key)
    text = said(capsys, "explain", journal, "--call", key, "--of", tmp_path / "other.sqlite")
    assert "recorded 0, asked 7" in text


@pytest.mark.parametrize("call", ["{", "{}", "not a key", json.dumps(["x"])])
def test_what_is_no_call_is_refused(journal, capsys, call):
    assert said(capsys, "explain", journal, "--call", call).startswith("error: expected the ")


def test_an_empty_journal_has_nothing_near(tmp_path, capsys):
    Journal.open(tmp_path / "empty.sqlite").close()
    assert "holds no calls at all" in said(capsys, "explain", tmp_path / "empty.sqlite", "--call", CALL.canonical())


def test_show_counts_by_model_role_and_outcome(journal, capsys):
    lines = [line.split() for line in said(capsys, "show", journal).splitlines()]
    assert lines[1:] == [
        ["big", "worker", "ok", "1", "10", "5", "0.5", "2.00"],
        ["small", "worker", "ok", "1", "1", "1", "0", "0.00"],
        ["all", "2", "11", "6", "0.5"],
    ]


def test_a_journal_can_be_read_while_it_is_written(journal, capsys):
    with Journal.open(journal), Records.read(journal) as records:
        assert records.lookup(CALL.key()) is not None
        assert "all" in said(capsys, "show", journal)


@pytest.mark.parametrize("name", ["nowhere.sqlite", "text.txt"])
def test_no_journal_is_told(tmp_path, capsys, name):
    (tmp_path / "text.txt").write_text("no database " * 100)
    assert said(capsys, "show", tmp_path / name).startswith(f"error: {tmp_path / name}: ")
