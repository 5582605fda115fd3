"""Every call, every decision and what costly graders said of a run in one SQLite file: cache, resume and audit.

Write-ahead: a call's intent is on disk before it is sent, its outcome before anyone sees it. One thread writes; what
waits while a transaction is flushed goes into the next one (group commit), and a write is acknowledged only after its
commit, so a killed process loses nothing that was acknowledged. Writes commit in the order in which they were made.
"""

import asyncio
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from trinity_jax.errors import UserError
from trinity_jax.pool.records import (
    APPLICATION_ID,
    CALL_COLUMNS,
    GRADES,
    REPLY_COLUMNS,
    SCHEMA_VERSION,
    TABLES,
    DecisionKey,
    DecisionRow,
    Records,
    Totals,
    check,
)
from trinity_jax.pool.reply import Call, Reply

__all__ = ["DecisionKey", "DecisionRow", "Journal", "Totals"]

_INTENT = "INSERT INTO calls (id, key, scope, request, reserved, sent_at) VALUES (?, ?, ?, ?, ?, ?)"
_OUTCOME_COLUMNS = (*REPLY_COLUMNS, "ended_at")
_OUTCOME = f"UPDATE calls SET ({', '.join(_OUTCOME_COLUMNS)}) = ({', '.join('?' * 11)}) WHERE id = ?"
_DECISION = "INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_GRADE = "INSERT OR IGNORE INTO grades VALUES (?, ?)"
_CALL = ", ".join(CALL_COLUMNS)
_MERGE = f"""INSERT INTO calls (id, {_CALL}) SELECT {", ".join("?" * 17)}
    WHERE NOT EXISTS (SELECT 1 FROM calls WHERE key = ? AND sent_at = ?)"""
# A call that was in flight when it was taken over first.
_COMPLETE = f"""UPDATE calls SET ({", ".join(_OUTCOME_COLUMNS)}) = ({", ".join("?" * 11)})
    WHERE key = ? AND sent_at = ? AND outcome IS NULL"""


class Journal(Records):
    """The journal of one run folder: one writing process at a time, readable by any number of others.

    Attributes:
        writes: rows written since it was opened.
        commits: transactions they took.
    """

    def __init__(self, path: Path, lock: FileLock, writer: sqlite3.Connection, reader: sqlite3.Connection):
        super().__init__(path, reader)
        self.writes = 0
        self.commits = 0
        self._lock = lock
        self._writer = writer
        self._next_id = reader.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM calls").fetchone()[0]
        self._open_ids: dict[str, int] = {}
        # Most calls of a run are new, and asking SQLite for each takes as long as writing it. None until somebody looks
        # a call up: a server never does, and would hold a key more with every call.
        self._ended: set[str] | None = None
        self._graded: dict[str, str] | None = None  # as for calls
        self._grading: dict[str, asyncio.Task[str | None]] = {}
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._error: UserError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, path: str | Path) -> "Journal":
        """Open or create the journal for writing.

        Raises:
            UserError: no such folder, not a journal, another version's journal, or another process writes it.
        """
        path = Path(path)
        if not path.parent.is_dir():
            raise UserError(f"{path}: no such folder: {path.parent}")
        lock = FileLock(f"{path}.lock")
        try:
            lock.acquire(blocking=False)
        except Timeout as error:
            raise UserError(f"{path}: another process is writing this journal; one run folder takes one run") from error
        except OSError as error:
            raise UserError(f"{path}: cannot be created ({error.strerror})") from error
        with ExitStack() as undo:
            undo.callback(lock.release)
            try:
                writer, reader = (undo.enter_context(closing(_connect(path))) for _ in range(2))
                _prepare(path, writer)
                journal = cls(path, lock, writer, reader)
            except sqlite3.Error as error:
                raise UserError(f"{path}: not a usable journal ({error})") from error
            undo.pop_all()
            return journal

    def lookup(self, key: str) -> Reply | None:
        """The first gradable reply to this call, if there is one."""
        if self._ended is None:
            self._ended = {ended for (ended,) in self.query("SELECT key FROM calls WHERE outcome IS NOT NULL")}
        return super().lookup(key) if key in self._ended else None

    async def intent(self, call: Call, reserved: float = 0.0) -> None:
        """Note that a call is about to be sent and what it may cost at worst; on disk when this returns."""
        request = call.canonical()
        key = call.key()
        row = (self._next_id, key, call.scope, _storable(request), reserved, time.time())
        self._open_ids[key] = self._next_id
        self._next_id += 1
        await self._submit(_INTENT, [row])

    async def outcome(self, call: Call, reply: Reply) -> None:
        """Note how the call of the last intent like this one ended; on disk when this returns."""
        key = call.key()
        values = (*(_storable(value) for value in vars(reply).values()), time.time(), self._open_ids.pop(key))
        await self._submit(_OUTCOME, [values])
        self._know([key])

    def abandon(self, call: Call) -> None:
        """The last intent like this one gets no outcome: on disk it stays cut off, here it is forgotten."""
        self._open_ids.pop(call.key(), None)

    async def grade(self, key: str, make: Callable[[], Awaitable[str | None]]) -> str | None:
        """The grade under a key: the one on record, or what ``make`` gives, which is on disk when this returns.

        Those who ask for one that is being made wait for the same. So equal replies to a question have equal grades, in
        this process and in one that resumes the run, even where a limit of time decided. As a call that failed is made
        again, so is a grade that came to nothing (None).
        """
        known = self._known_grades()
        if key in known:
            return known[key]
        task = self._grading.get(key)
        if task is None:
            task = self._grading[key] = asyncio.create_task(self._made(key, make))
            task.add_done_callback(lambda done: self._settled(key, done))
        return await asyncio.shield(task)

    async def _made(self, key: str, make: Callable[[], Awaitable[str | None]]) -> str | None:
        grade = await make()
        if grade is not None:
            await self.take_grades({key: grade})
        return grade

    def _known_grades(self) -> dict[str, str]:
        if self._graded is None:
            self._graded = self.grades()
        return self._graded

    def _settled(self, key: str, task: "asyncio.Task[str | None]") -> None:
        self._grading.pop(key, None)
        if not task.cancelled():
            task.exception()  # counts as heard: who asked may be gone

    def record_decisions(self, rows: Iterable[DecisionRow]) -> "asyncio.Future[None]":
        """Note decisions; the future is done when they are on disk.

        Nobody has to await it: order is kept, so an intent on disk implies the decisions that were recorded before it.
        """
        return self._submit(_DECISION, [_decision(row) for row in rows])

    async def whole(self) -> None:
        """Bring everything into the one file, out of the log beside it: others may `merge` it until the next write.

        Raises:
            UserError: it cannot be written.
        """
        await self.record_decisions(())
        if self.query("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]:
            raise UserError(f"{self.path}: cannot be written in one piece: another program reads it")

    async def merge(self, path: Path, after: int = 0, generation: int | None = None) -> int:
        """Take over what another journal has and this one has not; on disk when this returns. Twice does no harm.

        Args:
            path: a journal that nobody writes and that is whole (`whole`, or closed); it may be another host's.
            after: calls up to this number there are known to be here.
            generation: whose decisions to take; None for all.

        Returns:
            The number of the last call there, the next ``after``.

        Raises:
            UserError: not a readable journal.
        """
        chosen, values = ("", ()) if generation is None else (" WHERE generation = ?", (generation,))
        try:
            with closing(_connect_still(path)) as other:
                await self._submit(_DECISION, other.execute(f"SELECT * FROM decisions{chosen}", values).fetchall())
                await self.take_grades(Records(path, other).grades())
                calls = other.execute(f"SELECT id, {_CALL} FROM calls WHERE id > ? ORDER BY id", (after,))
                while rows := calls.fetchmany(1000):
                    await self.take_calls([row[1:] for row in rows])
                    after = rows[-1][0]
        except sqlite3.Error as error:
            raise UserError(f"{path}: not a usable journal ({error})") from error
        return after

    async def take_calls(self, rows: Sequence[tuple]) -> None:
        """Take over rows of ``CALL_COLUMNS`` that this journal has not, and outcomes that it still lacks."""
        added = [(self._next_id + i, *row, row[0], row[4]) for i, row in enumerate(rows)]
        self._next_id += len(rows)
        self._submit(_MERGE, added)
        await self._submit(_COMPLETE, [(*row[6:], row[5], row[0], row[4]) for row in rows if row[6] is not None])
        self._know(row[0] for row in rows)

    async def take_decisions(self, rows: Sequence[tuple]) -> None:
        """Take over rows of the table ``decisions``; one of the same key is replaced."""
        await self._submit(_DECISION, list(rows))

    async def take_grades(self, grades: Mapping[str, str]) -> None:
        """Take over grades by their keys (`grades`); where there is one of the same key, that one stays."""
        known = self._known_grades()
        new = {key: grade for key, grade in grades.items() if key not in known}
        if new:
            await self._submit(_GRADE, list(new.items()))
            known.update(new)

    def copy_to(self, path: Path) -> int:
        """Write a journal that begins with all that is in this one; returns the number of its last call."""
        try:
            with closing(_connect(path)) as other:
                self._reader.backup(other)
        except sqlite3.Error as error:
            raise UserError(f"{path}: cannot be written ({error})") from error
        return self._next_id - 1

    def close(self) -> None:
        """Write what is waiting, then let go of the file. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        self._reader.close()
        self._writer.close()
        self._lock.release()

    def __enter__(self) -> "Journal":
        return self

    def _know(self, keys: Iterable[str]) -> None:
        if self._ended is not None:
            self._ended.update(keys)

    def _submit(self, sql: str, rows: list[tuple]) -> "asyncio.Future[None]":
        if self._closed:
            raise RuntimeError(f"{self.path}: the journal is closed")
        if self._error is not None:
            raise self._error
        done = asyncio.get_running_loop().create_future()
        self._queue.put(_Write(sql, rows, done))
        return done

    def _write_all(self) -> None:
        more = True
        while more:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            writes = [write for write in batch if write is not None]
            more = len(writes) == len(batch)
            if not writes:
                continue
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                for write in writes:
                    self._writer.executemany(write.sql, write.rows)
                self._writer.execute("COMMIT")
                self.commits += 1
                self.writes += sum(len(write.rows) for write in writes)
            except Exception as error:  # whatever it is, those who wait must hear of it
                self._error = self._error or UserError(f"{self.path}: cannot be written ({error})")
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
            _acknowledge(writes, self._error)


class _Write(NamedTuple):
    sql: str
    rows: list[tuple]
    done: "asyncio.Future[None]"


def _acknowledge(writes: list[_Write], error: UserError | None) -> None:
    def settle(futures: list["asyncio.Future[None]"]) -> None:
        for future in futures:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()  # counts as heard: nobody has to await a decision's

    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for write in writes:
        by_loop.setdefault(write.done.get_loop(), []).append(write.done)
    for loop, futures in by_loop.items():
        # The loop may be gone after an interrupt; what was asked for is on disk all the same.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, futures)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)


def _connect_still(path: Path) -> sqlite3.Connection:
    # Immutable: no locks and no log, which work on one host only.
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Check that this is a journal of this version, or make it one if the file is new."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application == 0 and not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
        marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        connection.executescript(f"BEGIN; {TABLES} {marks} COMMIT;")
    check(path, connection)
    connection.execute(GRADES)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _storable(value: Any) -> Any:
    # SQLite text is UTF-8, which has no lone surrogates; a model's broken output may.
    plain = not isinstance(value, str) or value.isascii()
    return value if plain else value.encode("utf-8", "replace").decode()


def _decision(row: DecisionRow) -> tuple:
    # int(): SQLite would store NumPy's integers as blobs.
    return (*map(int, row[:6]), str(row.role), _dumps(row.model_probs), _dumps(row.role_probs), row.state_hash)


def _dumps(probs: tuple[float, ...] | None) -> str | None:
    return None if probs is None else json.dumps([float(p) for p in probs])
