"""Decisions that wait go together into one jitted call; no barrier between turns, questions or candidates."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from trinity_jax.config import EpisodeSettings
from trinity_jax.coordinator.population import Choice, PopulationEncoder, Row
from trinity_jax.encoder.text import Router
from trinity_jax.episode.episode import ROLES, EpisodeState, Role, allowed_roles
from trinity_jax.episode.transcript import view
from trinity_jax.pool.journal import DecisionKey, DecisionRow, Journal
from trinity_jax.rollout.company import Company
from trinity_jax.rollout.decide import Decision, EpisodeKey


class _Asked(NamedTuple):
    key: DecisionKey
    row: Row


class Batcher:
    """The coordinator as a ``Decider``: reads the transcript, waits for company, chooses on the device.

    Greedy: while one jitted call runs, whoever becomes ready waits for the next; there is no time window. A decision
    that the journal holds is read instead of computed, so a resumed generation goes the same way even where sums differ
    in the last bits; decisions are recorded before the calls that follow from them.

    Args:
        population: with the generation's candidates loaded; ``EpisodeKey.candidate`` counts them.
        router: text to token ids.
        episode: the protocol.
        journal: where decisions are looked up and recorded.
        shared_keys: common random numbers: candidates share the keys of their choices.

    Attributes:
        mode: ``sample`` or ``argmax``.
    """

    def __init__(
        self,
        population: PopulationEncoder,
        router: Router,
        episode: EpisodeSettings,
        journal: Journal,
        shared_keys: bool = True,
    ):
        self.mode: Literal["sample", "argmax"] = "sample"
        self._population = population
        self._router = router
        self._episode = episode
        self._journal = journal
        self._shared_keys = shared_keys
        self._generation = 0
        self._recorded: dict[DecisionKey, DecisionRow] = {}
        self._company: Company[_Asked, Decision] = Company(self._work)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decide")

    def recall(self, generation: int) -> None:
        """Hold the decisions that the journal has under this number, and no others; new ones go there too."""
        self._generation = generation
        self._recorded = self._journal.decisions(generation)

    async def decide(self, key: EpisodeKey, state: EpisodeState) -> Decision:
        """One decision for turn ``len(state.turns)``, together with whoever else waits for one."""
        generation, candidate, question, repeat = key
        turn = len(state.turns)
        where = (self._generation, candidate, question, repeat, turn)
        known = self._recorded.get(where)
        if known is not None:
            return Decision(known.model, Role(known.role), known.model_probs, known.role_probs)
        row = Row(
            candidate,
            self._router.ids(view(state, self._episode.transcript)),
            (generation, 0 if self._shared_keys else candidate, question, repeat, turn),
            allowed_roles(state, self._episode.verifier_needs_response),
        )
        return await self._company.join(_Asked(where, row))

    def close(self) -> None:
        """Let the thread go."""
        self._thread.shutdown(cancel_futures=True)

    async def _work(self, batch: list[_Asked]) -> list[Decision]:
        rows = [asked.row for asked in batch]
        loop = asyncio.get_running_loop()
        choices = await loop.run_in_executor(self._thread, self._population.decide, rows, self.mode)
        self._journal.record_decisions(_record(asked.key, c) for asked, c in zip(batch, choices, strict=True))
        return [Decision(c.model, ROLES[c.role], c.model_probs, c.role_probs) for c in choices]


def _record(key: DecisionKey, choice: Choice) -> DecisionRow:
    return DecisionRow(*key, choice.model, ROLES[choice.role], choice.model_probs, choice.role_probs, choice.h_hash)
