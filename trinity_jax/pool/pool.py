"""The pool as a run sees it: one call in, one reply out; equal calls are made once, all are journaled."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import aiohttp

from trinity_jax.config import BudgetSettings, ModelSettings, PoolSettings, PriceSettings
from trinity_jax.errors import UserError
from trinity_jax.pool.client import endpoint_responders, open_session, sampling_of
from trinity_jax.pool.ledger import Ledger, most_input_tokens, price_of
from trinity_jax.pool.prices import priced
from trinity_jax.pool.recorded import recorded_models
from trinity_jax.pool.records import Totals
from trinity_jax.pool.reply import Call, Message, Outcome, Reply, Responder, Sampling

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seat:
    """How one model of the pool is addressed, sampled and priced.

    ``attempts`` bounds how often a call is billed; ``images`` says whether the model takes them.
    """

    endpoint: str
    model: str
    sampling: Sampling = field(default_factory=Sampling)
    price: PriceSettings = field(default_factory=PriceSettings)
    attempts: int = 1
    images: bool = False

    def worst_cost(self, messages: tuple[Message, ...]) -> float:
        """What a call can cost at most: every attempt billed, every token generated."""
        if not self.price.input and not self.price.output:
            return 0.0
        sent = most_input_tokens(messages, self.sampling)
        return self.attempts * price_of(self.price, sent, self.sampling.max_tokens)

    def most_tokens(self, messages: tuple[Message, ...]) -> int:
        """What a reply can report at most."""
        return most_input_tokens(messages, self.sampling) + self.sampling.max_tokens


class Notes(Protocol):
    """What a pool needs of its journal: `pool.journal.Journal`, or `pool.unrecorded.Unrecorded` that keeps nothing."""

    path: Path

    def lookup(self, key: str) -> Reply | None:
        """The first gradable reply to the call with this key, if there is one."""
        ...

    async def intent(self, call: Call, reserved: float = 0.0) -> None:
        """A call is about to be sent, and what it may cost at worst."""
        ...

    async def outcome(self, call: Call, reply: Reply) -> None:
        """How the call ended."""
        ...

    def abandon(self, call: Call) -> None:
        """The call ended without a reply."""
        ...

    async def grade(self, key: str, make: Callable[[], Awaitable[str | None]]) -> str | None:
        """The grade under a key, made once where anything is kept."""
        ...

    def totals(self, scope: str | None = None) -> Totals:
        """What was sent and spent, earlier processes included."""
        ...

    def tokens(self) -> int:
        """Tokens as the budget counts them."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


Noted = TypeVar("Noted", bound=Notes)


@dataclass
class Counters:
    """What this process asked for and paid. ``asked == made + shared + reused + refused``.

    ``asked`` are the calls that would have been made without sharing, ``shared`` joined an equal call in flight,
    ``reused`` came from the journal or repeated a failure, ``refused`` did not fit the budget. Tokens and cost are
    those of calls made.
    """

    asked: int = 0
    made: int = 0
    shared: int = 0
    reused: int = 0
    refused: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    outcomes: Counter[Outcome] = field(default_factory=Counter)

    @property
    def failures(self) -> dict[Outcome, int]:
        """Calls that could not be graded, by outcome (refused ones included)."""
        return {outcome: count for outcome, count in self.outcomes.items() if not outcome.gradable}


class Pool(Generic[Noted]):
    """L models behind one door.

    Args:
        responders: who answers, in head order; closed with the pool.
        journal: where calls are noted and looked up; closed with the pool.
        ledger: the caps.
        seats: address, sampling and price of each model, in the same order.
        session: the responders' HTTP session, if they share one; closed with the pool.
        judge: number of the model that grades what only a reader can.
    """

    def __init__(
        self,
        responders: Sequence[Responder],
        journal: Noted,
        ledger: Ledger,
        seats: Sequence[Seat],
        session: aiohttp.ClientSession | None = None,
        judge: int | None = None,
    ):
        if len(responders) != len(seats):
            raise ValueError(f"expected one seat for each of {len(responders)} responders, got {len(seats)}")
        self.responders = tuple(responders)
        self.journal = journal
        self.ledger = ledger
        self.seats = tuple(seats)
        self.judge = judge
        self.counters = Counters()
        self._session = session
        self._in_flight: dict[str, asyncio.Task[Reply]] = {}
        self._failed: dict[str, Reply] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The models' names in head order."""
        return tuple(responder.name for responder in self.responders)

    async def call(
        self, model: int, role: str, messages: Sequence[Message], *, scope: str, repeat: int = 0, occurrence: int = 0
    ) -> Reply:
        """Ask model number ``model``; whatever goes wrong at the server is an outcome, not an exception.

        A caller that is cancelled leaves an equal call of others alone, and what was paid for reaches the journal. A
        call that failed stays failed until `forget_failures`: whether others share its luck must not depend on who asks
        a moment sooner, and a dead endpoint is not asked once per candidate.
        """
        if not 0 <= model < len(self.seats):
            # Deciders know L; only a recorded decision may say anything.
            raise UserError(f"{self.journal.path}: a decision names model {model}, but the pool has {len(self.seats)}")
        seat = self.seats[model]
        call = Call(seat.endpoint, seat.model, role, tuple(messages), seat.sampling, scope, repeat, occurrence)
        key = call.key()
        self.counters.asked += 1
        task = self._in_flight.get(key)
        if task is not None:
            self.counters.shared += 1
        else:
            known = self._failed.get(key) or self.journal.lookup(key)
            if known is not None:
                self.counters.reused += 1
                return known
            task = asyncio.create_task(self._make(call, model, seat))
            self._in_flight[key] = task
            task.add_done_callback(lambda done: self._settled(key, done))
        return await asyncio.shield(task)

    async def call_alone(
        self,
        model: int,
        role: str,
        messages: Sequence[Message],
        *,
        scope: str,
        sampling: Sampling,
        occurrence: int = 0,
        reserved: Callable[[float], None] | None = None,
    ) -> Reply:
        """Ask model number ``model`` for one caller alone: never shared, never looked up, cancelled with its caller.

        Args:
            model: number of the model.
            role: as what it speaks.
            messages: what it reads.
            scope: the caller's own, so that no call has the identity of another.
            sampling: in place of the seat's.
            occurrence: how many equal calls the caller made before.
            reserved: told what is set aside for the call before it is sent; that is what it costs if it is cancelled.
        """
        seat = replace(self.seats[model], sampling=sampling)
        call = Call(seat.endpoint, seat.model, role, tuple(messages), sampling, scope, 0, occurrence)
        self.counters.asked += 1
        return await self._make(call, model, seat, reserved)

    def forget_failures(self) -> None:
        """Let calls that failed be tried again."""
        self._failed.clear()

    async def _make(self, call: Call, model: int, seat: Seat, reserved: Callable[[float], None] | None = None) -> Reply:
        worst, most = seat.worst_cost(call.messages), seat.most_tokens(call.messages)
        refusal = await self.ledger.reserve(worst, most)
        if refusal is not None:
            self.counters.refused += 1
            reply = Reply(Outcome.REFUSED_BUDGET, attempts=0, detail=refusal)
        else:
            cost, tokens = worst, most
            if reserved is not None:
                reserved(worst)
            try:
                await self.journal.intent(call, worst)
                reply = await self.responders[model].reply(call)
                cost, tokens = reply.cost, reply.input_tokens + reply.output_tokens
                await self.journal.outcome(call, reply)
            except BaseException:
                self.journal.abandon(call)
                raise
            finally:
                self.ledger.settle(worst, cost, most, tokens)
            self.counters.made += 1
        self.counters.input_tokens += reply.input_tokens
        self.counters.output_tokens += reply.output_tokens
        self.counters.cost += reply.cost
        self.counters.outcomes[reply.outcome] += 1
        return reply

    def _settled(self, key: str, task: "asyncio.Task[Reply]") -> None:
        self._in_flight.pop(key, None)
        if not task.cancelled() and task.exception() is None and not task.result().outcome.gradable:
            self._failed[key] = task.result()

    async def close(self) -> None:
        """Stop what is in flight, free connections, flush the journal."""
        await self.hang_up()
        self.journal.close()

    async def hang_up(self) -> None:
        """Stop what is in flight and free connections; the journal stays open, for a pool that takes this place."""
        tasks = tuple(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(responder.close() for responder in self.responders))
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> "Pool[Noted]":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def build_pool(
    settings: PoolSettings,
    journal: Noted,
    budget: BudgetSettings,
    simulated: Sequence[Responder] = (),
    need_all: bool = True,
) -> Pool[Noted]:
    """The pool of a run; endpoints are checked before anything is sent to them.

    Where the journal holds calls already, a run's are not: one that finds all its calls there needs no network.

    Args:
        settings: who can be called.
        journal: what earlier processes of this run spent counts against the budget.
        budget: hard caps.
        simulated: the simulated models where ``settings.kind`` says so, in head order.
        need_all: whether one endpoint that does not answer is one too many, as for a run; else, for a server, it is
            logged, unless none answers.

    Raises:
        UserError: an endpoint that does not answer or refuses the key, a missing key, a bad address, a price that is
            not known, a recorded journal that cannot be read.
    """
    before = journal.totals()
    judge = None if settings.judge is None else settings.names.index(settings.judge)
    ledger = Ledger(budget, before.calls, before.cost, journal.tokens())
    if settings.kind == "simulated":
        seats = [Seat("simulated", model.name, price=model.price) for model in settings.simulated]
        return Pool(simulated, journal, ledger, seats, judge=judge)
    if settings.kind == "recorded":
        # Nothing is billed, so nothing is set aside; what the replies once cost is counted.
        seats = [Seat("simulated", model.name) for model in settings.simulated]
        seats += [Seat(address(model), model.model, sampling_of(model)) for model in settings.models]
        return Pool(recorded_models(settings), journal, ledger, seats, judge=judge)
    models = priced(settings, budget)
    session = open_session()
    try:
        clients = endpoint_responders(models, session)
        if not before.calls or not need_all:
            checks = await asyncio.gather(*(client.check() for client in clients), return_exceptions=True)
            missing = [fault for fault in checks if fault is not None]
            if missing and (need_all or len(missing) == len(clients)):
                raise missing[0]
            for fault in missing:
                _log.warning("%s", fault)
    except BaseException:
        await session.close()
        raise
    seats = [Seat(address(m), m.model, sampling_of(m), m.price, m.attempts, m.images) for m in models]
    return Pool(clients, journal, ledger, seats, session, judge)


def address(model: ModelSettings) -> str:
    """The endpoint as it stands in a call's identity."""
    return model.base_url.rstrip("/")
