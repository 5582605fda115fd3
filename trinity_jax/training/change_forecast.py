"""What a change of the pool will take, before a call is made; on a terminal, the question."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from trinity_jax.errors import UserError
from trinity_jax.evaluation.forecast import reach
from trinity_jax.pool.ledger import most_input_tokens, price_of
from trinity_jax.pool.pool import Pool
from trinity_jax.pool.reply import Message
from trinity_jax.tasks.question import Question

if TYPE_CHECKING:
    from trinity_jax.training.pool_change import Job

ACCEPT = 0.6
"""A Verifier's share of acceptances, for the forecast alone."""


def forecast(job: "Job", questions: int, asked: int, alone: bool) -> list[tuple[str, float, int]]:
    """Calls by part: about (uniform choices), and at most.

    Args:
        job: the change.
        questions: Q.
        asked: how many models are asked.
        alone: a check, which is probes alone.
    """
    change, episode = job.change, job.coordinator.description.episode
    each, K = sum(reach(episode.max_calls, ACCEPT, episode.verifier_needs_response)), episode.max_calls
    probes = asked * questions * change.samples
    parts = [("probes", float(probes), probes)]
    if not alone:
        looks, candidates = questions * change.looks, change.population * change.generations
        # Candidates of a trained coordinator mostly agree: the first generation makes about 2.5 times the calls of one
        # of them, each later one 0.4 times (`kind: pool_change`).
        policies = 2.5 + 0.4 * (change.generations - 1) if change.generations else 0.0
        parts += [
            ("a look at its own episodes", looks * each, looks * K),
            ("short evolution", policies * questions * each, candidates * questions * K),
        ]
    return parts


def ask(
    job: "Job",
    pool: Pool,
    questions: Sequence[Question],
    asked: int,
    console: Console,
    yes: bool,
    alone: bool = False,
) -> None:
    """Show what it will take; on a terminal, ask.

    Raises:
        UserError: the answer is no.
    """
    parts = forecast(job, len(questions), asked, alone)
    for name, few, many in parts:
        console.print(f"{name}: about {few:,.0f} calls, at most {many:,}")
    K = job.coordinator.description.episode.max_calls
    longest = max(((Message("user", question.prompt),) for question in questions), key=most_input_tokens)
    dearest = max(
        seat.attempts
        * price_of(seat.price, most_input_tokens(longest) + K * seat.sampling.max_tokens, seat.sampling.max_tokens)
        for seat in pool.seats
    )
    about, most = sum(part[1] for part in parts), sum(part[2] for part in parts)
    console.print(f"in all about {about:,.0f} calls, at most {most:,} and {dearest * most:.4g} of money")
    if yes:
        return
    if not (console.is_terminal and sys.stdin.isatty()):
        console.print("no terminal to ask on: going on; the pool file's budget caps what it may take")
        return
    if console.input("Go on? \\[y/N] ").strip().lower() not in ("y", "yes"):
        raise UserError("stopped by the answer; nothing was called")
