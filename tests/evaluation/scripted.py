"""A pool whose models say what a function tells them to, and remember what they were asked."""

from collections.abc import Callable, Sequence
from pathlib import Path

from trinity_jax.config import BudgetSettings
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.ledger import Ledger
from trinity_jax.pool.pool import Pool, Seat
from trinity_jax.pool.reply import Call, Outcome, Reply

Said = str | None
"""None is a call that fails."""


class Scripted:
    """One model (a ``Responder``); every call takes 2 seconds, 10 tokens in and 5 out, and costs 1."""

    def __init__(self, name: str, say: Callable[[Call], Said]):
        self.name = name
        self.calls: list[Call] = []
        self._say = say

    async def reply(self, call: Call) -> Reply:
        self.calls.append(call)
        text = self._say(call)
        outcome = Outcome.ERROR if text is None else Outcome.OK
        return Reply(outcome, text or "", input_tokens=10, output_tokens=5, cost=1.0, seconds=2.0)

    async def close(self) -> None:
        pass


def scripted_pool(folder: Path, models: Sequence[Scripted]) -> Pool:
    return Pool(
        models,
        Journal.open(folder / "scripted.sqlite"),
        Ledger(BudgetSettings()),
        [Seat("http://models", model.name) for model in models],
    )
