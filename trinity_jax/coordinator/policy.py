"""Logits to a choice: two independent softmax groups, explicit keys, no hidden state (paper section 3.2)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


class Chosen(NamedTuple):
    """Indices of the model and the role, and the two distributions they come from."""

    model: Int[Array, ""]
    role: Int[Array, ""]
    model_probs: Float[Array, " L"]
    role_probs: Float[Array, " 3"]


def decision_key(root: PRNGKeyArray, generation, candidate, question, repeat, turn) -> PRNGKeyArray:
    """The key of one decision; pass candidate 0 for common random numbers (all candidates then share the key)."""
    key = root
    for part in (generation, candidate, question, repeat, turn):
        key = jax.random.fold_in(key, part)
    return key


def choose(
    logits: Float[Array, " L+3"],
    key: PRNGKeyArray,
    sample: Bool[Array, ""] | bool,
    role_mask: Bool[Array, " 3"],
    model_mask: Bool[Array, " L"] | bool = True,
) -> Chosen:
    """Choose a model by the first L logits and, independently, a role by the last three.

    Sampling is by Gumbel noise, so under one key candidates with nearly equal logits mostly agree. A masked role or
    model (mask False) has probability exactly zero; the others keep their ratios.

    Args:
        logits: L model logits, then Worker, Thinker, Verifier.
        key: from `decision_key`.
        sample: True draws from the softmax, False takes the largest logit (the first of equals).
        role_mask: roles that may be chosen; at least one.
        model_mask: models that may be chosen; at least one.
    """
    models = jnp.where(model_mask, logits[:-3], -jnp.inf)
    roles = jnp.where(role_mask, logits[-3:], -jnp.inf)
    model_key, role_key = jax.random.split(key)

    def pick(group_key: PRNGKeyArray, group: Float[Array, " G"]) -> Int[Array, ""]:
        noise = jax.random.gumbel(group_key, group.shape, group.dtype)
        return jnp.argmax(group + jnp.where(sample, noise, 0.0))

    return Chosen(pick(model_key, models), pick(role_key, roles), jax.nn.softmax(models), jax.nn.softmax(roles))
