"""The generation loop: ask, play, tell, note, checkpoint; the same way again after a kill."""

import asyncio
import time
from collections.abc import Sequence
from copy import deepcopy
from typing import Literal

import jax
import numpy as np
from rich.console import Console

from trinity_jax.errors import UserError
from trinity_jax.evaluation.intervals import known_mean
from trinity_jax.evaluation.scores import episode_keys
from trinity_jax.learning.fitness import fitness
from trinity_jax.rollout.decide import EpisodeKey
from trinity_jax.rollout.engine import EpisodeResult, rollout
from trinity_jax.tasks.question import Question
from trinity_jax.training import alarms, metrics
from trinity_jax.training.checkpoint import Checkpoints
from trinity_jax.training.display import Display
from trinity_jax.training.draw import generation_keys
from trinity_jax.training.rig import Rig

# Numbers that stand in for the generation in keys and journal where no generation is played.
VALIDATION, HELD_OUT = 1_000_000, 2_000_000

# Branches of the run's root key, apart from the generations (and their stand-ins) that decisions' keys begin with.
_STRATEGY, _QUESTIONS = 4_000_000, 5_000_000


def evolve(rig: Rig, runner: asyncio.Runner, console: Console) -> np.ndarray:
    """Run all generations that are not done yet; returns the mean of the last distribution, [n].

    Resuming is replaying: population and questions of a generation follow from seed and generation, decisions and
    replies are read from the journal, the state comes from the checkpoint.
    """
    settings, strategy, train = rig.settings, rig.model.strategy, rig.model.tasks.train
    root = jax.random.key(settings.seed)
    strategy_root, question_root = (jax.random.fold_in(root, branch) for branch in (_STRATEGY, _QUESTIONS))
    checkpoints = Checkpoints(rig.folder.checkpoints)
    generations = settings.learning.generations
    done, state = checkpoints.latest(strategy.init(jax.random.fold_in(strategy_root, generations)))
    rig.folder.cut_metrics(done)
    if done:
        console.print(f"resuming after generation {done - 1}")
    try:
        with Display(console, generations, done) as display:
            for generation in range(done, generations):
                clock = _Clock()
                ask_key, tell_key = jax.random.split(jax.random.fold_in(strategy_root, generation))
                X, state = strategy.ask(state, ask_key)
                candidates = np.asarray(X)
                if not np.isfinite(candidates).all():
                    raise UserError(f"generation {generation}: the strategy proposed NaN; lower learning.sigma0")
                rig.population.load(candidates)
                clock.mark("ask")

                before, encoded = deepcopy(rig.pool.counters), rig.population.distinct_transcripts
                keys = generation_keys(
                    jax.random.fold_in(question_root, generation),
                    settings.learning,
                    [question.kind for question in train],
                    generation,
                    strategy.population,
                )
                scope = f"generation {generation}" if settings.journal.reuse == "generation" else "run"
                results = runner.run(play(rig, keys, train, scope, settings.policy.train))
                alarms.stop_on_failures(results, settings.training.max_failed_share, f"generation {generation}")
                clock.mark("rollout")

                outcomes = metrics.outcomes(results, strategy.population, len(settings.pool.names))
                scores = fitness(settings.learning.fitness, *outcomes, settings.episode.max_calls)
                state = strategy.tell(state, X, scores, tell_key)
                mean = np.asarray(strategy.mean(state))
                clock.mark("tell")

                validation = None
                last = generation == generations - 1
                if (generation + 1) % settings.training.validate_every == 0 or last:
                    validation = validate(rig, runner, mean, generation)
                clock.mark("validate")

                line = {
                    "generation": generation,
                    "fitness_mean": metrics.finite(known_mean(scores)),
                    "fitness_best": metrics.finite(np.fmax.reduce(scores)),
                    "reward_mean": metrics.finite(known_mean(outcomes.rewards)),
                    "validation_accuracy": validation,
                    "sigma": metrics.finite(float(strategy.sigma(state))),
                    "mean_norm": metrics.finite(float(np.linalg.norm(mean))),
                    "diagonal_spread": metrics.finite(float(strategy.diagonal_spread(state))),
                    **metrics.choice_shares(results, train, settings.pool.names),
                    **metrics.spent(before, rig.pool.counters),
                    "calls_per_episode": float(outcomes.calls.mean()),
                    "failed_share": metrics.failed_share(results),
                    "undecided_share": metrics.undecided_share(results),
                    "distinct_transcripts": rig.population.distinct_transcripts,
                    "new_transcripts": rig.population.distinct_transcripts - encoded,
                    "alarms": alarms.raised(outcomes.rewards, metrics.undecided_share(results)),
                    "seconds": clock.seconds | {"decide": rig.batcher.take_seconds(), "total": clock.total()},
                }
                # Line before checkpoint: a kill between the two writes the line again, never loses it.
                rig.folder.append_metrics(line)
                checkpoints.save(generation + 1, state)
                display.generation(line, rig.pool.ledger.calls, rig.pool.ledger.spent)
    finally:
        checkpoints.close()
    return np.asarray(strategy.mean(state))


def validate(rig: Rig, runner: asyncio.Runner, mean: np.ndarray, generation: int) -> float | None:
    """Accuracy of one vector on the fixed validation questions; the calls are the same ones every time."""
    rig.population.load(mean[None])
    keys = episode_keys(len(rig.model.tasks.validation), 1, generation=VALIDATION + generation)
    results = runner.run(play(rig, keys, rig.model.tasks.validation, "validation", rig.settings.policy.evaluate))
    alarms.stop_on_failures(results, rig.settings.training.max_failed_share, f"generation {generation}")
    return metrics.finite(known_mean(np.array([np.nan if r.reward is None else r.reward for r in results])))


async def play(
    rig: Rig, keys: list[EpisodeKey], questions: Sequence[Question], scope: str, mode: Literal["sample", "argmax"]
) -> list[EpisodeResult]:
    """Episodes of the candidates that are loaded, decisions recalled from the journal where it has them."""
    rig.batcher.mode = mode
    rig.batcher.recall(keys[0].generation)
    return await rollout(keys, questions, rig.batcher, rig.pool, rig.settings.episode, scope)


class _Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def mark(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] = now - self._last
        self._last = now

    def total(self) -> float:
        return time.perf_counter() - self._started
