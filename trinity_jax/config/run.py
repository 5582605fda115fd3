"""Everything a training run depends on, and what of it must fit together."""

from typing import Literal

from pydantic import Field, model_validator

from trinity_jax.config.base import Count, Group
from trinity_jax.config.change import ChangeSettings
from trinity_jax.config.encoder import EncoderSettings, HeadSettings, PolicySettings, ReadoutSettings, SvfSettings
from trinity_jax.config.hosts import HostsSettings
from trinity_jax.config.learning import LearningSettings, TrainingSettings
from trinity_jax.config.pool import BudgetSettings, JournalSettings, PoolSettings
from trinity_jax.config.serving import ServingSettings
from trinity_jax.config.tasks import EpisodeSettings, EvaluationSettings, TaskSettings


class PreflightSettings(Group):
    """The look at models and costs before the first generation."""

    run: Literal["auto", "always", "never"] = Field(
        default="auto", description="auto: where models are called; simulated and recorded ones need none"
    )
    questions: Count = Field(default=8, description="of validation, for each model once")


class PoolFile(Group):
    """A pool on its own, for a trained coordinator: a run's groups ``pool`` and ``budget``, and ``serving``."""

    pool: PoolSettings
    budget: BudgetSettings = BudgetSettings()
    serving: ServingSettings = ServingSettings()


class TrialSettings(Group):
    """What the evaluation of a trained coordinator depends on: some of the groups of a run's file."""

    seed: int = Field(default=42, ge=0, lt=2**32)
    policy: PolicySettings = PolicySettings()
    episode: EpisodeSettings = EpisodeSettings()
    pool: PoolSettings
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    budget: BudgetSettings = BudgetSettings()


class Settings(Group):
    """Everything a run depends on."""

    kind: Literal["train"] = "train"
    seed: int = Field(default=42, ge=0, lt=2**32, description="JAX's keys take 32 bits of it")
    encoder: EncoderSettings = EncoderSettings()
    svf: SvfSettings = SvfSettings()
    head: HeadSettings = HeadSettings()
    readout: ReadoutSettings = ReadoutSettings()
    policy: PolicySettings = PolicySettings()
    episode: EpisodeSettings = EpisodeSettings()
    pool: PoolSettings
    tasks: TaskSettings
    learning: LearningSettings = LearningSettings()
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    journal: JournalSettings = JournalSettings()
    budget: BudgetSettings = BudgetSettings()
    preflight: PreflightSettings = PreflightSettings()
    hosts: HostsSettings = HostsSettings()
    change: ChangeSettings = ChangeSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> "Settings":
        if self.head.kind == "block_diagonal" and self.readout.kind == "whitened":
            raise ValueError(
                "head.kind: block_diagonal needs readout.kind: raw or centred (folding would mix the blocks)"
            )
        few = self.readout.source == "questions" and self.readout.k >= self.tasks.train
        if self.readout.kind == "whitened" and few:
            raise ValueError(
                f"readout.k: {self.readout.k} directions need more than tasks.train: {self.tasks.train} questions"
            )
        for name, count in (
            ("questions", self.learning.questions),
            ("warm_start.questions", self.learning.warm_start.questions or 0),
        ):
            if count > self.tasks.train:
                raise ValueError(f"learning.{name}: {count} is more than tasks.train: {self.tasks.train}")
        if self.learning.warm_start.kind != "none" and self.head.kind != "linear":
            raise ValueError(f"learning.warm_start fits rows of head.kind: linear, got {self.head.kind}")
        if self.learning.warm_start.roles == "script" and (
            self.learning.warm_start.kind == "none" or self.readout.source != "script" or self.readout.kind == "raw"
        ):
            raise ValueError(
                "learning.warm_start.roles: script needs a warm_start.kind, and readout.source: script with "
                "readout.kind: centred or whitened"
            )
        if self.learning.by_gradient:
            needs = {
                "svf.preset: none": self.svf.preset == "none",
                "head.kind: linear or block_diagonal": self.head.kind in ("linear", "block_diagonal"),
                "policy.train: sample": self.policy.train == "sample",
            }
            missing = [need for need, met in needs.items() if not met]
            if missing:
                raise ValueError(f"learning.learner: {self.learning.learner} needs {', '.join(missing)}")
        return self
