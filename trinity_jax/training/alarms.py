"""What must not pass unnoticed in a generation."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from trinity_jax.errors import UserError
from trinity_jax.pool.reply import Outcome
from trinity_jax.rollout.engine import EpisodeResult


def raised(rewards: Float[np.ndarray, "P R"], fitness: Float[np.ndarray, " P"], undecided: float) -> list[str]:
    """Warnings for the metrics line and the screen; the run goes on."""
    known, fit = rewards[~np.isnan(rewards)], fitness[~np.isnan(fitness)]
    alarms = []
    if known.size and np.ptp(known) == 0:
        alarms.append(f"all rewards are {known.flat[0]:g}: nothing to select on; check the grader and the answers")
    elif fit.size and np.ptp(fit) == 0:
        alarms.append("all candidates are equally fit: nothing to select on in this generation")
    if np.isnan(rewards).all(axis=1).any():
        alarms.append("a candidate has no completed episode: it ranks last")
    if undecided > 0.5:
        alarms.append(f"{undecided:.0%} of the answers could not be read: check the replies' form")
    return alarms


def stop_on_failures(results: Sequence[EpisodeResult], limit: float, where: str, again: str = "add --resume") -> None:
    """End the run, resumable, where going on would waste money or learn from what is left by chance.

    Args:
        results: the latest episodes.
        limit: the share of them that may fail.
        where: begins the message.
        again: what to do once it is mended.

    Raises:
        UserError: the budget is spent, or more than ``limit`` of the episodes failed.
    """
    bad = [reply for result in results for reply in result.replies if not reply.outcome.gradable]
    refused = next((reply.detail for reply in bad if reply.outcome is Outcome.REFUSED_BUDGET), None)
    if refused:
        raise UserError(f"{where}: {refused}; all results are kept: raise the cap and {again}")
    share = sum(result.reward is None for result in results) / len(results)
    if share > limit:
        counts = {o.value: sum(r.outcome is o for r in bad) for o in Outcome if any(r.outcome is o for r in bad)}
        detail = next((reply.detail for reply in bad if reply.detail), "no detail")
        raise UserError(
            f"{where}: {share:.0%} of the episodes failed, more than training.max_failed_share "
            f"{limit:.0%} allows ({', '.join(f'{name} {count}' for name, count in counts.items())}; such as: "
            f"{detail}); mend the endpoints and {again}"
        )
