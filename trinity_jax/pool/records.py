"""What a journal holds, and reading it: by the process that writes it, and by any number of others beside it.

One SQLite file. A call's row has its outcome columns empty from the moment before it is sent until its reply is on
disk. A row that somebody has edited by hand is told in one message.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from trinity_jax.errors import UserError
from trinity_jax.pool.reply import Outcome, Reply

SCHEMA_VERSION = 1
APPLICATION_ID = 0x54524E31
TABLES = """
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, scope TEXT NOT NULL, request TEXT NOT NULL,
    reserved REAL NOT NULL, sent_at REAL NOT NULL, ended_at REAL,
    outcome TEXT, text TEXT, input_tokens INTEGER, output_tokens INTEGER, cost REAL, seconds REAL, attempts INTEGER,
    finish_reason TEXT, detail TEXT, reasoning TEXT);
CREATE INDEX calls_by_key ON calls (key);
CREATE INDEX calls_by_scope ON calls (scope);
CREATE TABLE decisions (
    generation INTEGER, candidate INTEGER, question INTEGER, repeat INTEGER, turn INTEGER,
    model INTEGER NOT NULL, role TEXT NOT NULL, model_probs TEXT, role_probs TEXT, state_hash TEXT NOT NULL,
    PRIMARY KEY (generation, candidate, question, repeat, turn)) WITHOUT ROWID;
"""
GRADES = "CREATE TABLE IF NOT EXISTS grades (key TEXT PRIMARY KEY, grade TEXT NOT NULL) WITHOUT ROWID;"
"""Younger than the others: a journal that nobody has written since has none."""
REPLY_COLUMNS = (
    "outcome", "text", "input_tokens", "output_tokens", "cost", "seconds", "attempts", "finish_reason", "detail",
    "reasoning",
)  # fmt: skip
CALL_COLUMNS = ("key", "scope", "request", "reserved", "sent_at", "ended_at", *REPLY_COLUMNS)
_REPLY = ", ".join(REPLY_COLUMNS)
_GRADABLE = ", ".join(f"'{outcome}'" for outcome in Outcome if outcome.gradable)
_LOOKUP = f"SELECT {_REPLY} FROM calls WHERE key = ? AND outcome IN ({_GRADABLE}) ORDER BY id LIMIT 1"
_LAST = f"SELECT {_REPLY} FROM calls WHERE key = ? AND outcome IS NOT NULL ORDER BY id DESC LIMIT 1"
# A call cut off by a kill: a token holds a byte at least, and the request is longer than what the model reads of it.
_TOKENS = """SELECT COALESCE(SUM(CASE
    WHEN outcome IS NULL THEN LENGTH(CAST(request AS BLOB)) + JSON_EXTRACT(request, '$.sampling.max_tokens')
    ELSE input_tokens + output_tokens END), 0) FROM calls"""
_SUMMARY = """SELECT JSON_EXTRACT(request, '$.model'), JSON_EXTRACT(request, '$.role'), outcome, COUNT(*),
    COALESCE(SUM(input_tokens), 0), COALESCE(SUM(output_tokens), 0), COALESCE(SUM(COALESCE(cost, reserved)), 0.0),
    COALESCE(AVG(seconds), 0.0) FROM calls GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""

_TEXT, _NUMBER, _NONE = (str,), (int, float), (type(None),)
_CALL_TYPES = {
    "key": _TEXT, "scope": _TEXT, "request": _TEXT, "reserved": _NUMBER, "sent_at": _NUMBER,
    "ended_at": _NUMBER + _NONE, "outcome": _TEXT + _NONE,
}  # fmt: skip
_REPLY_TYPES = {
    "outcome": _TEXT, "text": _TEXT, "input_tokens": (int,), "output_tokens": (int,), "cost": _NUMBER,
    "seconds": _NUMBER, "attempts": (int,), "finish_reason": _TEXT + _NONE, "detail": _TEXT + _NONE, "reasoning": _TEXT,
}  # fmt: skip
_ROLES = ("worker", "thinker", "verifier")
_GRADES = ("right", "wrong")


class DecisionRow(NamedTuple):
    """One decision of a run. ``state_hash`` is a hash of the h it was made from ("" where a rule chose)."""

    generation: int
    candidate: int
    question: int
    repeat: int
    turn: int
    model: int
    role: str
    model_probs: tuple[float, ...] | None = None
    role_probs: tuple[float, ...] | None = None
    state_hash: str = ""


DecisionKey = tuple[int, int, int, int, int]


class Totals(NamedTuple):
    """What was sent and spent. A call without an outcome (killed in flight) counts with what was reserved for it."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost: float


class SummaryRow(NamedTuple):
    """Calls of one model in one role that ended alike; ``outcome`` None for those without one, seconds are a mean."""

    model: str
    role: str
    outcome: str | None
    calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    seconds: float


class Records:
    """A journal to read. All methods raise ``UserError`` where the file or a row that is read is damaged."""

    def __init__(self, path: Path, reader: sqlite3.Connection):
        self.path = path
        self._reader = reader

    @classmethod
    def read(cls, path: str | Path) -> "Records":
        """Open a journal for reading alone, also while another process writes it.

        Raises:
            UserError: no such file, not a journal, or another version's.
        """
        path = Path(path)
        if not path.is_file():
            raise UserError(f"{path}: no such journal")
        try:
            reader = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro",
                uri=True,
                timeout=30,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                check(path, reader)
            except BaseException:
                reader.close()
                raise
        except sqlite3.Error as error:
            raise UserError(f"{path}: not a usable journal ({error})") from error
        return cls(path, reader)

    def lookup(self, key: str) -> Reply | None:
        """The first gradable reply to this call, if there is one."""
        return self._reply(_LOOKUP, key)

    def last(self, key: str) -> Reply | None:
        """How this call ended the last time, gradable or not."""
        return self._reply(_LAST, key)

    def _reply(self, query: str, key: str) -> Reply | None:
        for row in self.query(query, (key,)):
            fields: dict[str, Any] = dict(zip(REPLY_COLUMNS, row, strict=True))
            self.demand(_reply_fault(fields), f"call {key[:12]}")
            return Reply(Outcome(row[0]), *row[1:])
        return None

    def decisions(self, generation: int) -> dict[DecisionKey, DecisionRow]:
        """The decisions of one generation by (generation, candidate, question, repeat, turn)."""
        found = (
            self._decision(row) for row in self.query("SELECT * FROM decisions WHERE generation = ?", (generation,))
        )
        return {decision[:5]: decision for decision in found}

    def _decision(self, row: tuple) -> DecisionRow:
        self.demand(decision_fault(row), f"decision {row[:5]}")
        return DecisionRow._make((*row[:7], probs(row[7]), probs(row[8]), row[9]))

    def grades(self) -> dict[str, str]:
        """Every grade on record by its key."""
        if not self.query("SELECT 1 FROM sqlite_master WHERE name = 'grades'"):
            return {}
        rows = self.query("SELECT key, grade FROM grades")
        for row in rows:
            self.demand(grade_fault(row), f"grade {row[0]!r}")
        return dict(rows)

    def totals(self, scope: str | None = None) -> Totals:
        """Calls, tokens and cost of one scope or of the whole run, earlier processes included."""
        query = """SELECT COUNT(*), COALESCE(SUM(input_tokens), 0), COALESCE(SUM(output_tokens), 0),
                   COALESCE(SUM(COALESCE(cost, reserved)), 0.0) FROM calls"""
        where, values = ("", ()) if scope is None else (" WHERE scope = ?", (scope,))
        return Totals(*self.query(query + where, values)[0])

    def tokens(self) -> int:
        """Tokens of the whole run as the budget counts them: a call that was cut off at its worst."""
        return int(self.query(_TOKENS)[0][0])

    def summary(self) -> list[SummaryRow]:
        """Calls by model, role and outcome."""
        return [SummaryRow._make(row) for row in self.query(_SUMMARY)]

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """All rows of ``calls`` or ``decisions`` in their order, checked, as they stand in the file."""
        columns = CALL_COLUMNS if table == "calls" else DecisionRow._fields
        fault = call_fault if table == "calls" else lambda row: decision_fault(tuple(row.values()))
        order = " ORDER BY id" if table == "calls" else ""
        try:
            with closing(self._reader.execute(f"SELECT {', '.join(columns)} FROM {table}{order}")) as found:
                for number, values in enumerate(found, 1):
                    row = dict(zip(columns, values, strict=True))
                    self.demand(fault(row), f"{table}, row {number}")
                    yield row
        except sqlite3.Error as error:
            raise UserError(f"{self.path}: not a usable journal ({error})") from error

    def demand(self, fault: str | None, where: str) -> None:
        """Raise what is wrong with a row, if anything is."""
        if fault:
            raise UserError(f"{self.path}: {where}: {fault}; the journal was edited or is damaged")

    def query(self, query: str, values: tuple = ()) -> list[tuple]:
        """All rows of an SQL query."""
        try:
            return self._reader.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise UserError(f"{self.path}: not a usable journal ({error})") from error

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check(path: Path, connection: sqlite3.Connection) -> None:
    """See that this is a journal of this version.

    Raises:
        UserError: it is not.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise UserError(f"{path}: an SQLite file of another program, not a journal")
    if version != SCHEMA_VERSION:
        raise UserError(f"{path}: journal format {version}, this version of trinity_jax reads {SCHEMA_VERSION}")


def call_fault(row: dict[str, Any]) -> str | None:
    """What is wrong with a row of ``calls``, if anything."""
    fault = _types(row, _CALL_TYPES)
    if fault is None and request(row["request"]) is None:
        fault = "request: expected the JSON of a call"
    return fault or (None if row["outcome"] is None else _reply_fault(row))


def request(text: str) -> dict[str, Any] | None:
    """The call that a row's ``request`` holds, if it holds one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and {"endpoint", "model", "messages", "sampling"} <= found.keys() else None


def _reply_fault(row: dict[str, Any]) -> str | None:
    if row["outcome"] not in set(Outcome):
        return f"outcome: expected one of {', '.join(Outcome)}, got {row['outcome']!r}"
    return _types(row, _REPLY_TYPES)


def _types(row: dict[str, Any], types: dict[str, tuple[type, ...]]) -> str | None:
    for column, allowed in types.items():
        if not isinstance(row[column], allowed) or isinstance(row[column], bool):
            names = " or ".join("nothing" if one is type(None) else one.__name__ for one in allowed)
            return f"{column}: expected {names}, got {row[column]!r}"
    return None


def decision_fault(row: tuple) -> str | None:
    """What is wrong with a row of ``decisions``, if anything."""
    if len(row) != len(DecisionRow._fields) or not all(type(value) is int for value in row[:6]):
        return f"expected six whole numbers and four texts, got {row!r}"
    if row[6] not in _ROLES:
        return f"role: expected one of {', '.join(_ROLES)}, got {row[6]!r}"
    for value in row[7:9]:
        try:
            found = probs(value)
        except (TypeError, ValueError, RecursionError):
            return f"expected a list of probabilities, got {value!r}"
        if found is not None and not all(isinstance(p, float) for p in found):
            return f"expected a list of probabilities, got {value!r}"
    return None if isinstance(row[9], str) else f"state_hash: expected str, got {row[9]!r}"


def grade_fault(row: tuple) -> str | None:
    """What is wrong with a row of ``grades``, if anything."""
    fine = len(row) == 2 and all(isinstance(value, str) for value in row)
    if not fine or row[1] not in _GRADES:
        return f"expected a key and one of {', '.join(_GRADES)}, got {row!r}"
    return None


def probs(text: str | None) -> tuple[float, ...] | None:
    """Probabilities from their JSON."""
    return None if text is None else tuple(json.loads(text))
