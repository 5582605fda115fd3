r"""The laws behind Propositions 1 and 2 in closed form or by quadrature, in numpy.

A candidate is $m + \sigma z$, its logit $l = l(m) + \sigma g \cdot z - \sigma^2 z'Hz/2$, its reward the mean of R draws
of Bernoulli(sigmoid(l)). $G = |g|^2 / \mathrm{tr} H$ is the scale of every gain. First order in $1/n$ unless said;
the study checks them numerically.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special, stats

MANY = 256
"""Replications above which a count of successes is as good as normal."""

_GRID = np.linspace(-10, 10, 4001)
_NODES, _MASSES = np.polynomial.hermite_e.hermegauss(41)
_MASSES = _MASSES / _MASSES.sum()


def weights(population: int) -> Float[np.ndarray, " P"]:
    """Recombination weights by rank: log weights of the better half, zero for the rest (Hansen 2016, eq. 49)."""
    parents = population // 2
    raw = np.log((population + 1) / 2) - np.log(np.arange(1, parents + 1))
    return np.append(raw / raw.sum(), np.zeros(population - parents))


def order_means(count: int) -> Float[np.ndarray, " count"]:
    """Expected values of ``count`` standard normals in falling order."""
    rank = np.arange(count)[:, None]
    log_density = (
        special.gammaln(count + 1)
        - special.gammaln(rank + 1)
        - special.gammaln(count - rank)
        + (count - 1 - rank) * stats.norm.logcdf(_GRID)
        + rank * stats.norm.logsf(_GRID)
        + stats.norm.logpdf(_GRID)
    )
    return np.trapezoid(_GRID * np.exp(log_density), _GRID, axis=1)


@cache
def expected_maximum(count: int) -> float:
    """m_N: the expected largest of N standard normals; about sqrt(2 ln N)."""
    density = count * np.exp((count - 1) * stats.norm.logcdf(_GRID) + stats.norm.logpdf(_GRID))
    return float(np.trapezoid(_GRID * density, _GRID))


@cache
def kappa(population: int) -> float:
    """kappa_w: how far, in standard deviations, exact ranks pull the mean along the gradient; 1.261 for 32."""
    return float(weights(population) @ order_means(population))


@cache
def mu_eff(population: int) -> float:
    """Variance-effective number of parents; 9.18 for 32."""
    return float(1 / np.sum(weights(population) ** 2))


def kbar(population: int) -> float:
    """n alpha^2 / beta of Proposition 1 for exact ranks and large n: kappa_w^2 mu_eff, 14.6 for 32."""
    return kappa(population) ** 2 * mu_eff(population)


def rho(signal: float, chance: float, replications: int) -> float:
    """Correlation of a candidate's mean reward with its true chance of success, Gaussian noise assumed.

    Args:
        signal: standard deviation of the candidates' chances; sigma |g| p (1 - p) for a logistic reward.
        chance: p, the candidates' mean chance.
        replications: R, episodes a candidate.
    """
    return signal / math.sqrt(signal**2 + chance * (1 - chance) / replications)


class Selection(NamedTuple):
    """What weighted recombination does along the candidates' standardised logits.

    Attributes:
        pull: E sum_i w_i z_i.
        squares: E sum_i w_i^2.
        squares_pull: E sum_i w_i^2 z_i.
    """

    pull: float
    squares: float
    squares_pull: float

    def weakened(self, correlation: float) -> "Selection":
        """The same by ranks that have this correlation with the logits."""
        return Selection(correlation * self.pull, self.squares, correlation * self.squares_pull)


@cache
def exact_selection(population: int) -> Selection:
    """Selection by exact ranks."""
    squares = weights(population) ** 2
    return Selection(kappa(population), float(squares.sum()), float(squares @ order_means(population)))


def selection(chances: Float[np.ndarray, " nodes"], population: int, replications: int) -> Selection:
    """Exact selection on counts of successes in which equal candidates share their weights.

    With F the distribution of a count, A others lie above a candidate and E others tie with it, trinomially; its weight
    is then the mean of w at ranks A..A+E. No approximation but the quadrature over z. Above `MANY` replications ties
    are rare and counts as good as normal: there the ranks are exact ones, weakened (at 256 the two agree to 0.2 %).

    Args:
        chances: chance of success at the quadrature `nodes` of the candidates' standardised logits.
        population: P.
        replications: R.
    """
    if replications > MANY:
        return exact_selection(population).weakened(_correlation(chances, replications))
    marginal, along = _counts(chances, replications)
    over = np.append(np.cumsum(marginal[:0:-1])[::-1], 0.0)
    under = np.append(0.0, np.cumsum(marginal)[:-1])
    others = np.arange(population)
    above, equal = others[:, None], others[None, :]
    below = population - 1 - above - equal
    summed = np.append(0.0, np.cumsum(weights(population)))
    shared = (summed[np.minimum(above + equal + 1, population)] - summed[above]) / (equal + 1)
    log_ways = special.gammaln(population) - sum(special.gammaln(np.maximum(k, 0) + 1) for k in (above, equal, below))
    ways = np.where(below >= 0, np.exp(log_ways), 0.0)
    odds = (under[:, None] ** others)[:, np.maximum(below, 0)] * ways
    odds *= (over[:, None] ** others)[:, :, None] * (marginal[:, None] ** others)[:, None, :]
    weight, square = np.einsum("cae,ae->c", odds, shared), np.einsum("cae,ae->c", odds, shared**2)
    return Selection(*(population * float(part) for part in (along @ weight, marginal @ square, along @ square)))


def winner_pull(chances: Float[np.ndarray, " nodes"], count: int, replications: int) -> float:
    """E z of the candidate with the most successes among N, ties broken at random; m_N under exact ranks.

    Args:
        chances, replications: as in `selection`.
        count: N.
    """
    if replications > MANY:
        return _correlation(chances, replications) * expected_maximum(count)
    marginal, along = _counts(chances, replications)
    up_to = np.cumsum(marginal)
    return float(along @ ((up_to**count - (up_to - marginal) ** count) / marginal))


def _counts(chances: np.ndarray, replications: int) -> tuple[np.ndarray, np.ndarray]:
    """Of every count of successes that is reached: its probability, and E z where it occurs, 0 elsewhere."""
    counts = np.arange(replications + 1)
    given_z = stats.binom.pmf(counts, replications, np.clip(chances, 1e-12, 1 - 1e-12)[:, None])
    marginal = _MASSES @ given_z
    reached = marginal > 1e-12
    return marginal[reached], ((_MASSES * _NODES) @ given_z)[reached]


def _correlation(chances: np.ndarray, replications: int) -> float:
    """Of counts with standardised logits."""
    chance = _MASSES @ chances
    variance = _MASSES @ (chances - chance) ** 2 + _MASSES @ (chances * (1 - chances)) / replications
    return float(_MASSES @ (_NODES * chances) / np.sqrt(variance))


def nodes() -> Float[np.ndarray, " nodes"]:
    """Where `selection` wants to know the chance of success: standardised logits."""
    return _NODES


def es_slope(G: float, spread: float, population: int, attenuation: float = 1.0) -> float:
    """Gain of the mean's logit a generation, sigma |g| kappa_w rho - sigma^2 tr H / (2 mu_eff); spread = sigma |g|."""
    return kappa(population) * attenuation * spread - spread**2 / (2 * G * mu_eff(population))


def es_spread(G: float, population: int) -> float:
    """sigma |g| of the best step size under exact ranks, kappa_w mu_eff G; `es_slope` is kbar G / 2 there."""
    return kappa(population) * mu_eff(population) * G


def search_spread(G: float, count: int) -> float:
    """sigma |g| of the best random search under exact ranks, m_N G.

    The winner gains sigma |g| m_N - sigma^2 tr H / 2, m_N^2 G / 2 there.
    """
    return expected_maximum(count) * G


def ratio_bound(population: int, generations: float, count: int, eta: float = 1.0) -> float:
    """Proposition 1's lower bound on the gain ratio, (kbar/2) T / ln N eta^2, without its term -C / ln N."""
    return kbar(population) / 2 * generations / math.log(max(math.e, count)) * eta**2


def es_threshold(population: int, replications: int, chance: float = 0.5) -> float:
    """The G below which no step size makes the mean progress: 1/(2 kappa_w mu_eff sqrt(R p (1 - p)))."""
    noise = math.sqrt(replications * chance * (1 - chance))
    return 1 / (2 * kappa(population) * mu_eff(population) * noise)


def search_threshold(count: int, replications: int, chance: float = 0.5) -> float:
    """The same for the winner of N noisy candidates: 1/(2 m_N sqrt(R p (1 - p)))."""
    return 1 / (2 * expected_maximum(count) * math.sqrt(replications * chance * (1 - chance)))


class Path(NamedTuple):
    """Expected course of a run; entry t is after t generations."""

    gain: Float[np.ndarray, " T+1"]
    gradient2: Float[np.ndarray, " T+1"]


def es_path(
    curvatures: Float[np.ndarray, " n"],
    gradient2: Float[np.ndarray, " n"],
    sigmas: Float[np.ndarray, " T"],
    population: int,
    chance=None,
    replications: int | None = None,
    level: float = 0.0,
) -> Path:
    r"""The ES law followed along the gradient, in the eigenbasis of H.

    With a the pull along the gradient and S the sum of squared weights, per eigendirection
    $E g_i'^2 = g_i^2 (1 - \lambda_i \sigma a/|g|)^2 + \lambda_i^2 \sigma^2 S$. Candidates lie
    $\sigma^2 \mathrm{tr} H / 2$ below the mean. As z'Hz scatters, a part of the selection goes to those of small z'Hz:
    less pull, but a shorter step too.

    Args:
        curvatures: eigenvalues of H.
        gradient2: squared gradient at the start along each.
        sigmas: step size in each generation.
        population: P.
        chance: logits to chances of success; None for exact ranks.
        replications: R, with ``chance``.
        level: logit at the start.
    """
    trace, scatter = curvatures.sum(), math.sqrt(2 * np.sum(curvatures**2))
    gains, norms = [0.0], [float(gradient2.sum())]
    for sigma in sigmas:
        norm = math.sqrt(norms[-1])
        spread = math.hypot(sigma * norm, sigma**2 * scatter / 2)
        if chance is None:
            chosen = exact_selection(population)
        else:
            assert replications is not None
            crowd = level + gains[-1] - sigma**2 * trace / 2
            chosen = selection(chance(crowd + spread * _NODES), population, replications)
        pull = chosen.pull * sigma * norm / spread
        spared = (sigma * scatter) ** 2 / (2 * spread * trace) if trace else 0.0
        squares = chosen.squares - chosen.squares_pull * spared
        along = gradient2 / norms[-1]
        gains.append(
            gains[-1] + sigma * pull * norm - sigma**2 / 2 * (squares * trace + pull**2 * (curvatures @ along))
        )
        shrunk = gradient2 * (1 - 2 * curvatures * sigma * pull / norm)
        gradient2 = shrunk + (curvatures * sigma) ** 2 * (squares + pull**2 * along)
        norms.append(float(gradient2.sum()))
    return Path(np.array(gains), np.array(norms))


def sphere_contraction(n: int, multiple: float, population: int) -> float:
    """Expected relative loss of |m|^2 in one generation on the sphere, for exact ranks.

    The first term is Proposition 2's kbar/n times 2 x - x^2; what is left of it at small n is `es_path`'s.

    Args:
        n: length of m.
        multiple: x, step size over kappa_w mu_eff |m| / n.
        population: P.
    """
    sigma = multiple * kappa(population) * mu_eff(population) / n
    path = es_path(np.ones(n), np.full(n, 1 / n), np.array([sigma]), population)
    return float(1 - path.gradient2[-1])
