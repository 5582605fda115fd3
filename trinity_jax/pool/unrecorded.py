"""A journal that keeps nothing, for calls that nobody will resume, reuse or audit."""

from collections.abc import Iterable
from pathlib import Path

from trinity_jax.pool.journal import Journal
from trinity_jax.pool.records import DecisionKey, DecisionRow, Totals
from trinity_jax.pool.reply import Call, Reply


class Unrecorded(Journal):
    """What a `Pool` needs of its journal, with nothing behind it: caps hold for as long as the process lives."""

    def __init__(self) -> None:
        self.path = Path("no journal")
        self.writes = self.commits = 0

    def lookup(self, key: str) -> Reply | None:
        """Nothing is known."""
        return None

    def last(self, key: str) -> Reply | None:
        """Nothing is known."""
        return None

    def decisions(self, generation: int) -> dict[DecisionKey, DecisionRow]:
        """None."""
        return {}

    def record_decisions(self, rows: Iterable[DecisionRow]):
        """Not kept.

        Raises:
            NotImplementedError: always; decisions of a run need a journal.
        """
        raise NotImplementedError("decisions need a journal")

    def totals(self, scope: str | None = None) -> Totals:
        """Nothing was called before."""
        return Totals(0, 0, 0, 0.0)

    def tokens(self) -> int:
        """Nothing was called before."""
        return 0

    async def intent(self, call: Call, reserved: float = 0.0) -> None:
        """Nothing to note."""

    async def outcome(self, key: str, reply: Reply) -> None:
        """Nothing to note."""

    def close(self) -> None:
        """Nothing to close."""
