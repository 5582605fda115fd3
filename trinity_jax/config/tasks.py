"""Episodes and the questions they are about."""

from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, model_validator

from trinity_jax.config.base import Count, Group, Positive


class EpisodeSettings(Group):
    """The tri-role protocol (arXiv 2512.04695, section 3)."""

    max_calls: Positive = 5
    transcript: Literal["worker_thoughts", "full"] = "worker_thoughts"
    verifier_needs_response: bool = False
    strict_answer_tag: bool = False
    thought_chars: Positive = Field(default=2000, description="condensed thoughts are cut to this many characters")


class GeneratedTask(Group):
    """Questions made by reasoning-gym."""

    kind: str = Field(description="name of a family in tasks.generated.KINDS")
    difficulty: Literal["easy", "normal"] = "easy"


class BenchmarkTask(Group):
    """A published benchmark, or a set that an installed package carries."""

    name: str = Field(description="a name in tasks.benchmarks.BENCHMARKS or tasks.offline.SETS")
    file: Path | None = Field(default=None, description="JSONL or parquet; default: in tasks.folder, else from the hub")
    revision: str | None = Field(default=None, description="of the data set on the hub; default: its main branch")
    sha256: str | None = Field(
        default=None, pattern="^[0-9a-fA-F]{64}$", description="the questions' digest, which loading prints"
    )


class TaskSettings(Group):
    """Questions to train, validate and test on."""

    kind: Literal["generated", "jsonl", "benchmarks"] = "generated"
    mix: tuple[GeneratedTask, ...] = Field(
        default=(), description="for generated: families, equally many questions each"
    )
    benchmarks: tuple[BenchmarkTask, ...] = Field(
        default=(), description="for benchmarks: equally many questions of each that has the split"
    )
    folder: Path = Field(default=Path("data/benchmarks"), description="for benchmarks: where files NAME.jsonl are")
    train_file: Path | None = None
    validation_file: Path | None = None
    test_file: Path | None = None
    train: Count = 48
    validation: Count = 32
    test: Count = 64
    seed: int = Field(default=42, description="seed of the generated questions, apart from the run's")

    @model_validator(mode="after")
    def _files(self) -> "TaskSettings":
        files = (self.train_file, self.validation_file, self.test_file)
        if self.kind == "jsonl" and None in files:
            raise ValueError("tasks.kind: jsonl needs train_file, validation_file and test_file")
        if self.kind == "generated" and (not self.mix or any(files)):
            raise ValueError("tasks.kind: generated needs tasks.mix and no files")
        if self.kind == "benchmarks" and (not self.benchmarks or any(files)):
            raise ValueError(
                "tasks.kind: benchmarks needs tasks.benchmarks and no train_file, validation_file, test_file"
            )
        return self


Rival = Literal["per_kind", "knn", "logistic", "prompted", "mixture", "reflection"]


class EvaluationSettings(Group):
    """The table at the end of a run, and of ``python -m trinity_jax evaluate``."""

    repeats: Positive = Field(default=1, description="episodes per held-out question")
    bootstrap: int = Field(default=10_000, ge=100, description="resamples of the intervals")
    fixed_policy: bool = Field(
        default=True, description="search the best fixed tri-role policy on the training questions"
    )
    rivals: tuple[Rival, ...] = Field(
        default=get_args(Rival),
        description="rows that only `evaluate` adds: the best single model per kind; kNN and logistic routers on the "
        "encoder's hidden states; a model of the pool prompted as coordinator; mixture of agents; self-reflection",
    )
    prompted: str | None = Field(
        default=None, description="the model that is prompted as coordinator; default: the best single model"
    )
