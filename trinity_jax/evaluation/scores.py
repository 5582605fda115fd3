"""What one method did on a set of questions: rewards, undecided answers and calls, question by repeat."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from trinity_jax.rollout.decide import EpisodeKey
from trinity_jax.rollout.engine import EpisodeResult
from trinity_jax.tasks.question import Grade


@dataclass(frozen=True, eq=False)
class Scores:
    """A method's row before statistics; Q questions, R repeats. ``note`` says how the method was chosen."""

    name: str
    rewards: Float[np.ndarray, "Q R"]
    undecided: Bool[np.ndarray, "Q R"]
    calls: Int[np.ndarray, "Q R"]
    note: str = ""

    @property
    def per_question(self) -> Float[np.ndarray, " Q"]:
        """Mean reward of each question over its completed repeats; NaN where none was completed."""
        done = ~np.isnan(self.rewards)
        total = np.where(done, self.rewards, 0.0).sum(axis=1)
        return np.where(done.any(axis=1), total / np.maximum(done.sum(axis=1), 1), np.nan)


def episode_keys(questions: int, repeats: int, generation: int = 0, candidate: int = 0) -> list[EpisodeKey]:
    """Keys of every (question, repeat), question by question."""
    return [EpisodeKey(generation, candidate, q, r) for q in range(questions) for r in range(repeats)]


def from_results(name: str, results: Sequence[EpisodeResult], note: str = "") -> Scores:
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
    return Scores(name, rewards, undecided, calls, note)
