"""Pools, recipes and budgets of the study of pool changes."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from experiments.recorded.settings import DataSettings
from experiments.study_settings import StudySettings, WorldSettings, check_read
from trinity_jax.config import EncoderSettings, Group, LearningSettings, PoolSettings, Positive, ReadoutSettings

_READ = ("generations", "population", "questions", "repeats", "sigma0", "step_size", "warm_start")


class NewRowSettings(Group):
    """A row for a model that joins: single calls, a look at its own episodes, a short evolution of few numbers."""

    samples: Positive = Field(default=8, description="answers of a model to each training question")
    looks: Positive = Field(default=2, description="episodes a training question, for the states that the row meets")
    evolution: LearningSettings = LearningSettings(
        generations=4, population=12, questions=64, sigma0=0.7, step_size="tpa"
    )

    @model_validator(mode="after")
    def _is_read(self) -> "NewRowSettings":
        check_read(self.evolution, _READ[:-1], "evolution")
        return self


class ProfileSettings(Group):
    """A head that knows models by their answers to anchor questions: the training questions."""

    evolution: LearningSettings = LearningSettings(
        generations=40, population=32, questions=64, repeats=2, sigma0=0.7, step_size="tpa"
    )

    @model_validator(mode="after")
    def _is_read(self) -> "ProfileSettings":
        check_read(self.evolution, _READ[:-1], "evolution")
        return self


class RecordedSettings(Group):
    """The same question on recorded outcomes: which model to ask first."""

    data: DataSettings = DataSettings()
    encoder: EncoderSettings = EncoderSettings()
    layers: tuple[Positive, ...] = Field(
        default=(4, 8), min_length=1, description="read after the last; with the others the states are kept as one set"
    )
    k: Positive = 4
    penalty: float = Field(default=1e-4, ge=0)
    anchors: Positive = Field(default=100, description="prompts that a profile is made of")
    pools: dict[str, Annotated[tuple[str, ...], Field(min_length=3)]] = Field(default_factory=dict)
    learning: LearningSettings = LearningSettings(generations=60, population=32, sigma0=1.0)
    bootstrap: Annotated[int, Field(ge=100)] = 2000


class Settings(StudySettings):
    """Everything the study depends on."""

    kind: Literal["pool_change"] = "pool_change"
    seeds: Annotated[int, Field(ge=2)] = 5
    world: WorldSettings = WorldSettings()
    pools: dict[str, PoolSettings] = Field(min_length=1, description="simulated pools of equally many models")
    readout: ReadoutSettings = ReadoutSettings(source="script")
    training: LearningSettings = Field(description="of a full training")
    new_row: NewRowSettings = NewRowSettings()
    profile: ProfileSettings = ProfileSettings()
    budgets: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0, 100, 1000), min_length=1)
    least_gain: float = Field(default=0.03, description="a model matters where retraining with it gains this much")
    recorded: RecordedSettings = RecordedSettings()

    @model_validator(mode="after")
    def _fits(self) -> "Settings":
        check_read(self.training, _READ, "training")
        start = self.training.warm_start
        if start.kind != "ridge" or start.roles != "script" or start.questions or self.readout.kind != "whitened":
            raise ValueError("training.warm_start: expected kind: ridge, roles: script, questions: null, and whitened")
        for name, learning in (
            ("training", self.training),
            ("new_row.evolution", self.new_row.evolution),
            ("profile.evolution", self.profile.evolution),
        ):
            if learning.questions > self.world.train:
                raise ValueError(f"{name}.questions: {learning.questions} is more than world.train {self.world.train}")
        for name, pool in self.pools.items():
            if pool.kind != "simulated" or pool.shuffle_skills or len(pool.names) < 3:
                raise ValueError(f"pools.{name}: expected kind: simulated, 3 models or more, without shuffle_skills")
        if len({len(pool.names) for pool in self.pools.values()}) > 1:
            raise ValueError("pools: expected as many models in each, so that all share compiled programs")
        return self
