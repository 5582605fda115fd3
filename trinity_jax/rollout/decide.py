"""What an episode asks at each turn and what it gets: the seam between episodes and whoever chooses."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from trinity_jax.episode.episode import EpisodeState, Role


class EpisodeKey(NamedTuple):
    """Which episode: every random number of it is a fold_in of these (and the turn)."""

    generation: int
    candidate: int
    question: int
    repeat: int


@dataclass(frozen=True)
class Decision:
    """A choice of (model, role) and the probabilities it was drawn from (None where a rule chose)."""

    model: int
    role: Role
    model_probs: tuple[float, ...] | None = None
    role_probs: tuple[float, ...] | None = None


class Decider(Protocol):
    """Chooses the next model and role of an episode; the state is all it may look at."""

    async def decide(self, key: EpisodeKey, state: EpisodeState) -> Decision:
        """One decision for turn ``len(state.turns)``."""
        ...
