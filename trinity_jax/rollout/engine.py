"""Episodes to rewards: every episode runs on its own, decisions and calls wait for nobody else."""

from dataclasses import dataclass

from trinity_jax.episode.episode import EpisodeState
from trinity_jax.pool.reply import Reply
from trinity_jax.rollout.decide import Decision, EpisodeKey
from trinity_jax.tasks.question import Grade


@dataclass(frozen=True)
class EpisodeResult:
    """A finished episode. ``reward`` is 1.0 or 0.0, or ``None`` where a call failed and nothing can be graded."""

    key: EpisodeKey
    reward: float | None
    grade: Grade | None
    state: EpisodeState
    decisions: tuple[Decision, ...]
    replies: tuple[Reply, ...]
