"""Limits of one endpoint, each alone: against an endpoint played by a few lines, or a clock."""

import asyncio
import time

import pytest

from trinity_jax.config import ModelSettings
from trinity_jax.pool.limits import Circuit, Gate, GivenUp, Limits, Rate, Retries
from trinity_jax.pool.reply import Call, Message, Sampling

CALL = Call("http://127.0.0.1", "m", "worker", (Message("user", "x" * 384),), Sampling(max_tokens=100))


def limits(**changes) -> Limits:
    return Limits(ModelSettings.model_validate({"name": "m", "model": "m", "base_url": "http://x/v1"} | changes))


def use(gate: Gate, calls: int, refuse, seconds=0.0):
    """Play calls through a gate until none is refused; returns how many refusals there were and the most in flight."""

    async def go():
        working = most = refusals = 0

        async def call():
            nonlocal working, most, refusals
            while True:
                round_ = await gate.enter()
                working += 1
                most = max(most, working)
                pushed = refuse(working)
                await asyncio.sleep(0 if pushed else seconds)
                working -= 1
                gate.leave(round_, pushed)
                if not pushed:
                    return
                refusals += 1
                await asyncio.sleep(0.001)

        await asyncio.gather(*(call() for _ in range(calls)))
        return refusals, most

    return asyncio.run(go())


def test_the_gate_grows_while_nothing_pushes_back_and_keeps_its_ceiling():
    gate = Gate(200)
    assert gate.limit == 64
    refusals, most = use(gate, 2000, lambda working: False, 0.001)
    assert (refusals, most, gate.limit, gate.in_flight) == (0, 200, 200, 0)


def test_the_gate_of_a_small_ceiling_starts_there():
    assert Gate(3).limit == 3


@pytest.mark.parametrize("slots", [4, 24, 96])
def test_the_gate_finds_what_an_endpoint_takes(slots):
    gate = Gate(1024)
    refusals, _ = use(gate, 3000, lambda working: working > slots, 0.002)
    assert slots / 3 <= gate.limit <= 1.5 * slots + 1
    # Blind repeats are refused more often than they succeed.
    assert refusals < 3000 / 4


def test_stray_refusals_do_not_close_the_gate():
    gate = Gate(512)
    count = iter(range(10**6))
    use(gate, 4000, lambda working: next(count) % 17 == 0, 0.001)
    assert gate.limit == 512


def test_one_burst_cuts_once():
    async def go():
        gate = Gate(64)
        rounds = [await gate.enter() for _ in range(64)]
        for round_ in rounds:
            gate.leave(round_, True)
        return gate.limit

    assert asyncio.run(go()) == 32


def test_a_disturbance_is_got_over_in_few_calls():
    gate = Gate(512)
    use(gate, 2000, lambda working: False, 0.001)
    # The endpoint refuses everything for a while.
    limits = []
    use(gate, 300, lambda working: limits.append(gate.limit) or len(limits) < 1500, 0.001)
    assert min(limits) < 512 / 64
    # By a thirty-second an answer it would take fifteen thousand calls.
    use(gate, 3000, lambda working: False, 0.001)
    assert gate.limit > 512 * 3 / 4


def test_callers_enter_in_order_and_one_that_is_cancelled_gives_its_place_on():
    async def go():
        gate, order = Gate(1), []
        held = await gate.enter()

        async def call(name):
            round_ = await gate.enter()
            order.append(name)
            gate.leave(round_, None)

        calls = [asyncio.create_task(call(name)) for name in range(4)]
        await asyncio.sleep(0)
        calls[1].cancel()
        gate.leave(held, None)  # the place is calls[0]'s now, and it has not run yet
        calls[0].cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return order, gate.in_flight

    assert asyncio.run(go()) == ([2, 3], 0)


def test_a_rate_is_even_after_its_burst():
    async def go():
        rate, start = Rate(6000), time.monotonic()  # 100 a second: a burst of 500 or so
        for _ in range(530):
            await rate.take(1)
        return time.monotonic() - start

    assert 0.25 < asyncio.run(go()) < 1.0


def test_a_rate_takes_back_what_was_not_used():
    async def go():
        rate, start = Rate(6000), time.monotonic()
        for _ in range(4):
            await rate.take(5000)  # 50 s each, far beyond the burst
            rate.give(5000)
        return time.monotonic() - start

    assert asyncio.run(go()) < 0.5


def test_tokens_are_guessed_and_put_right():
    async def go():
        one = limits(tokens_per_minute=60 * 200, patience_seconds=0)
        start = time.monotonic()
        for _ in range(20):
            # (384 + 16)/4 for the prompt and 100 to generate; 10 are used.
            passed = await one.enter(CALL, 1.0)
            assert passed.tokens == 200
            one.leave(passed, reached=True, pushed=False, used=10)
        return time.monotonic() - start

    assert asyncio.run(go()) < 0.5  # 20 s if the guess stood


def test_the_retry_budget_delays_and_follows_the_calls():
    async def go():
        retries = Retries()
        for _ in range(256):
            await retries.take()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await retries.take()
        for _ in range(4):
            retries.called()
        async with asyncio.timeout(0.05):
            await asyncio.gather(retries.take(), retries.take())

    asyncio.run(go())


def test_the_circuit_opens_lets_one_try_and_closes():
    async def go():
        circuit = Circuit(failures=3, cool_down=0.05)
        for _ in range(3):
            assert not await circuit.enter()
            circuit.leave(False, False)
        assert circuit.open
        start = time.monotonic()
        waiting = [asyncio.create_task(circuit.enter()) for _ in range(5)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [True]
        assert time.monotonic() - start >= 0.04
        circuit.leave(True, False)  # still down: another one tries, a cool-down later
        again, rest = await asyncio.wait(set(waiting) - done, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in again] == [True]
        assert time.monotonic() - start >= 0.09
        circuit.leave(True, True)
        assert [await task for task in rest] == [False] * 3
        assert not circuit.open

    asyncio.run(go())


def test_a_try_that_is_cancelled_is_passed_on():
    async def go():
        circuit = Circuit(failures=1, cool_down=0.0)
        circuit.leave(False, False)
        assert await circuit.enter()
        other = asyncio.create_task(circuit.enter())
        await asyncio.sleep(0.01)
        assert not other.done()
        circuit.leave(True, None)
        assert await other

    asyncio.run(go())


def test_failures_must_be_in_a_row():
    circuit = Circuit(failures=2)
    for reached in (False, True, None) * 5:
        circuit.leave(False, True if reached is None else reached)
    assert not circuit.open


def test_patience_ends_the_wait_for_an_endpoint_that_is_down():
    async def go():
        one = limits()
        for _ in range(10):
            one.leave(await one.enter(CALL, 1.0), reached=False)
        with pytest.raises(GivenUp, match="cannot be reached"):
            await one.enter(CALL, 0.02)
        assert one.gate.in_flight == 0

    asyncio.run(go())


def test_a_long_wait_is_refused_at_once():
    async def go():
        with pytest.raises(GivenUp, match="due in 3600 s"):
            await limits().retry(3600.0, 300.0)

    asyncio.run(go())
