r"""Best of N random candidates under noisy rewards, simulated as scalars, in numpy.

A candidate $x = \sigma z$ enters its logit through two numbers only, $a = g \cdot z / |g|$ and
$q = z'Hz / \mathrm{tr} H$: $l = l_0 + \sigma |g| a - \sigma^2 q \, \mathrm{tr} H / 2$. The length of x costs nothing.

- ``gaussian``, the theorem's: a ~ N(0, 1), q = (a^2 + chi^2_{n-1}) / n. Exact where H is a multiple of the identity;
  else n is (tr H)^2 / tr H^2, which keeps the mean and the variance of q.
- ``box``, the paper's, uniform in [-sqrt(3) sigma, sqrt(3) sigma]^n: by the central limit theorem a ~ N(0, 1) and
  q ~ N(1, 0.8 / n), for n of a hundred or more.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

PROPOSALS = ("gaussian", "box")


class Candidates(NamedTuple):
    """S runs of N candidates, without their step size; the first N' columns are runs of N'."""

    a: Float[np.ndarray, "S N"]
    q: Float[np.ndarray, "S N"]

    def first(self, count: int) -> "Candidates":
        """Shorter runs."""
        return Candidates(self.a[:, :count], self.q[:, :count])


class Winners(NamedTuple):
    """The candidate of the best fitness in each run, the earliest of equals.

    Attributes:
        gain: its true l - l_0.
        pull: its a; m_N on average under exact ranks.
        reported: its fitness.
    """

    gain: Float[np.ndarray, " S"]
    pull: Float[np.ndarray, " S"]
    reported: Float[np.ndarray, " S"]


def draw(rng: np.random.Generator, runs: int, count: int, n: float, proposal: str = "gaussian") -> Candidates:
    """Candidates of ``runs`` independent runs.

    Args:
        rng: source of the random numbers.
        runs: S.
        count: N.
        n: (effective) length of x.
        proposal: one of `PROPOSALS`.
    """
    a = rng.standard_normal((runs, count))
    if proposal == "gaussian":
        return Candidates(a, (a**2 + rng.chisquare(n - 1, a.shape)) / n)
    return Candidates(a, 1 + rng.standard_normal(a.shape) * np.sqrt(0.8 / n))


def search(
    candidates: Candidates, spread: float, G: float, fitness: Callable[[np.ndarray], np.ndarray] = lambda gain: gain
) -> Winners:
    """Winners of all runs.

    Args:
        candidates: see `draw`.
        spread: sigma |g|.
        G: |g|^2 / tr H; infinity for a straight logit.
        fitness: what is seen of candidates with these true gains; the gain itself by default.
    """
    gain = spread * candidates.a - spread**2 / (2 * G) * candidates.q
    seen = fitness(gain)
    best = np.argmax(seen, axis=1)[:, None]
    return Winners(*(np.take_along_axis(values, best, axis=1)[:, 0] for values in (gain, candidates.a, seen)))
