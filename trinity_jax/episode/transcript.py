"""What the coordinator reads of an episode. Short on purpose: every token is encoder time."""

from typing import Literal

from trinity_jax.episode.episode import EpisodeState, Role, Turn
from trinity_jax.episode.roles import conversation


def view(state: EpisodeState, mode: Literal["worker_thoughts", "full"]) -> str:
    """The text behind one decision.

    ``worker_thoughts`` (the released code's): the task, one line on the collaboration, the Workers' thoughts; a
    Thinker's turn or a rejection leaves it as it was. ``full`` (the paper's C_k = (Q, O_1..O_k)): every turn's
    condensed output, with who said it as what.
    """
    if mode == "worker_thoughts":
        return conversation(state.prompt, state.thoughts)
    return conversation(state.prompt, tuple(map(_line, state.turns)))


def _line(turn: Turn) -> str:
    said = turn.thought or ""
    if turn.role is Role.VERIFIER:
        said = f"{'ACCEPT' if turn.verdict else 'REJECT'} {said}".rstrip()
    elif turn.role is Role.THINKER:
        said = f"{said} (next: {turn.suggested_role})" if turn.suggested_role else "no suggestion"
    return f"model {turn.model} as {turn.role}: {said}"
