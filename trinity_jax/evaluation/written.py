"""An evaluation as files and on the terminal: ``evaluation.json`` whole, ``.csv`` for a sheet, ``.md`` to read."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from trinity_jax.evaluation.intervals import Estimate
from trinity_jax.evaluation.table import CAPTION, Row, percent, points


class Transfer(NamedTuple):
    """Who was trained on what (rows), and how it does on each kind of question (columns)."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    accuracy: tuple[tuple[Estimate, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """Means, lows and highs as three matrices of shares."""
        whole: dict[str, Any] = {"rows": list(self.rows), "columns": list(self.columns)}
        for name, key in (("accuracy", "mean"), ("low", "low"), ("high", "high")):
            whole[name] = [[getattr(cell, key) for cell in line] for line in self.accuracy]
        return whole


def _amount(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)


# Heading and how a row fills it; whatever is counted is per question.
COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("method", lambda row: row.name),
    ("right %", lambda row: percent(row.accuracy)),
    ("undecided %", lambda row: f"{100 * row.undecided_share:.1f}"),
    ("coordinator minus it", lambda row: points(row.difference) if row.difference else ""),
    ("it minus best single", lambda row: points(row.over_single) if row.over_single else ""),
    ("calls", lambda row: _amount(row.calls_per_question, ".2f")),
    ("tokens", lambda row: _amount(row.tokens_per_question, ",.0f")),
    ("cost", lambda row: _amount(row.cost_per_question, ".3g")),
    ("seconds", lambda row: _amount(row.seconds_per_question, ".3g")),
    ("incomplete %", lambda row: f"{100 * row.incomplete_share:.1f}"),
)


def terminal(rows: Sequence[Row]) -> Table:
    """The table for the terminal."""
    table = Table(title="Held-out questions", caption=f"{CAPTION} Calls, tokens, cost, seconds: per question.")
    for heading, _ in COLUMNS:
        table.add_column(heading, justify="left" if heading == "method" else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(fill(row)) for _, fill in COLUMNS))
    return table


def as_csv(rows: Sequence[Row]) -> str:
    """One line a method, numbers as they are; what is not known is empty."""
    kinds = list(rows[0].by_kind)
    estimates = ("accuracy", "difference", "over_single")
    numbers = ("calls", "tokens", "cost", "seconds")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "method",
            *(f"{name}{end}" for name in estimates for end in ("", "_low", "_high")),
            *(f"{name}_per_question" for name in numbers),
            "undecided_share",
            "incomplete_share",
            *(f"accuracy on {kind}" for kind in kinds),
            "note",
        ]
    )
    for row in rows:
        known = [getattr(row, name) or Estimate(math.nan, math.nan, math.nan) for name in estimates]
        values = [value for estimate in known for value in estimate]
        values += [getattr(row, f"{name}_per_question") for name in numbers]
        values += [row.undecided_share, row.incomplete_share, *(row.by_kind[kind] for kind in kinds)]
        writer.writerow([row.name, *("" if math.isnan(value) else value for value in values), row.note])
    return out.getvalue()


def markdown(title: str, found: Mapping[str, Any], rows: Sequence[Row], transfer: Transfer | None) -> str:
    """The page to read: the verdict, how it was compared, the table, kinds, notes.

    Args:
        title: what was evaluated.
        found: ``verdict``, ``terms`` (sentences), ``left_out`` (sentences) of evaluation.json.
        rows: the table.
        transfer: several coordinators, or several kinds.
    """
    kinds = list(rows[0].by_kind)
    parts = [f"# {title}", found["verdict"], " ".join(found["terms"])]
    parts.append(_grid([heading for heading, _ in COLUMNS], [[fill(row) for _, fill in COLUMNS] for row in rows]))
    parts.append(f"{CAPTION} Calls, tokens, cost and seconds are per question and as if each method were run alone.")
    if len(kinds) > 1:
        shares = [[row.name, *(_amount(100 * row.by_kind[kind], ".1f") for kind in kinds)] for row in rows]
        parts += ["## By kind of question", "Right answers in percent.", _grid(["method", *kinds], shares)]
    if transfer is not None and len(transfer.rows) > 1:
        lines = [[name, *map(percent, line)] for name, line in zip(transfer.rows, transfer.accuracy, strict=True)]
        parts += ["## Transfer", "Trained on what the row says, tested on the kind that the column says; percent."]
        parts.append(_grid(["trained on", *transfer.columns], lines))
    notes = [f"- {row.name}: {row.note}" for row in rows if row.note] + [f"- left out: {s}" for s in found["left_out"]]
    parts += ["## Notes", "\n".join(notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def _grid(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (headings, rule, *lines)
    )
