"""The coordinator in service: decisions of all requests go together through the encoder, on one thread."""

import asyncio
import time
from collections.abc import Sequence
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
from trinity_jax.episode.episode import EpisodeState, start
from trinity_jax.episode.transcript import view
from trinity_jax.rollout.company import Company

_REMEMBERED_TEXTS, _REMEMBERED_TOKENS = 1024, 2**20
_CHARS_PER_TOKEN = 16  # four times what English has
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
    """``question``: whose distance is asked for, if one is."""

    text: str
    question: str | None
    row: Row
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
        longest = described.encoder.buckets[-1]
        self._most_chars = _CHARS_PER_TOKEN * longest
        remembered = max(1, min(_REMEMBERED_TEXTS, _REMEMBERED_TOKENS // longest))
        self._router = Router(ready.router.tokenizer, described.encoder, described.named_pool, remembered)
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
            self._decided([Row(0, tokens, (0, 0, 0, 0, 0))], [tokens])

    async def choose(
        self,
        state: EpisodeState,
        number: int,
        turn: int,
        roles: tuple[bool, bool, bool],
        models: tuple[bool, ...],
        question: str | None = None,
    ) -> Picked:
        """The model and role of a turn.

        Args:
            state: the episode so far.
            number: of the request; equal numbers draw equal choices.
            turn: counted from 0.
            roles: which may be chosen.
            models: which may be chosen.
            question: what is measured against the training questions, bare as they were; None for nothing.
        """
        read = self._shown(state)
        asked = None if question is None else self._shown(start(question))
        row = Row(0, (), (0, 0, number, 0, turn), roles, models)
        return await self._company.join(_Want(read, asked, row, time.perf_counter()))

    def _shown(self, state: EpisodeState) -> str:
        """What of a transcript can be read: the router keeps both ends of what is too long, and so does this.

        In characters, before anything takes time or memory in proportion to what a client sends.
        """
        text = view(state, self.coordinator.description.episode.transcript)
        half = self._most_chars // 2
        return text if len(text) <= self._most_chars else text[:half] + text[-half:]

    def close(self) -> None:
        """Let the thread go."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _work(self, batch: list[_Want]) -> list[Picked]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._decide, batch)

    def _decide(self, batch: list[_Want]) -> list[Picked]:
        # On this thread, where encoding holds up no other request's sending and receiving.
        rows = [want.row._replace(tokens=self._router.ids(want.text)) for want in batch]
        measured = [None if want.question is None else self._router.ids(want.question) for want in batch]
        began = time.perf_counter()
        choices, distances = self._decided(rows, measured)
        previous, self._ended = self._ended, time.perf_counter()
        return [
            Picked(choice, gap, self._ended - began + max(0.0, previous - want.came), len(row.tokens))
            for want, row, choice, gap in zip(batch, rows, choices, distances, strict=True)
        ]

    def _decided(
        self, rows: list[Row], measured: Sequence[tuple[int, ...] | None]
    ) -> tuple[Sequence[Choice], list[float | None]]:
        choices = self._population.decide(rows, self._mode)
        known = self.coordinator.familiar
        asked = [tokens for tokens in measured if tokens is not None]
        if known is None or not asked:
            return choices, [None] * len(rows)
        states = iter(self._population.encoder.states(asked))
        return choices, [
            None if tokens is None else familiar.distance(known.states, next(states)) for tokens in measured
        ]


def _sized(coordinator: Coordinator, settings: ServingSettings) -> Coordinator:
    sizes = {"cache_mb": settings.cache_mb, "micro_batch": settings.micro_batch}
    encoder = coordinator.description.encoder.model_copy(update=sizes)
    return replace(coordinator, description=coordinator.description.model_copy(update={"encoder": encoder}))
