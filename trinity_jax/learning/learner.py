"""Settings to a learner."""

from typing import Any

from trinity_jax.config import LearningSettings
from trinity_jax.learning.gradient import LogProb, PolicyGradient
from trinity_jax.learning.openai import OpenAIES
from trinity_jax.learning.protocol import Experience, Learner
from trinity_jax.learning.random_search import RandomSearch
from trinity_jax.learning.strategy import Strategy

__all__ = ["Experience", "Learner", "LogProb", "build"]


def build(settings: LearningSettings, n: int, log_prob: LogProb | None = None) -> Learner:
    """The learner that ``settings.learner`` names, for vectors of length ``n``.

    Args:
        settings: of learning.
        n: length of the flat vector.
        log_prob: of each episode's choices, see `LogProb`; for ``reinforce`` and ``grpo``, which know nothing of what
            chooses.

    Raises:
        ValueError: a gradient learner without ``log_prob``.
    """
    kinds: dict[str, Any] = {
        "sep_cma_es": Strategy,
        "isotropic_es": Strategy,
        "open_es": OpenAIES,
        "random_search": RandomSearch,
    }
    if settings.learner in kinds:
        return kinds[settings.learner](settings, n)
    if log_prob is None:
        raise ValueError(f"learner {settings.learner} needs a log_prob")
    return PolicyGradient(settings, n, log_prob)
