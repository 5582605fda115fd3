"""The generation loop: ask, play, tell, note, checkpoint; the same way again after a kill."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from rich.console import Console

from trinity_jax.errors import UserError
from trinity_jax.evaluation.intervals import known_mean
from trinity_jax.evaluation.scores import episode_keys
from trinity_jax.learning.fitness import fitness
from trinity_jax.rollout.decide import EpisodeKey
from trinity_jax.rollout.engine import EpisodeResult, rollout
from trinity_jax.tasks.question import Question
from trinity_jax.training import alarms, metrics, tensorboard
from trinity_jax.training.checkpoint import Checkpoints
from trinity_jax.training.display import Display
from trinity_jax.training.draw import generation_keys
from trinity_jax.training.experience import relive
from trinity_jax.training.rig import Rig, encoded
from trinity_jax.training.warm_start import warm_vector

# Numbers that stand in for the generation in keys and journal where no generation is played.
VALIDATION, HELD_OUT = 1_000_000, 2_000_000

# Branches of the run's root key, apart from the generations (and their stand-ins) that decisions' keys begin with.
_STRATEGY, _QUESTIONS = 4_000_000, 5_000_000


def evolve(rig: Rig, runner: asyncio.Runner, console: Console) -> np.ndarray:
    """Run all generations that are not done yet; returns the vector to deploy, [n].

    Resuming is replaying: population and questions of a generation follow from seed and generation, decisions and
    replies are read from the journal, the state comes from the checkpoint.
    """
    learner, learning, hosts = rig.model.learner, rig.settings.learning, rig.hosts
    generations = learning.generations
    root = jax.random.fold_in(jax.random.key(rig.settings.seed), _STRATEGY)
    if rig.settings.training.tensorboard:
        tensorboard.check()
    board = rig.folder.path / "tensorboard" if hosts.first and rig.settings.training.tensorboard else None
    checkpoints = Checkpoints(rig.folder.checkpoints)
    start_key = jax.random.fold_in(root, generations)
    if learning.warm_start.kind != "none" and hosts.once(lambda: checkpoints.empty):
        # Kept, so that a resumed run does not depend on the last bits of a second fit.
        start = runner.run(warm_vector(rig))
        hosts.once(lambda: checkpoints.save(0, learner.init(start_key, start)))
    done, state = hosts.once(lambda: checkpoints.latest(learner.init(start_key)))
    hosts.once(lambda: rig.folder.cut_metrics(done))
    if done:
        console.print(f"resuming after generation {done - 1}")
    try:
        with Display(console, generations, done) as display, tensorboard.events(board, done) as record:
            for generation in range(done, generations):
                state, line = _generation(rig, runner, state, generation, jax.random.fold_in(root, generation))
                # Line before checkpoint: a kill between the two writes the line again, never loses it.
                if hosts.first:
                    rig.folder.append_metrics(line)
                    checkpoints.save(generation + 1, state)
                    record(line)
                display.generation(line, rig.pool.ledger.calls, rig.pool.ledger.spent)
    finally:
        checkpoints.close()
    return np.asarray(learner.mean(state))


def _generation(
    rig: Rig, runner: asyncio.Runner, state: Any, generation: int, key: PRNGKeyArray
) -> tuple[Any, dict[str, Any]]:
    """One generation: the learner's state after it, and its line of metrics.jsonl."""
    settings, model = rig.settings, rig.model
    learner, train = model.learner, model.tasks.train
    learning, where, clock = settings.learning, f"generation {generation}", _Clock()
    ask_key, tell_key, noise_key = jax.random.split(key, 3)
    # The learner is process 0's: a last bit that another host sums otherwise must not part their ways.
    X, state = rig.hosts.once(partial(learner.ask, state, ask_key))
    candidates = np.asarray(X)
    if not np.isfinite(candidates).all():
        raise UserError(f"{where}: the learner proposed NaN; lower learning.sigma0 or learning.gradient.learning_rate")
    rig.population.load(candidates, noise_key, shared=not learner.sharing.own_keys)
    clock.mark("ask")

    scope = where if settings.journal.reuse == "generation" else "run"
    # Calls of a scope of its own are this generation's, whichever process made them.
    before = rig.pool.journal.totals(scope) if scope == "run" else None
    encoded_before, decided = sum(rig.hosts.meet(rig.population.distinct_transcripts)), rig.population.seconds
    draw_key = jax.random.fold_in(jax.random.fold_in(jax.random.key(settings.seed), _QUESTIONS), generation)
    keys = generation_keys(draw_key, learning, [q.kind for q in train], generation, learner.population)
    results = runner.run(play(rig, keys, train, scope, settings.policy.train, generation))
    alarms.stop_on_failures(results, settings.training.max_failed_share, where)
    clock.mark("rollout")

    outcomes = metrics.outcomes(results, learner.population, len(settings.pool.names))
    scores = fitness(learning.fitness, *outcomes, settings.episode.max_calls)
    seen = None
    if learner.needs_trace:
        encode = partial(encoded, rig.hosts, model)
        seen = relive(results, learner.population, encode, rig.readout, settings.episode)
    state = rig.hosts.once(partial(learner.tell, state, X, scores, tell_key, seen))
    mean = np.asarray(learner.mean(state))
    clock.mark("tell")

    last = generation == learning.generations - 1
    validated: list[EpisodeResult] = []
    if (generation + 1) % settings.training.validate_every == 0 or last:
        validated = validate(rig, runner, mean, generation)
    clock.mark("validate")

    undecided = metrics.undecided_share(results)
    distinct = sum(rig.hosts.meet(rig.population.distinct_transcripts))
    return state, {
        "generation": generation,
        "fitness_mean": metrics.finite(known_mean(scores)),
        "fitness_best": metrics.finite(np.fmax.reduce(scores)),
        **metrics.spread(scores),
        "reward_mean": metrics.finite(known_mean(outcomes.rewards)),
        "validation_accuracy": metrics.finite(known_mean(metrics.rewards(validated))),
        "validation_undecided_share": metrics.undecided_share(validated) if validated else None,
        "validation_episodes": int(np.isfinite(metrics.rewards(validated)).sum()),
        "sigma": metrics.finite(float(learner.sigma(state))),
        "mean_norm": metrics.finite(float(np.linalg.norm(mean))),
        "diagonal_spread": metrics.finite(float(learner.diagonal_spread(state))),
        **metrics.choice_shares(results, train, settings.pool.names),
        **metrics.spent(rig.pool.journal.totals(scope), before, results),
        "validation_calls_without_sharing": metrics.asked(validated),
        "calls_per_episode": float(outcomes.calls.mean()),
        "failed_share": metrics.failed_share(results),
        "undecided_share": undecided,
        "no_response_share": metrics.no_response_share(results),
        "distinct_transcripts": distinct,
        "new_transcripts": distinct - encoded_before,
        "alarms": alarms.raised(outcomes.rewards, scores, undecided),
        "seconds": clock.seconds | {"decide": rig.population.seconds - decided, "total": clock.total()},
    }


def validate(rig: Rig, runner: asyncio.Runner, mean: np.ndarray, generation: int) -> list[EpisodeResult]:
    """Episodes of one vector on the fixed validation questions, with the same luck and the same calls every time."""
    rig.population.load(mean[None])
    questions, settings = rig.model.tasks.validation, rig.settings
    keys = episode_keys(len(questions), 1, generation=VALIDATION)
    episodes = play(rig, keys, questions, "validation", settings.policy.evaluate, VALIDATION + generation)
    results = runner.run(episodes)
    alarms.stop_on_failures(results, settings.training.max_failed_share, f"validation of generation {generation}")
    return results


async def play(
    rig: Rig,
    keys: list[EpisodeKey],
    questions: Sequence[Question],
    scope: str,
    mode: Literal["sample", "argmax"],
    recorded_as: int,
) -> list[EpisodeResult]:
    """Episodes of the candidates that are loaded, played by all processes.

    Args:
        rig: the run.
        keys: which episodes.
        questions: which ``EpisodeKey.question`` indexes.
        scope: of the calls.
        mode: how logits become a choice.
        recorded_as: the number under which the journal keeps these decisions, and gives them back.
    """
    rig.batcher.mode = mode
    rig.batcher.recall(recorded_as)
    rig.pool.forget_failures()

    async def mine(own: list[EpisodeKey]) -> list[EpisodeResult]:
        return await rollout(own, questions, rig.batcher, rig.pool, rig.settings.episode, scope)

    return await rig.hosts.rollout(keys, rig.pool, mine, recorded_as)


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
