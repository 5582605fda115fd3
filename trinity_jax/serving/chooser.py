"""The coordinator in service: decisions of all requests go together through the encoder, on one thread."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from trinity_jax.config import ServingSettings
from trinity_jax.coordinator import familiar
from trinity_jax.coordinator.export import Coordinator, load_coordinator
from trinity_jax.coordinator.population import Choice, Row
from trinity_jax.coordinator.ready import Ready, make_ready
from trinity_jax.encoder.text import Router
from trinity_jax.episode.episode import EpisodeState
from trinity_jax.episode.transcript import view
from trinity_jax.rollout.company import Company

_REMEMBERED_TEXTS = 1024
_ONE_ROW = "a"


class Picked(NamedTuple):
    """A choice, the question's distance from those of the training (where asked for and known), and what it took.

    ``seconds`` are those of the forward passes that it waited for: its own batch's and the rest of the one before.
    """

    choice: Choice
    distance: float | None
    seconds: float
    tokens: int


class _Want(NamedTuple):
    row: Row
    measured: bool
    came: float


class Chooser:
    """One loaded coordinator.

    Args:
        ready: the coordinator on its encoder.
        settings: policy.

    Attributes:
        coordinator: what it is.
        names: of the pool, in head order.
        threshold: distance beyond which a question is unlike those of the training; None where they are not known.
    """

    def __init__(self, ready: Ready, settings: ServingSettings):
        self.coordinator = ready.coordinator
        described = ready.coordinator.description
        self.names = described.pool
        known = ready.coordinator.familiar
        self.threshold = None if known is None else known.threshold
        self._mode = settings.policy or described.policy.evaluate
        self._population = ready.population
        self._population.encoder.count_no_more()
        self._router = Router(ready.router.tokenizer, described.encoder, described.named_pool, _REMEMBERED_TEXTS)
        self._company: Company[_Want, Picked] = Company(self._work)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decide")
        self._ended = 0.0

    @classmethod
    def load(cls, folder: Path, settings: ServingSettings) -> "Chooser":
        """Read a coordinator folder and compile what deciding needs.

        Raises:
            UserError: what is wrong with it or its encoder.
        """
        coordinator = load_coordinator(folder)
        chooser = cls(make_ready(_sized(coordinator, settings)), settings)
        chooser.compile()
        return chooser

    def compile(self) -> None:
        """Decide once for a transcript of each length, so that no request waits for a compilation."""
        for size in self.coordinator.description.encoder.buckets:
            tokens = self._router.ids(_ONE_ROW)
            tokens = (*tokens, *tokens[:1] * (size - len(tokens))) if len(tokens) < size else tokens
            self._decide([_Want(Row(0, tokens, (0, 0, 0, 0, 0)), True, 0.0)])

    async def choose(
        self,
        state: EpisodeState,
        number: int,
        turn: int,
        roles: tuple[bool, bool, bool],
        models: tuple[bool, ...],
    ) -> Picked:
        """The model and role of a turn.

        Args:
            state: the episode so far; on turn 0 its question's distance is measured.
            number: of the request; equal numbers draw equal choices.
            turn: counted from 0.
            roles: which may be chosen.
            models: which may be chosen.
        """
        tokens = self._router.ids(view(state, self.coordinator.description.episode.transcript))
        row = Row(0, tokens, (0, 0, number, 0, turn), roles, models)
        return await self._company.join(_Want(row, not turn, time.perf_counter()))

    def close(self) -> None:
        """Let the thread go."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _work(self, batch: list[_Want]) -> list[Picked]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._decide, batch)

    def _decide(self, batch: list[_Want]) -> list[Picked]:
        began = time.perf_counter()
        rows = [want.row for want in batch]
        choices = self._population.decide(rows, self._mode)
        distances = self._distances(batch)
        previous, self._ended = self._ended, time.perf_counter()
        return [
            Picked(choice, gap, self._ended - began + max(0.0, previous - want.came), len(want.row.tokens))
            for want, choice, gap in zip(batch, choices, distances, strict=True)
        ]

    def _distances(self, batch: list[_Want]) -> list[float | None]:
        known = self.coordinator.familiar
        measured = [want.row.tokens for want in batch if want.measured]
        if known is None or not measured:
            return [None] * len(batch)
        states = iter(self._population.encoder.states(measured))
        return [familiar.distance(known.states, next(states)) if want.measured else None for want in batch]


def _sized(coordinator: Coordinator, settings: ServingSettings) -> Coordinator:
    sizes = {"cache_mb": settings.cache_mb, "micro_batch": settings.micro_batch}
    encoder = coordinator.description.encoder.model_copy(update=sizes)
    return replace(coordinator, description=coordinator.description.model_copy(update={"encoder": encoder}))
