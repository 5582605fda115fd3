"""What studies' settings have in common."""

from collections.abc import Collection
from typing import Literal

from pydantic import Field, model_validator

from trinity_jax.config import EncoderSettings, GeneratedTask, Group, LearningSettings, Positive

STRATEGY = ("generations", "population", "sigma0", "step_size", "active", "repairs")
"""What of `LearningSettings` a study reads that evolves by sep-CMA-ES and plays no questions."""


class StudyGroup(Group):
    """Which of the file's presets is laid over its settings."""

    preset: str = "full"


class StudySettings(Group):
    """Settings of a study; a study adds its own and narrows ``kind``."""

    kind: str
    seed: int = Field(default=42, ge=0, lt=2**32)
    study: StudyGroup = StudyGroup()


class SyntheticSettings(Group):
    """Gaussian task clusters (`trinity_jax.world.states.clusters`)."""

    width: Positive = Field(default=64, description="D")
    separability: float = Field(default=1.0, ge=0, description="how far kinds lie apart; a question's own part is 1")
    common: float = Field(default=1.0, ge=0, description="the part that all states share")
    drift: float = Field(default=0.5, ge=0, description="how far a turn moves the state")


class WorldSettings(Group):
    """Questions, hidden states and protocol of a jitted world."""

    states: Literal["encoder", "synthetic"] = Field(
        default="encoder", description="states of real transcripts, cached on disk, or Gaussian clusters"
    )
    transcript: Literal["worker_thoughts", "full", "counts"] = Field(
        default="full", description="what the coordinator reads; `counts` for synthetic states only"
    )
    max_calls: Positive = 4
    mix: tuple[GeneratedTask, ...] = Field(
        default=tuple(
            GeneratedTask(kind=kind) for kind in ("chain_sum", "spell_backward", "leg_counting", "weekday_choice")
        ),
        min_length=1,
        description="kinds of question, equally many each; with synthetic states only their names count",
    )
    train: Positive = 64
    held_out: Positive = 64
    difficulty: float = Field(default=0.0, ge=0, description="spread of the questions' difficulty in logits")
    seed: int = Field(default=42, ge=0, lt=2**32, description="of questions and states, apart from the learners'")
    encoder: EncoderSettings = EncoderSettings(layers=6, buckets=(96, 128, 192, 256), page=16, micro_batch=8)
    synthetic: SyntheticSettings = SyntheticSettings()

    @model_validator(mode="after")
    def _counts_are_synthetic(self) -> "WorldSettings":
        if self.states == "encoder" and self.transcript == "counts":
            raise ValueError("transcript: counts merges real transcripts; it goes with states: synthetic")
        return self


def check_read(learning: LearningSettings, read: Collection[str], where: str) -> None:
    """Refuse settings that a study would pass over in silence.

    Args:
        learning: of a study.
        read: fields that count there; the others have to be at their defaults.
        where: their group, for the message.

    Raises:
        ValueError: another field was set.
    """
    default = LearningSettings()
    for name in LearningSettings.model_fields:
        value = getattr(default, name)
        if name not in read and getattr(learning, name) != value:
            shown = value if isinstance(value, str | int | float) else "its default"
            raise ValueError(f"{where}.{name}: does not count in this study; leave it at {shown}")
