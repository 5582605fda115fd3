"""Profiles: what each model made of a fixed set of anchor questions, and whether a model has moved since."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, model_validator

from trinity_jax.errors import UserError

Answers = tuple[tuple[int | None, ...], ...]
"""Of one model: a row an anchor question, in it 1 right, 0 wrong, None no grade for each time it was asked."""

FLIPS = 20_000
"""Random sign patterns of `moved`: the smallest p-value is one in so many."""


class Profile(BaseModel):
    """Single Worker calls of every model on the same anchor questions; part of ``coordinator.json``.

    Attributes:
        anchors: SHA-256 of each question's text, first 16 digits.
        kinds: kind of each question.
        answers: by model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    anchors: tuple[str, ...]
    kinds: tuple[str, ...]
    answers: dict[str, Answers]

    @model_validator(mode="after")
    def _one_shape(self) -> "Profile":
        rows = {len(self.kinds), *(len(own) for own in self.answers.values())}
        if rows - {len(self.anchors)}:
            raise ValueError(f"profile: expected {len(self.anchors)} questions throughout, got {sorted(rows)}")
        return self

    def rewards(self, models: Sequence[str]) -> Float[np.ndarray, "Q L S"]:
        """Answers of some models; NaN where one has no grade, or fewer answers than another.

        Raises:
            UserError: a model that was not profiled.
        """
        if missing := [name for name in models if name not in self.answers]:
            raise UserError(f"profile: no answers of {', '.join(missing)}; profiled are {', '.join(self.answers)}")
        most = max(len(row) for name in models for row in self.answers[name])
        found = np.full((len(self.anchors), len(models), most), np.nan)
        for place, name in enumerate(models):
            for question, row in enumerate(self.answers[name]):
                found[question, place, : len(row)] = [np.nan if one is None else one for one in row]
        return found

    def matches(self, anchors: Sequence[str], where: str) -> None:
        """Check that other answers are to the same questions.

        Raises:
            UserError: they are not.
        """
        if tuple(anchors) != self.anchors:
            common = len(set(anchors) & set(self.anchors))
            raise UserError(
                f"{where}: a profile of another anchor set: expected the coordinator's {len(self.anchors)} questions, "
                f"got {len(anchors)}, of which {common} are among them; give the tasks it was profiled on"
            )

    def with_answers(self, model: str, rewards: Float[np.ndarray, "Q S"]) -> "Profile":
        """The same profile with the answers of one model added or replaced."""
        return Profile(anchors=self.anchors, kinds=self.kinds, answers=self.answers | {model: as_answers(rewards)})

    def without(self, model: str) -> "Profile":
        """The same profile without one model."""
        kept = {name: own for name, own in self.answers.items() if name != model}
        return Profile(anchors=self.anchors, kinds=self.kinds, answers=kept)


def anchor(prompt: str) -> str:
    """What names an anchor question."""
    return hashlib.sha256(prompt.encode("utf-8", "replace")).hexdigest()[:16]


def as_answers(rewards: Float[np.ndarray, "Q S"]) -> Answers:
    """Rewards as they are kept."""
    return tuple(tuple(None if np.isnan(one) else int(one) for one in row) for row in rewards)


class Moved(NamedTuple):
    """How far a profile is from another, and the chance of that or more if nothing has changed.

    Attributes:
        p: p-value.
        before: mean success then, on the questions that both have.
        after: mean success now.
        kind: the kind that changed most.
        change: by how much it did.
    """

    p: float
    before: float
    after: float
    kind: str
    change: float


def moved(
    before: Float[np.ndarray, "Q S"], after: Float[np.ndarray, "Q S"], kinds: Sequence[str], seed: int = 0
) -> Moved:
    r"""Test whether a model answers the same questions otherwise than before.

    If nothing has changed, a question's answers then and now can be exchanged: each difference $d_q$ of their means is
    as likely as its negative, whatever the question's difficulty. The statistic
    $\sum_k (\sum_{q \in k} d_q)^2 / \sum_{q \in k} d_q^2$ over kinds k sees one kind getting better while another gets
    worse; with a single kind it orders as McNemar's. Its p-value is exact up to the draw of `FLIPS` sign patterns, so
    the chance of a false alarm is at most the level it is compared with.

    Args:
        before: answers then; NaN where there is none.
        after: answers now.
        kinds: kind of each question.
        seed: of the sign patterns.

    Raises:
        UserError: no question has answers from both times.
    """
    known = ~np.isnan(before).all(axis=1) & ~np.isnan(after).all(axis=1)
    if not known.any():
        raise UserError("profile: no question has answers from both times")
    then, now = np.nanmean(before[known], axis=1), np.nanmean(after[known], axis=1)
    names = np.array(kinds)[known]
    member = (names[:, None] == np.unique(names)).astype(float)  # [Q, kinds]
    difference = now - then
    size = np.maximum(member.T @ difference**2, 1e-12)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(FLIPS, len(difference)))
    drawn = ((signs * difference) @ member) ** 2 @ (1 / size)
    seen = (difference @ member) ** 2 @ (1 / size)
    p = (1 + int((drawn >= seen - 1e-9).sum())) / (1 + FLIPS)
    change = (difference @ member) / member.sum(axis=0)
    most = int(np.abs(change).argmax())
    return Moved(p, float(then.mean()), float(now.mean()), str(np.unique(names)[most]), float(change[most]))


def alarms(p: Sequence[float], level: float) -> list[bool]:
    """Holm's procedure: which are significant, so that any false alarm among them has a chance below ``level``."""
    order = np.argsort(p, kind="stable")
    found, going = [False] * len(p), True
    for rank, place in enumerate(order):
        going = going and p[place] <= level / (len(p) - rank)
        found[place] = bool(going)
    return found
