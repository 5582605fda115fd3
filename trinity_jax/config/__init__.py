"""One YAML file = one run: frozen, validated settings; an unknown key is an error that names it."""

from trinity_jax.config.base import Count, Group, Positive, Share
from trinity_jax.config.change import ChangeFile, ChangeSettings
from trinity_jax.config.encoder import EncoderSettings, HeadSettings, PolicySettings, ReadoutSettings, SvfSettings
from trinity_jax.config.files import dump, load, override, parse, read
from trinity_jax.config.hosts import HostsSettings
from trinity_jax.config.learning import (
    FitnessSettings,
    GradientSettings,
    LearningSettings,
    RepairSettings,
    SearchSettings,
    Sharing,
    TrainingSettings,
    WarmStartSettings,
)
from trinity_jax.config.pool import (
    BudgetSettings,
    JournalSettings,
    ModelSettings,
    PoolSettings,
    PriceSettings,
    SimulatedModelSettings,
)
from trinity_jax.config.run import PoolFile, PreflightSettings, Settings, TrialSettings
from trinity_jax.config.serving import ServingSettings
from trinity_jax.config.tasks import BenchmarkTask, EpisodeSettings, EvaluationSettings, GeneratedTask, TaskSettings

__all__ = [
    "BenchmarkTask",
    "BudgetSettings",
    "ChangeFile",
    "ChangeSettings",
    "Count",
    "EncoderSettings",
    "EpisodeSettings",
    "EvaluationSettings",
    "FitnessSettings",
    "GeneratedTask",
    "GradientSettings",
    "Group",
    "HeadSettings",
    "HostsSettings",
    "JournalSettings",
    "LearningSettings",
    "ModelSettings",
    "PolicySettings",
    "PoolFile",
    "PoolSettings",
    "Positive",
    "PreflightSettings",
    "PriceSettings",
    "ReadoutSettings",
    "RepairSettings",
    "SearchSettings",
    "ServingSettings",
    "Settings",
    "Share",
    "Sharing",
    "SimulatedModelSettings",
    "SvfSettings",
    "TaskSettings",
    "TrainingSettings",
    "TrialSettings",
    "WarmStartSettings",
    "dump",
    "load",
    "override",
    "parse",
    "read",
]
