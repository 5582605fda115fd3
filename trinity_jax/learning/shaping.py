"""Fitness to recombination weights, ties and missing values included."""

import jax.numpy as jnp
from evosax.types import Params, State
from jaxtyping import Array, Float


def tie_averaged_weights(
    population: Float[Array, "P n"], fitness: Float[Array, " P"], state: State, params: Params
) -> Float[Array, " P"]:
    """Recombination weights where equal candidates share the mean of the weights at the ranks they occupy together.

    With f minimised and w_1 >= w_2 >= ... the weights by rank, a group G of equal candidates that fills ranks a..b gets
    ``sum(w_a..w_b) / |G|`` each: what breaking ties at random gives on average. A binary reward ties most of a
    population, so the total must not depend on how. Without ties these are the plain weights.

    A NaN ranks behind every number and weighs nothing, even where fewer numbers than parents are left; the weights then
    sum to less than 1, a shorter step on less evidence.

    Has the signature of an evosax ``fitness_shaping_fn``; ``population`` and ``state`` are not read.

    Returns:
        Non-negative weights, in the order of ``fitness``, that sum to 1 if at least half of it are numbers.
    """
    return shared_by_rank(jnp.maximum(params.weights, 0.0), fitness)  # pyright: ignore[reportAttributeAccessIssue]


def signed_weights(
    population: Float[Array, "P n"], fitness: Float[Array, " P"], state: State, params: Params
) -> Float[Array, "2 P"]:
    """Tie-averaged weights of recombination, and the negative ones of active adaptation, each as above.

    They are averaged apart: in a tied group that reaches over the middle they would cancel, but the mean moves by the
    first alone. A NaN takes up the worst ranks and weighs nothing there, so that no number is blamed in its place.
    """
    weights = params.weights  # pyright: ignore[reportAttributeAccessIssue]
    return jnp.stack([shared_by_rank(part, fitness) for part in (jnp.maximum(weights, 0), jnp.minimum(weights, 0))])


def shared_by_rank(by_rank: Float[Array, " P"], fitness: Float[Array, " P"]) -> Float[Array, " P"]:
    """Each candidate's share: the mean of ``by_rank`` over the ranks of all that are equal to it; 0 for a NaN."""
    missing = jnp.isnan(fitness)
    fitness = jnp.where(missing, jnp.inf, fitness)
    ranked = jnp.zeros_like(by_rank).at[jnp.argsort(fitness)].set(by_rank)
    tied = fitness[:, None] == fitness[None, :]
    shared = jnp.sum(jnp.where(tied, ranked, 0.0), axis=1) / jnp.sum(tied, axis=1)
    return jnp.where(missing, 0.0, shared)


def centred_ranks(
    population: Float[Array, "P n"], fitness: Float[Array, " P"], state: State, params: Params
) -> Float[Array, " P"]:
    """Ranks in [-0.5, 0.5], the best at -0.5 (f is minimised), equal candidates at their mean rank, a NaN at 0.

    Without NaN this is evosax's; there a NaN ranks as the worst and pushes the mean away. All equal: all 0.
    """
    missing = jnp.isnan(fitness)
    known = jnp.sum(~missing)
    below = jnp.sum((fitness[None, :] < fitness[:, None]), axis=1)
    equal = jnp.sum((fitness[None, :] == fitness[:, None]), axis=1)
    ranks = below + (equal - 1) / 2
    return jnp.where(missing, 0.0, ranks / jnp.maximum(known - 1, 1) - 0.5 * (known > 1)).astype(fitness.dtype)
