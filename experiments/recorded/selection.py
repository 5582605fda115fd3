"""Cross-validation on the training half: which option of a router, and whether it may be used at all."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.recorded.outcomes import Outcomes
from experiments.recorded.routers import Option, Router, best_single
from experiments.recorded.scores import folds, macro, macro_error, out_of_fold
from experiments.recorded.settings import Settings


class Selected(NamedTuple):
    """What cross-validation says about one router.

    Attributes:
        option: of the highest mean, the stiffer of equals.
        means: of every option.
        single: mean of always asking the best single model, learnt in the same folds.
        error: standard error of the option's lead over it, paired over prompts.
    """

    option: Option
    means: dict[Option, float]
    single: float
    error: float

    @property
    def lead(self) -> float:
        """Of the option over the best single model."""
        return self.means[self.option] - self.single

    @property
    def used(self) -> bool:
        """The router is used only where its lead is larger than the standard error; else the best single model is."""
        return self.lead > self.error


def seeds(settings: Settings) -> range:
    """One for each evolution and each dealing of the folds."""
    return range(settings.seed, settings.seed + settings.seeds)


def single_rewards(outcomes: Outcomes, train: Bool[np.ndarray, " Q"], settings: Settings) -> Float[np.ndarray, "S n"]:
    """Out-of-fold rewards of always asking the best single model of the other folds."""

    def learn(seen: Bool[np.ndarray, " Q"], seed: int) -> Int[np.ndarray, " Q"]:
        return np.full(len(seen), best_single(outcomes.rows(seen)))

    return _validated(learn, outcomes, train, settings)


def validated(
    router: Router,
    outcomes: Outcomes,
    train: Bool[np.ndarray, " Q"],
    settings: Settings,
    progress: Callable[[str], None],
) -> dict[Option, Float[np.ndarray, "S n"]]:
    """Out-of-fold rewards of every option on the training prompts, for the folds of every seed."""
    found = {}
    for number, option in enumerate(router.options, 1):
        progress(f"{router.name}: cross-validation {number} of {len(router.options)}")
        found[option] = _validated(
            lambda seen, seed, at=option: router.learn(at, seen, seed), outcomes, train, settings
        )
    return found


def select(
    rewards: dict[Option, Float[np.ndarray, "S n"]], single: Float[np.ndarray, "S n"], task: Int[np.ndarray, " n"]
) -> Selected:
    """Choose by the mean over seeds; of one seed's rows alone it is that seed's own choice."""
    means = {option: macro(values.mean(axis=0), task) for option, values in rewards.items()}
    best = max(means, key=lambda option: means[option])
    error = macro_error((rewards[best] - single).mean(axis=0), task)
    return Selected(best, means, macro(single.mean(axis=0), task), error)


def _validated(
    learn: Callable[[Bool[np.ndarray, " Q"], int], Int[np.ndarray, " Q"]],
    outcomes: Outcomes,
    train: Bool[np.ndarray, " Q"],
    settings: Settings,
) -> Float[np.ndarray, "S n"]:
    task = outcomes.task[train]
    rows = [
        out_of_fold(lambda seen, at=seed: learn(seen, at), outcomes.right, train, folds(task, settings.folds, seed))
        for seed in seeds(settings)
    ]
    return np.stack(rows)
