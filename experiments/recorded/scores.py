"""The metric, mean over tasks of the accuracy, its intervals, and the choice of a setting by cross-validation."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from trinity_jax.evaluation.intervals import Estimate


def macro(values: Float[np.ndarray, " Q"], task: Int[np.ndarray, " Q"]) -> float:
    """Mean over tasks of the tasks' means."""
    return float(np.mean([values[task == t].mean() for t in np.unique(task)]))


def macro_error(values: Float[np.ndarray, " Q"], task: Int[np.ndarray, " Q"]) -> float:
    """Standard error of `macro` over prompts drawn within tasks."""
    parts = [values[task == t] for t in np.unique(task)]
    return float(np.sqrt(sum(part.var() / len(part) for part in parts)) / len(parts))


def macro_interval(values: Float[np.ndarray, " Q"], task: Int[np.ndarray, " Q"], resamples: int, seed: int) -> Estimate:
    """`macro` with a 95 % BCa bootstrap interval (Efron 1987) that resamples prompts within their tasks."""
    mean = macro(values, task)
    parts = [values[task == t] for t in np.unique(task)]
    if all(np.ptp(part) == 0 for part in parts):
        return Estimate(mean, mean, mean)

    def statistic(*samples: np.ndarray, axis: int) -> np.ndarray:
        return np.mean([sample.mean(axis=axis) for sample in samples], axis=0)

    rng = np.random.default_rng(seed)
    found = stats.bootstrap(parts, statistic, n_resamples=resamples, batch=500, method="BCa", rng=rng)
    return Estimate(mean, float(found.confidence_interval.low), float(found.confidence_interval.high))


def folds(label: Int[np.ndarray, " Q"], count: int, seed: int) -> Int[np.ndarray, " Q"]:
    """Fold of each item: every label is dealt evenly, in an order drawn from the seed."""
    rng, fold = np.random.default_rng(seed), np.empty(len(label), int)
    for one in np.unique(label):
        own = rng.permutation(np.flatnonzero(label == one))
        fold[own] = np.arange(len(own)) % count
    return fold


def reward(choice: Int[np.ndarray, " Q"], right: Float[np.ndarray, "Q L"]) -> Float[np.ndarray, " Q"]:
    """Recorded outcome of the chosen models."""
    return right[np.arange(len(choice)), choice]


def out_of_fold(
    learn: Callable[[Bool[np.ndarray, " Q"]], Int[np.ndarray, " Q"]],
    right: Float[np.ndarray, "Q L"],
    train: Bool[np.ndarray, " Q"],
    fold: Int[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """Reward of every training prompt under a choice learnt from the other folds of the training prompts.

    Args:
        learn: from a mask of prompts to learn from to a choice on all prompts.
        right: recorded outcomes of all prompts.
        train: the training prompts.
        fold: of each training prompt.
    """
    places, values = np.flatnonzero(train), np.empty(len(fold))
    for one in np.unique(fold):
        seen = train.copy()
        seen[places[fold == one]] = False
        values[fold == one] = reward(learn(seen), right)[places[fold == one]]
    return values
