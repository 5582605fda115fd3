"""What Proposition 1 is measured on: an objective, a reward, and which strategy climbs it."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.special import expit, logit

from experiments.efficiency import laws
from experiments.efficiency.arms import Trace, evolve
from experiments.efficiency.objective import Objective, block, eigenvalues, sloped
from experiments.efficiency.points import Point
from experiments.efficiency.settings import Settings


@dataclass(frozen=True)
class Case:
    """A start on a slope, |g| = 1.

    Attributes:
        name: its arm in the results.
        n: length of the vector.
        size: of a block.
        kind: of the strategy (`experiments.efficiency.arms.KINDS`).
        condition, eps: of the curvature.
        G: |g|^2 / tr H in logits; 1 where ranks are exact and only its multiples count.
        start: chance of success of the initial mean.
        replications: Bernoulli draws a candidate; None for exact ranks.
        linear: chance 1/2 + l without curvature instead of sigmoid(l).
    """

    name: str
    n: int
    size: int
    kind: str = "csa"
    condition: float = 1.0
    eps: float = 0.0
    G: float = 1.0
    start: float = 0.5
    replications: int | None = None
    linear: bool = False

    @property
    def level(self) -> float:
        """Logit at the start; in the linear model, the chance's distance from 1/2."""
        return self.start - 0.5 if self.linear else float(logit(self.start))

    def chance(self, logits: Float[np.ndarray, "*s"]) -> Float[np.ndarray, "*s"]:
        """True chance of success."""
        return np.clip(0.5 + logits, 0, 1) if self.linear else expit(logits)

    def attenuation(self, spread: float, chance: float, replications: int) -> float:
        """rho of candidates whose logits have this standard deviation and whose mean chance is ``chance``."""
        return laws.rho(spread * (1 if self.linear else chance * (1 - chance)), chance, replications)

    def objective(self, rng: np.random.Generator) -> Objective:
        """With a basis of the blocks and a slope of its own for each ``rng``."""
        root, slope = block(self.size, self.condition, rng), rng.standard_normal(self.n)
        return sloped(root * (not self.linear), self.eps, self.G, self.level, slope)

    def curvatures(self) -> Float[np.ndarray, " n"]:
        """Eigenvalues of H: the same for every ``rng``."""
        if self.linear:
            return np.zeros(self.n)
        return eigenvalues(block(self.size, self.condition), self.eps, self.n) / (self.n * self.G)

    def effective_n(self) -> float:
        """(tr H)^2 / tr H^2: over how many equal directions the curvature is as good as spread."""
        curvatures = self.curvatures()
        return self.n if self.linear else float(curvatures.sum() ** 2 / np.sum(curvatures**2))

    def run(self, objective: Objective, key: PRNGKeyArray, runs: int, sigma0: float, P: int, T: int) -> Trace:
        """The ES on it: P candidates, T generations."""
        link = "linear" if self.linear else "logistic" if self.replications else "exact"
        return evolve(self.kind, objective, key, runs, sigma0, P, T, link, self.replications or 1)

    def path(self, sigmas: Float[np.ndarray, " T"], population: int) -> laws.Path:
        """What the law expects of the ES with these step sizes."""
        along = np.full(self.n, 1 / self.n)
        chance = self.chance if self.replications else None
        return laws.es_path(self.curvatures(), along, sigmas, population, chance, self.replications, self.level)

    def point(self, part: str) -> Point:
        """A point without a value."""
        return Point(
            part=part,
            arm=self.name,
            n=self.n,
            block=self.size,
            condition=self.condition,
            eps=self.eps,
            model="linear" if self.linear else "curved",
            ranks="bernoulli" if self.replications else "exact",
            replications=self.replications,
            G=None if self.linear else self.G,
        )


def cases(settings: Settings) -> list[Case]:
    """In the order of the results."""
    gain = settings.gain
    n, size, condition, eps = gain.n, gain.block, gain.condition, gain.eps
    return [
        Case("exact ranks", n, size),
        Case("exact ranks, TPA", n, size, kind="tpa"),
        Case(f"exact ranks, condition {condition:g}", n, size, condition=condition),
        Case(f"exact ranks, condition {condition:g}, eps {eps:g}", n, size, condition=condition, eps=eps),
        *(
            Case(f"R = {c.replications}, G = {c.G:g}", n, size, "csa", condition, eps, c.G, c.start, c.replications)
            for c in gain.noisy
        ),
        Case("linear model", n, size, replications=gain.linear_replications, linear=True),
        *(Case(f"exact ranks, n = {small}", small, size) for small in gain.smaller),
    ]
