"""What one endpoint can take: calls in flight, requests and tokens a minute, retries, and whether it is there at all.

Every endpoint has its own, so a slow one holds up nobody else's calls. Nothing here sends anything: a client asks
before each attempt (`Limits.enter`) and says how it went (`Limits.leave`). All waiting is for the endpoint's good; none
of it counts into a request's time limits.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from trinity_jax.config import ModelSettings
from trinity_jax.pool.ledger import most_input_tokens
from trinity_jax.pool.reply import Call

_START = 64
_ROUND = 32
_TOLERATED = 1 / 8
_LARGEST_CUT = 0.5
_REGAINED = 1 / 8
_BURST_SECONDS = 5.0
_RETRY_SHARE = 0.5
_RETRY_ALLOWANCE = 256.0
_FAILURES = 10
_COOL_DOWN_SECONDS = 5.0
_BYTES_PER_TOKEN = 4
_DESCRIPTORS = 65_536


class GivenUp(Exception):  # noqa: N818 (a call's end, not an error of this program)
    """A call waited as long as it may, and its endpoint still takes none."""


class Gate:
    """How many calls may be in flight: grows while things go well, shrinks on push-back (AIMD), never stops.

    The limit starts at ``min(64, ceiling)``. While calls wait for it, each answer raises it by three until the first
    cut. Later a round of answers wins back an eighth of what lies between the limit and its peak, where it stood before
    the cut, and each answer adds a thirty-second: a disturbance that cut several times in a row is got over in some
    rounds, not in thousands of calls. A peak that was too high comes down at each cut, by half of what it was too high
    times the share of answers that were good: where all are refused nothing is learned of what the endpoint takes in
    better times (after TCP's CUBIC). A round is as many answers as the limit, at least 32. Push-back from more than an
    eighth of a round cuts the limit by the share that was pushed back, at most by half: that share is what was too
    much. Calls sent before a cut have no say after it, so one burst cuts once. A few stray 429 or time-outs cut
    nothing: by the textbook rule (halve at each) five in a hundred would hold the limit near 1.2/sqrt(0.05) = 6,
    whatever the endpoint can take.

    Callers are let in in the order of arrival.

    Attributes:
        limit: calls that may be in flight; its whole part counts.
        in_flight: calls that are.
    """

    def __init__(self, ceiling: int):
        self.limit: float = min(_START, ceiling)
        self.in_flight = 0
        self._ceiling = ceiling
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._rising = True
        self._peak = 0.0
        self._round = 0
        self._answers = 0
        self._pushed = 0

    async def enter(self) -> int:
        """Wait for a place; returns the round in which it was given, to be handed to `leave`."""
        if self._waiting or self.in_flight >= int(self.limit):
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self.leave(self._round, None)  # it had just been given
                else:
                    self._waiting.remove(place)
                raise
        else:
            self.in_flight += 1
        return self._round

    def leave(self, round_: int, pushed: bool | None) -> None:
        """Give the place back.

        Args:
            round_: what `enter` returned.
            pushed: whether the endpoint pushed back (429, time-out); None where nothing was learned of it.
        """
        self.in_flight -= 1
        if pushed is not None and round_ == self._round:
            self._learn(pushed)
        while self._waiting and self.in_flight < int(self.limit):
            place = self._waiting.popleft()
            if not place.done():
                self.in_flight += 1
                place.set_result(None)

    def _learn(self, pushed: bool) -> None:
        self._answers += 1
        self._pushed += pushed
        size = max(self.limit, _ROUND)
        if self._pushed > _TOLERATED * size:
            good = 1 - self._pushed / self._answers
            self._peak = max(self.limit, self._peak - good * (self._peak - self.limit) / 2)
            self.limit = max(1.0, self.limit * max(_LARGEST_CUT, good))
            self._rising = False
            self._round += 1
            self._answers = self._pushed = 0
            return
        if not pushed and self._waiting:
            regained = _REGAINED * max(self._peak - self.limit, 0.0) / size
            step = 3.0 if self._rising else 1 / _ROUND + regained
            self.limit = min(float(self._ceiling), self.limit + step)
        if self._answers >= size:
            self._answers = self._pushed = 0


class Rate:
    """At most so much a minute, evenly, with a burst of five seconds' worth (a leaky bucket that may go into debt).

    A take is let in once earlier ones are paid off, whatever its size, so one that is larger than the burst only makes
    the next ones wait longer. First come, first served.
    """

    def __init__(self, per_minute: float):
        self._seconds_each = 60.0 / per_minute
        self._free_at = -_BURST_SECONDS
        self._turn = asyncio.Lock()

    async def take(self, amount: float) -> None:
        """Wait until ``amount`` may go."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            while (wait := self._free_at - loop.time()) > 0:  # noqa: ASYNC110 (what `give` hands back shortens it)
                await asyncio.sleep(wait)
            self._free_at = max(self._free_at, loop.time() - _BURST_SECONDS) + amount * self._seconds_each

    def give(self, amount: float) -> None:
        """Hand back what was taken and not used (negative: what was used beyond)."""
        self._free_at -= amount * self._seconds_each


class Retries:
    """Retries are at most half as many as calls in the long run, beyond a first 256 and one a second.

    What is over that waits: a server that fails more often is not asked more often for it, and no call is lost by it.
    """

    def __init__(self) -> None:
        self._left = _RETRY_ALLOWANCE
        self._counted_at: float | None = None
        self._turn = asyncio.Lock()

    def called(self) -> None:
        """A call has begun."""
        self._left = min(self._left + _RETRY_SHARE, _RETRY_ALLOWANCE)

    async def take(self) -> None:
        """Wait until one more retry may be made."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            self._count(loop.time())
            while self._left < 1:
                await asyncio.sleep(min(1 - self._left, 0.25))
                self._count(loop.time())
            self._left -= 1

    def _count(self, now: float) -> None:
        elapsed = 0.0 if self._counted_at is None else now - self._counted_at
        self._left, self._counted_at = min(self._left + elapsed, _RETRY_ALLOWANCE), now


class Circuit:
    """Open, after ten connections failed in a row, until one succeeds: every five seconds one call tries for all.

    Others wait meanwhile. To fail them at once would lose an episode each, and the endpoint is spared either way; how
    long a call waits is its own patience.
    """

    def __init__(self, failures: int = _FAILURES, cool_down: float = _COOL_DOWN_SECONDS):
        self._most, self._cool_down = failures, cool_down
        self._failures = 0
        self._next_try = 0.0
        self._trying = False
        self._changed = asyncio.Event()

    @property
    def open(self) -> bool:
        """Whether calls wait."""
        return self._failures >= self._most

    @property
    def resting(self) -> bool:
        """Whether a call that comes now would wait: open, and the next try is under way or not yet due."""
        return self.open and (self._trying or asyncio.get_running_loop().time() < self._next_try)

    async def enter(self) -> bool:
        """Wait until a call may go; returns whether it tries for all, to be handed to `leave`."""
        loop = asyncio.get_running_loop()
        while self.open:
            wait = self._next_try - loop.time()
            if wait <= 0 and not self._trying:
                self._trying = True
                return True
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait if wait > 0 else None):
                    await self._changed.wait()
        return False

    def leave(self, trying: bool, reached: bool | None) -> None:
        """Say whether the endpoint was reached; None where that was not learned."""
        was_open = self.open
        if trying:
            self._trying = False
        if reached:
            self._failures = 0
        elif reached is False:
            self._failures += 1
            # Calls that were under way when it opened do not put the next try off.
            if trying or self._failures == self._most:
                self._next_try = asyncio.get_running_loop().time() + self._cool_down
        if was_open and (trying or not self.open):
            self._changed.set()


class Pass(NamedTuple):
    """One attempt's leave to go; ``waited`` seconds for an endpoint that could not be reached."""

    round: int
    trying: bool
    tokens: float
    waited: float


class Limits:
    """All limits of one endpoint.

    Attributes:
        gate: calls in flight.
        circuit: whether it is there.
    """

    def __init__(self, settings: ModelSettings):
        self.gate = Gate(settings.concurrency)
        self.circuit = Circuit()
        self._retries = Retries()
        self._requests = Rate(settings.requests_per_minute) if settings.requests_per_minute else None
        self._tokens = Rate(settings.tokens_per_minute) if settings.tokens_per_minute else None

    def called(self) -> None:
        """A call has begun; the retry budget counts them."""
        self._retries.called()

    async def retry(self, wait: float, patience: float) -> float:
        """Wait before one more attempt: ``wait`` seconds at least, and until the retry budget has one; returns seconds.

        Raises:
            GivenUp: that takes more than ``patience`` seconds; at once where it is known beforehand.
        """
        if wait > patience:
            raise GivenUp(f"the next attempt is due in {wait:.0f} s")
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            async with asyncio.timeout(patience):
                await asyncio.sleep(wait)
                await self._retries.take()
        except TimeoutError:
            raise GivenUp("too many retries at this endpoint") from None
        return loop.time() - start

    async def enter(self, call: Call, patience: float) -> Pass:
        """Wait until an attempt may be sent: the circuit, then a place in the gate, then the rates.

        Args:
            call: what is to be sent; its tokens are guessed (all it may generate), and `leave` puts that right.
            patience: seconds to wait for an endpoint that cannot be reached. Waiting for one's turn has no limit.

        Raises:
            GivenUp: it could not be reached for that long.
        """
        trying, waited = False, 0.0
        while True:
            if self.circuit.open:
                trying, took = await self._reachable(patience - waited)
                waited += took
            try:
                round_ = await self.gate.enter()
            except BaseException:
                self.circuit.leave(trying, None)
                raise
            if trying or not self.circuit.open:
                break
            self.gate.leave(round_, None)  # it opened while this call waited for a place
        tokens = 0.0
        if self._tokens:
            tokens = most_input_tokens(call.messages, call.sampling) / _BYTES_PER_TOKEN + call.sampling.max_tokens
        passed = Pass(round_, trying, tokens, waited)
        try:
            if self._requests:
                await self._requests.take(1.0)
            if self._tokens:
                await self._tokens.take(tokens)
        except BaseException:
            self.leave(passed)
            raise
        return passed

    async def _reachable(self, patience: float) -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            async with asyncio.timeout(patience):
                trying = await self.circuit.enter()
        except TimeoutError:
            raise GivenUp(f"it cannot be reached: {_FAILURES} connections in a row failed, then every try") from None
        return trying, loop.time() - start

    def leave(
        self, passed: Pass, *, reached: bool | None = None, pushed: bool | None = None, used: float | None = None
    ) -> None:
        """Say how the attempt went.

        Args:
            passed: what `enter` returned.
            reached: whether there was a connection that held; None where that was not learned.
            pushed: whether the endpoint pushed back (429, time-out); None where that was not learned.
            used: the tokens it took; None where they are not known and the guess has to stand.
        """
        self.circuit.leave(passed.trying, reached)
        self.gate.leave(passed.round, pushed)
        if self._tokens and used is not None:
            self._tokens.give(passed.tokens - used)


def raise_descriptor_limit() -> None:
    """Let this process hold as many connections as the system allows it, up to 65,536."""
    try:
        import resource
    except ImportError:  # no such limit on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
