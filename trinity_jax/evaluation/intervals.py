"""Bootstrap intervals that resample questions; the repeats of a question stay together."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

_Z = float(stats.norm.ppf(0.975))

FEWEST_QUESTIONS = 20
"""Below this many questions a bootstrap interval is too narrow to rest a claim on, so there is none."""


class Estimate(NamedTuple):
    """A mean with its 95 % interval, which is NaN where questions are too few; all NaN where there are none."""

    mean: float
    low: float
    high: float


def known_mean(values: Float[np.ndarray, " Q"]) -> float:
    """Mean of what is not NaN; NaN where nothing is left."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else np.nan


def mean_interval(
    values: Float[np.ndarray, " Q"], resamples: int, seed: int, span: tuple[float, float] = (0.0, 1.0)
) -> Estimate:
    """Mean over questions with a 95 % BCa bootstrap interval (Efron 1987).

    Where all Q values are equal there is nothing to resample, but a share of up to z^2 / (Q + z^2) of all questions may
    still have other values (Wilson 1927 at Q of Q), anywhere in ``span``: for 20 of 20 right this is Wilson's interval.

    Args:
        values: one number per question (its repeats already averaged); NaN where a question has none.
        resamples: bootstrap resamples.
        seed: of the resampling.
        span: least and greatest value that a question can have.

    Returns:
        The mean of what is not NaN, and its interval: NaN for fewer than ``FEWEST_QUESTIONS`` values.
    """
    known = values[~np.isnan(values)]
    mean = known_mean(values)
    if known.size < FEWEST_QUESTIONS:
        return Estimate(mean, np.nan, np.nan)
    if np.ptp(known) == 0:
        other = _Z**2 / (known.size + _Z**2)
        return Estimate(mean, mean - other * (mean - span[0]), mean + other * (span[1] - mean))
    result = stats.bootstrap(
        (known,), np.mean, n_resamples=resamples, batch=1000, method="BCa", rng=np.random.default_rng(seed)
    )
    return Estimate(mean, float(result.confidence_interval.low), float(result.confidence_interval.high))


def paired_difference(
    ours: Float[np.ndarray, " Q"], theirs: Float[np.ndarray, " Q"], resamples: int, seed: int
) -> Estimate:
    """Mean of ``ours - theirs``, shares both, over the questions that both have, with its interval.

    Raises:
        ValueError: the two do not stand on the same questions.
    """
    if ours.shape != theirs.shape:
        raise ValueError(f"paired values must stand on the same questions, got shapes {ours.shape} and {theirs.shape}")
    return mean_interval(ours - theirs, resamples, seed, (-1.0, 1.0))
