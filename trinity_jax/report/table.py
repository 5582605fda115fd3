"""The evaluation as a table, a figure and a matrix: of ``evaluation/evaluation.json``, else of the run's summary."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from trinity_jax.report.figures import Chart, interval_chart
from trinity_jax.report.folder import RunRecord, as_dict, as_dicts, as_list, number

UNKNOWN = {"mean": None, "low": None, "high": None}

# (key of a row, heading, how it is shown); a column that no row fills is left out.
COLUMNS = (
    ("calls_per_question", "Calls per question", "count"),
    ("calls", "Calls", "whole"),
    ("tokens_per_question", "Tokens per question", "whole"),
    ("cost_per_question", "Cost per question", "money"),
    ("seconds_per_question", "Seconds per question", "count"),
    ("undecided_share", "Undecided %", "percent"),
    ("incomplete_share", "Incomplete %", "percent"),
)


class Evaluation(NamedTuple):
    """What the page shows of an evaluation; ``rows`` are empty where there was none."""

    verdict: str
    caption: str
    rows: list[dict[str, Any]]
    columns: list[tuple[str, str, str]]
    compared: bool
    over_single: bool
    kinds: list[str]
    best: dict[str, float]
    chart: Chart | None
    transfer: dict[str, Any] | None
    terms: list[str]


def evaluation(run: RunRecord) -> Evaluation:
    """The latest comparison on held-out questions that the folder holds."""
    found = run.evaluation or run.summary or {}
    rows = [_row(row, number(found.get("questions"))) for row in as_dicts(found.get("rows"))]
    kinds = list(dict.fromkeys(kind for row in rows for kind in row["by_kind"]))
    known = {kind: [v for row in rows if (v := number(row["by_kind"].get(kind))) is not None] for kind in kinds}
    return Evaluation(
        str(found.get("verdict") or ""),
        _caption(found, own=run.evaluation is not None),
        rows,
        [column for column in COLUMNS if any(number(row[column[0]]) is not None for row in rows)],
        any(number(row["difference"]["mean"]) is not None for row in rows),
        any(number(row["over_single"]["mean"]) is not None for row in rows),
        kinds,
        {kind: max(values) for kind, values in known.items() if values},
        _chart(rows),
        _transfer(found.get("transfer")),
        [str(sentence) for key in ("terms", "left_out") for sentence in as_list(found.get(key))],
    )


def _caption(found: Mapping[str, Any], own: bool) -> str:
    text = (
        "95 % bootstrap intervals that resample questions. Difference: coordinator minus this row on the same "
        "questions, in percentage points; above 0 the coordinator is better. Intervals are not corrected for the "
        "number of rows."
    )
    if any((number(as_dict(row).get("incomplete_share")) or 0) > 0 for row in as_list(found.get("rows"))):
        text += (
            " Incomplete: a call failed, and the episode counts nowhere; a plurality and a mixture go on without such "
            "a call, and so does the oracle."
        )
    if own:
        questions, repeats = (number(found.get(key)) for key in ("questions", "repeats"))
        played = f" {questions:,.0f} questions" if questions else ""
        played += f", each played {repeats:,.0f} times" if played and repeats and repeats > 1 else ""
        return text + (f"{played}." if played else "")
    text += (
        " The number of votes of a plurality is the coordinator's own mean number of calls, rounded up; the best "
        "single model is picked on these same questions, which favours it. Calls are counted for each method as if "
        "it were run alone."
    )
    search = as_dict(found.get("fixed_policy_search"))
    numbers = [number(search.get(key)) for key in ("policies", "questions", "repeats", "calls", "calls_made")]
    if any(n is None for n in numbers):
        return text
    return text + (
        " The best fixed policy was chosen among {:,.0f} on {:,.0f} training questions (played {:,.0f} times each) "
        "with {:,.0f} calls (of which {:,.0f} had to be made).".format(*numbers)
    )


def _row(row: dict[str, Any], questions: float | None) -> dict[str, Any]:
    return {
        "name": str(row.get("name", "?")),
        "note": _note(row, questions),
        "accuracy": UNKNOWN | as_dict(row.get("accuracy")),
        "difference": UNKNOWN | as_dict(row.get("difference")),
        "over_single": UNKNOWN | as_dict(row.get("over_single")),
        "by_kind": as_dict(row.get("by_kind")),
        **{key: row.get(key) for key, _, _ in COLUMNS},
    }


def _note(row: Mapping[str, Any], questions: float | None) -> str:
    """How it was played, and what an equal number would hide: calls, and questions that one of the two lacks."""
    budgets = {name: f"{name} calls than the coordinator" for name in ("fewer", "more")}
    shared = number(row.get("difference_questions"))
    parts = [
        str(row.get("note") or ""),
        budgets.get(str(row.get("budget")), ""),
        f"difference on {shared:.0f} questions" if shared is not None and shared != questions else "",
    ]
    return "; ".join(part for part in parts if part)


def _chart(rows: list[dict[str, Any]]) -> Chart | None:
    known = []
    for row in rows:
        mean, low, high = (number(row["accuracy"][key]) for key in ("mean", "low", "high"))
        if mean is not None and low is not None and high is not None:
            known.append((row["name"], mean, low, high))
    return interval_chart(
        "accuracy",
        "Accuracy by method",
        "Dots are means over all held-out questions, lines their 95 % intervals; the dashed line is the first method's "
        "mean. Two intervals that overlap may still differ: the paired difference in the table tells.",
        known,
        "right answers",
    )


def _transfer(found: Any) -> dict[str, Any] | None:
    """Rows are what was trained on, columns what was tested on."""
    transfer = as_dict(found)
    rows, columns = (list(map(str, as_list(transfer.get(key)))) for key in ("rows", "columns"))
    matrices = {
        key: _matrix(transfer.get(name)) for key, name in (("mean", "accuracy"), ("low", "low"), ("high", "high"))
    }
    shape = [len(columns)] * len(rows)
    if not rows or [len(line) for line in matrices["mean"]] != shape:
        return None
    known = {key: matrix for key, matrix in matrices.items() if [len(line) for line in matrix] == shape}
    cells = [[UNKNOWN | {k: m[i][j] for k, m in known.items()} for j in range(len(columns))] for i in range(len(rows))]
    return {"columns": columns, "rows": list(zip(rows, cells, strict=True))}


def _matrix(value: Any) -> list[list[float | None]]:
    return [[number(cell) for cell in as_list(line)] for line in as_list(value)]
