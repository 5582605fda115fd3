"""Settings of the comparison of learners."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from experiments.study_settings import StudySettings, WorldSettings, check_read
from trinity_jax.config import Group, LearningSettings, PoolSettings, Positive

KNOWN: dict[str, dict[str, Any]] = {
    "sep_cma_es": {"learner": "sep_cma_es"},
    "isotropic_es": {"learner": "isotropic_es"},
    "open_es": {"learner": "open_es"},
    "random_search_uniform": {"learner": "random_search", "search": {"box": "uniform"}},
    "random_search_gaussian": {"learner": "random_search", "search": {"box": "gaussian"}},
    "reinforce": {"learner": "reinforce"},
    "grpo": {"learner": "grpo"},
    "sft": {"generations": 0, "warm_start": {"kind": "sft"}},
    "ridge": {"generations": 0, "warm_start": {"kind": "ridge"}},
}
"""What each name means in `LearningSettings`; the last two deploy the start that single calls give them."""

Step = Annotated[float, Field(gt=0)]
Readout = Literal["raw", "centred", "whitened"]


class ArmSettings(Group):
    """One learner in its two versions."""

    published: LearningSettings = Field(description="in raw coordinates, as the paper has it")
    tuned: LearningSettings = Field(description="what all of its trials have in common")
    steps: dict[Readout, tuple[Step, ...]] = Field(
        description="the trials: by coordinates, values of the one number that sets how far this learner steps"
    )

    @property
    def trials(self) -> list[tuple[Readout, float]]:
        """Coordinates and step of every trial."""
        return [(readout, step) for readout, steps in self.steps.items() for step in steps]


class Settings(StudySettings):
    """Everything the study depends on."""

    kind: Literal["learners"] = "learners"
    world: WorldSettings
    pool: PoolSettings
    compare: tuple[str, ...] = Field(default=tuple(KNOWN), min_length=1)
    learners: dict[str, ArmSettings]
    episodes: Positive = Field(
        default=30_720, description="of every learner; sft and ridge make at most as many single calls"
    )
    seeds: Annotated[int, Field(ge=2)] = 15
    tuning_seeds: Positive = Field(default=3, description="of every trial, apart from the seeds that are reported")
    whitened: Positive = Field(default=8, description="principal directions of whitened coordinates")
    judge_every: Positive = Field(default=2, description="generations between exact values in the learning curves")

    @model_validator(mode="before")
    @classmethod
    def _names_mean_learners(cls, data: Any) -> Any:
        arms = data.get("learners")
        if not isinstance(arms, dict):
            return data
        chosen = data.get("compare", list(arms))
        for name in [*arms, *(chosen if isinstance(chosen, list | tuple) else ())]:
            if name not in list(KNOWN):  # a list has no hash
                raise ValueError(f"learners: expected names of {', '.join(KNOWN)}, got {name!r}")
        return data | {"learners": {name: _named(name, arm) for name, arm in arms.items()}}

    @model_validator(mode="after")
    def _fits_together(self) -> "Settings":
        if len(set(self.compare)) < len(self.compare):
            raise ValueError(f"compare: expected each learner once, got {', '.join(self.compare)}")
        missing = [name for name in self.compare if name not in self.learners]
        if missing:
            raise ValueError(f"compare: no settings in learners for {', '.join(missing)}")
        trials = {name: len(self.learners[name].trials) for name in self.compare}
        if len(set(trials.values())) > 1:
            raise ValueError(f"learners: expected equally many trials (steps) of each, got {trials}")
        if not all(trials.values()):
            raise ValueError("learners: steps: expected at least one trial of each, got none")
        for name in self.compare:
            for version in ("published", "tuned"):
                self._playable(getattr(self.learners[name], version), f"learners.{name}.{version}")
        return self

    def _playable(self, learning: LearningSettings, where: str) -> None:
        if learning.population is None:
            raise ValueError(f"{where}.population: expected a number, got null")
        check_read(learning, LearningSettings.model_fields.keys() - _unread(learning), where)
        warm = learning.warm_start
        if (warm.questions, warm.roles) != (None, "none"):
            raise ValueError(f"{where}.warm_start: every training question is asked here, and roles are not taught")
        if learning.generations:
            if self.episodes % _per_generation(learning):
                raise ValueError(
                    f"{where}: episodes: {self.episodes} is no multiple of a generation's "
                    f"{_per_generation(learning)} (population x questions x repeats)"
                )
            if learning.questions > self.world.train:
                raise ValueError(
                    f"{where}.questions: {learning.questions} is more than world.train: {self.world.train}"
                )
        elif (calls := warm.calls(len(self.pool.names), self.world.train)) > self.episodes:
            raise ValueError(
                f"{where}.warm_start.samples: {calls} single calls (models x questions x samples) are more than "
                f"episodes: {self.episodes}"
            )

    def arm(self, name: str, version: Literal["published", "tuned"]) -> LearningSettings:
        """A learner's settings with as many generations as its episodes pay for."""
        learning: LearningSettings = getattr(self.learners[name], version)
        if not learning.generations:
            return learning
        return learning.model_copy(update={"generations": self.episodes // _per_generation(learning)})


def _named(name: str, arm: Any) -> Any:
    if not isinstance(arm, dict):
        return arm
    # The formula for the population would make it depend on the coordinates.
    versions = {version: arm.get(version, {}) for version in ("published", "tuned")}
    return arm | {
        version: _over({"population": 32} | own, KNOWN[name]) if isinstance(own, dict) else own
        for version, own in versions.items()
    }


def _over(own: dict[str, Any], meant: dict[str, Any]) -> dict[str, Any]:
    found = dict(own)
    for key, value in meant.items():
        if not isinstance(value, dict):
            if own.get(key, value) != value:
                raise ValueError(f"{key}: expected {value!r}, which this learner's name stands for, got {own[key]!r}")
            found[key] = value
        elif isinstance(own.get(key, {}), dict):
            found[key] = _over(own.get(key, {}), value)
    return found


def _unread(learning: LearningSettings) -> set[str]:
    """The world's fitness is the mean reward; who evolves here begins at zero."""
    return {"fitness", "warm_start"} if learning.generations else {"fitness"}


def _per_generation(learning: LearningSettings) -> int:
    assert learning.population
    return math.prod((learning.population, learning.questions, learning.repeats))
