"""A coordinator for another pool: a row less, a row more, or one anew; all other numbers stay as they are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from trinity_jax.coordinator import layout as layouts
from trinity_jax.coordinator.export import Coordinator, Description, assemble
from trinity_jax.coordinator.heads import Factors, Head
from trinity_jax.coordinator.layout import BIAS, Layout
from trinity_jax.coordinator.lineage import Step
from trinity_jax.coordinator.profile import Profile
from trinity_jax.errors import UserError


def drop(coordinator: Coordinator, name: str) -> Coordinator:
    """Without one model's row: the others' chances keep their ratios, as if it were masked in every decision.

    Raises:
        UserError: a model that is not in the pool, or the last one; a head without rows.
    """
    pool = coordinator.description.pool
    known(coordinator, [name], "drop")
    if len(pool) == 1:
        raise UserError(f"drop: {name} is the only model of the coordinator; nothing would be left to choose")
    kept = tuple(other for other in pool if other != name)
    place = pool.index(name)
    vector = np.delete(coordinator.vector, coordinator.layout.places([place]))
    profile = coordinator.description.profile
    step = Step(action="drop", models=(name,), parent=coordinator.description.sha256)
    return changed(coordinator, kept, vector, step, profile and profile.without(name))


def extended(
    coordinator: Coordinator, name: str, weights: Float[np.ndarray, " inputs"], bias: float
) -> tuple[Head, Layout, Float[np.ndarray, " n"]]:
    """Head, layout and vector with one more row, behind the other models' and before the roles'.

    Raises:
        UserError: a model that is in the pool already; a head without rows.
    """
    pool = coordinator.description.pool
    if name in pool:
        raise UserError(f"add: {name} is in the coordinator's pool already ({', '.join(pool)})")
    old, place = coordinator.layout, len(pool)
    head, layout = _plan(coordinator, (*pool, name))
    vector = np.zeros(layout.size)
    # The whole old vector, row for row; the new row takes what is left.
    rows = [row for row in range(len(layout.rows)) if row != place]
    for block in old.svf:
        vector[block.offset : block.offset + block.size] = coordinator.vector[block.offset : block.offset + block.size]
    vector[layout.places(rows)] = coordinator.vector[old.places(range(len(old.rows)))]
    new = np.concatenate([np.ravel(weights), [bias]]) if BIAS in layout.names else np.ravel(weights)
    vector[layout.places([place])] = new
    return head, layout, vector


def changed(
    coordinator: Coordinator,
    pool: Sequence[str],
    vector: Float[np.ndarray, " n"],
    step: Step,
    profile: Profile | None,
) -> Coordinator:
    """A coordinator of ``pool`` with everything else as in its parent, and one step more of lineage."""
    described = coordinator.description
    head, layout = _plan(coordinator, tuple(pool))
    groups: Mapping[str, Any] = {
        name: getattr(described, name) for name in ("head", "readout", "svf", "encoder", "policy", "episode")
    }
    fallback = described.fallback if described.fallback in pool else None
    parts = (described.checkpoint, layout, head, coordinator.readout, vector)
    whole = assemble(groups, *parts, familiar=coordinator.familiar, fallback=fallback)
    kept = {
        "router_pool": None if described.named_pool == len(pool) else described.named_pool,
        "lineage": (*described.lineage, step),
        "profile": profile,
    }
    # The tensor file's hash does not cover them.
    return replace(whole, description=whole.description.model_copy(update=kept))


def known(coordinator: Coordinator, names: Sequence[str], where: str) -> None:
    """Check that the coordinator knows these models.

    Raises:
        UserError: one that it does not know.
    """
    pool = coordinator.description.pool
    if unknown := [name for name in names if name not in pool]:
        raise UserError(f"{where}: the coordinator does not know {', '.join(unknown)}; its pool is {', '.join(pool)}")


def _plan(coordinator: Coordinator, pool: tuple[str, ...]) -> tuple[Head, Layout]:
    described: Description = coordinator.description
    if described.head.kind != "linear":
        raise UserError(
            f"a head of kind: {described.head.kind} has no row for each model; expected kind: linear "
            "(a model can still be masked, and retraining is always possible)"
        )
    sizes = {block.name: block.size for block in coordinator.layout.svf}
    assert not isinstance(coordinator.weights, Factors)
    width = coordinator.weights.shape[1]
    return layouts.plan(sizes, described.svf.scale, described.head, described.readout, width, pool)
