"""The main job from settings to result: evolve, compare on held-out questions, export, report."""

import asyncio
import gc
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from trinity_jax.config import Settings
from trinity_jax.coordinator import familiar
from trinity_jax.coordinator.export import save_coordinator
from trinity_jax.encoder.compiled import compiled
from trinity_jax.episode.episode import ROLES, start
from trinity_jax.episode.transcript import view
from trinity_jax.errors import UserError
from trinity_jax.evaluation import table
from trinity_jax.evaluation.baselines import Comparison, compare
from trinity_jax.evaluation.deciders import FixedPolicy
from trinity_jax.evaluation.forecast import trained_episodes
from trinity_jax.evaluation.intervals import known_mean
from trinity_jax.evaluation.scores import episode_keys
from trinity_jax.report import write_report
from trinity_jax.rollout.engine import EpisodeResult
from trinity_jax.tasks.question import Question
from trinity_jax.training import preflight
from trinity_jax.training.alarms import stop_on_failures
from trinity_jax.training.folder import RunFolder
from trinity_jax.training.hosts import Hosts
from trinity_jax.training.loop import HELD_OUT, evolve, play
from trinity_jax.training.metrics import asked as calls_asked
from trinity_jax.training.metrics import finite
from trinity_jax.training.rig import WARM_UP_SCOPE, Rig, build_model, rigged
from trinity_jax.training.warm_start import PROBES_SCOPE

# Of the coordinator's held-out episodes, to read in the report: a few kilobytes each.
_TRANSCRIPTS = 96


def train(
    settings: Settings,
    run_dir: Path,
    *,
    resume: bool,
    console: Console,
    hosts: Hosts | None = None,
    yes: bool = False,
) -> dict[str, Any]:
    """Run or resume one run; returns what summary.json holds.

    Args:
        settings: of the run.
        run_dir: its folder; of several processes, process 0's counts.
        resume: whether to go on with what is there.
        console: where progress is shown.
        hosts: the processes of the run, met by `training.hosts.several` before this module was imported; None for one.
        yes: go on after the preflight without asking.

    Raises:
        UserError: bad settings or files, endpoints that fail, a spent budget. What was paid for is in the journal.
    """
    started = time.perf_counter()
    hosts = hosts or Hosts()
    if hosts.processes != settings.hosts.processes:
        raise UserError("hosts.processes: start several by experiments/run.py, where they meet before JAX starts")
    console = console if hosts.first else Console(quiet=True)
    folder = RunFolder(run_dir)
    # Checked first and again below: the model takes seconds to load, and bad input must not leave a run folder behind.
    # A run that was stopped in its preflight has paid, but not begun.
    resume = resume and not (hosts.processes == 1 and folder.journal.exists() and not folder.config.exists())
    if hosts.first:
        folder = RunFolder.resume(run_dir, settings) if resume else RunFolder.checked(run_dir)
    model = build_model(settings)
    if not resume and hosts.processes == 1 and preflight.wanted(settings):
        # Before there is a run: mended, the same command begins it, with these calls in its journal.
        preflight.fly(settings, folder, model.tasks, model.learner.population, console, yes)
    if hosts.first and not resume:
        folder = RunFolder.begin(run_dir, settings)
    folder = hosts.enter(folder)
    console.print(f"run folder {escape(str(run_dir))}, n = {model.layout.size}, population {model.learner.population}")
    with asyncio.Runner() as runner:
        context = rigged(settings, folder, hosts, model)
        try:
            rig = runner.run(context.__aenter__())
        except UserError:
            if hosts.first and not resume:
                folder.abandon_unpaid()
            raise
        try:
            # Short-lived tasks by the thousand follow; the collector need not walk what stays (halves CPU per call).
            gc.freeze()
            mean = evolve(rig, runner, console)
            summary = _finish(rig, runner, mean, console)
        finally:
            gc.unfreeze()
            runner.run(context.__aexit__(None, None, None))
    summary |= {"seconds": time.perf_counter() - started}
    if hosts.first:
        folder.write_summary(summary)
        console.print(f"report: {escape(str(write_report(run_dir)))}")
    return summary


def _finish(rig: Rig, runner: asyncio.Runner, mean: np.ndarray, console: Console) -> dict[str, Any]:
    """Held-out episodes of the mean, the baselines beside it, the coordinator folder, episodes to read."""
    settings, tasks = rig.settings, rig.model.tasks
    rig.population.load(mean[None])
    keys = episode_keys(len(tasks.test), settings.evaluation.repeats, generation=HELD_OUT)
    results = runner.run(play(rig, keys, tasks.test, "evaluation", settings.policy.evaluate, HELD_OUT))
    stop_on_failures(results, settings.training.max_failed_share, "evaluation")
    distinct = sum(rig.hosts.meet(rig.population.distinct_transcripts))
    cuts = sum(rig.hosts.meet(rig.model.router.cuts))
    compared = rig.hosts.once(lambda: _compare(rig, runner, mean, results, console))
    return compared | {"distinct_transcripts": distinct, "transcripts_cut": cuts}


def _compare(
    rig: Rig, runner: asyncio.Runner, mean: np.ndarray, results: Sequence[EpisodeResult], console: Console
) -> dict[str, Any]:
    """All that comes after the coordinator's own episodes; one process does it."""
    settings, tasks, learner, model = rig.settings, rig.model.tasks, rig.model.learner, rig.model
    asked = rig.pool.counters.asked
    texts = [view(start(question.prompt), settings.episode.transcript) for question in tasks.train]
    known = familiar.fit(model.encoder.states([model.router.ids(text) for text in texts]))
    parts = (model.checkpoint, model.layout, model.head, rig.readout, mean, known)
    save_coordinator(rig.folder.coordinator, settings, *parts)
    rig.folder.write_transcripts(_transcripts(results, tasks.test, settings.pool.names))
    episodes = trained_episodes(settings, learner.population)
    comparison = runner.run(compare(results, tasks.train, tasks.test, rig.pool, settings, search_episodes=episodes))
    if rig.pool.counters.refused:
        raise UserError("evaluation: the budget is spent; all results are kept: raise the cap and add --resume")
    # Again, now that it is known who is best alone: a server falls back on that model.
    save_coordinator(rig.folder.coordinator, settings, *parts, fallback=_best_alone(comparison, settings.pool.names))
    rows = comparison.rows(settings.evaluation.bootstrap, settings.seed)
    summary = comparison.summary(rows)
    console.print(table.render(rows))
    console.print(escape(summary["verdict"]), highlight=False)
    made = rig.pool.ledger.calls
    # A resumed run's process has asked for a part only; the rest stands in metrics.jsonl and, of warm-up and probes
    # (which have nothing to share), in the journal.
    wanted = (
        rig.folder.total("calls_without_sharing")
        + rig.folder.total("validation_calls_without_sharing")
        + rig.pool.journal.totals(WARM_UP_SCOPE).calls
        + rig.pool.journal.totals(PROBES_SCOPE).calls
        + rig.folder.preflight_calls()
        + calls_asked(results)
        + (rig.pool.counters.asked - asked)
    )
    console.print(f"{made:,} calls made, of {wanted:,} that would have been made without sharing and the journal")
    return summary | {
        "calls": made,
        "calls_without_sharing": wanted,
        "calls_made_share": made / wanted if wanted else None,
        "cost": rig.pool.ledger.spent,
        "compilations": rig.population.compilations,
        "compiled": compiled(),
        "n": rig.model.layout.size,
        "c_mu_times_generations": finite(learner.c_mu * settings.learning.generations),
        "wrong_concentration": settings.pool.wrong_concentration if settings.pool.simulated else None,
    }


def _best_alone(comparison: Comparison, names: Sequence[str]) -> str:
    """The model with the most right answers by itself; of equals the first.

    On training questions where they were played, as its own Verifier (the search of fixed policies), so that held-out
    questions choose nothing that is served; else on those, at one call.
    """
    if comparison.search is not None:
        search = comparison.search
        played = dict(zip(search.policies, search.scores, strict=True))
        alone = [played[FixedPolicy(model, model)] for model in range(len(names))]
    else:
        single = {scores.name: scores for scores in comparison.scores}
        alone = [single[f"{name}, one call"] for name in names]
    right = [np.nan_to_num(known_mean(scores.per_question), nan=-1.0) for scores in alone]
    return names[int(np.argmax(right))]


def _transcripts(
    results: Sequence[EpisodeResult], questions: Sequence[Question], names: Sequence[str]
) -> list[dict[str, Any]]:
    """The first repeat of a few questions, spread over the set."""
    first = [result for result in results if result.key.repeat == 0]
    lines = []
    for result in first[:: max(1, len(first) // _TRANSCRIPTS)][:_TRANSCRIPTS]:
        question = questions[result.key.question]
        lines.append(
            {
                "question": question.prompt,
                "kind": question.kind,
                "answer": question.answer,
                "reward": result.reward,
                "grade": result.grade,
                "end": result.state.end,
                "failure": None if result.reward is not None else next(iter(_failures(result)), None),
                "turns": _turns(result, names),
            }
        )
    return lines


def _failures(result: EpisodeResult) -> list[str]:
    return [reply.outcome.value for reply in result.replies if not reply.outcome.gradable]


def _turns(result: EpisodeResult, names: Sequence[str]) -> list[dict[str, Any]]:
    """The turns that were taken; ``probability`` of the model, times the role's where no Thinker had named it."""
    lines, named = [], None
    for turn, decision, reply in zip(result.state.turns, result.decisions, result.replies, strict=False):
        sure = None
        if decision.model_probs and decision.role_probs:
            sure = decision.model_probs[turn.model] * (1.0 if named else decision.role_probs[ROLES.index(turn.role)])
        lines.append(
            {
                "model": names[turn.model],
                "role": turn.role,
                "text": turn.text,
                "verdict": turn.verdict,
                "probability": sure,
                "input_tokens": reply.input_tokens,
                "output_tokens": reply.output_tokens,
                "cost": reply.cost,
            }
        )
        named = turn.suggested_role
    return lines
