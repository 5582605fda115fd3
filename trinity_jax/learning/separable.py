"""evosax's separable CMA-ES with its constants and its handling of ties put right."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from evosax.algorithms.distribution_based.sep_cma_es import Params, Sep_CMA_ES, State
from evosax.core.fitness_shaping import weights_fitness_shaping_fn
from jaxtyping import Array, Float

from trinity_jax.config import RepairSettings
from trinity_jax.learning.shaping import tie_averaged_weights


class RepairedSepCMA(Sep_CMA_ES):
    """Separable CMA-ES (Ros & Hansen 2008), minimising, on top of evosax 0.3's equations.

    Each repair is a switch; with all of them off (and ``std_min`` 0) this is evosax's algorithm bit for bit.

    - ``separable_learning_rates``: c_1 and c_mu times (n + 2)/3 (Ros & Hansen 2008, section 3), with c_1 + c_mu <= 1.
      evosax keeps full CMA's rates, with which n = 10,000 needs millions of generations to adapt the diagonal.
    - ``no_variance_creep``: evosax adds 1e-8 to every variance in every generation, which never leaves again.
    - ``tie_averaged_weights``: see `trinity_jax.learning.shaping`. The evolution paths are then normalised by the
      mu_eff of the weights really used, so that ties leave the step size where it was on average, and a generation
      without a single number leaves everything where it was.
    - ``std_min``: a floor under the step size, for float32.
    """

    shaping: Callable = staticmethod(tie_averaged_weights)

    def __init__(self, population_size: int, solution: Float[Array, " n"], repairs: RepairSettings):
        shaping = self.shaping if repairs.tie_averaged_weights else weights_fitness_shaping_fn
        super().__init__(population_size, solution, fitness_shaping_fn=shaping, metrics_fn=_no_metrics)
        self.repairs = repairs

    @property
    def _default_params(self) -> Params:
        params: Any = super()._default_params
        if self.repairs.separable_learning_rates:
            factor = (self.num_dims + 2) / 3
            c_1 = factor * params.c_1
            params = replace(params, c_1=c_1, c_mu=jnp.minimum(factor * params.c_mu, 1 - c_1))
        return replace(params, std_min=self.repairs.std_min)

    def _ask(self, key: jax.Array, state: State, params: Params) -> tuple[Float[Array, "P n"], State]:
        if not self.repairs.no_variance_creep:
            return super()._ask(key, state, params)
        # A floor at the smallest normal number: D divides in _tell.
        C = jnp.clip(state.C, jnp.finfo(state.C.dtype).tiny, 1e8)
        D = jnp.sqrt(C)
        z = jax.random.normal(key, (self.population_size, self.num_dims))
        return state.mean + state.std * (D * z), state.replace(C=C, D=D)

    def _tell(
        self,
        key: jax.Array,
        population: Float[Array, "P n"],
        fitness: Float[Array, "*signs P"],
        state: State,
        params: Params,
    ) -> State:
        if not self.repairs.tie_averaged_weights:
            return super()._tell(key, population, fitness, state, params)
        recombination = fitness[0] if fitness.ndim == 2 else fitness
        squares = jnp.sum(recombination**2)
        graded = squares > 0
        params = replace(params, weights=recombination, mu_eff=1 / jnp.where(graded, squares, 1.0))
        after = self._move(key, population, fitness, state, params)
        return jax.tree.map(lambda new, old: jnp.where(graded, new, old), after, state)

    def _move(self, key: jax.Array, population: Any, weights: Any, state: State, params: Params) -> State:
        """The update itself, by whatever weights ``shaping`` gives and with ``params.mu_eff`` of those."""
        return super()._tell(key, population, weights, state, params)


def _no_metrics(key, population, fitness, state, params) -> dict[str, Array]:
    """evosax's own metrics carry three vectors of length n out of every generation."""
    return {}
