"""Settings of the ablation study."""

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from experiments.study_settings import STRATEGY, StudySettings, WorldSettings, check_read
from trinity_jax.config import Count, Group, LearningSettings, PoolSettings, Positive

StepSizes = Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]
HeadName = Literal[
    "linear", "low-rank", "sparse", "block-diagonal-2", "block-diagonal-10, softmax", "block-diagonal-10, argmax"
]
HEADS: tuple[HeadName, ...] = get_args(HeadName)
Runs = Annotated[int, Field(ge=2, le=10_000)]


class ScalesSettings(Group):
    """Singular-value scales beside the head, evolved through the encoder itself: short runs, since they are slow."""

    layer: int = Field(default=-1, description="whose matrices are scaled, counted from the end of the cut encoder")
    scale: float = Field(default=0.03, gt=0, description="relative change of a singular value that a coordinate means")
    population: Annotated[int, Field(ge=4)] = 16
    questions: Positive = 8
    generations: Positive = 30
    seeds: Runs = 4
    released_population: Annotated[int, Field(ge=4)] = 4
    released_generations: Positive = 2


class SmallSettings(Group):
    """A smaller world, whose states are computed at several read positions and under singular-value scales."""

    world: WorldSettings = WorldSettings(train=24, held_out=24, max_calls=3)
    positions: Annotated[tuple[Annotated[int, Field(le=-1)], ...], Field(min_length=1)] = (-2, -1)
    scales: ScalesSettings | None = ScalesSettings()

    @model_validator(mode="after")
    def _of_an_encoder(self) -> "SmallSettings":
        if self.world.states != "encoder":
            raise ValueError("small.world.states: positions and scales are an encoder's, expected encoder")
        if self.world.encoder.read_position not in self.positions:
            raise ValueError(
                f"small.positions: expected {self.world.encoder.read_position}, the encoder's own, to be one of them, "
                f"got {list(self.positions)}"
            )
        if self.scales and self.scales.questions > self.world.train:
            raise ValueError(
                f"small.scales.questions: {self.scales.questions} is more than small.world.train: {self.world.train}"
            )
        return self


class Settings(StudySettings):
    """``kind: ablation``."""

    kind: Literal["ablation"] = "ablation"
    world: WorldSettings = WorldSettings()
    pool: PoolSettings
    learning: LearningSettings = Field(
        default=LearningSettings(population=32),
        description="of all arms where they name nothing else; sigma0 is that of the rows with the paper's setting",
    )
    step_sizes: StepSizes = Field(
        default=(0.03, 0.1, 0.3, 1.0, 3.0, 10.0), description="sigma0 to try, the same for every arm that is tuned"
    )
    tuning_seeds: Positive = 4
    seeds: Runs = 12
    heads: tuple[HeadName, ...] = Field(default=HEADS, description="to compare with linear, which must be among them")
    rank: Positive = Field(default=20, description="of the low-rank head")
    blocks: tuple[Positive, ...] = Field(default=(1, 2, 3, 5, 10), min_length=1, description="k of block-diagonal-k")
    replications: tuple[Count, ...] = Field(default=(1, 2, 4, 8, 16, 32), min_length=1, description="m_CMA")
    populations: tuple[Annotated[int, Field(ge=4)], ...] = Field(default=(8, 16, 32, 64), min_length=1)
    calls: tuple[Positive, ...] = Field(default=(1, 2, 3, 4), min_length=1, description="K")
    small: SmallSettings | None = SmallSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> "Settings":
        if "linear" not in self.heads:
            raise ValueError(f"heads: expected linear to be one of them, got {list(self.heads)}")
        if self.learning.learner != "sep_cma_es":
            raise ValueError(f"learning.learner: expected sep_cma_es, got {self.learning.learner}")
        if self.learning.population is None:
            raise ValueError("learning.population: expected a number, the same for heads of every size")
        if self.learning.repeats != 1:
            raise ValueError("learning.repeats: replications are questions here, expected 1")
        check_read(self.learning, (*STRATEGY, "questions"), "learning")
        for name, count, train in (
            ("replications", max(self.replications), self.world.train),
            ("learning.questions", self.learning.questions, self.world.train),
            ("learning.questions", self.learning.questions, self.small.world.train if self.small else self.world.train),
        ):
            if count > train:
                raise ValueError(f"{name}: {count} is more than the {train} training questions of its world")
        if max(self.calls) > self.world.max_calls:
            raise ValueError(
                f"calls: {max(self.calls)} is more than world.max_calls: {self.world.max_calls}, for which states exist"
            )
        return self
