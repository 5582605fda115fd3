"""A trained coordinator against everything else that could be done with its pool, on questions that are new to it."""

import asyncio
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trinity_jax.config import EpisodeSettings
from trinity_jax.coordinator.export import Coordinator
from trinity_jax.coordinator.ready import Ready, make_ready
from trinity_jax.episode.episode import start
from trinity_jax.episode.transcript import view
from trinity_jax.errors import UserError
from trinity_jax.evaluation import forecast, table, written
from trinity_jax.evaluation.baselines import FIXED, Comparison, compare
from trinity_jax.evaluation.bench import worker_samples
from trinity_jax.evaluation.intervals import mean_interval
from trinity_jax.evaluation.reflection import TITLE
from trinity_jax.evaluation.rivals import ROUTERS
from trinity_jax.evaluation.routers import Learned
from trinity_jax.evaluation.scores import Scores, episode_keys, from_results
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.pool import Pool
from trinity_jax.pool.records import CALL_COLUMNS, Records
from trinity_jax.pool.reply import Message
from trinity_jax.rollout.batcher import Batcher
from trinity_jax.rollout.engine import EpisodeResult, rollout
from trinity_jax.tasks.jsonl import Tasks
from trinity_jax.tasks.question import Question
from trinity_jax.training.alarms import stop_on_failures
from trinity_jax.training.folder import write_whole
from trinity_jax.training.loop import HELD_OUT
from trinity_jax.training.preflight import ask
from trinity_jax.training.rig import open_pool
from trinity_jax.training.trial import Trial
from trinity_jax.training.warm_start import PROBES_SCOPE

SCOPE = "evaluation"
"""Of the calls at the end of a run too: equal calls are the same call, and a run's are taken over."""


def evaluate(trial: Trial, out: Path, console: Console, yes: bool = False) -> dict[str, Any]:
    """Forecast, ask, play, compare and write; returns what evaluation.json holds.

    Calls are kept in ``out``, so that the same evaluation again pays nothing; what runs have paid for already is taken
    over from them.

    Raises:
        UserError: a folder that cannot be written, models that fail, a spent budget, the answer no.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot be made ({error.strerror})") from error
    return asyncio.run(_evaluate(trial, out, console, yes))


async def _evaluate(trial: Trial, out: Path, console: Console, yes: bool) -> dict[str, Any]:
    settings = trial.settings
    again = f"give the same command again ({out} keeps all replies)"
    with Journal.open(out / "journal.sqlite") as journal:
        for one in trial.coordinators:
            if one.run and one.run.journal.is_file():
                await take_over(one.run.journal, journal)
        async with await open_pool(settings, Tasks(trial.train, (), trial.test), journal) as pool:
            show_forecast(trial, pool, console)
            if settings.pool.kind == "endpoints":
                ask(console, yes, "evaluate")
            played, states = await _coordinators(trial, pool, again)
            learned = await learn(trial, pool, states)
            compared = await compare(
                played[0],
                trial.train,
                trial.test,
                pool,
                settings,
                SCOPE,
                trial.search_episodes,
                settings.evaluation.rivals,
                learned,
            )
            if pool.counters.refused:
                raise UserError(f"evaluate: the budget is spent: raise the cap and {again}")
            compared = without_failures(compared, settings.training.max_failed_share, again)
            made, asked = pool.counters.made, pool.counters.asked
    others = [
        from_results(f"coordinator of {one.name}", results)
        for one, results in zip(trial.coordinators[1:], played[1:], strict=True)
    ]
    compared = replace(compared, scores=(compared.scores[0], *others, *compared.scores[1:]))
    transfer = transferred(trial, [compared.scores[0], *others], compared.kinds)
    found = _write(trial, out, console, compared, transfer, terms(trial, compared, learned))
    console.print(f"{made:,} calls made, of {asked:,} that the table stands on; written to {escape(str(out))}")
    return found


async def _coordinators(
    trial: Trial, pool: Pool, again: str
) -> tuple[list[list[EpisodeResult]], tuple[np.ndarray, np.ndarray] | None]:
    """Every coordinator's episodes, and, for routers, hidden states of training and test questions by the first."""
    settings, played, states = trial.settings, [], None
    for one in trial.coordinators:
        ready, own = make_ready(one.coordinator, seed=settings.seed), settings.episode
        if not played:
            if trial.train and any(name in ROUTERS for name in settings.evaluation.rivals):
                states = (hidden(ready, trial.train, own), hidden(ready, trial.test, own))
        else:
            # Its transcripts are part of what it was trained on; the number of calls is everybody's.
            own = one.coordinator.description.episode.model_copy(update={"max_calls": own.max_calls})
        played.append(await play(ready, trial, pool, own))
        stop_on_failures(played[-1], settings.training.max_failed_share, f"evaluate: {one.name}", again)
    return played, states


def _write(
    trial: Trial,
    out: Path,
    console: Console,
    compared: Comparison,
    transfer: written.Transfer | None,
    sentences: list[str],
) -> dict[str, Any]:
    evaluation = trial.settings.evaluation
    rows = compared.rows(evaluation.bootstrap, trial.settings.seed)
    found = compared.summary(rows)
    found |= {
        "verdict": found["verdict"] + critical(rows, compared.best_single) + better(rows),
        "repeats": evaluation.repeats,
        "coordinators": [one.name for one in trial.coordinators],
        "terms": sentences,
        "left_out": list(compared.left_out),
        "transfer": transfer and table.plain(transfer.as_json()),
    }
    title = f"Evaluation of {', '.join(found['coordinators'])}"
    try:
        write_whole(out / "evaluation.json", json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
        write_whole(out / "evaluation.csv", written.as_csv(rows))
        write_whole(out / "evaluation.md", written.markdown(title, found, rows, transfer))
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror}); its journal keeps all replies") from error
    console.print(table.render(rows, table.OF_AN_EVALUATION))
    console.print(escape(found["verdict"]), highlight=False)
    for reason in compared.left_out:
        console.print(f"left out: {escape(reason)}", highlight=False)
    return found


async def take_over(run: Path, journal: Journal) -> None:
    """Replies that a run has paid for and an evaluation would ask for again, and what costly graders said."""
    columns = ", ".join(CALL_COLUMNS)
    with Records.read(run) as records:
        wanted = (SCOPE, f"{SCOPE} search", PROBES_SCOPE)
        rows = records.query(f"SELECT {columns} FROM calls WHERE outcome IS NOT NULL AND scope IN (?, ?, ?)", wanted)
        grades = records.grades()
    await journal.take_calls(rows)
    await journal.take_grades(grades)


async def play(ready: Ready, trial: Trial, pool: Pool, episode: EpisodeSettings) -> list[EpisodeResult]:
    """The coordinator's episodes on the test questions, with the keys and the luck of the end of its run."""
    settings = trial.settings
    batcher = Batcher(ready.population, ready.router, episode, pool.journal)
    batcher.mode = settings.policy.evaluate
    batcher.recall(_number(ready.coordinator, trial, episode))
    keys = episode_keys(len(trial.test), settings.evaluation.repeats, generation=HELD_OUT)
    try:
        return await rollout(keys, trial.test, batcher, pool, episode, SCOPE)
    finally:
        batcher.close()


def _number(coordinator: Coordinator, trial: Trial, episode: EpisodeSettings) -> int:
    """The journal's number for these decisions: others for whatever could change one, lest a stale one be read."""
    depends = {
        "coordinator": coordinator.description.sha256,
        "weights": coordinator.description.checkpoint,
        "questions": [question.prompt for question in trial.test],
        "seed": trial.settings.seed,
        "policy": trial.settings.policy.evaluate,
        "episode": episode.model_dump(mode="json"),
        "pool": trial.settings.pool.model_dump(mode="json"),
    }
    return int.from_bytes(hashlib.sha256(json.dumps(depends).encode()).digest()[:7])


def hidden(ready: Ready, questions: Sequence[Question], episode: EpisodeSettings) -> np.ndarray:
    """What the un-adapted encoder makes of questions before the first turn, [B D]."""
    ids = [ready.router.ids(view(start(question.prompt), episode.transcript)) for question in questions]
    return np.asarray(ready.population.encoder.states(ids))


async def learn(trial: Trial, pool: Pool, states: tuple[np.ndarray, np.ndarray] | None) -> Learned | None:
    """One call per model and training question; those of a run's warm start are the same calls."""
    if not trial.train:
        return None
    answers = [
        from_results(name, await worker_samples(model, trial.train, 1, pool, trial.settings.episode, PROBES_SCOPE))
        for model, name in enumerate(pool.names)
    ]
    rewards = np.concatenate([one.rewards for one in answers], axis=1)
    return Learned(rewards, [question.kind for question in trial.train], states)


def transferred(trial: Trial, scores: Sequence[Scores], kinds: Sequence[str]) -> written.Transfer | None:
    """Accuracy of each coordinator by kind; None where there is one of each."""
    columns = tuple(dict.fromkeys(kinds))
    if len(scores) == len(columns) == 1:
        return None
    labels, resamples = np.asarray(kinds), trial.settings.evaluation.bootstrap
    cells = tuple(
        tuple(mean_interval(one.per_question[labels == kind], resamples, trial.settings.seed) for kind in columns)
        for one in scores
    )
    names = [
        f"{one.name}, {'trained on ' + ', '.join(kinds) if kinds else 'training not known'}"
        for one, kinds in zip(trial.coordinators, trial.taught, strict=True)
    ]
    return written.Transfer(tuple(names), columns, cells)


def without_failures(compared: Comparison, limit: float, again: str) -> Comparison:
    """Without the rows of which more failed than may, which are named in ``left_out``.

    Raises:
        UserError: the verdict rests on such a row.
    """
    rivals = compared.scores[1:]
    said = f"failed, more than training.max_failed_share {limit:.0%} allows"
    bad = {s.name: f"{s.failed_share:.0%} of its calls or episodes {said}" for s in rivals if s.failed_share > limit}
    singles = tuple(name for name in compared.singles if name not in bad)
    # Which model is the best is not known where all failed: any of them stands for them.
    single = compared.single or (None if singles else compared.singles[0])
    for name in (single, FIXED):
        if name in bad:
            raise UserError(f"evaluate: {name}: {bad[name]}; mend the endpoints and {again}")
    return replace(
        compared,
        scores=tuple(s for s in compared.scores if s.name not in bad),
        singles=singles,
        left_out=(*compared.left_out, *(f"{name} ({why})" for name, why in bad.items())),
    )


def critical(rows: Sequence[table.Row], single: str) -> str:
    """A sentence on the best model that criticises itself, where it is better than the one that votes (``single``)."""
    votes = next((row.accuracy.mean for row in rows if row.name == single), math.nan)
    reflected = [row for row in rows if f", {TITLE} " in row.name and row.accuracy.mean > votes]
    if not reflected:
        return ""
    best = max(reflected, key=lambda row: row.accuracy.mean)
    return (
        f" The best single model that criticises itself instead of voting, {best.name}, got more right: "
        f"{table.percent(best.accuracy)} %, picked on these questions; the coordinator minus it is "
        f"{table.points(best.difference)} points."
    )


def better(rows: Sequence[table.Row]) -> str:
    """A sentence on which rivals do better than the coordinator, as far as single intervals tell, if any does."""
    rivals = [row for row in rows if row.difference and not math.isnan(row.difference.low) and not row.ceiling]
    named = [
        f"{row.name} ({row.calls_per_question:.2f} calls a question)"
        for row in rivals
        if row.difference and row.difference.high < 0
    ]
    if not named:
        return ""
    ours = rows[0].calls_per_question
    among = f"among {len(rivals)} rivals; the intervals are not corrected for so many" if len(rivals) > 1 else ""
    return f" Better than it, which takes {ours:.2f}: {'; '.join(named)}{f', {among}' if among else ''}."


def terms(trial: Trial, compared: Comparison, learned: Learned | None) -> list[str]:
    """On what terms the rows were compared, in sentences."""
    repeats, single, search = trial.settings.evaluation.repeats, compared.best_single, compared.search
    mean = float(compared.scores[0].calls.mean())
    found = [
        f"{len(trial.test)} questions; every method plays each {'once' if repeats == 1 else f'{repeats} times'}.",
        f"The coordinator takes {mean:.2f} calls a question. A single model by plurality or criticising itself has as "
        "many, rounded up; the others take the calls that their row states. Tokens are not matched: as many calls may "
        "read and write more, or less.",
    ]
    if learned:
        found.append(
            f"The best single model ({single}) was chosen by {learned.calls:,} calls, one per model and "
            "training question."
        )
    else:
        found.append(
            f"There were no training questions to choose on: the best single model ({single}) was picked on the "
            "questions of this table, which favours it."
        )
    for what, rewards in (
        ("single answers to training questions", [learned.rewards] if learned else []),
        ("episodes that the fixed policy was searched by", [s.rewards for s in search.scores] if search else []),
    ):
        failed = float(np.mean(np.isnan(rewards))) if rewards else 0.0
        if failed:
            found.append(f"{100 * failed:.1f} % of the {what} failed and did not count in the choice.")
    if trial.seen:
        found.append(f"{trial.seen} questions were left out because a coordinator was trained or validated on them.")
    if trial.unknown:
        found.append(unknown(trial))
    found.append("Seconds are those of waiting for models; calls that need not wait for one another count once.")
    return found


def unknown(trial: Trial) -> str:
    """The sentence on coordinators that may have learned from these very questions."""
    names = "; ".join(trial.unknown)
    return f"Not known is what was trained on, or not all of it, for {names}: see to it that these questions are new."


def show_forecast(trial: Trial, pool: Pool, console: Console) -> None:
    """Calls by part before any is made, with money where prices or earlier calls tell."""
    if trial.unknown:
        console.print(escape(unknown(trial)), highlight=False)
    settings, models = trial.settings, len(pool.names)
    held_out, train = len(trial.test) * settings.evaluation.repeats, len(trial.train)
    searches = settings.evaluation.fixed_policy and train > 0
    searched = forecast.searched_cells(models, train, trial.search_episodes) if searches else 0
    wanted = [name for name in settings.evaluation.rivals if name != "prompted" or not settings.pool.simulated]
    accept = 0.5
    parts = [
        *forecast.comparison(settings.episode, models, held_out, searched, accept, len(trial.coordinators)),
        *forecast.rivals(settings.episode, models, held_out, train, wanted, accept),
    ]
    shown = Table("part", "calls, about", "at most", title="Evaluation")
    for part in parts:
        shown.add_row(part.name, f"{part.about:,.0f}", f"{part.most:,}")
    about, most = sum(part.about for part in parts), sum(part.most for part in parts)
    shown.add_row("all", f"{about:,.0f}", f"{most:,}")
    console.print(shown)
    before = pool.journal.totals()
    console.print(f"{before.calls:,} calls are in the journal already; equal calls are not made again")
    if before.cost:
        each = before.cost / before.calls
        console.print(
            f"money, at {each:.3g} a call so far: about {about * each:.4g}, {most * each:.4g} if all calls of the last "
            "column were made; calls of other lengths cost otherwise, and only budget.cost is a bound"
        )
    elif any(seat.price.input or seat.price.output for seat in pool.seats):
        longest = Message("user", max((question.prompt for question in trial.test), key=len))
        each = float(np.mean([seat.worst_cost((longest,)) for seat in pool.seats]))
        console.print(
            f"money: about {about * each:.4g} if every reply filled max_tokens and every attempt were billed, mostly "
            "far less; what is read beyond the longest question comes on top, and only budget.cost is a bound"
        )
    if any(question.grader == "judge" for question in (*trial.train, *trial.test)):
        console.print("The judge's calls come on top.")
