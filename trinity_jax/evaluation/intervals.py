"""Bootstrap intervals that resample questions; the repeats of a question stay together."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats


class Estimate(NamedTuple):
    """A mean with its 95 % interval; all NaN where there is nothing to average."""

    mean: float
    low: float
    high: float


def known_mean(values: Float[np.ndarray, " Q"]) -> float:
    """Mean of what is not NaN; NaN where nothing is left."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else np.nan


def mean_interval(values: Float[np.ndarray, " Q"], resamples: int, seed: int) -> Estimate:
    """Mean over questions with a 95 % BCa bootstrap interval (Efron 1987).

    Args:
        values: one number per question (its repeats already averaged); NaN where a question has none.
        resamples: bootstrap resamples.
        seed: of the resampling.

    Returns:
        The mean of what is not NaN, and its interval. Where all values are equal the interval is that value; where
        there is none, all is NaN.
    """
    known = values[~np.isnan(values)]
    mean = known_mean(values)
    if known.size == 0 or np.ptp(known) == 0:
        return Estimate(mean, mean, mean)
    result = stats.bootstrap(
        (known,), np.mean, n_resamples=resamples, batch=1000, method="BCa", rng=np.random.default_rng(seed)
    )
    return Estimate(mean, float(result.confidence_interval.low), float(result.confidence_interval.high))


def paired_difference(
    ours: Float[np.ndarray, " Q"], theirs: Float[np.ndarray, " Q"], resamples: int, seed: int
) -> Estimate:
    """Mean of ``ours - theirs`` over the questions that both have, with its interval.

    Raises:
        ValueError: the two do not stand on the same questions.
    """
    if ours.shape != theirs.shape:
        raise ValueError(f"paired values must stand on the same questions, got shapes {ours.shape} and {theirs.shape}")
    return mean_interval(ours - theirs, resamples, seed)
