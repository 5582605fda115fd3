"""How many calls a run will make: at most, and about, before a single one is made.

"Most" plays every episode to its last call and shares nothing. "About" takes choices as uniform: a run whose policy has
settled repeats itself more, hence shares more and makes fewer.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from trinity_jax.config import EpisodeSettings, Settings, Sharing


class Part(NamedTuple):
    """Calls of one part of a run."""

    name: str
    most: int
    about: float


def forecast(settings: Settings, population: int, accept: float) -> list[Part]:
    """Calls by part of the run.

    Args:
        settings: of the run.
        population: P, candidates a generation.
        accept: chance that a Verifier accepts.
    """
    K, L, train = settings.episode.max_calls, len(settings.pool.names), settings.tasks.train
    reaching = reach(K, accept, settings.episode.verifier_needs_response)
    each = sum(reaching)
    learning, evaluation = settings.learning, settings.evaluation

    prepared = learning.warm_start.calls(L, train)
    episodes = trained_episodes(settings, population)
    warm_up = train if settings.readout.kind != "raw" and settings.readout.source != "questions" else 0
    played = learning.generations * population * learning.questions * learning.repeats
    cells, visits = _cells(settings, population)
    validations = math.ceil(learning.generations / settings.training.validate_every)
    searched = searched_cells(L, train, episodes) if evaluation.fixed_policy else 0
    return [
        Part("preparation", prepared + warm_up * K, prepared + warm_up * each),
        Part("training", played * K, cells * distinct(visits, L, reaching)),
        Part(
            "validation",
            validations * settings.tasks.validation * K,
            settings.tasks.validation * distinct(validations, L, reaching),
        ),
        *comparison(settings.episode, L, settings.tasks.test * evaluation.repeats, searched, accept),
    ]


def comparison(
    episode: EpisodeSettings, models: int, held_out: int, searched: int, accept: float, coordinators: int = 1
) -> list[Part]:
    """Calls of the table at the end.

    Args:
        episode: the protocol.
        models: L.
        held_out: questions times repeats.
        searched: training questions times repeats in the search of fixed policies; 0 where there is none.
        accept: chance that a Verifier accepts.
        coordinators: how many are compared.
    """
    K = episode.max_calls
    each = sum(reach(K, accept, episode.verifier_needs_response))
    parts = [
        Part("held-out questions", coordinators * held_out * K, coordinators * held_out * each),
        Part("single models", held_out * models * K, held_out * models * math.ceil(each)),
        Part("random and round-robin", 2 * held_out * K, 2 * held_out * each),
    ]
    if searched:
        found = searched * fixed_policies(K, models, accept)
        parts += [
            Part("search of fixed policies", searched * (models**2 + models**3) * K, found),
            Part("best fixed policies", 2 * held_out * K, 2 * held_out * K),
        ]
    return parts


def rivals(
    episode: EpisodeSettings, models: int, held_out: int, train: int, wanted: Sequence[str], accept: float
) -> list[Part]:
    """Calls of the rows that only an evaluation has; those that choose among single answers make none of their own."""
    K = episode.max_calls
    each = sum(reach(K, accept, episode.verifier_needs_response))
    parts = {
        "prompted": Part("prompted coordinator", 2 * held_out * K, 2 * held_out * each),
        "mixture": Part("mixture of agents", held_out, held_out),
        "reflection": Part("self-reflection", held_out * models * (K - 1), held_out * models * (math.ceil(each) - 1)),
    }
    answers = Part("single answers to training questions", train * models, train * models)
    return [answers] * bool(train) + [parts[name] for name in wanted if name in parts]


def trained_episodes(settings: Settings, population: int) -> int:
    """Episodes that training plays, a single call counting as one."""
    learning = settings.learning
    played = learning.generations * population * learning.questions * learning.repeats
    return played + learning.warm_start.calls(len(settings.pool.names), settings.tasks.train)


def searched_cells(models: int, train: int, episodes: int) -> int:
    """Training questions times repeats that each fixed policy plays: as ``episodes`` in all allow, each once at least.

    Every policy plays all questions equally often.
    """
    return train * max(1, episodes // ((models**2 + models**3) * train))


def reach(calls: int, accept: float, verifier_needs_response: bool) -> list[float]:
    """Share of episodes that make a first, second, ... call where roles are drawn uniformly, [K].

    A Thinker's suggestion is taken to ask for a Worker.
    """
    reached: list[float] = []
    states = {(False, False): 1.0}  # (is there a response, is a Worker forced)
    for _ in range(calls):
        made, after = 0.0, dict.fromkeys(itertools.product((False, True), repeat=2), 0.0)
        for (responded, forced), mass in states.items():
            verifies = responded or not verifier_needs_response
            share = mass if forced else mass / (3 if verifies else 2)
            after[True, False] += share
            made += share
            if not forced:
                after[responded, True] += share
                made += share
                if responded:
                    after[True, False] += share * (1 - accept)
                    made += share
        reached.append(made)
        states = dict(after)
    return reached


def distinct(episodes: float, models: int, reaching: list[float]) -> float:
    """Expected number of different calls among episodes of one question whose choices are uniform.

    The d-th call has about 2L (3L)^(d - 1) forms (a Verifier cannot begin); n draws of D forms are about
    D (1 - (1 - 1/D)^n) different ones.
    """
    total = 0.0
    for depth, share in enumerate(reaching):
        forms = 2.0 * models * (3.0 * models) ** depth
        total += -forms * math.expm1(episodes * share * math.log1p(-1 / forms))
    return total


def fixed_policies(calls: int, models: int, accept: float) -> float:
    """Expected number of different calls of all L^2 + L^3 fixed policies on one question."""
    pairs = sum(models ** min(d, 2) * (1 - accept) ** ((d - 1) // 2) for d in range(1, calls + 1))
    triples = sum(models ** min(d, 3) * (1 - accept) ** (max(d - 2, 0) // 2) for d in range(1, calls + 1))
    return pairs + triples


def _cells(settings: Settings, population: int) -> tuple[int, float]:
    """Within what training's calls are shared: how many such (scope, question, repeat), and episodes in each."""
    learning = settings.learning
    generations, drawn = learning.generations, learning.questions * learning.repeats
    together = 1 if learning.sharing is Sharing.NOTHING else population
    if settings.journal.reuse == "generation":
        return generations * drawn * population // together, together
    cells = settings.tasks.train * learning.repeats * population // together
    return cells, generations * drawn * population / cells
