"""What the comparison knows of a learner once it was played."""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.learners.play import Runs
from experiments.learners.settings import Readout
from trinity_jax.world.value import Attainable

Version = Literal["published", "tuned"]
Rule = Literal["sample", "argmax"]
"""How a deployed vector chooses."""


class Trial(NamedTuple):
    """One setting tried; mean exact success on the training questions, sampling and with the largest logits."""

    readout: Readout
    step: float
    train: Float[np.ndarray, " 2"]

    @property
    def rule(self) -> Rule:
        """The better way to choose."""
        return "argmax" if self.train[1] > self.train[0] else "sample"


class Arm(NamedTuple):
    """A learner in one version.

    Attributes:
        name: of the learner.
        version: as published, or the best of its trials.
        readout: coordinates.
        step: how far it steps.
        step_name: what that number is.
        rule: of the deployed vector.
        n: length of the vector.
        adapted: c_mu times generations; NaN where nothing adapts.
        episodes: played by the end of each generation; without a course, how many single calls were made.
        runs: one for every seed.
    """

    name: str
    version: Version
    readout: Readout
    step: float
    step_name: str
    rule: Rule
    n: int
    adapted: float
    episodes: Float[np.ndarray, " G"]
    runs: Runs

    @property
    def success(self) -> Float[np.ndarray, " R"]:
        """Exact held-out success of every run, as deployed."""
        return self.runs.held_out[:, 0 if self.rule == "sample" else 1]

    @property
    def calls(self) -> Float[np.ndarray, "R G"]:
        """Calls made by the end of each generation, those before the first included."""
        if self.runs.course is None:
            return self.runs.calls[:, None]
        made = np.cumsum(self.runs.course.made, axis=1)
        return made + (self.runs.calls - made[:, -1])[:, None]


class Ground(NamedTuple):
    """What success is measured against, on the held-out questions.

    Attributes:
        bounds: the best fixed policy, and the best of every kind.
        uniform: success when all choices are equally likely.
        kinds: names of the kinds of question.
        models: names of the models.
    """

    bounds: Attainable
    uniform: float
    kinds: tuple[str, ...]
    models: tuple[str, ...]
