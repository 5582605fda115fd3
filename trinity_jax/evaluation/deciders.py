"""Choosers that learn nothing: fixed tri-role policies, random, round-robin. All look at the state alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trinity_jax.episode.episode import ROLES, EpisodeState, Role, allowed_roles, role_for
from trinity_jax.rollout.decide import Decider, Decision, EpisodeKey


@dataclass(frozen=True)
class FixedPolicy:
    """One model per role: (Thinker, if there is one) -> Worker -> Verifier -> on rejection Worker -> Verifier ...

    A Thinker's suggested role is obeyed, as the protocol asks of every policy, with this policy's model for that role.
    """

    worker: int
    verifier: int
    thinker: int | None = None

    async def decide(self, key: EpisodeKey, state: EpisodeState) -> Decision:
        """The rule's choice for this turn."""
        role = role_for(state, self._rule(state))
        return Decision(self._model(role), role)

    def _rule(self, state: EpisodeState) -> Role:
        if not state.turns:
            return Role.WORKER if self.thinker is None else Role.THINKER
        return Role.VERIFIER if state.turns[-1].role is Role.WORKER else Role.WORKER

    def _model(self, role: Role) -> int:
        if role is Role.THINKER and self.thinker is not None:
            return self.thinker
        return self.verifier if role is Role.VERIFIER else self.worker

    def describe(self, names: Sequence[str]) -> str:
        """``Thinker a, Worker b, Verifier c`` in the pool's names."""
        thinker = () if self.thinker is None else (f"Thinker {names[self.thinker]}",)
        return ", ".join((*thinker, f"Worker {names[self.worker]}", f"Verifier {names[self.verifier]}"))


@dataclass(frozen=True)
class RandomPolicy:
    """Uniform over ``models`` and allowed roles; a draw depends on (seed, key, turn) only, never on arrival order."""

    models: int
    seed: int
    verifier_needs_response: bool = False

    async def decide(self, key: EpisodeKey, state: EpisodeState) -> Decision:
        """A uniform draw."""
        words = [word % 2**32 for word in (self.seed, *key, len(state.turns))]
        generator = np.random.default_rng(words)
        allowed = allowed_roles(state, self.verifier_needs_response)
        roles = [role for role, may in zip(ROLES, allowed, strict=True) if may]
        return Decision(int(generator.integers(self.models)), roles[generator.integers(len(roles))])


def script(state: EpisodeState) -> tuple[float, float, float]:
    """Chances of the roles by rule: Worker or Thinker, a Verifier after a Worker, a Worker after a rejection."""
    if not state.turns:
        return (0.5, 0.5, 0.0)
    return (0.0, 0.0, 1.0) if state.turns[-1].role is Role.WORKER else (1.0, 0.0, 0.0)


@dataclass(frozen=True)
class ScriptedPolicy:
    """Roles by `script`, models uniform: episodes that meet the states of a sensible course."""

    models: int
    seed: int

    async def decide(self, key: EpisodeKey, state: EpisodeState) -> Decision:
        """A draw that depends on (seed, key, turn) only."""
        generator = np.random.default_rng([word % 2**32 for word in (self.seed, *key, len(state.turns))])
        return Decision(int(generator.integers(self.models)), ROLES[generator.choice(3, p=script(state))])


@dataclass(frozen=True)
class RoundRobin:
    """Models in turn; Worker and Verifier alternate. The model that starts is drawn from (question, repeat).

    A start that counted up with the question would follow its kind, since task mixes alternate kinds; a fixed start
    would give an even pool's models one role each.
    """

    models: int

    async def decide(self, key: EpisodeKey, state: EpisodeState) -> Decision:
        """Model (start + turn) mod L; Worker on even turns, Verifier on odd ones."""
        turn = len(state.turns)
        first = int(np.random.default_rng((key.question, key.repeat)).integers(self.models))
        return Decision((first + turn) % self.models, Role.VERIFIER if turn % 2 else Role.WORKER)


@dataclass(frozen=True)
class Dispatch:
    """Hands each episode to the decider that ``choose`` names for its key: many policies in one rollout."""

    choose: Callable[[EpisodeKey], Decider]

    async def decide(self, key: EpisodeKey, state: EpisodeState) -> Decision:
        """Whatever the chosen decider says."""
        return await self.choose(key).decide(key, state)
