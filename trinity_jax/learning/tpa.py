"""Two-point step-size adaptation: two candidates try the last step of the mean, forwards and backwards."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from evosax.algorithms.distribution_based.sep_cma_es import Params
from evosax.algorithms.distribution_based.sep_cma_es import State as SepState
from flax import struct
from jaxtyping import Array, Float

from trinity_jax.learning.separable import RepairedSepCMA

SMOOTHING = 0.3
EXPONENT = 0.5


@struct.dataclass
class State(SepState):
    """State of separable CMA-ES plus the last shift of the mean [n] and the smoothed rank difference in [-1, 1]."""

    shift: jax.Array
    trend: jax.Array


class TwoPointSepCMA(RepairedSepCMA):
    r"""Separable CMA-ES whose step size follows two points on a line instead of the evolution path's length.

    The first two candidates are $m \pm \sigma |z| \, \Delta / |D^{-1} \Delta|$, with $\Delta$ the last shift of the
    mean and $z \sim N(0, I_n)$, so both are as long as the other samples. With $r_+$ and $r_-$ their ranks (0 is best),

    $$s \leftarrow (1 - c) s + c \, \mathrm{sign}(d) |d|^{1/2}, \quad d = (r_- - r_+)/(P - 1), \qquad
      \sigma \leftarrow \sigma \exp(s / d_\sigma),$$

    $c = 0.3$ and $d_\sigma = 0.7 + 2 \ln n + 2 \ln \max(1, P - n)$. When the forward point wins, steps were too short.
    The cumulative path of CSA is still kept: it decides when the rank-one update pauses. A generation after the mean
    stood still has no line to sample and leaves the step size alone.

    References: Hansen 2008, CMA-ES with two-point step-size adaptation; Hansen, Atamna & Auger 2014, How to assess
    step-size adaptation mechanisms; constants of pycma 4, which uses it for n >= 300.
    """

    @property
    def damping(self) -> float:
        """$d_\\sigma$: about how many generations of agreement change the step size by a factor e."""
        excess = max(1, self.population_size - self.num_dims)
        return 0.7 + 2 * math.log(self.num_dims) + 2 * math.log(excess)

    def _init(self, key: jax.Array, params: Params) -> State:
        base = super()._init(key, params)
        return State(**vars(base), shift=jnp.zeros(self.num_dims), trend=jnp.asarray(0.0))

    def _ask(self, key: jax.Array, state: State, params: Params) -> tuple[Float[Array, "P n"], State]:
        population_key, length_key = jax.random.split(key)
        population, sampled = super()._ask(population_key, state, params)
        moved = jnp.any(state.shift != 0)
        length = jnp.linalg.norm(jax.random.normal(length_key, (self.num_dims,)))
        # Divided by its largest entry first: the square of a small shift may underflow.
        direction = state.shift / jnp.where(moved, jnp.max(jnp.abs(state.shift)), 1.0)
        step = state.std * length * direction / jnp.where(moved, jnp.linalg.norm(direction / sampled.D), 1.0)
        pair = jnp.where(moved, jnp.stack([state.mean + step, state.mean - step]), population[:2])
        return population.at[:2].set(pair), state.replace(C=sampled.C, D=sampled.D)

    @partial(jax.jit, static_argnames=("self",))
    def tell(
        self,
        key: jax.Array,
        population: Float[Array, "P n"],
        fitness: Float[Array, " P"],
        state: State,
        params: Params,
    ) -> tuple[State, dict[str, Array]]:
        """Update the distribution; the first two rows of ``population`` must be the pair that ``ask`` placed there."""
        after, metrics = super().tell(key, population, fitness, state, params)
        fitness, graded = jnp.where(jnp.isnan(fitness), jnp.inf, fitness), ~jnp.all(jnp.isnan(fitness))
        lead = (jnp.sum(fitness < fitness[1]) - jnp.sum(fitness < fitness[0])) / (self.population_size - 1)
        trend = (1 - SMOOTHING) * state.trend + SMOOTHING * jnp.sign(lead) * jnp.abs(lead) ** EXPONENT
        std = jnp.clip(state.std * jnp.exp(trend / self.damping), params.std_min, params.std_max)
        paired = graded & jnp.any(state.shift != 0)
        return after.replace(
            std=jnp.where(paired, std, state.std),
            trend=jnp.where(paired, trend, state.trend),
            shift=after.mean - state.mean,
        ), metrics
