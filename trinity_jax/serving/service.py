"""A coordinator and its pool at work, for the server and for Python: answers, traces, and loading anew."""

import asyncio
import time
from collections import Counter
from pathlib import Path

from trinity_jax.config import ModelSettings, PoolFile, PoolSettings, ServingSettings, parse, read
from trinity_jax.errors import UserError
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.pool import Pool, build_pool
from trinity_jax.pool.unrecorded import Unrecorded
from trinity_jax.serving.answer import Answer
from trinity_jax.serving.chooser import Chooser
from trinity_jax.serving.metrics import Metrics
from trinity_jax.serving.refused import Refused
from trinity_jax.serving.request import Asked
from trinity_jax.serving.session import Engine, Session, Tell
from trinity_jax.serving.trace import Trace, Traces


class Service:
    """Answers requests; closed by `close`.

    Args:
        engine: who answers.
        coordinator: where it came from; None for one made by hand, which cannot be loaded anew.
        pool: likewise.

    Attributes:
        engine: at present; a request keeps the one it began with.
        metrics: what is counted.
        traces: of finished requests.
    """

    def __init__(self, engine: Engine, coordinator: Path | None = None, pool: Path | PoolFile | None = None):
        self.engine = engine
        self.metrics = Metrics()
        self.traces = Traces(engine.settings.traces)
        self._from = coordinator, pool
        self._users: Counter[int] = Counter()
        self._retired: dict[int, Engine] = {}
        self._loading = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, coordinator: Path, pool: Path | PoolFile, journal: Path | None = None) -> "Service":
        """Load a coordinator and connect its pool.

        Args:
            coordinator: the folder ``coordinator/`` of a run.
            pool: a file with the groups ``pool``, ``budget`` and ``serving``.
            journal: where calls are kept; without it caps count from now on.

        Raises:
            UserError: what is wrong with any of them.
        """
        settings = _read(pool)
        kept = Unrecorded() if journal is None else Journal.open(journal)
        chooser = None
        try:
            chooser = await asyncio.to_thread(Chooser.load, coordinator, settings.serving)
            connected = await build_pool(fitted(settings, chooser.names), kept, settings.budget, need_all=False)
        except BaseException:
            kept.close()
            if chooser is not None:
                chooser.close()
            raise
        return cls(_engine(chooser, connected, settings.serving), coordinator, pool)

    async def answer(self, asked: Asked, tell: Tell | None = None, trace: Trace | None = None) -> Answer:
        """One request's answer; cancelled, it stops the calls made for it.

        Raises:
            Refused: there is none.
        """
        trace, engine = trace or Trace(), self.engine
        self._users[id(engine)] += 1
        try:
            return await Session(engine, asked, trace, tell).run()
        except asyncio.CancelledError:
            trace.end = "cancelled"
            raise
        except Refused as refused:
            trace.end, trace.error = trace.end or "failed", str(refused)
            raise
        except Exception as error:
            trace.end, trace.error = "failed", f"internal error: {type(error).__name__}"
            raise
        finally:
            trace.ms = 1e3 * (time.perf_counter() - trace.came)
            self.metrics.count(trace)
            self.traces.add(trace)
            self._users[id(engine)] -= 1
            if not self._users[id(engine)]:
                del self._users[id(engine)]
                if retired := self._retired.pop(id(engine), None):
                    self._leave(retired)

    async def reload(self) -> None:
        """Load coordinator and pool file anew, while requests go on with the old ones.

        Money spent so far counts against the new caps.

        Raises:
            UserError: what is wrong with them; the old ones stay.
        """
        async with self._loading:
            coordinator, pool = self._from
            if coordinator is None or pool is None:
                raise UserError("this service was not loaded from files and cannot be loaded anew")
            settings = _read(pool)
            chooser = await asyncio.to_thread(Chooser.load, coordinator, settings.serving)
            old, journal = self.engine, self.engine.pool.journal
            try:
                connected = await build_pool(fitted(settings, chooser.names), journal, settings.budget, need_all=False)
            except BaseException:
                chooser.close()
                raise
            # One ledger for both pools, as long as there are two: caps hold at every moment.
            connected.ledger = old.pool.ledger
            connected.ledger.recap(settings.budget)
            self.engine = _engine(chooser, connected, settings.serving)
            self.traces.most = settings.serving.traces
            self.metrics.reloads.inc()
            if self._users[id(old)]:
                self._retired[id(old)] = old
            else:
                del self._users[id(old)]
                self._leave(old)

    def _leave(self, engine: Engine) -> None:
        """Let an engine go that nobody uses; nobody waits for it either."""
        task = asyncio.create_task(_left(engine))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Free everything; requests are over by then."""
        for engine in self._retired.values():
            self._leave(engine)
        await asyncio.gather(*self._leaving)
        self.engine.chooser.close()
        await self.engine.pool.close()


def fitted(settings: PoolFile, names: tuple[str, ...]) -> PoolSettings:
    """The pool in the coordinator's order, with a server's patience.

    Raises:
        UserError: it has not the models that the coordinator chooses among, or they cannot be served.
    """
    pool = settings.pool
    if pool.kind != "endpoints":
        raise UserError(
            f"pool.kind: expected endpoints, got {pool.kind}: its models know the questions of a run alone; "
            "python -m trinity_jax.pool.simulated_server is an endpoint without keys"
        )
    have = {model.name: model for model in pool.models}
    if set(have) != set(names):
        raise UserError(f"pool: the coordinator chooses among {', '.join(names)}, the file has {', '.join(have)}")
    if settings.serving.fallback not in (None, *names):
        raise UserError(f"serving.fallback: expected one of {', '.join(names)}, got {settings.serving.fallback!r}")
    patience = settings.serving.patience_seconds

    def hasty(model: ModelSettings) -> ModelSettings:
        return model.model_copy(update={"patience_seconds": min(model.patience_seconds, patience)})

    return pool.model_copy(update={"models": tuple(hasty(have[name]) for name in names)})


def _read(pool: Path | PoolFile) -> PoolFile:
    return pool if isinstance(pool, PoolFile) else parse(read(pool), str(pool), PoolFile)


def _engine(chooser: Chooser, pool: Pool, settings: ServingSettings) -> Engine:
    name = settings.fallback or chooser.coordinator.description.fallback
    return Engine(chooser, pool, settings, chooser.names.index(name) if name in chooser.names else None)


async def _left(engine: Engine) -> None:
    engine.chooser.close()
    await engine.pool.hang_up()
