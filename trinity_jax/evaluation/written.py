"""An evaluation as files: ``evaluation.csv`` for a sheet, ``.md`` to read, the matrix of ``.json``."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trinity_jax.evaluation.intervals import Estimate
from trinity_jax.evaluation.table import CAPTION, COLUMNS, OF_AN_EVALUATION, Row, percent, plain


class Transfer(NamedTuple):
    """Coordinators and what each was trained on (rows), and how they do on each kind of question (columns)."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    accuracy: tuple[tuple[Estimate, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """Means, lows and highs as three matrices of shares."""
        whole: dict[str, Any] = {"rows": list(self.rows), "columns": list(self.columns)}
        for name, key in (("accuracy", "mean"), ("low", "low"), ("high", "high")):
            whole[name] = [[getattr(cell, key) for cell in line] for line in self.accuracy]
        return whole


def as_csv(rows: Sequence[Row]) -> str:
    """One line a method, numbers as they are; what is not known is empty."""
    kinds = list(rows[0].by_kind)
    estimates = ("accuracy", "difference", "over_single")
    numbers = ("calls", "tokens", "cost", "seconds", "failed")
    counts = ("difference_questions", "over_single_questions")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "method",
            *(f"{name}{end}" for name in estimates for end in ("", "_low", "_high")),
            *counts,
            *(f"{name}_per_question" for name in numbers),
            "budget",
            "ceiling",
            "undecided_share",
            "incomplete_share",
            *(f"accuracy on {kind}" for kind in kinds),
            "note",
        ]
    )
    for row in rows:
        known = [getattr(row, name) or Estimate(math.nan, math.nan, math.nan) for name in estimates]
        values = [value for estimate in known for value in estimate]
        amounts = [getattr(row, f"{name}_per_question") for name in numbers]
        shares = [row.undecided_share, row.incomplete_share, *(row.by_kind[kind] for kind in kinds)]
        stands_on = [getattr(row, name) for name in counts]
        said = [row.name, *values, *stands_on, *amounts, row.budget, row.ceiling, *shares, row.note]
        writer.writerow([plain(value) for value in said])
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
    parts.append(_grid(OF_AN_EVALUATION, [[COLUMNS[heading](row) for heading in OF_AN_EVALUATION] for row in rows]))
    parts.append(f"{CAPTION} They are as if each method were run alone.")
    if len(kinds) > 1:
        nothing = Estimate(math.nan, math.nan, math.nan)
        shares = [[row.name, *(percent(nothing._replace(mean=row.by_kind[kind])) for kind in kinds)] for row in rows]
        parts += ["## By kind of question", "Right answers in percent.", _grid(["method", *kinds], shares)]
    if transfer is not None and len(transfer.rows) > 1:
        lines = [[name, *map(percent, line)] for name, line in zip(transfer.rows, transfer.accuracy, strict=True)]
        parts += [
            "## Transfer",
            "A coordinator for each row, the kind of question that it is tested on for each column; percent.",
        ]
        parts.append(_grid(["coordinator", *transfer.columns], lines))
    notes = [f"- {row.name}: {row.note}" for row in rows if row.note] + [f"- left out: {s}" for s in found["left_out"]]
    parts += ["## Notes", "\n".join(notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def _grid(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (headings, rule, *lines)
    )
