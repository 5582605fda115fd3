"""Which training questions a generation plays: an equal share of each kind, by explicit keys."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from trinity_jax.config import LearningSettings
from trinity_jax.rollout.decide import EpisodeKey


def draw_questions(key: PRNGKeyArray, kinds: Sequence[str], count: int) -> list[int]:
    """``count`` different indices into ``kinds``, spread over the kinds as evenly as they allow.

    Args:
        key: of this draw.
        kinds: kind of each question of the set.
        count: at most ``len(kinds)``.
    """
    groups: dict[str, list[int]] = {}
    for index, kind in enumerate(kinds):
        groups.setdefault(kind, []).append(index)
    names = list(groups)
    # Which kinds get one more when count is no multiple of their number is drawn too.
    order = [names[i] for i in np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), len(names)))]
    shuffled = {
        name: [
            groups[name][i]
            for i in np.asarray(jax.random.permutation(jax.random.fold_in(key, 1 + n), len(groups[name])))
        ]
        for n, name in enumerate(names)
    }
    drawn: list[int] = []
    depth = 0
    while len(drawn) < count:
        drawn += [shuffled[name][depth] for name in order if depth < len(shuffled[name])][: count - len(drawn)]
        depth += 1
    return sorted(drawn)


def generation_keys(
    key: PRNGKeyArray, settings: LearningSettings, kinds: Sequence[str], generation: int, population: int
) -> list[EpisodeKey]:
    """The episodes of one generation, candidate by candidate.

    Where questions are shared every candidate plays the same ones with the same ``repeat`` numbers, hence shareable
    calls (and, under common random numbers, the same keys). Otherwise (the authors' way) each draws its own, and its
    own repeat numbers keep its calls apart from the others'.
    """
    common, own = draw_questions(key, kinds, settings.questions), settings.sharing.own_questions
    keys = []
    for candidate in range(population):
        drawn = draw_questions(jax.random.fold_in(key, candidate), kinds, settings.questions) if own else common
        first = candidate * settings.repeats if own else 0
        keys += [
            EpisodeKey(generation, candidate, question, first + repeat)
            for question in drawn
            for repeat in range(settings.repeats)
        ]
    return keys
