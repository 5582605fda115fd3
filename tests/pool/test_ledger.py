"""The caps hold: before, during and after the calls."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity_jax.config import BudgetSettings, PriceSettings
from trinity_jax.pool.ledger import Ledger, most_input_tokens, price_of
from trinity_jax.pool.reply import Message, Sampling


def test_price_is_per_million_tokens():
    assert price_of(PriceSettings(input=2.0, output=10.0), 500_000, 100_000) == pytest.approx(1.0 + 1.0)


def test_no_tokenizer_makes_more_tokens_than_bytes():
    assert most_input_tokens((Message("user", "é" * 10), Message("user", ""))) >= 20


def test_tools_and_schemas_are_input_too():
    plain, tools = Sampling(), Sampling(extra_body='{"tools": "' + 100_000 * "é" + '"}')
    message = (Message("user", "q"),)
    assert most_input_tokens(message, plain) == most_input_tokens(message)
    assert most_input_tokens(message, tools) - most_input_tokens(message) == len(tools.extra_body.encode())


def test_without_caps_nothing_is_refused():
    ledger = Ledger(BudgetSettings())
    assert asyncio.run(ledger.reserve(1e9)) is None


def test_calls_are_counted_when_they_are_sent():
    async def go():
        ledger = Ledger(BudgetSettings(calls=3), calls=1)
        return [await ledger.reserve(0.0) for _ in range(4)]

    first, second, *refused = asyncio.run(go())
    assert first is second is None
    assert refused == ["budget.calls: all 3 calls are made"] * 2


def test_money_set_aside_is_waited_for_and_money_spent_is_not():
    async def go():
        ledger = Ledger(BudgetSettings(cost=1.0))
        assert await ledger.reserve(0.6) is None
        second = asyncio.create_task(ledger.reserve(0.6))
        await asyncio.sleep(0.01)
        waited = not second.done()
        ledger.settle(0.6, 0.1)
        assert await second is None
        third = asyncio.create_task(ledger.reserve(0.6))
        await asyncio.sleep(0.01)
        ledger.settle(0.6, 0.5)
        return waited, await third, ledger

    waited, refusal, ledger = asyncio.run(go())
    assert waited
    assert refusal is not None
    assert refusal.startswith("budget.cost: 0.6 of 1 spent")
    assert (ledger.calls, ledger.reserved) == (2, 0.0)
    assert ledger.spent == pytest.approx(0.6)


def test_tokens_are_set_aside_at_their_worst_and_counted_as_reported():
    async def go():
        ledger = Ledger(BudgetSettings(tokens=100), tokens=30)
        assert await ledger.reserve(0.0, 60) is None
        second = asyncio.create_task(ledger.reserve(0.0, 60))
        await asyncio.sleep(0.01)
        waited = not second.done()
        ledger.settle(0.0, 0.0, 60, 5)
        assert await second is None
        ledger.settle(0.0, 0.0, 60, 10)
        return waited, await ledger.reserve(0.0, 60), ledger.tokens, ledger.reserved_tokens

    waited, refusal, tokens, reserved = asyncio.run(go())
    assert waited
    assert refusal == "budget.tokens: 45 of 100 used, this call may take 60"
    assert (tokens, reserved) == (45, 0)


def test_parts_of_the_tokens_sum_to_what_is_left():
    parts = []
    for part in range(3):
        ledger = Ledger(BudgetSettings(tokens=50), tokens=10)
        ledger.allot(part, 3)
        taken = 0
        while asyncio.run(ledger.reserve(0.0, 1)) is None:
            ledger.settle(0.0, 0.0, 1, 1)
            taken += 1
        parts.append(taken)
    assert parts == [14, 13, 13]


@given(
    cap=st.floats(0.1, 3.0),
    calls=st.integers(1, 30),
    jobs=st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.integers(0, 3)), max_size=40),
)
@settings(max_examples=60, deadline=None)
def test_caps_hold_at_every_moment_and_nobody_waits_for_ever(cap, calls, jobs):
    ledger = Ledger(BudgetSettings(cost=cap, calls=calls))

    async def one(worst: float, share: float, turns: int) -> bool:
        if await ledger.reserve(worst) is not None:
            return False
        for _ in range(turns):
            assert ledger.spent + ledger.reserved <= cap + 1e-9
            assert ledger.calls <= calls
            await asyncio.sleep(0)
        ledger.settle(worst, worst * share)
        return True

    async def go():
        async with asyncio.timeout(5):
            return await asyncio.gather(*(one(*job) for job in jobs))

    made = asyncio.run(go())
    assert ledger.spent <= cap + 1e-9
    assert ledger.calls == sum(made) <= calls
    if jobs and jobs[0][0] <= cap:
        assert made[0]
