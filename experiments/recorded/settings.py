"""Settings of the study of recorded outcomes."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from experiments.study_settings import STRATEGY, StudySettings, check_read
from trinity_jax.config import EncoderSettings, Group, LearningSettings, Positive

PositiveNumber = Annotated[float, Field(gt=0)]


class DataSettings(Group):
    """Where the outcomes are, and how many of them are used."""

    folder: Path | None = Field(
        default=None,
        description="null: $TRINITY_DATA, data/zeroeval or ../shared/data/zeroeval, the first that is there",
    )
    per_task: Annotated[int, Field(ge=20)] | None = Field(default=None, description="prompts of a task; null: all")


class EvolvedSettings(Group):
    """The evolved head; cross-validation chooses among all combinations of layer, k and penalty."""

    k: tuple[Positive, ...] = Field(default=(2, 3, 4, 8), min_length=1, description="whitened directions")
    penalty: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        default=(1e-3, 1e-4, 1e-5), min_length=1, description="times the squared weights"
    )
    learning: LearningSettings = LearningSettings()

    @model_validator(mode="after")
    def _by_the_strategy(self) -> "EvolvedSettings":
        check_read(self.learning, STRATEGY, "learning")
        return self


class RivalSettings(Group):
    """What cross-validation chooses among for the routers that scikit-learn learns, beside the layer."""

    k: tuple[Positive, ...] = Field(default=(4, 16), min_length=1, description="whitened directions")
    C: tuple[PositiveNumber, ...] = Field(default=(1e-3, 1e-2, 1e-1), min_length=1)
    neighbours: tuple[Positive, ...] = Field(default=(200, 100, 30), min_length=1)


class Settings(StudySettings):
    """Everything the study depends on."""

    kind: Literal["recorded"] = "recorded"
    seeds: Positive = Field(default=5, description="evolutions; each also deals its own folds")
    data: DataSettings = DataSettings()
    encoder: EncoderSettings = EncoderSettings()
    layers: tuple[Positive, ...] = Field(default=(4, 8), min_length=1)
    pools: dict[str, Annotated[tuple[str, ...], Field(min_length=2)]] = Field(min_length=1)
    folds: Annotated[int, Field(ge=2)] = 5
    evolved: EvolvedSettings = EvolvedSettings()
    rivals: RivalSettings = RivalSettings()
    bootstrap: Annotated[int, Field(ge=100)] = 2000

    @model_validator(mode="after")
    def _models_differ(self) -> "Settings":
        for name, models in self.pools.items():
            if twice := [model for model in models if models.count(model) > 1]:
                raise ValueError(f"pools.{name}: {twice[0]} is named twice")
        return self
