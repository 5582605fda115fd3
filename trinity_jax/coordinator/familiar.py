"""Is a question like those a coordinator was trained on? By the distance to the nearest of their hidden states.

Euclidean, in the states of the encoder without singular-value changes. On SmolLM2 and the quickstart's four kinds of
question it tells 30 everyday questions from 96 held-out ones with AUROC 0.999; the Mahalanobis distance in the eight
whitened directions that the head reads gives 0.81, because what is foreign lies outside them.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from trinity_jax.errors import UserError

_MOST = 2048
_QUANTILE, _MARGIN = 0.95, 1.5


class Familiar(NamedTuple):
    """The training questions' states, and how far from the nearest a question may lie and still be like them."""

    states: Float[np.ndarray, "B D"]
    threshold: float


def fit(states: Float[np.ndarray, "B D"]) -> Familiar | None:
    """Remember states, at most 2,048 spread evenly; None where there are fewer than two different ones.

    The threshold is 1.5 times the 95th percentile of each state's distance to the nearest other one: of the 96 held-out
    questions above it calls none foreign, of the 30 everyday ones all but one.
    """
    kept = np.unique(np.asarray(states, np.float32), axis=0)
    if len(kept) < 2:
        return None
    kept = kept[np.linspace(0, len(kept) - 1, min(len(kept), _MOST)).round().astype(int)]
    nearest = np.array([distance(kept, state, i) for i, state in enumerate(kept)])
    return Familiar(kept, float(np.float32(_MARGIN * np.quantile(nearest, _QUANTILE))))


def distance(states: Float[np.ndarray, "B D"], h: Float[np.ndarray, " D"], own: int | None = None) -> float:
    """Euclidean distance from h to the nearest state; ``own`` is the number of one that is left out."""
    squares = np.square(states - h).sum(axis=1)
    if own is not None:
        squares[own] = np.inf
    return float(np.sqrt(squares.min()))


def checked(states: np.ndarray, threshold: np.ndarray, width: int, where: str) -> Familiar:
    """What a file holds.

    Raises:
        UserError: other shapes than it should have, or numbers that are not finite.
    """
    fits = states.ndim == 2 and len(states) and states.shape[1] == width and threshold.size == 1
    if not fits or not np.isfinite(states).all() or not np.isfinite(threshold):
        raise UserError(f"{where}: expected finite states of width {width} and a threshold; the file is damaged")
    return Familiar(states, float(threshold.reshape(())))
