"""Settings of the separability study."""

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from experiments.study_settings import STRATEGY, StudySettings, check_read
from trinity_jax.config import EncoderSettings, GeneratedTask, Group, LearningSettings, Positive, Share

Folds = Annotated[int, Field(ge=2)]


def taught_of(count: int, share: float) -> int:
    """How many prompts of a kind the head is evolved on: the share, at least three."""
    return max(3, round(share * count))


class MixSettings(Group):
    """Generated questions; a kind is a family at a difficulty."""

    kinds: tuple[GeneratedTask, ...] = Field(min_length=3)
    per_kind: Annotated[int, Field(ge=9)] = 60

    @model_validator(mode="after")
    def _kinds_differ(self) -> "MixSettings":
        if len(set(self.kinds)) < len(self.kinds):
            raise ValueError("a family may come once with each difficulty")
        return self


class RecordedSettings(Group):
    """Prompts of recorded outcomes, where a folder of them is found; a head chooses among the models of the pool."""

    folder: Path | None = None
    per_task: Annotated[int, Field(ge=9)] = 120
    pool: tuple[str, ...] = Field(min_length=2)


class SimulatedSettings(Group):
    """Whom a head for generated questions chooses among; model i is a specialist of kinds i, i + models, ..."""

    models: Annotated[int, Field(ge=2)] = 3
    specialist: Share = 0.85
    otherwise: Share = 0.40


class HeadSettings(Group):
    """The head whose logits and choices are looked at, evolved on prompts that nothing else is measured on."""

    layer: Positive = 8
    k: Positive = 8
    penalty: float = Field(default=1e-3, ge=0, description="times the squared weights")
    share: float = Field(default=1 / 3, gt=0, lt=1, description="of the prompts of each kind")
    learning: LearningSettings = LearningSettings()

    @model_validator(mode="after")
    def _by_the_strategy(self) -> "HeadSettings":
        check_read(self.learning, STRATEGY, "learning")
        return self


class SvmSettings(Group):
    """Support vector machines; C is chosen by cross-validation inside every training part."""

    kernels: tuple[Literal["linear", "rbf"], ...] = Field(default=("linear", "rbf"), min_length=1)
    C: tuple[Annotated[float, Field(gt=0)], ...] = Field(default=(1.0, 10.0, 100.0, 1000.0), min_length=1)
    folds: Folds = 5
    inner_folds: Folds = 3


class Settings(StudySettings):
    """Everything the study depends on."""

    kind: Literal["separability"] = "separability"
    encoder: EncoderSettings = EncoderSettings()
    layers: tuple[Positive, ...] = Field(default=(2, 4, 8, 12, 16, 20, 25, 30), min_length=1)
    positions: tuple[Annotated[int, Field(le=-1)], ...] = Field(default=(-2, -1), min_length=1)
    mixes: dict[str, MixSettings] = Field(min_length=1)
    recorded: RecordedSettings | None = None
    simulated: SimulatedSettings = SimulatedSettings()
    head: HeadSettings = HeadSettings()
    svm: SvmSettings = SvmSettings()
    permutations: Annotated[int, Field(ge=20)] = 200
    bootstrap: Annotated[int, Field(ge=100)] = 2000

    @model_validator(mode="after")
    def _fits_together(self) -> "Settings":
        if self.head.layer not in self.layers:
            raise ValueError(f"head.layer: {self.head.layer} must be one of layers: {list(self.layers)}")
        if self.encoder.read_position not in self.positions:
            raise ValueError(
                f"encoder.read_position: {self.encoder.read_position} must be one of positions: {list(self.positions)}"
            )
        counts = {f"mixes.{name}.per_kind": mix.per_kind for name, mix in self.mixes.items()}
        if self.recorded is not None:
            counts["recorded.per_task"] = self.recorded.per_task
        for where, count in counts.items():
            judged = count - taught_of(count, self.head.share)
            # The folds inside a training part take two of each kind.
            if judged - math.ceil(judged / self.svm.folds) < 2:
                raise ValueError(
                    f"head.share: {self.head.share:g} of {where}: {count} leaves {judged} prompts of a kind to judge, "
                    f"too few for svm.folds: {self.svm.folds}"
                )
        if self.recorded is not None and "recorded" in self.mixes:
            raise ValueError("mixes: recorded is the name of the set of recorded outcomes; expected another")
        return self
