"""Episodes of a generation to the fitness of its candidates, in numpy."""

import numpy as np
from jaxtyping import Float, Num

from trinity_jax.config import FitnessSettings


def mean_reward(rewards: Float[np.ndarray, "P R"]) -> Float[np.ndarray, " P"]:
    """Mean reward over the episodes that have one; NaN where a candidate has none.

    Args:
        rewards: NaN marks an episode that could not be completed. It is left out, not counted as wrong.
    """
    return _mean(rewards, ~np.isnan(rewards))


def choice_entropy(model_counts: Num[np.ndarray, "P L"]) -> Float[np.ndarray, " P"]:
    """Entropy in nats of the models each candidate chose; 0 where it chose none."""
    total = model_counts.sum(axis=1, keepdims=True)
    share = model_counts / np.maximum(total, 1)
    return -np.sum(share * np.log(np.where(share > 0, share, 1.0)), axis=1)


def fitness(
    settings: FitnessSettings,
    rewards: Float[np.ndarray, "P R"],
    model_counts: Num[np.ndarray, "P L"],
    calls: Num[np.ndarray, "P R"],
    costs: Float[np.ndarray, "P R"],
    max_calls: int,
) -> Float[np.ndarray, " P"]:
    """Mean reward + a * entropy of chosen models - b * mean share of the K calls used - c * mean cost.

    All means are over episodes with a reward. The weights a, b, c are 0 by default, which leaves the paper's fitness;
    the released run had a = 0.15 and b = 0.1.

    Args:
        settings: the weights a, b, c.
        rewards: 1 or 0, NaN for an episode that could not be completed.
        model_counts: how often each candidate chose each model.
        calls: calls made in each episode.
        costs: money spent on each episode.
        max_calls: K.

    Returns:
        One number per candidate, NaN for a candidate without a completed episode.
    """
    graded = ~np.isnan(rewards)
    return (
        mean_reward(rewards)
        + settings.entropy_weight * choice_entropy(model_counts)
        - settings.turn_weight * _mean(calls, graded) / max_calls
        - settings.cost_weight * _mean(costs, graded)
    )


def _mean(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    count = where.sum(axis=1)
    total = np.where(where, values, 0.0).sum(axis=1)
    return np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
