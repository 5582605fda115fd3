"""A journal that keeps nothing, for calls that nobody will resume, reuse or audit."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from trinity_jax.pool.records import Totals
from trinity_jax.pool.reply import Call, Reply


class Unrecorded:
    """What a `Pool` needs of its journal (`pool.pool.Notes`): caps hold for as long as the process lives."""

    path = Path("no journal")

    def lookup(self, key: str) -> Reply | None:
        """Nothing is known."""
        return None

    async def intent(self, call: Call, reserved: float = 0.0) -> None:
        """Nothing to note."""

    async def outcome(self, call: Call, reply: Reply) -> None:
        """Nothing to note."""

    def abandon(self, call: Call) -> None:
        """Nothing to forget."""

    async def grade(self, key: str, make: Callable[[], Awaitable[str | None]]) -> str | None:
        """Made each time."""
        return await make()

    def totals(self, scope: str | None = None) -> Totals:
        """Nothing was called before."""
        return Totals(0, 0, 0, 0.0)

    def tokens(self) -> int:
        """Nothing was called before."""
        return 0

    def close(self) -> None:
        """Nothing to close."""
