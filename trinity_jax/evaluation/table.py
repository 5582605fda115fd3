"""The final table: every method on the same held-out questions, and the sentence that says what it shows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from trinity_jax.evaluation.intervals import Estimate, known_mean, mean_interval, paired_difference
from trinity_jax.evaluation.scores import Scores

FEWEST_QUESTIONS = 20
"""Below this many questions a bootstrap interval is too optimistic to rest a claim on."""


@dataclass(frozen=True)
class Row:
    """One line of the table. ``difference`` is coordinator minus this method: above 0 the coordinator is better."""

    name: str
    accuracy: Estimate
    calls_per_question: float
    calls: int
    undecided_share: float
    incomplete_share: float
    difference: Estimate | None
    by_kind: Mapping[str, float]
    note: str


def row(scores: Scores, kinds: Sequence[str], coordinator: Scores | None, resamples: int, seed: int) -> Row:
    """Statistics of one method.

    Args:
        scores: of the method, Q questions by R repeats.
        kinds: the kind of each question.
        coordinator: what to compare with; ``None`` for the coordinator's own row.
        resamples: of the bootstrap.
        seed: of the bootstrap; the same for every row.
    """
    values, labels = scores.per_question, np.asarray(kinds)
    return Row(
        name=scores.name,
        accuracy=mean_interval(values, resamples, seed),
        calls_per_question=float(scores.calls.mean()),
        calls=int(scores.calls.sum()),
        undecided_share=float(scores.undecided.mean()),
        incomplete_share=float(np.isnan(scores.rewards).mean()),
        difference=coordinator and paired_difference(coordinator.per_question, values, resamples, seed),
        by_kind={kind: known_mean(values[labels == kind]) for kind in dict.fromkeys(kinds)},
        note=scores.note,
    )


def render(rows: Sequence[Row]) -> Table:
    """The table for the terminal; shares in percent, differences in percentage points."""
    table = Table(
        title="Held-out questions",
        caption="95 % bootstrap intervals over questions. Difference: coordinator minus this row, in points.",
    )
    table.add_column("method", overflow="fold")
    for heading in ("right %", "calls/question", "calls", "undecided %", "incomplete %", "difference"):
        table.add_column(heading, justify="right")
    for line in rows:
        table.add_row(
            escape(line.name),
            _percent(line.accuracy),
            f"{line.calls_per_question:.2f}",
            f"{line.calls:,}",
            f"{100 * line.undecided_share:.1f}",
            f"{100 * line.incomplete_share:.1f}",
            _points(line.difference) if line.difference else "",
        )
    return table


def verdict(questions: int, coordinator: Row, single: Row | None, fixed: Row | None) -> str:
    """One honest sentence or two: does the coordinator beat both rivals, by how much, how sure."""
    opening = (
        f"On {questions} held-out questions the coordinator answered {100 * coordinator.accuracy.mean:.1f} % right"
    )
    rivals = [(line, _comparison(line)) for line in (single, fixed) if line is not None]
    if math.isnan(coordinator.accuracy.mean):
        return "No held-out episode of the coordinator could be completed, so nothing can be said."
    if not rivals:
        return f"{opening}; it was compared with nothing."
    parts = "; ".join(f"{outcome} {line.name} ({_points(line.difference)} points)" for line, outcome in rivals)
    outcomes = {outcome for _, outcome in rivals}
    if questions < FEWEST_QUESTIONS:
        closing = f"With fewer than {FEWEST_QUESTIONS} questions these intervals are too narrow to rely on."
    elif outcomes == {BEATS}:
        closing = "Every interval lies above 0." if len(rivals) > 1 else "The interval lies above 0."
    elif fixed is not None and single is not None:
        closing = "So this run does not show that the coordinator beats both."
    else:
        closing = "So this run does not show that the coordinator is better."
    if coordinator.incomplete_share > 0:
        closing += f" {100 * coordinator.incomplete_share:.1f} % of its episodes could not be completed."
    return f"{opening}: it {parts}, 95 % intervals. {closing}"


def summary(
    rows: Sequence[Row], coordinator: str, singles: Sequence[str], fixed: str | None, questions: int
) -> dict[str, Any]:
    """What goes into summary.json about the comparison; ``None`` stands for what could not be measured.

    Args:
        rows: all lines, the coordinator's among them.
        coordinator: name of its row.
        singles: names of the rows of single models at the coordinator's number of calls; the best one counts.
        fixed: name of the row of the best fixed tri-role policy, if it was searched.
        questions: how many held-out questions there were.
    """
    by_name = {line.name: line for line in rows}
    ours = by_name[coordinator]
    single = max((by_name[name] for name in singles), key=lambda line: _or(line.accuracy.mean, -1.0), default=None)
    rival = by_name[fixed] if fixed is not None else None
    nothing = Estimate(math.nan, math.nan, math.nan)
    against_fixed = rival.difference if rival and rival.difference else nothing
    against_single = single.difference if single and single.difference else nothing
    return _plain(
        {
            "verdict": verdict(questions, ours, single, rival),
            "questions": questions,
            "coordinator_accuracy": ours.accuracy.mean,
            "coordinator_ci_low": ours.accuracy.low,
            "coordinator_ci_high": ours.accuracy.high,
            "fixed_policy": rival.note if rival else None,
            "fixed_policy_accuracy": rival.accuracy.mean if rival else None,
            "paired_diff_fixed": against_fixed.mean,
            "ci_low": against_fixed.low,
            "ci_high": against_fixed.high,
            "best_single": single.name if single else None,
            "best_single_equal_calls": single.accuracy.mean if single else None,
            "paired_diff_single": against_single.mean,
            "single_ci_low": against_single.low,
            "single_ci_high": against_single.high,
            "rows": [
                asdict(line)
                | {
                    "accuracy": line.accuracy._asdict(),
                    "difference": line.difference and line.difference._asdict(),
                }
                for line in rows
            ],
        }
    )


BEATS = "beats"


def _comparison(line: Row) -> str:
    difference = line.difference
    if difference is None or math.isnan(difference.mean):
        return "could not be compared with"
    if difference.low > 0:
        return BEATS
    return "is worse than" if difference.high < 0 else "is not told apart from"


def _percent(estimate: Estimate) -> str:
    if math.isnan(estimate.mean):
        return "-"
    return f"{100 * estimate.mean:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def _points(estimate: Estimate | None) -> str:
    if estimate is None or math.isnan(estimate.mean):
        return "unknown"
    return f"{100 * estimate.mean:+.1f} [{100 * estimate.low:+.1f}, {100 * estimate.high:+.1f}]"


def _or(value: float, default: float) -> float:
    return default if math.isnan(value) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
