"""The final table: every method on the same held-out questions, and the sentence that says what it shows."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from trinity_jax.evaluation.intervals import (
    FEWEST_QUESTIONS,
    Estimate,
    known_mean,
    mean_interval,
    paired_difference,
)
from trinity_jax.evaluation.scores import Scores


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        difference: coordinator minus this method: above 0 the coordinator is better; None in its own row.
        over_single: this method minus the best single model: above 0 this method is better; None in that one's row.
        tokens_per_question: in and out; NaN where it was not looked at, as cost, seconds and failed.
        seconds_per_question: of waiting for models; calls that need not wait for one another count once.
        failed_per_question: calls that failed.
        budget: whether it takes ``fewer`` calls a question than the coordinator, ``equal`` or ``more``, both rounded
            up; None in the coordinator's own row.
        ceiling: it was told or picked with what nobody knows of a new question.
        difference_questions: how many questions ``difference`` stands on: both completed them.
        over_single_questions: the same of ``over_single``.
    """

    name: str
    accuracy: Estimate
    calls_per_question: float
    calls: int
    undecided_share: float
    incomplete_share: float
    difference: Estimate | None
    by_kind: Mapping[str, float]
    note: str
    over_single: Estimate | None = None
    tokens_per_question: float = math.nan
    cost_per_question: float = math.nan
    seconds_per_question: float = math.nan
    failed_per_question: float = math.nan
    budget: str | None = None
    ceiling: bool = False
    difference_questions: int | None = None
    over_single_questions: int | None = None


def row(
    scores: Scores,
    kinds: Sequence[str],
    coordinator: Scores | None,
    resamples: int,
    seed: int,
    single: Scores | None = None,
) -> Row:
    """Statistics of one method.

    Args:
        scores: of the method, Q questions by R repeats.
        kinds: the kind of each question.
        coordinator: what to compare with; ``None`` for the coordinator's own row.
        resamples: of the bootstrap.
        seed: of the bootstrap; the same for every row.
        single: the best single model; ``None`` for its own row.
    """
    values, labels = scores.per_question, np.asarray(kinds)
    spent = scores.spent._asdict() if scores.spent else {}
    took = {f"{name}_per_question": float(amount.mean()) for name, amount in spent.items()}
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
        over_single=single and paired_difference(values, single.per_question, resamples, seed),
        budget=coordinator and _budget(scores, coordinator),
        ceiling=scores.ceiling,
        difference_questions=coordinator and _joint(coordinator, scores),
        over_single_questions=single and _joint(scores, single),
        **took,
    )


def _budget(scores: Scores, coordinator: Scores) -> str:
    calls, allowed = (max(1, math.ceil(one.calls.mean())) for one in (scores, coordinator))
    return "fewer" if calls < allowed else "more" if calls > allowed else "equal"


def _joint(one: Scores, other: Scores) -> int:
    """Questions that both completed at least once."""
    return int((~np.isnan(one.per_question) & ~np.isnan(other.per_question)).sum())


CAPTION = (
    "95 % bootstrap intervals over questions, each by itself: not corrected for the number of rows, and none on fewer "
    f"than {FEWEST_QUESTIONS} questions. Differences are in points, on the questions that both completed. Budget: "
    "fewer, equal or more calls than the coordinator's, rounded up. Incomplete: a call failed, and the episode counts "
    "nowhere; a plurality and a mixture go on without such a call, and so does the oracle. Calls, tokens, cost and "
    "seconds are per question."
)


def _amount(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)


# Heading and how a row fills it.
COLUMNS: dict[str, Callable[[Row], str]] = {
    "method": lambda row: row.name,
    "right %": lambda row: percent(row.accuracy),
    "undecided %": lambda row: f"{100 * row.undecided_share:.1f}",
    "coordinator minus it": lambda row: _on(row.difference, row.difference_questions),
    "it minus best single": lambda row: _on(row.over_single, row.over_single_questions),
    "calls": lambda row: f"{row.calls_per_question:.2f}",
    "budget": lambda row: row.budget or "",
    "calls in all": lambda row: f"{row.calls:,}",
    "tokens": lambda row: _amount(row.tokens_per_question, ",.0f"),
    "cost": lambda row: _amount(row.cost_per_question, ".3g"),
    "seconds": lambda row: _amount(row.seconds_per_question, ".3g"),
    "incomplete %": lambda row: f"{100 * row.incomplete_share:.1f}",
}
OF_A_RUN = (
    "method",
    "right %",
    "undecided %",
    "calls",
    "budget",
    "calls in all",
    "incomplete %",
    "coordinator minus it",
)
"""What is shown at the end of a run."""
OF_AN_EVALUATION = tuple(heading for heading in COLUMNS if heading != "calls in all")
"""What ``evaluate`` shows."""


def render(rows: Sequence[Row], columns: Sequence[str] = OF_A_RUN) -> Table:
    """The table for the terminal; shares in percent, differences in percentage points; ``columns`` of ``COLUMNS``."""
    table = Table(title="Held-out questions", caption=CAPTION)
    for heading in columns:
        table.add_column(heading, justify="left" if heading == "method" else "right", overflow="fold")
    for line in rows:
        table.add_row(*(escape(COLUMNS[heading](line)) for heading in columns))
    return table


def verdict(
    questions: int, coordinator: Row, single: Row | None, fixed: Row | None, chosen_before: bool = False
) -> str:
    """A few honest sentences: does the coordinator beat both rivals, by how much, how sure.

    Args:
        questions: how many there were.
        coordinator: its row.
        single: the best single model at the coordinator's number of calls.
        fixed: the best fixed tri-role policy.
        chosen_before: whether that model was chosen on other questions than these.
    """
    opening = (
        f"On {questions} held-out questions the coordinator answered {100 * coordinator.accuracy.mean:.1f} % right "
        f"({100 * coordinator.undecided_share:.1f} % undecided)"
    )
    rivals = [(line, _comparison(line)) for line in (single, fixed) if line is not None]
    if math.isnan(coordinator.accuracy.mean):
        return "No held-out episode of the coordinator could be completed, so nothing can be said."
    if not rivals:
        return f"{opening}; it was compared with nothing."
    parts = "; ".join(f"{outcome} {line.name} ({_in_words(line, questions)})" for line, outcome in rivals)
    outcomes = {outcome for _, outcome in rivals}
    if questions < FEWEST_QUESTIONS:
        closing = f"On fewer than {FEWEST_QUESTIONS} questions there is no interval to rely on."
    elif outcomes == {BEATS}:
        closing = "Every interval lies above 0." if len(rivals) > 1 else "The interval lies above 0."
    elif fixed is not None and single is not None:
        closing = "So this run does not show that the coordinator beats both."
    else:
        closing = "So this run does not show that the coordinator is better."
    if single is not None:
        closing += (
            " The single model was chosen on the training questions."
            if chosen_before
            else " The single model was picked on these questions, which favours it."
        )
    if coordinator.incomplete_share > 0:
        closing += f" {100 * coordinator.incomplete_share:.1f} % of its episodes could not be completed."
    intervals = ", 95 % intervals" if outcomes - {UNKNOWN, TOO_FEW} else ""
    return f"{opening}: it {parts}{intervals}. {closing}"


def summary(
    rows: Sequence[Row],
    coordinator: str,
    single: str | None,
    fixed: str | None,
    questions: int,
    chosen_before: bool = False,
) -> dict[str, Any]:
    """What goes into summary.json about the comparison; ``None`` stands for what could not be measured.

    Args:
        rows: all lines, the coordinator's among them.
        coordinator: name of its row.
        single: name of the row of the best single model at the coordinator's number of calls.
        fixed: name of the row of the best fixed tri-role policy, if it was searched.
        questions: how many held-out questions there were.
        chosen_before: whether that model was chosen on other questions than these.
    """
    by_name = {line.name: line for line in rows}
    ours = by_name[coordinator]
    alone = by_name[single] if single is not None else None
    rival = by_name[fixed] if fixed is not None else None
    nothing = Estimate(math.nan, math.nan, math.nan)
    against_fixed = rival.difference if rival and rival.difference else nothing
    against_single = alone.difference if alone and alone.difference else nothing
    return plain(
        {
            "verdict": verdict(questions, ours, alone, rival, chosen_before),
            "questions": questions,
            "coordinator_accuracy": ours.accuracy.mean,
            "coordinator_ci_low": ours.accuracy.low,
            "coordinator_ci_high": ours.accuracy.high,
            "coordinator_undecided_share": ours.undecided_share,
            "fixed_policy": rival.note if rival else None,
            "fixed_policy_accuracy": rival.accuracy.mean if rival else None,
            "paired_diff_fixed": against_fixed.mean,
            "ci_low": against_fixed.low,
            "ci_high": against_fixed.high,
            "best_single": single,
            "best_single_equal_calls": alone.accuracy.mean if alone else None,
            "paired_diff_single": against_single.mean,
            "single_ci_low": against_single.low,
            "single_ci_high": against_single.high,
            "rows": [as_json(line) for line in rows],
        }
    )


def as_json(line: Row) -> dict[str, Any]:
    """A row as mappings and numbers; what is not known is None."""
    estimates = {key: getattr(line, key) for key in ("accuracy", "difference", "over_single")}
    return plain(asdict(line) | {key: value and value._asdict() for key, value in estimates.items()})


BEATS = "beats"
UNKNOWN = "could not be compared with"
TOO_FEW = "shares too few questions with"


def _comparison(line: Row) -> str:
    difference = line.difference
    if difference is None or math.isnan(difference.mean):
        return UNKNOWN
    if math.isnan(difference.low):
        return TOO_FEW
    if difference.low > 0:
        return BEATS
    return "is worse than" if difference.high < 0 else "is not told apart from"


def _in_words(line: Row, questions: int) -> str:
    stands_on = line.difference_questions
    part = f" on {stands_on} questions" if stands_on is not None and stands_on < questions else ""
    return f"{points(line.difference)} points{part}"


def _on(difference: Estimate | None, questions: int | None) -> str:
    return "" if difference is None else f"{points(difference)} on {questions}"


def percent(estimate: Estimate) -> str:
    """A share with its interval, in percent."""
    if math.isnan(estimate.low):
        return _amount(100 * estimate.mean, ".1f")
    return f"{100 * estimate.mean:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def points(estimate: Estimate | None) -> str:
    """A difference with its interval, in percentage points."""
    if estimate is None or math.isnan(estimate.mean):
        return "unknown"
    if math.isnan(estimate.low):
        return f"{100 * estimate.mean:+.1f}"
    return f"{100 * estimate.mean:+.1f} [{100 * estimate.low:+.1f}, {100 * estimate.high:+.1f}]"


def plain(value: Any) -> Any:
    """NaN, which JSON has not, as None; also within."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
