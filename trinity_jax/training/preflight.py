"""Preflight: alone (``python -m trinity_jax preflight``) or before a run's first generation; asks on a terminal."""

import asyncio
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from trinity_jax.config import Settings
from trinity_jax.errors import UserError
from trinity_jax.evaluation import preflight
from trinity_jax.pool.journal import Journal
from trinity_jax.tasks.jsonl import Tasks
from trinity_jax.training.folder import RunFolder
from trinity_jax.training.rig import build_model, open_pool


def wanted(settings: Settings) -> bool:
    """Whether a run begins with a preflight: by default where models are called, not where they are simulated."""
    run = settings.preflight.run
    return settings.pool.kind == "endpoints" if run == "auto" else run == "always"


def alone(settings: Settings, folder: Path, console: Console, yes: bool = False) -> None:
    """The command: a preflight whose calls stay in ``folder``, where the run may begin afterwards.

    Raises:
        UserError: whatever is wrong with settings, files or models.
    """
    place = RunFolder.checked(folder)
    model = build_model(settings)
    fly(settings, place, model.tasks, model.learner.population, console, yes)
    console.print(f"its calls are kept: add --run-dir {escape(str(folder))} to the run")


def fly(
    settings: Settings, folder: RunFolder, tasks: Tasks, population: int, console: Console, yes: bool = False
) -> None:
    """Check, show, ask.

    Faults stop it anywhere. Without any, see `ask` (the budget's caps hold).

    Raises:
        UserError: a model that cannot be used, or the answer is no.
    """

    async def checked() -> preflight.Findings:
        with Journal.open(folder.journal) as journal:
            async with await open_pool(settings, tasks, journal) as pool:
                questions = tasks.validation[: settings.preflight.questions]
                return await preflight.inspect(pool, questions, settings)

    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder.path}: cannot be made ({error.strerror})") from error
    try:
        findings = asyncio.run(checked())
    except UserError:
        folder.abandon_unpaid()
        raise
    folder.write_preflight(preflight.summary(findings, settings, population))
    preflight.show(console, findings, settings, population)
    if findings.faults:
        raise UserError(f"preflight: {'; '.join(findings.faults)}; mend it, or skip the preflight")
    ask(console, yes, "preflight")


def ask(console: Console, yes: bool, what: str) -> None:
    """Put the question on a terminal; elsewhere nobody could answer, and it goes on.

    Raises:
        UserError: the answer is no; ``what`` begins the message.
    """
    if yes:
        return
    if not (console.is_terminal and sys.stdin.isatty()):
        console.print(
            "no terminal to ask on: going on; budget.calls, budget.cost and budget.tokens cap what it may take"
        )
        return
    if console.input("Go on? \\[y/N] ").strip().lower() not in ("y", "yes"):
        raise UserError(f"{what}: stopped by the answer; what was paid for is kept")
