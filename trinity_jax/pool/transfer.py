"""A journal as text and back, to move it between machines: JSON lines, gzipped where the name ends in .gz.

The first line says what it is and how many rows of each kind follow, so that a file that was cut off is known as such.
Importing twice does no harm: a call is known by its key and the moment it was sent, and a grade that is there stays.
"""

import asyncio
import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from trinity_jax.errors import UserError
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.records import CALL_COLUMNS, Records, call_fault, decision_fault, grade_fault

FORMAT, VERSION = "trinity_jax journal", 1
KINDS: tuple[str, ...] = ("call", "decision", "grade")
_ROWS_AT_ONCE = 1000


class Moved(NamedTuple):
    """How many rows a file holds of each kind, and how many of the calls were new to the journal."""

    calls: int
    decisions: int
    new: int = 0
    grades: int = 0


def export_journal(journal: Path, out: Path) -> Moved:
    """Write a journal as text; it may be in use. The file is there whole or not at all.

    Raises:
        UserError: no usable journal, or a file that cannot be written.
    """
    partial = out.with_name(f"{out.name}.partial")
    try:
        with Records.read(journal) as records:
            # One snapshot: a run that goes on writing must not add to what the first line counts.
            records.query("BEGIN")
            counts = [records.query(f"SELECT COUNT(*) FROM {table}")[0][0] for table in ("calls", "decisions")]
            grades = records.grades().items()
            with _open(partial, out.suffix == ".gz", "w") as file:
                head = {"format": FORMAT, "version": VERSION, "calls": counts[0], "decisions": counts[1]}
                head["grades"] = len(grades)
                file.write(_line(head))
                file.writelines(_line({"call": row}) for row in records.rows("calls"))
                file.writelines(_line({"decision": list(row.values())}) for row in records.rows("decisions"))
                file.writelines(_line({"grade": list(grade)}) for grade in grades)
        os.replace(partial, out)
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror or error})") from error
    finally:
        partial.unlink(missing_ok=True)
    return Moved(*counts, grades=len(grades))


def import_journal(journal: Path, source: Path) -> Moved:
    """Add what a file of `export_journal` holds to a journal, which is made where there is none.

    The file is read to its end before anything is written.

    Raises:
        UserError: another file, another version's, a damaged or cut-off one; a journal that is in use.
    """
    for _ in _rows(source):
        pass
    with Journal.open(journal) as into:
        before = into.totals().calls
        found = asyncio.run(_add(into, source))
        return Moved(found["call"], found["decision"], into.totals().calls - before, found["grade"])


async def _add(journal: Journal, source: Path) -> Counter[str]:
    rows, added = _rows(source), Counter()
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):
        by_kind = {kind: [row for found, row in chunk if found == kind] for kind in KINDS}
        await journal.take_calls(by_kind["call"])
        await journal.take_decisions(by_kind["decision"])
        await journal.take_grades(dict(by_kind["grade"]))
        added.update(kind for kind, _ in chunk)
    return added


def _rows(source: Path) -> Iterator[tuple[str, tuple]]:
    """Every row with its kind, checked: calls as ``CALL_COLUMNS``, the others as their tables have them."""
    found = dict.fromkeys(KINDS, 0)
    try:
        with _open(source, _gzipped(source), "r") as file:
            head = _head(source, file.readline())
            for number, line in enumerate(file, 2):
                kind, row, fault = _row(line)
                if fault:
                    raise UserError(f"{source}: line {number}: {fault}")
                found[kind] += 1
                yield kind, row
    except (EOFError, zlib.error) as error:  # gzip's words for a file that was cut off or has a flipped bit
        raise UserError(f"{source}: the file is cut off or damaged") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{source}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    for kind, count in found.items():
        if count != head[f"{kind}s"]:
            raise UserError(f"{source}: {count} of {head[f'{kind}s']} {kind}s: the file is cut off or was edited")


def _head(source: Path, line: str) -> dict[str, Any]:
    head = _json(line)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise UserError(f"{source}: not an exported journal (python -m trinity_jax journal export makes one)")
    if head.get("version") != VERSION:
        raise UserError(f"{source}: export format {head.get('version')}, this version of trinity_jax reads {VERSION}")
    head = {"grades": 0, **head}  # older files have none
    if not all(type(head.get(f"{kind}s")) is int for kind in KINDS):
        raise UserError(f"{source}: the first line lacks the numbers of calls and decisions, or of grades")
    return head


def _row(line: str) -> tuple[str, tuple, str | None]:
    """Kind, values and what is wrong with them."""
    found = _json(line)
    kind, content = next(iter(found.items())) if isinstance(found, dict) and len(found) == 1 else ("", None)
    if kind == "call" and isinstance(content, dict) and content.keys() == set(CALL_COLUMNS):
        return kind, tuple(content[column] for column in CALL_COLUMNS), call_fault(content)
    if kind == "decision" and isinstance(content, list):
        return kind, tuple(content), decision_fault(tuple(content))
    if kind == "grade" and isinstance(content, list):
        return kind, tuple(content), grade_fault(tuple(content))
    return kind, (), "expected a call or a decision, or a grade"


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def _gzipped(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _open(path: Path, zipped: bool, mode: str) -> IO[str]:
    opener = gzip.open if zipped else open
    return cast(IO[str], opener(path, f"{mode}t", encoding="utf-8", newline="\n"))
