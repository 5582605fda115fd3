"""Settings of the study of Propositions 1 and 2."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from experiments.study_settings import StudySettings
from trinity_jax.config import Count, Group, Positive

Runs = Annotated[int, Field(ge=2, le=1_000_000)]
Chance = Annotated[float, Field(gt=0, lt=1)]
Strength = Annotated[float, Field(gt=0)]
Coupling = Annotated[float, Field(ge=0, lt=1)]
Multiples = Annotated[tuple[Strength, ...], Field(min_length=1)]


def _check_blocks(n: int, block: int, eps: float) -> None:
    if n % block:
        raise ValueError(f"n must be a multiple of the block size {block}, got {n}")
    if eps and n < 2 * block:
        raise ValueError(f"eps couples blocks: expected at least two of size {block} in n, got n = {n}")


class NoisyCase(Group):
    """A curved objective under Bernoulli rewards."""

    replications: Count = Field(description="episodes a candidate of the ES; random search gets twice as many")
    G: Strength = Field(description="|g|^2 / tr H in logits")
    start: Chance = Field(description="chance of success of the initial mean")


class GainSettings(Group):
    """Proposition 1: gains of the ES and of random search at equal Bernoulli calls."""

    n: Positive = 10_240
    smaller: tuple[Positive, ...] = Field(default=(32, 320, 1024), description="lengths to see the laws fail at")
    block: Positive = 16
    condition: Annotated[float, Field(ge=1)] = 100.0
    eps: Coupling = 0.5
    seeds: Runs = 50
    tuning_seeds: Runs = 5
    search_seeds: Runs = 4000
    noisy: tuple[NoisyCase, ...] = ()
    linear_spread: Strength = Field(default=0.021, description="gamma sigma of the linear score model")
    linear_replications: Count = 16

    @model_validator(mode="after")
    def _blocks_fill_n(self) -> "GainSettings":
        for n in (self.n, *self.smaller):
            _check_blocks(n, self.block, self.eps if n == self.n else 0.0)
        names = [(case.replications, case.G) for case in self.noisy]
        if len(set(names)) < len(names):
            raise ValueError("noisy: two cases of the same replications and G would have the same name")
        return self


class ThresholdSettings(Group):
    """Where noise ends all progress."""

    n: Positive = 512
    replications: Count = 16
    generations: Positive = 20
    seeds: Runs = 100
    spreads: Multiples = Field(default=(0.1, 0.2, 0.4), description="sigma |g|, in logits")
    strengths: Multiples = Field(default=(0.5, 0.75, 1.0, 1.5, 2.0, 4.0), description="G over its predicted threshold")


class ContractionSettings(Group):
    """Proposition 2: convergence at small n."""

    n: Annotated[tuple[Positive, ...], Field(min_length=1)] = (10, 16, 32, 100, 320)
    seeds: Runs = 10
    multiples: Multiples = (0.5, 1.0, 2.0)
    blocks_n: Positive = 32
    block: Positive = 8
    condition: Annotated[float, Field(ge=1)] = 100.0
    eps: Annotated[tuple[Coupling, ...], Field(min_length=1)] = (0.0, 0.3, 0.6, 0.9)
    replications: tuple[Count, ...] = (16, 256, 4096)
    start: Chance = 0.2
    top: Chance = 0.9

    @model_validator(mode="after")
    def _blocks_fill_n(self) -> "ContractionSettings":
        _check_blocks(self.blocks_n, self.block, max(self.eps))
        return self


class SeparabilitySettings(Group):
    """Isotropic, separable and full covariance on curvature that differs by a factor."""

    n: Positive = 100
    block: Positive = 10
    condition: Annotated[float, Field(ge=1)] = 100.0
    eps: Annotated[tuple[Coupling, ...], Field(min_length=1)] = (0.0, 0.5, 0.9)
    generations: Positive = 1000
    early: Positive = 240
    seeds: Runs = 10
    full_seeds: Runs = 4
    multiples: Multiples = (0.1, 0.3, 1.0, 3.0)

    @model_validator(mode="after")
    def _fits(self) -> "SeparabilitySettings":
        _check_blocks(self.n, self.block, max(self.eps))
        if self.early > self.generations:
            raise ValueError(f"early: expected at most generations ({self.generations}), got {self.early}")
        return self


class Settings(StudySettings):
    """``kind: efficiency``."""

    kind: Literal["efficiency"] = "efficiency"
    population: Annotated[int, Field(ge=4, le=1000)] = 32
    generations: Annotated[tuple[Positive, ...], Field(min_length=3)] = (2, 5, 10, 20, 40, 60)
    multiples: Multiples = Field(
        default=(0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 3.0),
        description="step sizes to try, over the best of the first-order law without noise; the same for every arm",
    )
    gain: GainSettings = GainSettings()
    threshold: ThresholdSettings = ThresholdSettings()
    contraction: ContractionSettings = ContractionSettings()
    separability: SeparabilitySettings = SeparabilitySettings()

    @model_validator(mode="after")
    def _fits(self) -> "Settings":
        _check_blocks(self.threshold.n, self.gain.block, 0.0)
        if list(self.generations) != sorted(set(self.generations)):
            raise ValueError(f"generations must ascend, got {list(self.generations)}")
        return self
