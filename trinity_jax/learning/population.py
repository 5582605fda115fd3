"""How many candidates a generation has."""

import math

from trinity_jax.config import LearningSettings


def population_size(settings: LearningSettings, n: int) -> int:
    """P: as set, or ceil(4 + 3 ln n), the paper's; antithetic pairs make it even."""
    size = settings.population or math.ceil(4 + 3 * math.log(n))
    return size + size % 2 if settings.learner == "open_es" else size
