"""How the vector is learned."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from trinity_jax.config.base import Group, Positive, Share


class RepairSettings(Group):
    """Corrections of evosax 0.3.2's Sep_CMA_ES; all on by default, each a switch for comparisons."""

    separable_learning_rates: bool = True
    no_variance_creep: bool = True
    tie_averaged_weights: bool = True
    std_min: float = Field(default=1e-12, ge=0)


class FitnessSettings(Group):
    """Terms beside the mean reward, as in the released run; off by default."""

    entropy_weight: float = Field(
        default=0.0, ge=0, description="times the entropy of chosen models (nats); released: 0.15"
    )
    turn_weight: float = Field(default=0.0, ge=0, description="times the share of the K calls used; released: 0.1")
    cost_weight: float = Field(default=0.0, ge=0, description="times the mean cost of an episode")


class Sharing(StrEnum):
    """What the candidates of one generation have in common."""

    EVERYTHING = "everything"
    """Common random numbers: questions, keys of the choices, and every call that follows from the same choices."""
    QUESTIONS = "questions"
    """Questions and equal calls, but each draws its choices with keys of its own."""
    NOTHING = "nothing"
    """Own questions, own keys, own calls: the authors' way."""

    @property
    def own_questions(self) -> bool:
        """Whether each candidate draws questions (and pays calls) of its own."""
        return self is Sharing.NOTHING

    @property
    def own_keys(self) -> bool:
        """Whether each candidate draws its choices with keys of its own."""
        return self is not Sharing.EVERYTHING


class SearchSettings(Group):
    """Where random search draws its vectors, around the start."""

    box: Literal["uniform", "gaussian"] = Field(
        default="uniform", description="the paper's box, or the theorem's Gaussian of width learning.sigma0"
    )
    half_width: float = Field(default=0.5, gt=0, description="b of the box [-b, b]^n")


class GradientSettings(Group):
    """Adam's steps in reinforce, grpo and open_es."""

    learning_rate: float = Field(default=0.02, gt=0)
    standardise: bool = Field(
        default=False, description="reinforce, grpo: divide advantages by their group's standard deviation"
    )


class WarmStartSettings(Group):
    """A start for the head: models' rows from single Worker calls on training questions, role rows from a script."""

    kind: Literal["none", "ridge", "sft"] = Field(
        default="none", description="ridge regression of success, or supervised training on the best model"
    )
    roles: Literal["none", "script"] = Field(
        default="none", description="teach the role rows the script that readout.source: script has played"
    )
    questions: Positive | None = Field(default=None, description="how many each model answers; null: all")
    samples: Positive = Field(default=1, description="answers of each model to each question")
    temperature: float = Field(default=0.1, gt=0, description="ridge: the lead in success that is one logit")
    labels: Literal["majority", "mean"] = Field(
        default="majority", description="sft: a model is right by most of its answers, or as often as it is"
    )
    learning_rate: float = Field(default=1e-6, gt=0, description="sft: Adam's; the paper's")
    batch: Positive = Field(default=64, description="sft: questions per step; the paper's")
    steps: Positive = Field(default=1000, description="sft: the paper does not say")

    def calls(self, models: int, train: int) -> int:
        """How many calls it takes."""
        return 0 if self.kind == "none" else models * (self.questions or train) * self.samples


class LearningSettings(Group):
    """How the vector is learned; the paper's way is `sep_cma_es`."""

    learner: Literal["sep_cma_es", "isotropic_es", "open_es", "random_search", "reinforce", "grpo"] = Field(
        default="sep_cma_es",
        description="all deploy their mean, but random_search the vector with the best (noisy) fitness so far",
    )
    generations: int = Field(default=60, ge=0, description="0 deploys the start")
    population: Annotated[int, Field(ge=4)] | None = Field(default=None, description="null: 4 + 3 ln n, rounded up")
    questions: Positive = Field(default=16, description="training questions per generation")
    repeats: Positive = 1
    common_random_numbers: bool = Field(
        default=True, description="candidates share questions and luck; reinforce and grpo have rules of their own"
    )
    sigma0: float = Field(default=0.03, gt=0)
    step_size: Literal["csa", "tpa"] = "csa"
    active: bool = Field(
        default=False, description="sep_cma_es: bad candidates count against their directions, as in pycma"
    )
    repairs: RepairSettings = RepairSettings()
    search: SearchSettings = SearchSettings()
    gradient: GradientSettings = GradientSettings()
    warm_start: WarmStartSettings = WarmStartSettings()
    fitness: FitnessSettings = FitnessSettings()

    @model_validator(mode="after")
    def _fits_the_learner(self) -> "LearningSettings":
        repaired = self.repairs.model_copy(update={"std_min": 0.0}) == RepairSettings(std_min=0.0)
        if self.active and (self.learner != "sep_cma_es" or not repaired):
            raise ValueError("learning.active needs learner: sep_cma_es with every switch of learning.repairs on")
        if self.by_gradient and self.fitness != FitnessSettings():
            raise ValueError(
                f"learning.fitness weighs candidates, but learning.learner: {self.learner} weighs episodes, by their "
                "reward alone; leave it at its default"
            )
        if self.learner == "open_es" and self.population and self.population % 2:
            raise ValueError(
                f"learning.population: open_es draws pairs, expected an even number, got {self.population}"
            )
        if not self.generations and self.warm_start.kind == "none":
            raise ValueError("learning.generations: 0 deploys the start, so learning.warm_start must make one")
        return self

    @property
    def by_gradient(self) -> bool:
        """Whether the learner follows the gradient of its choices' log-probability."""
        return self.learner in ("reinforce", "grpo")

    @property
    def sharing(self) -> Sharing:
        """What candidates share. Those of a gradient learner are one vector: with shared keys they would be one run.

        reinforce plays as many questions as it can; grpo compares episodes of the same question.
        """
        if self.learner == "grpo":
            return Sharing.QUESTIONS
        own = self.learner == "reinforce" or not self.common_random_numbers
        return Sharing.NOTHING if own else Sharing.EVERYTHING


class TrainingSettings(Group):
    """The generation loop."""

    validate_every: Positive = 5
    max_failed_share: Share = Field(default=0.2, description="more episodes than this without a reward stop the run")
    tensorboard: bool = Field(
        default=False, description="write event files beside metrics.jsonl (extra `tensorboard` of the package)"
    )
