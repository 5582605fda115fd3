"""The tri-role protocol as a pure state machine: no I/O, no clock, no randomness (paper section 3)."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """Roles in the released head's row order: Worker, Thinker, Verifier."""

    WORKER = "worker"
    THINKER = "thinker"
    VERIFIER = "verifier"


ROLES = (Role.WORKER, Role.THINKER, Role.VERIFIER)


class End(StrEnum):
    """Why an episode ended; ``FAILED`` means a call could not be completed and the episode has no reward."""

    ACCEPTED = "accepted"
    CALLS_SPENT = "calls_spent"
    NO_RESPONSE = "no_response"
    FAILED = "failed"


@dataclass(frozen=True)
class Turn:
    """One call of an episode: who spoke as what, the reply's text, and what was parsed out of it."""

    model: int
    role: Role
    text: str
    thought: str | None = None
    verdict: bool | None = None


@dataclass(frozen=True)
class EpisodeState:
    """Everything the protocol remembers between calls. ``end`` is ``None`` while the episode runs."""

    prompt: str
    turns: tuple[Turn, ...] = ()
    response: str | None = None
    thoughts: tuple[str, ...] = ()
    suggestion: str | None = None
    forced_role: Role | None = None
    end: End | None = None
