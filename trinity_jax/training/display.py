"""What a person sees while a run goes on: a live line on a terminal, a line per generation elsewhere."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Display:
    """Progress of one run; use as a context manager around the loop."""

    def __init__(self, console: Console, generations: int, done: int):
        self._console = console
        self._progress = Progress(
            TextColumn("generation"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=generations, completed=done, status="")

    def __enter__(self) -> "Display":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def generation(self, line: Mapping[str, Any], calls: int, cost: float) -> None:
        """One generation is done: its metrics line, and the calls and cost of the run so far."""
        accuracy, undecided = line["validation_accuracy"], line["validation_undecided_share"]
        status = f"reward {_number(line['reward_mean'])} ({line['undecided_share']:.1%} undecided)"
        status += f"  validation {accuracy:.3f} ({undecided:.1%})" if accuracy is not None else ""
        status += f"  calls {calls:,}" + (f"  cost {cost:.4g}" if cost else "")
        self._progress.update(self._task, completed=line["generation"] + 1, status=status)
        if not self._console.is_terminal:
            self._console.print(f"generation {line['generation']}  {status}  {line['seconds']['total']:.1f} s")
        for alarm in line["alarms"]:
            self._console.print(f"[yellow]generation {line['generation']}: {escape(alarm)}[/yellow]")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
