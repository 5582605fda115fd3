"""Every number of the study is a point: a row of results.csv, from which figures and text are made."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from trinity_jax.evaluation.intervals import Estimate


@dataclass(frozen=True, kw_only=True)
class Point:
    """A measured value with its 95 % interval over runs, and what was run.

    Attributes:
        part: which experiment.
        arm: which method or case of it.
        measure: what ``value`` is.
        value, low, high: the estimate.
        predicted: by the law named in the text.
        problem: where the curvature lies.
        n, block, condition, eps: the objective.
        model: ``curved`` or ``linear``.
        ranks: ``exact`` or ``bernoulli``.
        replications: Bernoulli draws a candidate.
        G: |g|^2 / tr H.
        sigma0: initial step size; for random search its only one.
        multiple: the same over the best of the first-order law without noise.
        T, N: generations of the ES; candidates of random search.
        seeds: independent runs.
        c_mu_T: how far the diagonal could adapt; below 0.1 it did not.
    """

    part: str
    arm: str
    measure: str = ""
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    predicted: float | None = None
    problem: str | None = None
    n: int | None = None
    block: int | None = None
    condition: float | None = None
    eps: float | None = None
    model: str | None = None
    ranks: str | None = None
    replications: int | None = None
    G: float | None = None
    sigma0: float | None = None
    multiple: float | None = None
    T: int | None = None
    N: int | None = None
    seeds: int | None = None
    c_mu_T: float | None = None  # noqa: N815

    def but(self, estimate: Estimate | float | None = None, **changes) -> "Point":
        """The same, with another value or other fields."""
        if isinstance(estimate, Estimate):
            changes |= {"value": estimate.mean, "low": estimate.low, "high": estimate.high}
        elif estimate is not None:
            changes |= {"value": estimate, "low": math.nan, "high": math.nan}
        return replace(self, **changes)

    def row(self) -> dict[str, Any]:
        """For the table: empty where there is nothing to say."""
        known = {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in vars(self).items()}
        return known | {"value": self.value}

    @property
    def estimate(self) -> Estimate:
        """Value and interval."""
        return Estimate(self.value, self.low, self.high)

    @property
    def error(self) -> float:
        """Value over prediction, minus 1."""
        assert self.predicted
        return self.value / self.predicted - 1


def within(points: Iterable[Point], **about) -> list[Point]:
    """The points that agree with ``about``, in order."""
    return [point for point in points if all(getattr(point, name) == value for name, value in about.items())]


def one(points: Iterable[Point], **about) -> Point:
    """The only such point."""
    (point,) = within(points, **about)
    return point


def ratio(above: Estimate, below: Estimate) -> Estimate:
    """Quotient of two independent positive estimates; the interval is symmetric in the logarithm."""
    value = above.mean / below.mean
    spread = math.hypot((above.high - above.low) / 2 / above.mean, (below.high - below.low) / 2 / below.mean)
    return Estimate(value, value * math.exp(-spread), value * math.exp(spread))


def line(x: Sequence[float] | np.ndarray, y: Float[np.ndarray, "*S x"]) -> tuple[Float[np.ndarray, "*S"], float]:
    """Least-squares slope of each row of y over x, and R^2 of their mean."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    centred = x - x.mean()
    mean = y if y.ndim == 1 else y.mean(axis=0)
    total = mean - mean.mean()
    explained = (centred @ total) ** 2 / (centred @ centred)
    return y @ centred / (centred @ centred), float(explained / (total @ total))
