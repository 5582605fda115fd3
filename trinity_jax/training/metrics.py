"""What one generation did, as the line of metrics.jsonl and as arrays for the fitness."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from trinity_jax.episode.episode import ROLES, End
from trinity_jax.pool.journal import Totals
from trinity_jax.rollout.engine import EpisodeResult
from trinity_jax.tasks.question import Grade, Question


class Outcomes(NamedTuple):
    """A generation's episodes as arrays. ``rewards`` has NaN where an episode could not be completed."""

    rewards: Float[np.ndarray, "P R"]
    model_counts: Int[np.ndarray, "P L"]
    calls: Int[np.ndarray, "P R"]
    costs: Float[np.ndarray, "P R"]


def outcomes(results: Sequence[EpisodeResult], population: int, models: int) -> Outcomes:
    """Arrays from results that stand candidate by candidate, equally many each."""
    shape = (population, len(results) // population)
    counts = np.zeros((population, models), int)
    for result in results:
        for turn in result.state.turns:
            counts[result.key.candidate, turn.model] += 1
    return Outcomes(
        rewards(results).reshape(shape),
        counts,
        np.array([len(r.replies) for r in results]).reshape(shape),
        np.array([sum(reply.cost for reply in r.replies) for r in results]).reshape(shape),
    )


def choice_shares(
    results: Sequence[EpisodeResult], questions: Sequence[Question], names: Sequence[str]
) -> dict[str, Any]:
    """Share of each model and of each role among the turns taken; by kind of question, of each model and each pair."""
    models: Counter[str] = Counter()
    roles: Counter[str] = Counter()
    by_kind: dict[str, Counter[str]] = {question.kind: Counter() for question in questions}
    pairs: dict[str, Counter[tuple[str, str]]] = {question.kind: Counter() for question in questions}
    for result in results:
        kind = questions[result.key.question].kind
        for turn in result.state.turns:
            models[names[turn.model]] += 1
            by_kind[kind][names[turn.model]] += 1
            pairs[kind][names[turn.model], turn.role.value] += 1
            roles[turn.role.value] += 1
    return {
        "model_share": _shares(models, names),
        "role_share": _shares(roles, [role.value for role in ROLES]),
        "model_share_by_kind": {kind: _shares(count, names) for kind, count in by_kind.items()},
        "choice_share_by_kind": {kind: _pair_shares(count, names) for kind, count in pairs.items()},
    }


def spent(now: Totals, before: Totals | None, results: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Calls made, calls there would have been without sharing, tokens, cost, failed replies by outcome.

    Args:
        now: the journal's totals of the episodes' scope.
        before: the same before these episodes, where others use the scope too.
        results: the episodes.
    """
    made = now._asdict()
    if before is not None:
        made = {name: amount - getattr(before, name) for name, amount in made.items()}
    failures = Counter(r.outcome.value for result in results for r in result.replies if not r.outcome.gradable)
    return made | {"calls_without_sharing": asked(results), "failures": dict(sorted(failures.items()))}


def asked(results: Sequence[EpisodeResult]) -> int:
    """Calls of all episodes, shared ones counted for each."""
    return sum(len(result.replies) for result in results)


def rewards(results: Sequence[EpisodeResult]) -> Float[np.ndarray, " R"]:
    """Rewards, NaN where an episode could not be completed."""
    return np.array([np.nan if result.reward is None else result.reward for result in results])


def no_response_share(results: Sequence[EpisodeResult]) -> float:
    """Share of episodes that a Verifier ended with nothing to verify: they take no turn, so no share shows them."""
    return sum(r.state.end is End.NO_RESPONSE for r in results) / len(results)


def failed_share(results: Sequence[EpisodeResult]) -> float:
    """Share of episodes without a reward."""
    return sum(r.reward is None for r in results) / len(results)


def undecided_share(results: Sequence[EpisodeResult]) -> float:
    """Share of episodes whose answer could not be found or compared (they earn nothing)."""
    return sum(r.grade is Grade.UNDECIDED for r in results) / len(results)


def spread(scores: Float[np.ndarray, " P"]) -> dict[str, float | None]:
    """Between which fitnesses the middle four fifths of the candidates lie."""
    known = scores[np.isfinite(scores)]
    low, high = np.quantile(known, (0.1, 0.9)) if known.size else (np.nan, np.nan)
    return {"fitness_low": finite(low), "fitness_high": finite(high)}


def finite(value: float) -> float | None:
    """JSON has no NaN: it becomes null."""
    return float(value) if np.isfinite(value) else None


def _shares(counts: Counter[str], names: Sequence[str]) -> dict[str, float]:
    total = max(counts.total(), 1)
    return {name: counts[name] / total for name in names}


def _pair_shares(counts: Counter[tuple[str, str]], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Share of every (model, role) that was chosen, in four digits: a figure shows no more."""
    total = max(counts.total(), 1)
    chosen = {name: {r.value: counts[name, r.value] for r in ROLES if counts[name, r.value]} for name in names}
    return {name: {role: round(n / total, 4) for role, n in of.items()} for name, of in chosen.items() if of}
