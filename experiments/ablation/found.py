"""Everything that was measured, and how arms compare."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.ablation.arms import ALL_ROLES, Arm, Groups
from experiments.ablation.ceilings import Ceiling
from experiments.ablation.runs import Measured
from experiments.ablation.scales import Scaled
from experiments.results import over_seeds
from trinity_jax.evaluation.intervals import Estimate


class Found(NamedTuple):
    """What the figures and the page are made of.

    Attributes:
        groups: the arms by group and name.
        arms: what came out.
        ceilings: of fixed policies, by calls and roles.
        width: D.
        models: L.
        long: runs with and without singular-value scales; empty where there were none.
        short: fewer generations, with the released layout too.
    """

    groups: Groups
    arms: dict[Arm, Measured]
    ceilings: dict[tuple[int, tuple[bool, bool, bool]], Ceiling]
    width: int
    models: int
    long: tuple[Scaled, ...]
    short: tuple[Scaled, ...]

    def successes(self, arm: Arm) -> Float[np.ndarray, " seeds"]:
        """Exact held-out success of every run."""
        return np.array([one.success(arm.argmax) for one in self.arms[arm].runs])

    def success(self, arm: Arm) -> Estimate:
        """Mean over seeds."""
        return over_seeds(self.successes(arm))

    def largest(self, arm: Arm) -> float:
        """Mean over seeds where the largest logits decide, whatever the arm does."""
        return float(np.mean([one.largest for one in self.arms[arm].runs]))

    def less(self, arm: Arm, other: Arm) -> Estimate:
        """Success of the one less that of the other, seed by seed."""
        return over_seeds(self.successes(arm) - self.successes(other))

    def ceiling(self, arm: Arm) -> Ceiling:
        """Of an arm of the large world."""
        return self.ceilings[arm.max_calls, arm.roles]

    @property
    def reference(self) -> Ceiling:
        """With all roles and the most calls."""
        return self.ceilings[max(calls for calls, _ in self.ceilings), ALL_ROLES]

    def scaled(self, preset: str) -> Float[np.ndarray, " seeds"]:
        """Success of the long runs."""
        return np.array([one.drawn for one in self.long if one.preset == preset])


def verdict(difference: Estimate) -> str:
    """Whether the interval leaves out 0."""
    return "better" if difference.low > 0 else "worse" if difference.high < 0 else "no difference that can be told"
