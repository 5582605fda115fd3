"""What one method did on a set of questions: rewards, undecided answers, calls and what they took, by question."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from trinity_jax.pool.reply import Reply
from trinity_jax.rollout.decide import EpisodeKey
from trinity_jax.rollout.engine import EpisodeResult
from trinity_jax.tasks.question import Grade

Waited = Callable[[Sequence[Reply]], float]
"""Seconds that somebody waits for these replies."""


class Spent(NamedTuple):
    """What a method's calls took: tokens in and out, money, seconds of waiting for models; how many failed."""

    tokens: Float[np.ndarray, "Q R"]
    cost: Float[np.ndarray, "Q R"]
    seconds: Float[np.ndarray, "Q R"]
    failed: Float[np.ndarray, "Q R"]


@dataclass(frozen=True, eq=False)
class Scores:
    """A method's row before statistics; Q questions, R repeats.

    ``note`` says how the method was chosen or played; ``spent`` is None where it was not looked at. A ``ceiling`` was
    told or picked with what nobody knows of a new question, so it is no rival.
    """

    name: str
    rewards: Float[np.ndarray, "Q R"]
    undecided: Bool[np.ndarray, "Q R"]
    calls: Int[np.ndarray, "Q R"]
    note: str = ""
    spent: Spent | None = None
    ceiling: bool = False

    @property
    def failed_share(self) -> float:
        """Of its episodes those without a reward, or of its calls those that failed where that is more.

        The two differ for methods that go on without some of their calls.
        """
        calls = 0.0 if self.spent is None else self.spent.failed.sum() / max(self.calls.sum(), 1)
        return float(max(np.isnan(self.rewards).mean(), calls))

    @property
    def per_question(self) -> Float[np.ndarray, " Q"]:
        """Mean reward of each question over its completed repeats; NaN where none was completed."""
        done = ~np.isnan(self.rewards)
        total = np.where(done, self.rewards, 0.0).sum(axis=1)
        return np.where(done.any(axis=1), total / np.maximum(done.sum(axis=1), 1), np.nan)


def episode_keys(questions: int, repeats: int, generation: int = 0, candidate: int = 0) -> list[EpisodeKey]:
    """Keys of every (question, repeat), question by question."""
    return [EpisodeKey(generation, candidate, q, r) for q in range(questions) for r in range(repeats)]


def in_turn(replies: Sequence[Reply]) -> float:
    """Calls that each wait for the one before."""
    return sum(reply.seconds for reply in replies)


def at_once(replies: Sequence[Reply]) -> float:
    """Calls that need not wait for one another: as long as the slowest."""
    return max((reply.seconds for reply in replies), default=0.0)


def spent(cells: Mapping[tuple[int, int], Sequence[Reply]], shape: tuple[int, int], waited: Waited) -> Spent:
    """Sum up the replies of every (question, repeat)."""
    found = Spent(*(np.zeros(shape) for _ in Spent._fields))
    for cell, replies in cells.items():
        found.tokens[cell] = sum(reply.input_tokens + reply.output_tokens for reply in replies)
        found.cost[cell] = sum(reply.cost for reply in replies)
        found.seconds[cell] = waited(replies)
        found.failed[cell] = sum(not reply.outcome.gradable for reply in replies)
    return found


def from_results(name: str, results: Sequence[EpisodeResult], note: str = "", waited: Waited = in_turn) -> Scores:
    """Arrange episode results by the question and repeat of their keys.

    Raises:
        ValueError: a (question, repeat) is missing or came twice.
    """
    cells = sorted((r.key.question, r.key.repeat) for r in results)
    shape = (cells[-1][0] + 1, cells[-1][1] + 1) if cells else (0, 0)
    if cells != list(np.ndindex(shape)):
        raise ValueError(f"{name}: expected one episode for each of {shape[0]} x {shape[1]} cells, got {len(cells)}")
    rewards, undecided, calls = np.full(shape, np.nan), np.zeros(shape, bool), np.zeros(shape, int)
    for result in results:
        cell = result.key.question, result.key.repeat
        rewards[cell] = np.nan if result.reward is None else result.reward
        undecided[cell] = result.grade is Grade.UNDECIDED
        calls[cell] = len(result.replies)
    took = spent({(r.key.question, r.key.repeat): r.replies for r in results}, shape, waited)
    return Scores(name, rewards, undecided, calls, note, took)


def by_question(
    name: str, scores: Sequence[Scores], choice: Int[np.ndarray, " Q"], note: str = "", ceiling: bool = False
) -> Scores:
    """One of several methods for each question: of question q the row ``scores[choice[q]]``."""

    def chosen(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack(arrays)[choice, np.arange(len(choice))]

    took = [s.spent for s in scores if s.spent is not None]
    known = Spent(*map(chosen, zip(*took, strict=True))) if len(took) == len(scores) else None
    rewards, undecided, calls = (chosen([getattr(s, key) for s in scores]) for key in ("rewards", "undecided", "calls"))
    return Scores(name, rewards, undecided, calls, note, known, ceiling)
