"""Several processes, on several hosts, as one run: each plays the episodes of its own questions.

Process 0 learns and writes; what it made is the same everywhere by being handed out, not by being computed again. All
candidates of a question are in one process, so shared and reused calls are shared and reused as in one process. Large
values go through the run folder, which all must see; small ones, and signs of life, over a wire to process 0. Neither
is jax's: its collectives take arrays of one shape and wait without limit, and its client aborts the process, without a
word of the run, when another is lost. `jax.distributed` is joined once all are there, so that jax knows the others.

A process that is lost ends the others: what was paid for is in the journals, and the run goes on with ``--resume``.
"""

import asyncio
import os
import pickle
import shutil
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import jax

from trinity_jax.config import HostsSettings, Settings
from trinity_jax.errors import UserError
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.pool import Pool
from trinity_jax.rollout.decide import EpisodeKey
from trinity_jax.rollout.engine import EpisodeResult
from trinity_jax.training.folder import RunFolder
from trinity_jax.training.wire import RESUME, Wire, end, join

T = TypeVar("T")
Play = Callable[[list[EpisodeKey]], Awaitable[list[EpisodeResult]]]


class Hosts:
    """This process among the others; alone, everything here is a plain function call.

    All processes run the same program: each calls the methods that wait for others in the same order.

    Attributes:
        process: which this is.
        processes: how many there are.
    """

    def __init__(self, process: int = 0, processes: int = 1, wire: "Wire | None" = None):
        self.process = process
        self.processes = processes
        self._wire = wire
        self._folder = RunFolder(Path())
        self._step = 0
        self._merged: dict[int, int] = {}

    @property
    def first(self) -> bool:
        """Whether this process learns, writes and reports."""
        return self.process == 0

    def enter(self, folder: RunFolder) -> RunFolder:
        """The run folder that process 0 has begun, as all see it; values are exchanged there from now on.

        Raises:
            UserError: this host does not see it.
        """
        self._folder = folder
        if self._wire is not None:
            if self.first:
                shutil.rmtree(folder.exchange, ignore_errors=True)
                folder.exchange.mkdir()
            self._folder = folder = RunFolder(Path(self.meet(str(folder.path.absolute()))[0]))
            if not folder.exchange.is_dir():
                raise UserError(
                    f"hosts: process {self.process} does not see {folder.path}: all need one shared file system there"
                )
        return folder

    def share(self, questions: Sequence[int]) -> list[int]:
        """The places in ``questions`` (one number an item) whose items are this process's."""
        return [place for place, question in enumerate(questions) if question % self.processes == self.process]

    def meet(self, word: Any = None) -> list[Any]:
        """Wait for all; returns what each said (JSON), in the order of processes."""
        return [word] if self._wire is None else self._wire.meet(word)

    def gather(self, value: T) -> list[T]:
        """The value of each process, in their order."""
        if self._wire is None:
            return [value]
        self._begin(value)
        values = [value if p == self.process else self._read(p) for p in range(self.processes)]
        return values

    def joined(self, places: Sequence[int], values: Sequence[T]) -> list[T]:
        """All items in their places, from each process's items and where they stand (see `share`)."""
        parts = self.gather(list(zip(places, values, strict=True)))
        items = dict(item for part in parts for item in part)
        return [items[place] for place in range(len(items))]

    def once(self, make: Callable[[], T]) -> T:
        """What process 0 makes; the others wait for it. So it is the same to the last bit whatever the hosts are."""
        if self._wire is None:
            return make()
        if self.first:
            value = make()
            self._begin(value)
            return value
        self._begin(None)
        return self._read(0)

    async def open_journal(self) -> Journal:
        """The run's journal in process 0; in others one of their own that begins as a copy of it.

        Raises:
            UserError: one of them cannot be opened, or a process of a former start still writes it.
        """
        if not self.first:
            self.meet()
            return Journal.open(self._folder.journal_of(self.process))
        journal = Journal.open(self._folder.journal)
        try:
            await absorb(self._folder, journal)
            for process in range(1, self.processes):
                self._merged[process] = journal.copy_to(self._folder.journal_of(process))
            self.meet()
        except BaseException:
            journal.close()
            raise
        return journal

    async def rollout(
        self, keys: Sequence[EpisodeKey], pool: Pool, play: Play, generation: int | None = None
    ) -> list[EpisodeResult]:
        """Share episodes out, play them, and bring results together in the order of ``keys``.

        Args:
            keys: all episodes.
            pool: who answers.
            play: this process's episodes to their results.
            generation: see `spending`.
        """
        places = self.share([key.question for key in keys])
        async with self.spending(pool, generation):
            results = await play([keys[place] for place in places])
        return self.joined(places, results)

    @asynccontextmanager
    async def spending(self, pool: Pool, generation: int | None = None) -> AsyncIterator[None]:
        """While all processes call: each spends its part of what is left; then all is in one journal and one ledger.

        Args:
            pool: idle before and after.
            generation: the number under which decisions are kept; None where rules decide.
        """
        if self._wire is None:
            yield
            return
        journal, ledger = pool.journal, pool.ledger
        calls, cost, tokens = ledger.calls, ledger.spent, ledger.tokens
        ledger.allot(self.process, self.processes)
        yield
        if not self.first:
            await journal.whole()
        spent = self.meet((ledger.calls - calls, ledger.spent - cost, ledger.tokens - tokens))
        if self.first:
            for process, after in self._merged.items():
                # No process keeps decisions under -1.
                which = -1 if generation is None else generation
                self._merged[process] = await journal.merge(self._folder.journal_of(process), after, which)
        ledger.calls = calls + sum(theirs for theirs, _, _ in spent)
        ledger.spent = cost + sum(theirs for _, theirs, _ in spent)
        ledger.tokens = tokens + sum(theirs for _, _, theirs in spent)
        ledger.allot(0, 1)
        self.meet()  # before it, nobody writes what is being read

    def _begin(self, value: Any) -> None:
        """Hand out this process's value of the next exchange and wait until all have theirs."""
        self._step += 1
        path = self._file(self.process, self._step)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            pickle.dump(value, file, pickle.HIGHEST_PROTOCOL)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        self.meet()
        # Who is here has read what was before.
        self._file(self.process, self._step - 1).unlink(missing_ok=True)

    def _read(self, process: int) -> Any:
        path = self._file(process, self._step)
        try:
            return pickle.loads(path.read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise UserError(f"{path}: process {self.process} cannot read what process {process} wrote") from error

    def _file(self, process: int, step: int) -> Path:
        return self._folder.exchange / f"{step}-{process}.pickle"

    def leave(self) -> None:
        """The run is over and all journals are closed: one journal is left, and all let go of each other."""
        if self._wire is not None:
            self.meet()
            if self.first:
                with Journal.open(self._folder.journal) as journal:
                    asyncio.run(absorb(self._folder, journal))
                shutil.rmtree(self._folder.exchange, ignore_errors=True)
            jax.distributed.shutdown()
            self._wire.close()

    def stop(self, message: str) -> None:
        """Tell the others why this process ends."""
        if self._wire is not None:
            self._wire.stop(message)


async def absorb(folder: RunFolder, journal: Journal) -> None:
    """Take what other processes' journals hold into the run's one, and delete them; they may be a killed run's.

    Raises:
        UserError: one of them is in use.
    """
    for path in folder.other_journals():
        Journal.open(path).close()  # brings in what the log beside it holds
        await journal.merge(path)
        for suffix in ("", "-wal", "-shm", ".lock"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextmanager
def several(settings: Settings) -> Iterator[Hosts]:
    """Meet the other processes of the run; one alone meets nobody and leaves `jax.distributed` alone.

    With several processes, an error here is told to all and ends this process on the spot: jax's own way out would wait
    for the others.

    Raises:
        UserError: a process does not join.
    """
    chosen = settings.hosts
    if chosen.processes == 1:
        yield Hosts()
        return
    hosts = Hosts(chosen.process, chosen.processes, Wire(chosen.process, join(settings), chosen.timeout_seconds))
    try:
        _join_jax(chosen)
        yield hosts
        hosts.leave()
    except UserError as error:
        hosts.stop(str(error))
        end(str(error))
    except OSError as error:
        hosts.stop(str(error))
        end(f"{error}; {RESUME}")
    except BaseException as error:
        hosts.stop(type(error).__name__)
        traceback.print_exc()
        end(f"{type(error).__name__}; {RESUME}", 130 if isinstance(error, KeyboardInterrupt) else 1)


def _join_jax(chosen: HostsSettings) -> None:
    """All are there, so this takes no time; every process keeps all its local devices."""
    host, port = chosen.address
    seconds = int(chosen.timeout_seconds) + 1
    try:
        jax.distributed.initialize(
            f"{host}:{port + 1}",
            chosen.processes,
            chosen.process,
            cluster_detection_method="deactivate",
            initialization_timeout=10 * seconds,
            # The wire notices first, and says what happened.
            heartbeat_timeout_seconds=10 * seconds,
            shutdown_timeout_seconds=seconds,
        )
    except RuntimeError as error:
        raise UserError(f"hosts: jax.distributed at {host}:{port + 1}: {str(error).splitlines()[0]}") from error
