"""Episodes to rewards: every episode runs on its own, decisions and calls wait for nobody else."""

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Any, TypeVar

from trinity_jax import __version__
from trinity_jax.config import EpisodeSettings
from trinity_jax.episode.episode import (
    End,
    EpisodeState,
    Role,
    ends_without_call,
    messages,
    role_for,
    start,
    step,
)
from trinity_jax.errors import UserError
from trinity_jax.pool.pool import Pool
from trinity_jax.pool.reply import Message, Reply, digest
from trinity_jax.rollout.decide import Decider, Decision, EpisodeKey
from trinity_jax.tasks import grade, grader
from trinity_jax.tasks.judge import judge
from trinity_jax.tasks.question import Grade, Question

T = TypeVar("T")

_THRESHOLDS = (100_000, 50, 100)
_usual: list[int] = []
_rollouts: list[None] = []


@dataclass(frozen=True)
class EpisodeResult:
    """A finished episode. ``reward`` is 1.0 or 0.0, or ``None`` where a call failed and nothing can be graded."""

    key: EpisodeKey
    reward: float | None
    grade: Grade | None
    state: EpisodeState
    decisions: tuple[Decision, ...]
    replies: tuple[Reply, ...]


async def rollout(
    keys: Sequence[EpisodeKey],
    questions: Sequence[Question],
    decider: Decider,
    pool: Pool,
    settings: EpisodeSettings,
    scope: str,
) -> list[EpisodeResult]:
    """Play one episode per key, all at once; results in the order of ``keys`` whatever the order of replies.

    Args:
        keys: which episodes; ``key.question`` indexes ``questions``.
        questions: the question set.
        decider: chooses (model, role) at each turn.
        pool: answers the calls; equal calls of the same ``scope`` are shared.
        settings: the protocol.
        scope: part of every call's identity (``pool.reply.Call.scope``).
    """
    with _seldom_collected():
        return await together(play(key, questions[key.question], decider, pool, settings, scope) for key in keys)


async def together(episodes: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All at once, results in order; where one raises, the others are stopped, so that they do not go on paying."""
    tasks = [asyncio.create_task(episode) for episode in episodes]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Let the collector of cycles run seldom: thousands of tasks are no garbage (a fifth of a call's CPU time).

    Never off: a traceback holds its frames in cycles, and a failed call leaves one.
    """
    if not _rollouts:
        _usual[:] = gc.get_threshold()
        gc.set_threshold(*_THRESHOLDS)
    _rollouts.append(None)
    try:
        yield
    finally:
        # Rollouts may overlap: the last one puts things back.
        _rollouts.pop()
        if not _rollouts:
            gc.set_threshold(*_usual)


async def play(
    key: EpisodeKey, question: Question, decider: Decider, pool: Pool, settings: EpisodeSettings, scope: str
) -> EpisodeResult:
    """Play one episode to its end and grade the latest Worker response."""
    state = start(question.prompt)
    decisions: list[Decision] = []
    replies: list[Reply] = []
    made_before: Counter[tuple[int, Role, tuple[Message, ...]]] = Counter()
    while state.end is None:
        decision = await decider.decide(key, state)
        decisions.append(decision)
        role = role_for(state, decision.role)
        if ends_without_call(state, role):
            state = step(state, decision.model, role, None, settings)
            break
        prompt = tuple(Message(*message) for message in messages(state, role))
        call = (decision.model, role, prompt)
        reply = await pool.call(
            decision.model, role.value, prompt, scope=scope, repeat=key.repeat, occurrence=made_before[call]
        )
        made_before[call] += 1
        replies.append(reply)
        state = step(state, decision.model, role, reply.text if reply.outcome.gradable else None, settings)
    reward, grade = await rewarded(key, question, pool, state, settings, scope)
    return EpisodeResult(key, reward, grade, state, tuple(decisions), tuple(replies))


async def rewarded(
    key: EpisodeKey, question: Question, pool: Pool, state: EpisodeState, settings: EpisodeSettings, scope: str
) -> tuple[float | None, Grade | None]:
    """Reward and grade of an episode that has ended; None for both where a call failed.

    Raises:
        UserError: the question needs a judge and the pool has none.
    """
    if state.end is End.FAILED:
        return None, None
    if state.response is None:
        return 0.0, Grade.UNDECIDED
    if question.grader == "judge":
        graded = await _judged(key, question, pool, state.response, scope)
        return (None if graded is None else float(graded is Grade.RIGHT)), graded
    graded = await _graded(question, pool, state.response, settings.strict_answer_tag)
    return float(graded is Grade.RIGHT), graded


async def _graded(question: Question, pool: Pool, response: str, strict: bool) -> Grade:
    """In a thread, so that the other episodes go on meanwhile; a costly grader is asked once for equal replies."""

    async def make() -> Grade:
        return await asyncio.to_thread(grade, question, response, strict)

    async def decided() -> Grade | None:
        made = await make()
        return None if made is Grade.UNDECIDED else made

    terms = grader(question.grader).terms
    if terms is None:
        return await make()
    key = digest(json.dumps([_question_key(question), strict, response, terms(), __version__]))
    return Grade(await pool.journal.grade(key, decided) or Grade.UNDECIDED)


@lru_cache(maxsize=10_000)
def _question_key(question: Question) -> str:
    """Once a question: its tests may be megabytes."""
    return digest(json.dumps(astuple(question)))


async def _judged(key: EpisodeKey, question: Question, pool: Pool, response: str, scope: str) -> Grade | None:
    """By the pool's judge, over the same journal and ledger; None where a call of it failed.

    Raises:
        UserError: the pool has no judge.
    """
    judge_model = pool.judge
    if judge_model is None:
        raise UserError(f"question {question.id}: its answers need a judge: set pool.judge to a model of the pool")
    failed = False

    async def ask(prompt: str, order: int) -> str | None:
        nonlocal failed
        reply = await pool.call(judge_model, "judge", (Message("user", prompt),), scope=scope, repeat=key.repeat)
        failed |= not reply.outcome.gradable
        return reply.text if reply.outcome.gradable else None

    graded = await judge(question, response, ask)
    return None if failed else graded
