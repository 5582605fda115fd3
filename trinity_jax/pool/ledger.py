"""Hard caps on calls and money: what a call may cost at worst is set aside before it is sent."""

import asyncio
import math

from trinity_jax.config import BudgetSettings, PriceSettings
from trinity_jax.pool.reply import Message

_PER_TOKENS = 1_000_000
_TEMPLATE_TOKENS = 16


def price_of(price: PriceSettings, input_tokens: int, output_tokens: int) -> float:
    """Cost of one call: prices are per million tokens."""
    return (price.input * input_tokens + price.output * output_tokens) / _PER_TOKENS


def most_input_tokens(messages: tuple[Message, ...]) -> int:
    """An upper bound without the model's tokenizer: a token holds at least one byte, a template adds a few."""
    return sum(len(m.content.encode("utf-8", "replace")) + _TEMPLATE_TOKENS for m in messages)


class Ledger:
    """Counts calls and cost against the caps of a run.

    At any time ``spent + reserved <= budget.cost`` and ``calls <= budget.calls``, provided that no call costs more than
    was reserved for it.

    Args:
        budget: the caps.
        calls: calls made before (a resumed run).
        spent: their cost.
    """

    def __init__(self, budget: BudgetSettings, calls: int = 0, spent: float = 0.0):
        self.calls = calls
        self.spent = spent
        self.reserved = 0.0
        self._budget = budget
        self.allot(0, 1)
        self._in_flight = 0
        self._settled: asyncio.Event | None = None

    def allot(self, part: int, parts: int) -> None:
        """Cap this ledger at its part of what is left, where ``parts`` of them that know the same past spend at once.

        Of C calls left, ``C // parts`` are each one's, and one more for the first ``C % parts``; of the money left, one
        ``parts``-th rounded down. The parts never sum to more than what was left, so the run's caps hold without a word
        between the processes.
        """
        calls, cost = self._budget.calls, self._budget.cost
        self._part = f" (part {part} of {parts})" if parts > 1 else ""
        self._most_calls, self._most_cost = math.inf, math.inf
        if calls is not None:
            left = max(calls - self.calls, 0)
            self._most_calls = calls if parts == 1 else self.calls + left // parts + (part < left % parts)
        if cost is not None:
            left = max(cost - self.spent, 0.0)
            self._most_cost = cost if parts == 1 else self.spent + math.nextafter(left / parts, 0.0)

    async def reserve(self, cost: float) -> str | None:
        """Set aside one call and its worst-case cost; returns ``None``, or why the budget refuses it.

        Where the money would suffice but is set aside for calls in flight, this waits for them rather than refuse.
        """
        while True:
            if self.calls >= self._most_calls:
                return f"budget.calls: all {self._most_calls} calls are made{self._part}"
            if self.spent + cost > self._most_cost:
                left = f"{self.spent:.6g} of {self._most_cost:.6g} spent{self._part}"
                return f"budget.cost: {left}, this call may cost {cost:.6g}"
            if self.spent + self.reserved + cost <= self._most_cost or not self._in_flight:
                self.calls += 1
                self._in_flight += 1
                self.reserved += cost
                return None
            self._settled = self._settled or asyncio.Event()
            await self._settled.wait()

    def settle(self, reserved: float, cost: float) -> None:
        """Replace what was set aside by what the call cost."""
        self._in_flight -= 1
        # Sums of floats drift; an idle ledger has nothing set aside.
        self.reserved = self.reserved - reserved if self._in_flight else 0.0
        self.spent += cost
        if self._settled is not None:
            self._settled.set()
            self._settled = None
