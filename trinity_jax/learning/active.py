"""Active adaptation of the diagonal, as pycma does it: the worst candidates count against their directions."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from evosax.algorithms.distribution_based.sep_cma_es import Params, State
from jaxtyping import Array, Float

from trinity_jax.learning.separable import RepairedSepCMA
from trinity_jax.learning.shaping import signed_weights
from trinity_jax.learning.tpa import TwoPointSepCMA


class ActiveSepCMA(RepairedSepCMA):
    r"""Separable CMA-ES with negative weights and a multiplicative update of the variances.

    With $z_i = D^{-1} (x_i - m)/\sigma$ and the evolution path $p$ kept in the same coordinates,

    $$C \leftarrow C \exp\Big(\ln 2 \big[c_1 (p^2 - 1) + c_\mu \sum_i w_i (z_i^2 - 1)\big]\Big),$$

    coordinate by coordinate. The exponential keeps variances positive whatever the negative weights, so they are not
    rescaled by the candidates' lengths as full CMA-ES has to. They sum to
    $-\min(1 + c_1/c_\mu, 1 + 2 \mu_\mathrm{eff}^- / (\mu_\mathrm{eff} + 2))$. $c_1$ is lower while the path is stalled.
    Constants are pycma's for ``CMA_diagonal`` (``c1_sep``, ``cmu_sep``, ``cc_sep``). Mean and step size are as without.

    References: Jastrebski & Arnold 2006, active covariance matrix adaptation; Hansen 2016, the CMA-ES tutorial, (46);
    pycma 4, ``options_parameters.CMAParameters`` and ``transformations.DiagonalDecoding.update`` (the ln 2 is its own).
    """

    shaping: Callable = staticmethod(signed_weights)

    @property
    def _default_params(self) -> Params:
        params: Any = super()._default_params
        n, mu_eff = self.num_dims, params.mu_eff
        c_1 = 1 / (n + 2 * math.sqrt(n) + mu_eff / n)
        c_mu = jnp.minimum(1 - c_1, (mu_eff + 1 / mu_eff - 1.75) / (n + 4 * math.sqrt(n) + mu_eff / 2))
        raw = math.log((self.population_size + 1) / 2) - jnp.log(jnp.arange(1, self.population_size + 1))
        negative = jnp.minimum(raw, 0) / -jnp.sum(jnp.minimum(raw, 0))
        mu_eff_minus = 1 / jnp.sum(negative**2)
        total = jnp.minimum(1 + c_1 / c_mu, 1 + 2 * mu_eff_minus / (mu_eff + 2))
        return replace(
            params,
            weights=params.weights + total * negative,
            c_1=c_1,
            c_mu=c_mu,
            c_c=(1 + 1 / n + mu_eff / n) / (math.sqrt(n) + 1 / n + 2 * mu_eff / n),
        )

    def _move(
        self,
        key: jax.Array,
        population: Float[Array, "P n"],
        weights: Float[Array, "2 P"],
        state: State,
        params: Params,
    ) -> State:
        p: Any = params
        good, bad = weights
        mean, y, y_mean = self.update_mean(population, good, state.mean, state.std, params)
        z, z_mean = y / state.D, y_mean / state.D
        p_std = self.update_p_std(state.p_std, z_mean, params)
        length = jnp.linalg.norm(p_std)
        moving = self.h_std(length, state.generation_counter + 1, params)
        p_c = self.update_p_c(state.p_c, moving, z_mean, params)
        c_1 = p.c_1 * (1 - self.delta_h_std(moving, params))
        growth = c_1 * (p_c**2 - 1) + p.c_mu * (good + bad) @ (z**2 - 1)
        return state.replace(
            mean=mean,
            std=self.update_std(state.std, length, params),
            p_std=p_std,
            p_c=p_c,
            C=state.C * jnp.exp(math.log(2) * growth),
        )


class ActiveTwoPointSepCMA(TwoPointSepCMA, ActiveSepCMA):
    """Active adaptation with the two-point step size: pycma's ``CMA_diagonal`` for n >= 300."""
