"""Sep-CMA-ES, and its isotropic control, behind the interface of all learners."""

from collections.abc import Hashable
from functools import lru_cache

import jax.numpy as jnp
from evosax.algorithms.distribution_based.sep_cma_es import Params, State
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from trinity_jax.config import LearningSettings, RepairSettings
from trinity_jax.learning.active import ActiveSepCMA, ActiveTwoPointSepCMA
from trinity_jax.learning.population import population_size
from trinity_jax.learning.protocol import Experience, start_vector, strong
from trinity_jax.learning.separable import RepairedSepCMA
from trinity_jax.learning.tpa import TwoPointSepCMA


class Strategy:
    """Separable CMA-ES over vectors of length n, maximising; without covariance adaptation as ``isotropic_es``.

    The state is a pytree of arrays only (no keys: the caller derives them, one per generation), so a checkpoint is the
    state. What it holds as ``best_solution`` is the luckiest candidate of a noisy fitness: deploy the mean.

    Args:
        settings: population, initial step size, step-size rule, active weights and repairs.
        n: length of the flat vector.

    Attributes:
        population: P, candidates per generation: as set, or ceil(4 + 3 ln n), the paper's.
        params: the constants of the strategy by their usual names.

    Example:
        >>> strategy = Strategy(LearningSettings(sigma0=0.5), n=3)
        >>> state = strategy.init(jax.random.key(0))
        >>> X, state = strategy.ask(state, jax.random.key(1))
        >>> state = strategy.tell(state, X, -(X**2).sum(axis=1), jax.random.key(2))
        >>> strategy.mean(state).shape
        (3,)
    """

    needs_trace = False

    def __init__(self, settings: LearningSettings, n: int):
        self.n = n
        self.population = population_size(settings, n)
        self.sharing = settings.sharing
        repairs: Hashable = settings.repairs  # pyright: ignore[reportAssignmentType]
        kind = (settings.step_size, settings.active)
        self._algorithm = _algorithm(kind, self.population, n, repairs, jnp.zeros(0).dtype)
        params = self._algorithm.default_params.replace(std_init=settings.sigma0)
        if settings.learner == "isotropic_es":
            # C stays the identity: the same weights, recombination and step-size rule, and nothing else.
            params = params.replace(c_1=0.0, c_mu=0.0)
        self.params: Params = strong(params)

    @property
    def c_mu(self) -> float:
        """Rank-mu learning rate: c_mu times the generations below 0.1 means that the diagonal did not adapt."""
        return float(self.params.c_mu)

    def init(self, key: PRNGKeyArray, mean: Float[ArrayLike, " n"] | None = None) -> State:
        """State before the first generation, around ``mean`` (zeros by default).

        Raises:
            UserError: ``mean`` is not a vector of length n, or not finite.
        """
        return strong(self._algorithm.init(key, start_vector(mean, self.n), self.params))

    def ask(self, state: State, key: PRNGKeyArray) -> tuple[Float[Array, "P n"], State]:
        """Candidates of the next generation, and the state that `tell` expects with them."""
        return self._algorithm.ask(key, state, self.params)

    def tell(
        self,
        state: State,
        X: Float[Array, "P n"],
        fitness: Float[ArrayLike, " P"],
        key: PRNGKeyArray,
        seen: Experience | None = None,
    ) -> State:
        """Move the distribution towards the candidates of high fitness.

        NaN marks a candidate without a single graded episode: it ranks last and pulls nothing towards it. With the tie
        repair on, a generation of NaN alone changes nothing but the generation counter.
        """
        state, _ = self._algorithm.tell(key, X, -jnp.asarray(fitness, dtype=X.dtype), state, self.params)
        return state

    def mean(self, state: State) -> Float[Array, " n"]:
        """Mean of the distribution: what is validated, kept and exported."""
        return state.mean

    def sigma(self, state: State) -> Float[Array, ""]:
        """Global step size."""
        return state.std

    def diagonal_spread(self, state: State) -> Float[Array, ""]:
        """Standard deviation over mean of the diagonal scales sqrt(C_ii): 0 before any adaptation."""
        scales = jnp.sqrt(state.C)
        return jnp.std(scales) / jnp.mean(scales)


@lru_cache
def _algorithm(
    kind: tuple[str, bool], population: int, n: int, repairs: RepairSettings, dtype: jnp.dtype
) -> RepairedSepCMA:
    """evosax compiles anew for every object: strategies that differ in numbers only share one."""
    kinds = {
        ("csa", False): RepairedSepCMA,
        ("tpa", False): TwoPointSepCMA,
        ("csa", True): ActiveSepCMA,
        ("tpa", True): ActiveTwoPointSepCMA,
    }
    return kinds[kind](population, jnp.zeros(n, dtype), repairs)
