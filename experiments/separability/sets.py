"""The prompts to tell apart, each with its kind and with what every model of a pool made of it."""

import zlib

import numpy as np

from experiments.recorded import outcomes
from experiments.recorded.outcomes import Outcomes
from experiments.separability.settings import MixSettings, Settings, SimulatedSettings
from trinity_jax.errors import UserError
from trinity_jax.tasks.generated import FAMILIES, draw


def gather(settings: Settings) -> tuple[dict[str, Outcomes], str | None]:
    """The sets by name, and why recorded outcomes are missing, where they were asked for and not found.

    Raises:
        UserError: an unknown family, too few questions of one, or recorded outcomes that are broken.
    """
    sets = {
        name: generated(mix, settings.simulated, settings.seed, f"mixes.{name}") for name, mix in settings.mixes.items()
    }
    missing = None
    if settings.recorded is not None:
        try:
            folder = outcomes.find(settings.recorded.folder)
        except UserError as error:
            if settings.recorded.folder is not None:
                raise
            missing = str(error)
        else:
            recorded = outcomes.load(folder).pool(settings.recorded.pool, "recorded.pool")
            # The plane of an LDA takes three kinds.
            if len(recorded.tasks) < 3:
                raise UserError(f"{folder}: expected prompts of at least 3 tasks, got {', '.join(recorded.tasks)}")
            sets["recorded"] = recorded.some(settings.recorded.per_task)
    return sets, missing


def generated(mix: MixSettings, pool: SimulatedSettings, seed: int, where: str) -> Outcomes:
    """Questions of every kind, with one simulated call of each model.

    Raises:
        UserError: an unknown family, or one that has too few distinct prompts.
    """
    names, prompts = [], []
    for task in mix.kinds:
        if task.kind not in FAMILIES:
            raise UserError(f"{where}: unknown family {task.kind!r}; there are {', '.join(FAMILIES)}")
        names.append(f"{task.kind}/{task.difficulty}")
        prompts += [made.prompt for made in draw(task.kind, task.difficulty, seed, mix.per_kind)]
    task = np.repeat(np.arange(len(names)), mix.per_kind)
    models = tuple(f"model {i}" for i in range(pool.models))
    own = task[:, None] % pool.models == np.arange(pool.models)
    rng = np.random.default_rng((seed, zlib.crc32(where.encode())))
    right = rng.random(own.shape) < np.where(own, pool.specialist, pool.otherwise)
    ids = tuple(str(i) for i in range(len(prompts)))
    return Outcomes(tuple(names), task, ids, tuple(prompts), models, right.astype(float), None)
