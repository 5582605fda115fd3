"""What is compared with what: every arm is the reference with something changed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from experiments.ablation.settings import HeadName, Settings
from trinity_jax.config import HeadSettings, LearningSettings

LINEAR = HeadSettings()

Coordinates = Literal["raw", "centred", "rotated"]
"""``rotated``: centred, then turned by a random orthogonal matrix, so that coordinates mean nothing any more."""

ALL_ROLES = (True, True, True)
"""Worker, Thinker, Verifier."""


@dataclass(frozen=True)
class Arm:
    """One way to run.

    Attributes:
        learning: its ``sigma0`` does not count.
        max_calls: K.
        head: on the coordinates, without a bias.
        coordinates: that the head reads.
        roles: which may be chosen.
        argmax: training and judgement take the largest logits; else they draw.
        position: None in the large world; a read position in the small one.
        sigma0: initial step size; None: the best on the tuning seeds.
    """

    learning: LearningSettings
    max_calls: int
    head: HeadSettings = LINEAR
    coordinates: Coordinates = "centred"
    roles: tuple[bool, bool, bool] = ALL_ROLES
    argmax: bool = False
    position: int | None = None
    sigma0: float | None = None


FULL, NO_THINKER, NO_ROLES, OWN_LUCK = "all roles", "no Thinker", "no roles", "own random numbers"
AUTHORS = "authors' recipe"

Groups = dict[str, dict[str, Arm]]
"""Arms by group and name; one arm may stand in several groups."""


def plan(settings: Settings) -> Groups:
    """All arms on the jitted worlds."""
    reference = Arm(settings.learning, settings.world.max_calls)
    raw = replace(reference, coordinates="raw")
    paper = replace(raw, sigma0=settings.learning.sigma0)
    groups = {
        "heads, centred": _heads(reference, settings),
        "heads, raw": _heads(raw, settings),
        "heads, paper": _heads(paper, settings),
        "protocol": {
            FULL: reference,
            NO_THINKER: replace(reference, roles=(True, False, True)),
            NO_ROLES: replace(reference, roles=(True, False, False)),
            OWN_LUCK: _learning(reference, common_random_numbers=False),
            AUTHORS: _learning(paper, common_random_numbers=False),
        },
        "calls": {str(K): replace(reference, max_calls=K) for K in settings.calls},
        "sigma0, centred": {str(s): replace(reference, sigma0=s) for s in settings.step_sizes},
        "sigma0, raw": {str(s): replace(raw, sigma0=s) for s in settings.step_sizes},
    }
    for coordinates in ("raw", "centred", "rotated"):
        start = replace(reference, coordinates=coordinates)
        groups[f"blocks, {coordinates}"] = {str(k): _blocks(start, k) for k in settings.blocks}
    for name, counts, field in (
        ("replications", settings.replications, "questions"),
        ("population", settings.populations, "population"),
    ):
        groups[f"{name}, equal generations"] = _sweep(reference, field, counts, equal_episodes=False)
        groups[f"{name}, equal episodes"] = _sweep(reference, field, counts, equal_episodes=True)
        groups[f"{name}, paper"] = _sweep(paper, field, counts, equal_episodes=False)
    if settings.small:
        K = settings.small.world.max_calls
        for name, start in (("centred", reference), ("paper", paper)):
            small = replace(start, max_calls=K)
            groups[f"position, {name}"] = {str(at): replace(small, position=at) for at in settings.small.positions}
    return groups


def distinct(groups: Groups) -> tuple[Arm, ...]:
    """Every arm once, those of one compiled program behind each other."""
    arms = dict.fromkeys(arm for group in groups.values() for arm in group.values())
    order = {program: i for i, program in enumerate(dict.fromkeys(map(_program, arms)))}
    return tuple(sorted(arms, key=lambda arm: order[_program(arm)]))


def _program(arm: Arm) -> tuple:
    return arm.head, arm.learning, arm.max_calls, arm.position is None


def _heads(start: Arm, settings: Settings) -> dict[str, Arm]:
    ten = replace(start, head=HeadSettings(kind="block_diagonal", blocks=10))
    every: dict[HeadName, Arm] = {
        "linear": start,
        "low-rank": replace(start, head=HeadSettings(kind="low_rank", rank=settings.rank)),
        "sparse": replace(start, head=HeadSettings(kind="sparse")),
        "block-diagonal-2": _blocks(start, 2),
        "block-diagonal-10, softmax": ten,
        "block-diagonal-10, argmax": replace(ten, argmax=True),
    }
    return {name: arm for name, arm in every.items() if name in settings.heads}


def _blocks(start: Arm, k: int) -> Arm:
    """One block is the linear head."""
    return start if k == 1 else replace(start, head=HeadSettings(kind="block_diagonal", blocks=k))


def _sweep(start: Arm, field: str, counts: Iterable[int], equal_episodes: bool) -> dict[str, Arm]:
    usual, generations = getattr(start.learning, field), start.learning.generations
    arms = {}
    for count in counts:
        length = max(1, round(generations * usual / count)) if equal_episodes else generations
        arms[str(count)] = _learning(start, **{field: count, "generations": length})
    return arms


def _learning(start: Arm, **changes: object) -> Arm:
    return replace(start, learning=start.learning.model_copy(update=changes))
