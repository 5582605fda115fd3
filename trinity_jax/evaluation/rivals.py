"""The rows that only an evaluation has, not the end of every run: each is a known way to use the same pool."""

from collections.abc import Sequence

import numpy as np

from trinity_jax.errors import UserError
from trinity_jax.evaluation.bench import Bench
from trinity_jax.evaluation.intervals import known_mean
from trinity_jax.evaluation.mixture import mix
from trinity_jax.evaluation.prompted import coordinate
from trinity_jax.evaluation.reflection import reflect
from trinity_jax.evaluation.routers import Learned, knn, logistic
from trinity_jax.evaluation.scores import Scores, by_question

BY_TRAINING = ("per_kind", "knn", "logistic")
"""Rows that choose by answers to training questions."""
ROUTERS = {"knn": (knn, "kNN router"), "logistic": (logistic, "logistic router")}


async def play_rivals(
    bench: Bench, single: Sequence[Scores], plural: Sequence[Scores], wanted: Sequence[str], learned: Learned | None
) -> tuple[list[Scores], tuple[str, ...]]:
    """The rows ``wanted`` in a fixed order, and what had to be left out, with reasons.

    Args:
        bench: the questions and who answers.
        single: the models' rows at one call.
        plural: the models' rows at K calls.
        wanted: names of ``EvaluationSettings.rivals``.
        learned: answers to training questions, if there are any.

    Raises:
        UserError: ``evaluation.prompted`` names no model of the pool.
    """
    rows: list[Scores] = []
    left_out = {name: "there are no training questions to choose on" for name in BY_TRAINING if learned is None}
    leader, names = bench.terms.evaluation.prompted, bench.pool.names
    if leader is not None and leader not in names:
        raise UserError(f"evaluation.prompted: expected one of {', '.join(names)}, got {leader!r}")
    means = [known_mean(s.per_question) for s in single]
    best = learned.best() if learned else int(np.nanargmax(means)) if not np.isnan(means).all() else 0
    if bench.simulated:
        left_out["prompted"] = "simulated models cannot be told to coordinate"
    if bench.votes == 1:
        left_out["reflection"] = "the coordinator takes one call, which leaves none to look back"
    if learned is not None and "per_kind" in wanted:
        rows.append(_per_kind(bench, plural, learned))
    for name, (route, title) in ROUTERS.items():
        if learned is not None and learned.states is not None and name in wanted:
            choice, how = route(learned.states[0], learned.rewards, learned.states[1])
            note = f"{how}; fitted on {learned.calls:,} calls, one per model and training question"
            # At the coordinator's number of calls too, or the router's one call would be set against K.
            if bench.votes > 1:
                rows.append(by_question(f"{title}, plurality of {bench.votes}", plural, choice, note))
            rows.append(by_question(f"{title}, one call", single, choice, note))
    if "prompted" in wanted and "prompted" not in left_out:
        rows.append(await coordinate(bench, best if leader is None else names.index(leader)))
    if "mixture" in wanted:
        rows.append(await mix(bench, best))
    if "reflection" in wanted and "reflection" not in left_out:
        rows += [await reflect(bench, model) for model in range(len(names))]
    return rows, tuple(f"{name} ({why})" for name, why in left_out.items() if name in wanted)


def _per_kind(bench: Bench, plural: Sequence[Scores], learned: Learned) -> Scores:
    kinds = [question.kind for question in bench.questions]
    best = {kind: learned.best(kind) for kind in dict.fromkeys(kinds)}
    note = ", ".join(f"{kind}: {bench.pool.names[best[kind]]}" for kind in best)
    choice = np.array([best[kind] for kind in kinds])
    return by_question(
        f"best single model per kind, plurality of {bench.votes} (it is told the kind)",
        plural,
        choice,
        note,
        ceiling=True,
    )
