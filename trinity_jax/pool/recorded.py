"""A pool that answers from a journal and nothing else: no connection, no key, no cost, the same replies again."""

from collections.abc import Sequence

from trinity_jax.config import PoolSettings
from trinity_jax.errors import UserError
from trinity_jax.pool.explain import explain
from trinity_jax.pool.records import Records
from trinity_jax.pool.reply import Call, Reply, Responder


class _Source:
    """The journal that all recorded models share; the first call that it lacks is explained once, for all who miss."""

    def __init__(self, records: Records, users: int):
        self.records = records
        self._users = users
        self._missing: UserError | None = None

    def reply(self, call: Call) -> Reply:
        known = self.records.lookup(call.key()) or self.records.last(call.key())
        if known is not None:
            return known
        if self._missing is None:
            why = explain(self.records, call.canonical())
            self._missing = UserError(
                f"pool.kind: recorded: {self.records.path} lacks a call that this run makes\n{why}"
            )
        raise self._missing

    def leave(self) -> None:
        self._users -= 1
        if not self._users:
            self.records.close()


class RecordedModel:
    """One model as a journal remembers it (a ``Responder``).

    A call that failed whenever it was made fails again in the same way.
    """

    def __init__(self, name: str, source: _Source):
        self.name = name
        self._source = source

    async def reply(self, call: Call) -> Reply:
        """The recorded reply.

        Raises:
            UserError: there is none; with the nearest call that there is, and how the two differ.
        """
        return self._source.reply(call)

    async def close(self) -> None:
        """Let go of the journal."""
        self._source.leave()


def recorded_models(settings: PoolSettings) -> Sequence[Responder]:
    """The models of ``settings`` in head order, answering from ``settings.journal``.

    Raises:
        UserError: it cannot be read.
    """
    assert settings.journal is not None  # PoolSettings makes sure
    source = _Source(Records.read(settings.journal), len(settings.names))
    return [RecordedModel(name, source) for name in settings.names]
