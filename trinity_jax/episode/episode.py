"""The tri-role protocol as a pure state machine: no I/O, no clock, no randomness (paper section 3)."""

from dataclasses import dataclass, replace
from enum import StrEnum

from trinity_jax.config import EpisodeSettings
from trinity_jax.episode import roles
from trinity_jax.episode.roles import ROLES, Role

__all__ = [
    "ROLES",
    "End",
    "EpisodeState",
    "Role",
    "Turn",
    "allowed_roles",
    "ends_without_call",
    "messages",
    "role_for",
    "start",
    "step",
]


class End(StrEnum):
    """Why an episode ended; ``FAILED`` means a call could not be completed and the episode has no reward."""

    ACCEPTED = "accepted"
    CALLS_SPENT = "calls_spent"
    NO_RESPONSE = "no_response"
    FAILED = "failed"


@dataclass(frozen=True)
class Turn:
    """One call of an episode: who spoke as what, the reply's text, and what was parsed out of it.

    ``thought`` is the condensed reply: a Worker's idea, a Thinker's suggestion, a Verifier's reason. ``verdict`` is
    set for a Verifier, ``suggested_role`` for a Thinker whose suggestion could be read.
    """

    model: int
    role: Role
    text: str
    thought: str | None = None
    verdict: bool | None = None
    suggested_role: Role | None = None


@dataclass(frozen=True)
class EpisodeState:
    """Everything the protocol remembers between calls. ``end`` is ``None`` while the episode runs.

    ``suggestion`` and ``forced_role`` are set and cleared together.
    """

    prompt: str
    turns: tuple[Turn, ...] = ()
    response: str | None = None
    thoughts: tuple[str, ...] = ()
    suggestion: str | None = None
    forced_role: Role | None = None
    end: End | None = None


def start(prompt: str) -> EpisodeState:
    """An episode before its first call."""
    return EpisodeState(prompt)


def role_for(state: EpisodeState, sampled: Role) -> Role:
    """The role of the coming turn: a Thinker's, if it asked for one, else the sampled one."""
    return state.forced_role or sampled


def allowed_roles(state: EpisodeState, verifier_needs_response: bool) -> tuple[bool, bool, bool]:
    """Which roles may be sampled, in the order of ``ROLES``."""
    return (True, True, state.response is not None or not verifier_needs_response)


def ends_without_call(state: EpisodeState, role: Role) -> bool:
    """Whether this turn is a Verifier with nothing to verify: ``step`` then ends the episode and no call is due."""
    return role is Role.VERIFIER and state.response is None


def messages(state: EpisodeState, role: Role) -> tuple[tuple[str, str], ...]:
    """What a model reads in this role, as pairs of wire role and content."""
    parts = [roles.conversation(state.prompt, state.thoughts)]
    if role is not Role.WORKER and state.response is not None:
        parts.append(f"<current_response>\n{state.response}\n</current_response>")
    if role is not Role.THINKER and state.suggestion is not None:
        parts.append(f"<suggestion>{state.suggestion}</suggestion>")
    return ("system", roles.INSTRUCTIONS[role]), ("user", "\n\n".join(parts))


def step(state: EpisodeState, model: int, role: Role, text: str | None, settings: EpisodeSettings) -> EpisodeState:
    """The state after one turn.

    Args:
        state: A running episode.
        model: Index of the model that was called, in head order.
        role: The role it was called in, which is ``role_for``'s.
        text: Its reply, or ``None`` where the call failed; unread if ``ends_without_call``.
        settings: K (``max_calls``) and the switches of the protocol.

    Raises:
        ValueError: The episode has ended, or another role was forced.
    """
    if state.end is not None:
        raise ValueError(f"the episode has ended ({state.end}) and takes no further turn")
    if role is not role_for(state, role):
        raise ValueError(f"the Thinker asked for {state.forced_role} on this turn, got {role}")
    if ends_without_call(state, role):
        return replace(state, suggestion=None, forced_role=None, end=End.NO_RESPONSE)
    if text is None:
        return replace(state, suggestion=None, forced_role=None, end=End.FAILED)
    state = _TURNS[role](replace(state, suggestion=None, forced_role=None), model, text, settings)
    spent = len(state.turns) >= settings.max_calls
    return replace(state, end=End.CALLS_SPENT) if state.end is None and spent else state


def _work(state: EpisodeState, model: int, text: str, settings: EpisodeSettings) -> EpisodeState:
    thought = roles.idea(text, settings.thought_chars) or None
    return replace(
        state,
        turns=(*state.turns, Turn(model, Role.WORKER, text, thought)),
        response=text,
        thoughts=state.thoughts if thought is None else (*state.thoughts, thought),
    )


def _think(state: EpisodeState, model: int, text: str, settings: EpisodeSettings) -> EpisodeState:
    advice, role = roles.suggestion(text) or (None, None)
    # A Verifier who may not be sampled may not be forced either.
    if advice is None or (role is not None and not _may(state, role, settings)):
        return replace(state, turns=(*state.turns, Turn(model, Role.THINKER, text)))
    advice = advice[: settings.thought_chars]
    turn = Turn(model, Role.THINKER, text, advice, suggested_role=role)
    return replace(state, turns=(*state.turns, turn), suggestion=advice, forced_role=role)


def _verify(state: EpisodeState, model: int, text: str, settings: EpisodeSettings) -> EpisodeState:
    accepted, why = roles.verdict(text), roles.reason(text, settings.thought_chars) or None
    turn = Turn(model, Role.VERIFIER, text, why, verdict=accepted)
    return replace(state, turns=(*state.turns, turn), end=End.ACCEPTED if accepted else None)


_TURNS = {Role.WORKER: _work, Role.THINKER: _think, Role.VERIFIER: _verify}


def _may(state: EpisodeState, role: Role, settings: EpisodeSettings) -> bool:
    return allowed_roles(state, settings.verifier_needs_response)[ROLES.index(role)]
