"""Grades on record: made once for all who ask, kept over a kill, moved with the journal, none from a failure."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from trinity_jax.errors import UserError
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.records import Records
from trinity_jax.pool.transfer import export_journal, import_journal


class Grader:
    """Says what it is told, and counts."""

    def __init__(self, says: str | None = "right", error=None):
        self.says, self.error, self.asked = says, error, 0

    async def __call__(self) -> str | None:
        self.asked += 1
        await asyncio.sleep(0.01)
        if self.error:
            raise self.error
        return self.says


def ask(path, *graders, key="k"):
    """All at once, of one process."""

    async def go():
        with Journal.open(path) as journal:
            return await asyncio.gather(*(journal.grade(key, g) for g in graders), return_exceptions=True)

    return asyncio.run(go())


def test_made_once_for_all_who_ask_and_known_to_the_next_process(tmp_path):
    first, second, later = Grader("right"), Grader("wrong"), Grader("wrong")
    assert ask(tmp_path / "j.sqlite", first, second) == ["right", "right"]
    assert ask(tmp_path / "j.sqlite", later, later) == ["right", "right"]
    assert (first.asked, second.asked, later.asked) == (1, 0, 0)
    assert ask(tmp_path / "j.sqlite", later, key="another") == ["wrong"]


def test_a_failure_reaches_all_and_is_tried_again(tmp_path):
    broken = Grader(error=RuntimeError("no sandbox"))
    assert [str(found) for found in ask(tmp_path / "j.sqlite", broken, broken)] == ["no sandbox"] * 2
    assert broken.asked == 1
    assert ask(tmp_path / "j.sqlite", Grader("wrong")) == ["wrong"]


def test_what_came_to_nothing_is_tried_again(tmp_path):
    nothing = Grader(None)
    assert ask(tmp_path / "j.sqlite", nothing, nothing) == [None, None]
    assert nothing.asked == 1
    assert ask(tmp_path / "j.sqlite", Grader("wrong")) == ["wrong"]


KILLED = """
import asyncio, os, sys
from trinity_jax.pool.journal import Journal

async def right():
    return "right"

async def go():
    await Journal.open(sys.argv[1]).grade("k", right)
    os._exit(9)

asyncio.run(go())
"""


def test_what_was_told_is_on_disk_when_the_process_is_killed(tmp_path):
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "j.sqlite")], check=False).returncode == 9
    assert ask(tmp_path / "j.sqlite", Grader("wrong")) == ["right"]


def test_who_asked_may_go_and_the_grade_is_kept(tmp_path):
    async def go():
        with Journal.open(tmp_path / "j.sqlite") as journal:
            asking = asyncio.create_task(journal.grade("k", Grader("right")))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            await asyncio.sleep(0.05)

    asyncio.run(go())
    assert ask(tmp_path / "j.sqlite", Grader("wrong")) == ["right"]


def test_grades_move_with_their_journal_and_the_first_one_stays(tmp_path):
    a, b, c = (tmp_path / f"{name}.sqlite" for name in "abc")
    ask(a, Grader("right"))
    ask(a, Grader("wrong"), key="more")
    ask(b, Grader("wrong"))
    export_journal(a, tmp_path / "a.jsonl")
    import_journal(b, tmp_path / "a.jsonl")
    import_journal(c, tmp_path / "a.jsonl")

    async def merge():
        with Journal.open(b) as journal:
            assert await journal.grade("more", Grader("right")) == "wrong"
            writes = journal.writes
            await journal.merge(c)
            assert journal.writes == writes  # there is nothing new

    asyncio.run(merge())
    with Records.read(b) as records:
        assert records.grades() == {"k": "wrong", "more": "wrong"}
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    (tmp_path / "cut.jsonl").write_text("\n".join(lines[:-1]))
    with pytest.raises(UserError, match="1 of 2 grades: the file is cut off"):
        import_journal(c, tmp_path / "cut.jsonl")
    (tmp_path / "bad.jsonl").write_text("\n".join([*lines[:-1], '{"grade": ["k", "fine"]}']))
    with pytest.raises(UserError, match="line 3: expected a key and one of right, wrong"):
        import_journal(c, tmp_path / "bad.jsonl")


def test_a_journal_from_before_there_were_grades(tmp_path):
    path, text = tmp_path / "j.sqlite", tmp_path / "j.jsonl"
    Journal.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE grades")
    with Records.read(path) as records:
        assert records.grades() == {}
    export_journal(path, text)
    text.write_text(text.read_text().replace(',"grades":0', ""))
    import_journal(path, text)
    assert ask(path, Grader("right")) == ["right"]


@pytest.mark.parametrize("edited", ["x'00'", "'Right'", "'undecided'"])
def test_a_grade_edited_by_hand_is_told(tmp_path, edited):
    ask(tmp_path / "j.sqlite", Grader())
    with closing(sqlite3.connect(tmp_path / "j.sqlite")) as connection, connection:
        connection.execute(f"UPDATE grades SET grade = {edited}")
    [found] = ask(tmp_path / "j.sqlite", Grader())
    assert isinstance(found, UserError)
    assert "the journal was edited or is damaged" in str(found)
