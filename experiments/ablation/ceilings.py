"""What fixed policies reach without some of the roles or calls: what an arm could have learned."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from trinity_jax.world.evolve import World
from trinity_jax.world.value import fixed_policies, fixed_values

Roles = tuple[bool, bool, bool]


class Ceiling(NamedTuple):
    """Exact held-out success of the best fixed policy for all questions, and of the best one for each kind."""

    fixed: float
    per_kind: float


def ceilings(world: World, wanted: Iterable[tuple[int, Roles]]) -> dict[tuple[int, Roles], Ceiling]:
    """Best of the fixed policies that the roles allow, by (K, roles).

    Without a Verifier an episode is K Workers' calls, of which the last counts: as good as one call.

    Args:
        world: with held-out questions.
        wanted: calls, and which of Worker, Thinker, Verifier may be chosen; a Thinker only beside a Verifier.
    """
    skills, kinds = world.skills.take(world.held_out), np.asarray(world.kinds)[np.asarray(world.held_out)]
    policies, values, found = fixed_policies(skills.accepts_right.shape[0]), {}, {}
    for K, (worker, thinker, verifier) in wanted:
        if not verifier:
            mine = np.asarray(skills.worker).T
        else:
            if K not in values:
                values[K] = fixed_values(skills, K)
            mine = values[K][[thinker or policy.thinker is None for policy in policies]]
        each = [mine[:, kinds == kind].mean(1).max() * (kinds == kind).mean() for kind in np.unique(kinds)]
        found[K, (worker, thinker, verifier)] = Ceiling(float(mine.mean(1).max()), float(np.sum(each)))
    return found
