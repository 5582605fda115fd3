"""Routers that ask one model once: fitted on single answers to the training questions and hidden states of them.

Both see what the coordinator's head sees before its first turn, through the encoder as it was published. scikit-learn,
which takes half a second to load, is loaded where a router is fitted: most runs fit none.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from trinity_jax.evaluation.intervals import known_mean

Predict = Callable[[Float[np.ndarray, "N D"], Float[np.ndarray, "N L"], Float[np.ndarray, "Q D"]], np.ndarray]
"""Chance of each model to be right on Q questions, from N questions with known rewards, [Q L]."""

# The smoothest first: where cross-validation sees no difference, that one is taken.
NEIGHBOURS = (40, 20, 10, 5, 3, 1)
INVERSE_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
FOLDS = 5


@dataclass(frozen=True)
class Learned:
    """What may be known before a held-out question is seen: one call per model and training question.

    Attributes:
        rewards: [N L], NaN where a call failed.
        kinds: of the N questions.
        states: hidden states of the un-adapted encoder for training and held-out questions, [N D] and [Q D]; None
            where no router asks for them.
    """

    rewards: Float[np.ndarray, "N L"]
    kinds: Sequence[str]
    states: tuple[Float[np.ndarray, "N D"], Float[np.ndarray, "Q D"]] | None = None

    @property
    def calls(self) -> int:
        """What it took."""
        return self.rewards.size

    def best(self, kind: str | None = None) -> int:
        """The best single model (on one kind of question, where there is any); ties go to the first."""
        rows = np.array([kind is None or other == kind for other in self.kinds])
        if not rows.any():
            return self.best()
        means = [known_mean(column) for column in self.rewards[rows].T]
        return int(np.argmax([-1.0 if np.isnan(mean) else mean for mean in means]))


def knn(
    states: Float[np.ndarray, "N D"], rewards: Float[np.ndarray, "N L"], asked: Float[np.ndarray, "Q D"]
) -> tuple[Int[np.ndarray, " Q"], str]:
    """Mean reward of the nearest training questions by cosine of standardised states; which model for each of Q.

    Also says how many neighbours cross-validation on the training questions took.
    """
    count, choice = _tuned([c for c in NEIGHBOURS if c <= len(states)], _nearest, states, rewards, asked)
    return choice, f"{count:g} nearest neighbours"


def logistic(
    states: Float[np.ndarray, "N D"], rewards: Float[np.ndarray, "N L"], asked: Float[np.ndarray, "Q D"]
) -> tuple[Int[np.ndarray, " Q"], str]:
    """A logistic regression for each model on standardised states; which model for each of Q questions.

    Also says which penalty cross-validation on the training questions took.
    """
    C, choice = _tuned(INVERSE_PENALTIES, _regressed, states, rewards, asked)
    return choice, f"C = {C:g}"


def _tuned(
    grid: Sequence[float],
    predict: Callable[[float], Predict],
    states: np.ndarray,
    rewards: np.ndarray,
    asked: np.ndarray,
) -> tuple[float, np.ndarray]:
    """The setting whose choices earn most on training questions that were held out of the fit, and its choices.

    Folds go by a fixed permutation; ties go to the first of the grid.
    """
    mean, scale = states.mean(axis=0), states.std(axis=0)
    states, asked = ((x - mean) / np.where(scale > 0, scale, 1.0) for x in (states, asked))
    folds = np.random.default_rng(0).permutation(len(states)) % FOLDS

    def earned(setting: float) -> float:
        total = []
        for fold in range(min(FOLDS, len(states)) if len(states) > 1 else 0):
            out = folds == fold
            chosen = predict(setting)(states[~out], rewards[~out], states[out]).argmax(axis=1)
            total.append(rewards[out][np.arange(out.sum()), chosen])
        return known_mean(np.concatenate(total)) if total else 0.0

    values = [earned(setting) for setting in grid]
    best = grid[int(np.argmax([-1.0 if np.isnan(value) else value for value in values]))]
    return best, predict(best)(states, rewards, asked).argmax(axis=1)


def _nearest(count: float) -> Predict:
    from sklearn.neighbors import KNeighborsRegressor

    def predict(states: np.ndarray, rewards: np.ndarray, asked: np.ndarray) -> np.ndarray:
        chances = np.full((len(asked), rewards.shape[1]), -1.0)
        for model, column in enumerate(rewards.T):
            known = ~np.isnan(column)
            if known.any():
                near = KNeighborsRegressor(min(int(count), int(known.sum())), metric="cosine")
                chances[:, model] = near.fit(states[known], column[known]).predict(asked)
        return chances

    return predict


def _regressed(C: float) -> Predict:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    def predict(states: np.ndarray, rewards: np.ndarray, asked: np.ndarray) -> np.ndarray:
        chances = np.full((len(asked), rewards.shape[1]), -1.0)
        for model, column in enumerate(rewards.T):
            known = ~np.isnan(column)
            if known.any() and np.ptp(column[known]) == 0:
                chances[:, model] = column[known][0]  # never wrong, or never right: nothing to regress on
            elif known.any():
                with warnings.catch_warnings():
                    # Weak penalties on few questions have no end to converge to; cross-validation judges the outcome.
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    fitted = LogisticRegression(C=C, max_iter=300).fit(states[known], column[known] > 0.5)
                chances[:, model] = fitted.predict_proba(asked)[:, 1]
        return chances

    return predict
