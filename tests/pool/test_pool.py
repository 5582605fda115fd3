"""The pool: equal calls are made once, known ones never, and caps hold over kills."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from trinity_jax.config import BudgetSettings, PoolSettings, PriceSettings, SimulatedModelSettings
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.ledger import Ledger, most_input_tokens
from trinity_jax.pool.pool import Pool, Seat, build_pool
from trinity_jax.pool.reply import Call, Message, Outcome, Reply, Sampling

MESSAGES = (Message("user", "q"),)
PRICE = PriceSettings(input=1.0, output=1.0)


class Counting:
    """Answers with the number of the call; ``answer`` may decide otherwise."""

    def __init__(self, name: str = "a", seconds: float = 0.0, answer: Callable[[int], Reply] | None = None):
        self.name = name
        self.calls: list[Call] = []
        self.closed = False
        self._seconds = seconds
        self._answer = answer or (lambda n: Reply(Outcome.OK, f"reply {n}", 2, 3, 0.5))

    async def reply(self, call: Call) -> Reply:
        self.calls.append(call)
        number = len(self.calls)
        await asyncio.sleep(self._seconds)
        return self._answer(number)

    async def close(self) -> None:
        self.closed = True


def pool_of(
    path: Path, *responders: Counting, budget: BudgetSettings | None = None, price: PriceSettings | None = None
):
    journal = Journal.open(path / "journal.sqlite")
    before = journal.totals()
    ledger = Ledger(budget or BudgetSettings(), before.calls, before.cost)
    seats = [Seat("here", r.name, Sampling(max_tokens=10), price or PriceSettings()) for r in responders]
    return Pool(responders, journal, ledger, seats)


def test_equal_calls_in_flight_and_later_are_made_once(tmp_path):
    responder = Counting(seconds=0.01)

    async def go():
        async with pool_of(tmp_path, responder) as pool:
            at_once = await asyncio.gather(*(pool.call(0, "worker", MESSAGES, scope="run") for _ in range(5)))
            later = await pool.call(0, "worker", list(MESSAGES), scope="run")
            return {*at_once, later}, pool.counters

    replies, counters = asyncio.run(go())
    assert replies == {Reply(Outcome.OK, "reply 1", 2, 3, 0.5)}
    assert (counters.asked, counters.made, counters.shared, counters.reused, counters.refused) == (6, 1, 4, 1, 0)
    assert (counters.input_tokens, counters.output_tokens, counters.cost) == (2, 3, 0.5)
    assert counters.failures == {}
    assert responder.closed


def test_different_calls_are_different_and_go_to_their_model(tmp_path):
    first, second = Counting("a"), Counting("b")

    async def go():
        async with pool_of(tmp_path, first, second) as pool:
            assert pool.names == ("a", "b")
            for model, role, scope, repeat, occurrence in [
                (0, "worker", "generation 1", 0, 0),
                (1, "worker", "generation 1", 0, 0),
                (0, "verifier", "generation 1", 0, 0),
                (0, "worker", "generation 2", 0, 0),
                (0, "worker", "generation 1", 1, 0),
                (0, "worker", "generation 1", 0, 1),
            ]:
                await pool.call(model, role, MESSAGES, scope=scope, repeat=repeat, occurrence=occurrence)
            return pool.counters.made

    assert asyncio.run(go()) == 6
    assert (len(first.calls), len(second.calls)) == (5, 1)
    assert second.calls == [Call("here", "b", "worker", MESSAGES, Sampling(max_tokens=10), "generation 1")]


def test_failures_are_counted_by_outcome_and_asked_again(tmp_path):
    responder = Counting(answer=lambda n: Reply(Outcome.EMPTY if n < 3 else Outcome.OK, "x" if n == 3 else ""))

    async def go():
        async with pool_of(tmp_path, responder) as pool:
            outcomes = []
            for _ in range(4):
                pool.forget_failures()
                outcomes.append((await pool.call(0, "worker", MESSAGES, scope="run")).outcome)
            return outcomes, pool.counters

    outcomes, counters = asyncio.run(go())
    assert outcomes == [Outcome.EMPTY, Outcome.EMPTY, Outcome.OK, Outcome.OK]
    assert counters.failures == {Outcome.EMPTY: 2}
    assert (counters.made, counters.reused) == (3, 1)


def test_a_failure_is_shared_with_those_who_ask_later(tmp_path):
    responder = Counting(answer=lambda n: Reply(Outcome.TIMEOUT if n == 1 else Outcome.OK, "late"))

    async def go():
        async with pool_of(tmp_path, responder) as pool:
            return [(await pool.call(0, "worker", MESSAGES, scope="run")).outcome for _ in range(3)]

    assert asyncio.run(go()) == [Outcome.TIMEOUT] * 3
    assert len(responder.calls) == 1


def test_one_who_gives_up_leaves_the_call_to_the_others(tmp_path):
    responder = Counting(seconds=0.02)

    async def go():
        async with pool_of(tmp_path, responder) as pool:
            first, second = (asyncio.create_task(pool.call(0, "worker", MESSAGES, scope="run")) for _ in range(2))
            await asyncio.sleep(0.005)
            first.cancel()
            reply = await second
            lonely = asyncio.create_task(pool.call(0, "worker", MESSAGES, scope="run", repeat=1))
            await asyncio.sleep(0.005)
            lonely.cancel()
            await asyncio.sleep(0.05)
            # Nobody waited any more, but it was paid for and is known.
            return first.cancelled(), reply.text, await pool.call(0, "worker", MESSAGES, scope="run", repeat=1)

    cancelled, text, known = asyncio.run(go())
    assert cancelled
    assert (text, known.text, len(responder.calls)) == ("reply 1", "reply 2", 2)


def test_a_large_tool_is_set_aside_as_what_it_may_cost(tmp_path):
    tools = Sampling(max_tokens=10, extra_body='{"tools": "' + 100_000 * "x" + '"}')

    async def made(budget: BudgetSettings):
        folder = tmp_path / str(budget.cost)
        folder.mkdir()
        async with pool_of(folder, Counting(), budget=budget, price=PRICE) as pool:
            return (await pool.call_alone(0, "worker", MESSAGES, scope="one", sampling=tools)).outcome

    assert asyncio.run(made(BudgetSettings(cost=0.05))) is Outcome.REFUSED_BUDGET
    assert asyncio.run(made(BudgetSettings(tokens=50_000))) is Outcome.REFUSED_BUDGET
    assert asyncio.run(made(BudgetSettings(cost=0.11, tokens=110_000))) is Outcome.OK


def test_calls_of_a_server_leave_nothing_in_memory(tmp_path):
    """Neither those that ended nor those that were cancelled; nor are a journal's keys read that nobody asks for."""

    async def go():
        async with pool_of(tmp_path, Counting(seconds=0.01)) as pool:

            async def alone(number: int):
                await pool.call_alone(0, "worker", MESSAGES, scope=str(number), sampling=Sampling())

            tasks = [asyncio.create_task(alone(number)) for number in range(20)]
            await asyncio.sleep(0.005)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            journal = pool.journal
            kept = [len(value) for value in vars(journal).values() if isinstance(value, dict | set | list)]
            return kept, journal.totals().calls, journal.lookup("no such key")

    kept, calls, unknown = asyncio.run(go())
    assert sum(kept) == 0
    assert (calls, unknown) == (20, None)


def test_a_resumed_run_pays_no_call_twice_and_keeps_its_caps(tmp_path):
    async def go(number: int, limit: int):
        responder = Counting()
        async with pool_of(tmp_path, responder, budget=BudgetSettings(calls=limit)) as pool:
            replies = [await pool.call(0, "worker", MESSAGES, scope="run", repeat=i) for i in range(number)]
            return replies, len(responder.calls), pool.counters

    first, made, _ = asyncio.run(go(3, 5))
    assert made == 3
    second, made, counters = asyncio.run(go(7, 5))
    assert made == 2
    assert second[:3] == first
    assert [reply.outcome for reply in second[3:]] == [Outcome.OK] * 2 + [Outcome.REFUSED_BUDGET] * 2
    assert (counters.asked, counters.made, counters.reused, counters.refused) == (7, 2, 3, 2)
    assert counters.failures == {Outcome.REFUSED_BUDGET: 2}
    assert second[-1].detail == "budget.calls: all 5 calls are made"


def test_money_is_set_aside_at_its_worst_and_survives_a_kill(tmp_path):
    worst = (most_input_tokens(MESSAGES) + 10) / 1e6
    cap = BudgetSettings(cost=2.5 * worst)

    async def cut_off():
        pool = pool_of(tmp_path, Counting(seconds=60), budget=cap, price=PRICE)
        task = asyncio.create_task(pool.call(0, "worker", MESSAGES, scope="run"))
        await asyncio.sleep(0.05)
        await pool.close()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def resume():
        cheap = Counting(answer=lambda n: Reply(Outcome.OK, "x", cost=worst))
        async with pool_of(tmp_path, cheap, budget=cap, price=PRICE) as pool:
            return [(await pool.call(0, "worker", MESSAGES, scope="run", repeat=i)).outcome for i in range(1, 4)]

    asyncio.run(cut_off())
    # The call that was cut off may have been billed: 1 of 2.5 is gone.
    assert asyncio.run(resume()) == [Outcome.OK, Outcome.REFUSED_BUDGET, Outcome.REFUSED_BUDGET]


def test_a_bug_in_a_responder_is_raised_to_all_who_wait_and_blocks_nothing(tmp_path):
    def broken(_: int) -> Reply:
        raise ZeroDivisionError

    async def go():
        async with pool_of(tmp_path, Counting(answer=broken)) as pool:
            calls = (pool.call(0, "worker", MESSAGES, scope="run") for _ in range(3))
            errors = await asyncio.gather(*calls, return_exceptions=True)
            return [type(error) for error in errors], pool.ledger.reserved, pool.ledger.calls

    assert asyncio.run(go()) == ([ZeroDivisionError] * 3, 0.0, 1)


def test_1024_calls_at_once(tmp_path):
    responder = Counting(seconds=0.05)

    async def go():
        async with pool_of(tmp_path, responder) as pool:
            replies = await asyncio.gather(
                *(pool.call(0, "worker", MESSAGES, scope="run", repeat=i) for i in range(1024))
            )
            return {reply.outcome for reply in replies}, len(replies), pool.journal.totals().calls, pool.journal.commits

    outcomes, number, calls, commits = asyncio.run(go())
    assert (outcomes, number, calls) == ({Outcome.OK}, 1024, 1024)
    assert commits < 200


def test_a_simulated_pool_is_built_from_its_settings(tmp_path):
    models = tuple(SimulatedModelSettings(name=name, worker={"default": 1.0}, price=PRICE) for name in ("a", "b"))

    async def go():
        journal = Journal.open(tmp_path / "journal.sqlite")
        settings = PoolSettings(kind="simulated", simulated=models)
        async with await build_pool(settings, journal, BudgetSettings(calls=1), [Counting("a"), Counting("b")]) as pool:
            await pool.call(1, "worker", MESSAGES, scope="run")
            return pool.names, pool.seats[1], (await pool.call(0, "worker", MESSAGES, scope="run")).outcome

    names, seat, outcome = asyncio.run(go())
    assert names == ("a", "b")
    assert (seat.model, seat.price, outcome) == ("b", PRICE, Outcome.REFUSED_BUDGET)


def test_seats_and_responders_go_together(tmp_path):
    with Journal.open(tmp_path / "journal.sqlite") as journal, pytest.raises(ValueError, match="1 responders, got 0"):
        Pool([Counting()], journal, Ledger(BudgetSettings()), [])
