"""Journals as text: all of it arrives, once, or nothing does."""

import asyncio
import gzip
import json
import sqlite3
from contextlib import closing

import pytest

from trinity_jax.cli import main
from trinity_jax.errors import UserError
from trinity_jax.pool.journal import DecisionRow, Journal
from trinity_jax.pool.records import Records
from trinity_jax.pool.reply import Call, Message, Outcome, Reply, Sampling
from trinity_jax.pool.transfer import Moved, export_journal, import_journal

DECISION = DecisionRow(1, 0, 5, 0, 0, 2, "worker", (0.1, 0.9), (0.25, 0.5, 0.25), "abc")


def call_number(i: int) -> Call:
    return Call("e", "m", "worker", (Message("user", "q\u2028ü"),), Sampling(), "run", repeat=i)


def write(path, calls: int, ended: int) -> None:
    async def go():
        with Journal.open(path) as journal:
            await journal.record_decisions([DECISION])
            for i in range(calls):
                await journal.intent(call_number(i), 0.5)
                if i < ended:
                    await journal.outcome(call_number(i), Reply(Outcome.OK, f"täxt\n{i}", 3, 4, 0.1, 1.5))

    asyncio.run(go())


def content(path) -> list:
    with Records.read(path) as records:
        return [list(records.rows(table)) for table in ("calls", "decisions")]


@pytest.mark.parametrize("name", ["j.jsonl", "j.jsonl.gz"])
def test_there_and_back_again_and_twice_does_no_harm(tmp_path, name):
    write(tmp_path / "a.sqlite", 5, 4)
    assert export_journal(tmp_path / "a.sqlite", tmp_path / name) == Moved(5, 1)
    assert import_journal(tmp_path / "b.sqlite", tmp_path / name) == Moved(5, 1, 5)
    assert content(tmp_path / "b.sqlite") == content(tmp_path / "a.sqlite")
    assert import_journal(tmp_path / "b.sqlite", tmp_path / name) == Moved(5, 1, 0)
    assert content(tmp_path / "b.sqlite") == content(tmp_path / "a.sqlite")
    with Journal.open(tmp_path / "b.sqlite") as journal:
        reply = journal.lookup(call_number(0).key())
        assert reply == Reply(Outcome.OK, "täxt\n0", 3, 4, 0.1, 1.5)
        assert journal.decisions(1) == {DECISION[:5]: DECISION}


def test_an_outcome_that_came_later_is_taken_too(tmp_path):
    async def go():
        with Journal.open(tmp_path / "a.sqlite") as journal:
            await journal.intent(call_number(0), 0.5)
            export_journal(tmp_path / "a.sqlite", tmp_path / "early.jsonl")  # while it is written
            await journal.outcome(call_number(0), Reply(Outcome.OK, "late"))

    asyncio.run(go())
    export_journal(tmp_path / "a.sqlite", tmp_path / "late.jsonl")
    for name, new in (("early", 1), ("late", 0), ("early", 0)):
        assert import_journal(tmp_path / "b.sqlite", tmp_path / f"{name}.jsonl").new == new
    assert content(tmp_path / "b.sqlite") == content(tmp_path / "a.sqlite")


def test_journals_of_two_machines_become_one(tmp_path):
    for name, calls in (("a", 3), ("b", 2)):
        write(tmp_path / f"{name}.sqlite", calls, calls)
        export_journal(tmp_path / f"{name}.sqlite", tmp_path / f"{name}.jsonl")
        import_journal(tmp_path / "both.sqlite", tmp_path / f"{name}.jsonl")
    with Records.read(tmp_path / "both.sqlite") as records:
        assert records.totals().calls == 5  # paid five times, though two are the same call


def _edit(number: int, change):
    def edit(lines: list[str]) -> list[str]:
        return [*lines[:number], change(lines[number]), *lines[number + 1 :]]

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda lines: ['{"prompt": "q"}\n'], "not an exported journal"),
        (lambda lines: [], "not an exported journal"),
        (_edit(0, lambda line: line.replace('"version":1', '"version":2')), "export format 2, this version"),
        (_edit(0, lambda line: line.replace('"calls":3', '"calls":"3"')), "lacks the numbers"),
        (lambda lines: [*lines[:-3], ""], "2 of 3 calls: the file is cut off"),
        (_edit(2, lambda line: line[: len(line) // 2]), "line 3: expected a call or a decision"),
        (_edit(2, lambda line: line.replace('"outcome":"ok"', '"outcome":"fine"')), "line 3: outcome: expected one of"),
        (_edit(2, lambda line: line.replace('"input_tokens":3', '"input_tokens":"3"')), "line 3: input_tokens: expec"),
        (_edit(2, lambda line: json.dumps({"call": {"key": "x"}})), "line 3: expected a call"),
        (_edit(4, lambda line: line.replace('"worker"', '"boss"')), "line 5: role: expected one of"),
    ],
)
def test_a_file_that_is_foreign_or_damaged_changes_nothing(tmp_path, capsys, edit, message):
    write(tmp_path / "a.sqlite", 3, 3)
    export_journal(tmp_path / "a.sqlite", tmp_path / "a.jsonl")
    (tmp_path / "bad.jsonl").write_text("\n".join(edit((tmp_path / "a.jsonl").read_text().split("\n"))))
    assert main(["journal", "import", str(tmp_path / "b.sqlite"), str(tmp_path / "bad.jsonl")]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert not (tmp_path / "b.sqlite").exists()


def test_a_gzip_that_was_cut_off_is_told(tmp_path):
    write(tmp_path / "a.sqlite", 3, 3)
    export_journal(tmp_path / "a.sqlite", tmp_path / "a.gz")
    whole = (tmp_path / "a.gz").read_bytes()
    for bad in (whole[: len(whole) // 2], whole[:40] + b"\xff" * 9 + whole[49:], gzip.compress(b"\xff\xfe")):
        (tmp_path / "bad.gz").write_bytes(bad)
        with pytest.raises(UserError, match=r"bad\.gz: "):
            import_journal(tmp_path / "b.sqlite", tmp_path / "bad.gz")


def test_an_edited_journal_is_not_exported(tmp_path):
    write(tmp_path / "a.sqlite", 3, 3)
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection, connection:
        connection.execute("UPDATE calls SET request = '{' WHERE id = 2")
    with pytest.raises(UserError, match="calls, row 2: request: expected the JSON of a call"):
        export_journal(tmp_path / "a.sqlite", tmp_path / "a.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir() if "jsonl" in path.name) == []


def test_export_says_where_it_cannot_write(tmp_path, capsys):
    write(tmp_path / "a.sqlite", 1, 1)
    assert main(["journal", "export", str(tmp_path / "a.sqlite"), str(tmp_path / "no" / "a.jsonl")]) == 2
    assert "cannot be written" in capsys.readouterr().err
