"""Hard caps on calls, money and tokens: what a call may take at worst is set aside before it is sent."""

import asyncio
import math

from trinity_jax.config import BudgetSettings, PriceSettings
from trinity_jax.pool.reply import Message, RichMessage, Sampling

_PER_TOKENS = 1_000_000
_TEMPLATE_TOKENS = 16
_IMAGE_TOKENS = 16_384  # more than any provider counts for one picture


def price_of(price: PriceSettings, input_tokens: int, output_tokens: int) -> float:
    """Cost of one call: prices are per million tokens."""
    return (price.input * input_tokens + price.output * output_tokens) / _PER_TOKENS


def most_input_tokens(messages: tuple[Message, ...], sampling: Sampling | None = None) -> int:
    """An upper bound without the model's tokenizer: a token holds at least one byte, a template adds a few.

    Of ``sampling`` its ``extra_body`` counts, where there is one: tools and schemas are read, and billed, as input.
    """
    extra = "{}" if sampling is None else sampling.extra_body
    more = 0 if extra == "{}" else len(extra.encode("utf-8", "replace"))
    return sum(_most(message) for message in messages) + more


def _most(message: Message) -> int:
    most = len(message.content.encode("utf-8", "replace")) + _TEMPLATE_TOKENS
    if isinstance(message, RichMessage):
        # An image's bytes are no tokens; of other fields (tool calls) each byte may be one.
        most += message.images * _IMAGE_TOKENS or len(message.fields)
    return most


class Ledger:
    """Counts calls, cost and tokens against the caps of a run.

    At any time ``spent + reserved <= budget.cost``, ``tokens + reserved_tokens <= budget.tokens`` and
    ``calls <= budget.calls``, provided that no call takes more than was reserved for it. Tokens are those that replies
    report: what an attempt took that broke off before its reply is not known, and counts in money only.

    Args:
        budget: the caps.
        calls: calls made before (a resumed run).
        spent: their cost.
        tokens: their tokens, in and out.
    """

    def __init__(self, budget: BudgetSettings, calls: int = 0, spent: float = 0.0, tokens: int = 0):
        self.calls = calls
        self.spent = spent
        self.tokens = tokens
        self.reserved = 0.0
        self.reserved_tokens = 0
        self._budget = budget
        self.allot(0, 1)
        self._in_flight = 0
        self._settled: asyncio.Event | None = None

    def allot(self, part: int, parts: int) -> None:
        """Cap this ledger at its part of what is left, where ``parts`` of them that know the same past spend at once.

        Of C calls (or tokens) left, ``C // parts`` are each one's, and one more for the first ``C % parts``; of the
        money left, one ``parts``-th rounded down. The parts never sum to more than what was left, so the run's caps
        hold without a word between the processes.
        """
        cost = self._budget.cost
        self._part = f" (part {part} of {parts})" if parts > 1 else ""
        self._most_calls = _part(self._budget.calls, self.calls, part, parts)
        self._most_tokens = _part(self._budget.tokens, self.tokens, part, parts)
        self._most_cost = math.inf
        if cost is not None:
            left = max(cost - self.spent, 0.0)
            self._most_cost = cost if parts == 1 else self.spent + math.nextafter(left / parts, 0.0)

    def recap(self, budget: BudgetSettings) -> None:
        """Other caps from now on; what was spent stays spent."""
        self._budget = budget
        self.allot(0, 1)

    async def reserve(self, cost: float, tokens: int = 0) -> str | None:
        """Set aside one call and its worst case; returns ``None``, or why the budget refuses it.

        Where it would fit but for what is set aside for calls in flight, this waits for them rather than refuse.
        """
        while True:
            refusal = self._refusal(cost, tokens)
            if refusal is not None:
                return refusal
            fits = (
                self.spent + self.reserved + cost <= self._most_cost
                and self.tokens + self.reserved_tokens + tokens <= self._most_tokens
            )
            if fits or not self._in_flight:
                self.calls += 1
                self._in_flight += 1
                self.reserved += cost
                self.reserved_tokens += tokens
                return None
            self._settled = self._settled or asyncio.Event()
            await self._settled.wait()

    def _refusal(self, cost: float, tokens: int) -> str | None:
        if self.calls >= self._most_calls:
            return f"budget.calls: all {self._most_calls} calls are made{self._part}"
        if self.spent + cost > self._most_cost:
            left = f"{self.spent:.6g} of {self._most_cost:.6g} spent{self._part}"
            return f"budget.cost: {left}, this call may cost {cost:.6g}"
        if self.tokens + tokens > self._most_tokens:
            left = f"{self.tokens} of {self._most_tokens} used{self._part}"
            return f"budget.tokens: {left}, this call may take {tokens}"
        return None

    def settle(self, reserved: float, cost: float, reserved_tokens: int = 0, tokens: int = 0) -> None:
        """Replace what was set aside by what the call took."""
        self._in_flight -= 1
        # Sums of floats drift; an idle ledger has nothing set aside.
        self.reserved = self.reserved - reserved if self._in_flight else 0.0
        self.reserved_tokens -= reserved_tokens
        self.spent += cost
        self.tokens += tokens
        if self._settled is not None:
            self._settled.set()
            self._settled = None


def _part(cap: int | None, used: int, part: int, parts: int) -> float:
    """How far a count may go: the cap, or this part's of what is left."""
    if cap is None:
        return math.inf
    left = max(cap - used, 0)
    return cap if parts == 1 else used + left // parts + (part < left % parts)
