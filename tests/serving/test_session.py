"""One request: caps, masks, ways out, tools, images, and what models and coordinator read."""

import asyncio
from contextlib import asynccontextmanager

import numpy as np
import pytest

from tests.serving.served import chooser, met, pool_file, service
from trinity_jax.config import BudgetSettings, PriceSettings
from trinity_jax.coordinator.familiar import Familiar
from trinity_jax.pool import simulated_server
from trinity_jax.pool.simulated_server import Latency, SimulatedServer, completion
from trinity_jax.serving import chat
from trinity_jax.serving.answer import plain, shortened
from trinity_jax.serving.chooser import Chooser
from trinity_jax.serving.refused import Refused
from trinity_jax.serving.service import Service

NOWHERE = "http://127.0.0.1:9/v1"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def asked(question: str | list = "Say 42", **fields):
    messages = [{"role": "user", "content": question}] if isinstance(question, str) else question
    return chat.read({"model": "trinity", "messages": messages, **fields}, "trinity")[0]


@asynccontextmanager
async def opened(coordinator, *script, fallback=None, familiar=None, urls=(None, None), model=None, **endpoint):
    async with SimulatedServer(*script, **endpoint) as server:
        file = pool_file([server.url if url is None else url for url in urls], **(model or {}))
        async with service(coordinator, file, fallback, familiar) as made:
            yield made, server


def play(coordinator, body, *script, **options):
    async def go():
        async with opened(coordinator, *script, **options) as (made, server):
            return await body(made, server)

    return asyncio.run(go())


@pytest.mark.parametrize("calls", [1, 2])
def test_calls_are_capped_and_there_is_an_answer_at_any_cap(coordinator, calls):
    async def body(made, server):
        answers = [await made.answer(asked(trinity={"max_calls": calls}, seed=seed)) for seed in range(12)]
        return answers, len(server.requests)

    answers, made = play(coordinator, body, accepts=0.0)
    turns = [[turn.role for turn in answer.trace.turns] for answer in answers]
    assert made == sum(map(len, turns)) == 12 * calls
    assert all("worker" in roles and answer.text for roles, answer in zip(turns, answers, strict=True))
    assert all(answer.trace.end == "calls_spent" for answer in answers)


def test_equal_seeds_choose_alike_and_others_differ(coordinator):
    async def body(made, server):
        return [
            [(turn.model, turn.role) for turn in (await made.answer(asked(seed=seed))).trace.turns]
            for seed in (*range(8), *range(8))
        ]

    turns = play(coordinator, body, accepts=1.0)
    assert turns[:8] == turns[8:]
    assert len({str(one) for one in turns}) > 2


def test_money_is_capped_before_a_call_is_made(coordinator):
    price = PriceSettings(input=0.0, output=1e6)  # one unit a token

    async def body(made, server):
        with pytest.raises(Refused, match="max_cost") as refused:
            await made.answer(asked(max_tokens=10, trinity={"max_cost": 9}))
        once = await made.answer(asked(max_tokens=10, trinity={"max_cost": 19, "max_calls": 2}, seed=1))
        return refused.value, once, len(server.requests)

    model = {"price": price, "max_tokens": 10}
    refused, once, made = play(coordinator, body, "length", "length", model=model)
    assert (refused.status, refused.param) == (400, "trinity.max_cost")
    assert once.trace.turns[0].output_tokens == 7
    assert made == len(once.trace.turns) == 2  # 7 spent, 12 left: the second fits, a third would not


def test_seconds_are_capped(coordinator):
    async def body(made, server):
        with pytest.raises(Refused) as refused:
            await made.answer(asked(trinity={"max_seconds": 0.1}))
        await asyncio.sleep(0)
        return refused.value, made.engine.pool.responders[0].limits.gate.in_flight

    refused, in_flight = play(coordinator, body, latency=Latency("constant", 5.0))
    assert (refused.status, refused.code, in_flight) == (504, "timeout", 0)


def test_a_mask_is_kept_and_a_wrong_one_refused(coordinator):
    async def body(made, server):
        answers = [await made.answer(asked(trinity={"models": ["bo"]}, seed=seed)) for seed in range(6)]
        with pytest.raises(Refused, match="ada, bo") as refused:
            await made.answer(asked(trinity={"models": ["cy"]}))
        return {turn.model for answer in answers for turn in answer.trace.turns}, refused.value.param

    assert play(coordinator, body) == ({"bo"}, "trinity.models")


def test_a_dry_run_calls_nobody_and_says_how_sure(coordinator):
    async def body(made, server):
        dry = await made.answer(asked(seed=5, trinity={"dry_run": True}))
        real = await made.answer(asked(seed=5))
        return dry, real.trace.turns[0], len(server.requests) - len(real.trace.turns)

    dry, first, calls = play(coordinator, body)
    assert calls == 0
    assert (dry.trace.would["model"], dry.trace.would["role"]) == (first.model, first.role)
    assert sum(dry.trace.would["models"].values()) == pytest.approx(1, abs=1e-5)
    assert dry.trace.would["models"][first.model] == pytest.approx(first.model_probability, abs=1e-5)
    assert dry.trace.would["roles"]["verifier"] == 0


def test_an_endpoint_that_is_down_is_stood_in_for_and_the_trace_says_so(coordinator):
    async def body(made, server):
        return [await made.answer(asked(seed=seed)) for seed in range(6)]

    answers = play(coordinator, body, urls=[NOWHERE, None], fallback="bo")
    chosen = [answer.trace for answer in answers if any(turn.model == "ada" for turn in answer.trace.turns)]
    assert chosen
    for trace in chosen:
        assert trace.fallback["model"] == "bo"
        assert trace.fallback["reason"].startswith("ada: error")
        assert [turn.outcome for turn in trace.turns if turn.model == "ada"] == [
            "error"
        ]  # once a request, not each turn
    assert all(answer.text for answer in answers)


def test_where_all_fail_there_is_a_typed_refusal(coordinator):
    async def body(made, server):
        with pytest.raises(Refused, match=r"ada: .*bo: |bo: .*ada: ") as refused:
            await made.answer(asked())
        return refused.value.status, refused.value.code

    assert play(coordinator, body, "500", "500", fallback="bo") == (502, "pool_unavailable")
    assert play(coordinator, body, "400 overflow", "400 overflow") == (400, "context_length_exceeded")
    assert play(coordinator, body, "429", "429") == (429, "rate_limit_exceeded")


def test_a_failure_after_a_response_leaves_that_response(coordinator):
    async def body(made, server):
        for seed in range(40):  # until a Worker speaks first
            server.script[:] = ["ok", "500", "500"]
            answer = await made.answer(asked(seed=seed, trinity={"max_calls": 2}))
            if answer.trace.turns[0].role == "worker":
                return answer
        raise AssertionError("no Worker came first")

    answer = play(coordinator, body)
    assert (answer.text, answer.trace.end) == ("fine", "failed")


def test_a_question_unlike_those_of_the_training_goes_to_the_best_single_model(coordinator):
    far = Familiar(np.full((2, 16), 100.0, np.float32), 1.0)

    async def body(made, server):
        foreign = await made.answer(asked([{"role": "system", "content": "S"}, {"role": "user", "content": "Say 42"}]))
        sent = server.requests[-1]["messages"]
        dry = await made.answer(asked(trinity={"dry_run": True}))
        masked = await made.answer(asked(trinity={"models": ["ada"]}))
        return foreign, sent, dry, masked

    foreign, sent, dry, masked = play(coordinator, body, fallback="bo", familiar=far)
    assert [(turn.model, turn.role) for turn in foreign.trace.turns] == [("bo", "alone")]
    assert foreign.trace.end == "fallback"
    assert foreign.trace.distance > foreign.trace.threshold == 1.0
    assert "unlike the training questions" in foreign.trace.fallback["reason"]
    assert sent == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Say 42"},
    ]  # no role's prompt
    assert dry.trace.fallback["model"] == "bo"
    assert {turn.model for turn in masked.trace.turns} == {"ada"}


def test_a_cancelled_request_stops_its_call_and_pays_its_worst(coordinator):
    async def body(made, server):
        task = asyncio.create_task(made.answer(asked()))
        await met(lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)
        ledger, kept = made.engine.pool.ledger, list(made.traces.latest(1))
        in_flight = [responder.limits.gate.in_flight for responder in made.engine.pool.responders]
        return in_flight, ledger.reserved, ledger.spent > 0, kept[0]["end"], kept[0]["turns"][0]["outcome"]

    found = play(coordinator, body, latency=Latency("constant", 30.0))
    assert found == ([0, 0], 0.0, True, "cancelled", "cancelled")


def test_tools_go_to_the_worker_and_its_calls_to_the_client(coordinator, monkeypatch):
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    monkeypatch.setitem(
        simulated_server.RESPONSES,
        "tool",
        lambda: simulated_server.web.json_response(completion(None, "tool_calls", tool_calls=[call])),
    )

    async def body(made, server):
        wanted = asked(tools=[TOOL], tool_choice="auto", trinity={"max_calls": 1})
        answer = await made.answer(wanted)
        messages = [
            {"role": "user", "content": "Add 1"},
            {"role": "assistant", "content": None, "tool_calls": list(answer.calls)},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ]
        final = await made.answer(asked(messages, tools=[TOOL], trinity={"max_calls": 1}))
        return answer, final, server.requests

    answer, final, requests = play(coordinator, body, "tool")
    assert (answer.finish, answer.calls, answer.text, answer.trace.end) == ("tool_calls", (call,), "", "tool_calls")
    assert requests[0]["tools"] == [TOOL]
    assert requests[0]["tool_choice"] == "auto"
    assert [message["role"] for message in requests[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert requests[1]["messages"][2]["tool_calls"] == [call]
    assert requests[1]["messages"][3] == {"role": "tool", "content": "2", "tool_call_id": "c1"}
    assert final.finish == "stop"


def test_only_a_worker_gets_tools_schema_and_sampling(coordinator):
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}

    async def body(made, server):
        for seed in range(8):
            await made.answer(asked(response_format=schema, tools=[TOOL], temperature=0, max_tokens=9, seed=seed))
        return server.requests

    requests = play(coordinator, body, accepts=0.0)
    workers = [one for one in requests if "You are the Worker" in one["messages"][0]["content"]]
    others = [one for one in requests if one not in workers]
    assert workers
    assert others
    for one in workers:
        assert (one["response_format"], one["tools"], one["temperature"], one["max_tokens"]) == (schema, [TOOL], 0, 9)
        assert "<idea>" not in one["messages"][0]["content"]
    for one in others:
        assert not {"response_format", "tools"} & one.keys()
        assert (one["temperature"], one["max_tokens"]) == (0.1, 4096)


def test_images_go_only_to_models_that_take_them(coordinator):
    message = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]}]

    async def taken(made, server):
        await made.answer(asked(message, trinity={"max_calls": 1}))
        return server.requests[0]["messages"][-1]["content"]

    parts = play(coordinator, taken, model={"images": True})
    assert parts[0]["text"].startswith("What is it?")
    assert parts[1] == IMAGE

    async def refused(made, server):
        with pytest.raises(Refused, match="takes images"):
            await made.answer(asked(message))

    play(coordinator, refused)


def test_the_question_is_wrapped_in_its_place(coordinator):
    messages = [
        {"role": "system", "content": "Answer in French."},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "reply"},
        {"role": "user", "content": "second"},
    ]

    async def body(made, server):
        await made.answer(asked(messages, trinity={"max_calls": 1}))
        return server.requests[0]["messages"]

    system, first, reply, second = play(coordinator, body)
    assert system["content"].startswith("You are the Worker.")
    assert system["content"].endswith("Answer in French.")
    assert (first["content"], reply["content"]) == ("first", "reply")
    assert second["content"].startswith("second\n")
    read = asked(messages).conversation.read()
    assert read == "System: Answer in French.\n\nUser: first\n\nAssistant: reply\n\nUser: second"
    assert asked("bare").conversation.read() == "bare"  # as in training


def test_the_answer_is_without_the_protocols_marks():
    assert plain("<idea>Add.</idea>\nAll in all:\n<answer>42</answer>") == "All in all:\n42"
    assert plain("<idea>42</idea>") == "42"
    assert plain("<think>hm</think>no tags") == "no tags"
    assert shortened("one\n\ntwo###three", ("###", "\n\n")) == "one"


def test_caps_of_the_pool_hold_over_a_reload_that_drops_nothing(coordinator, monkeypatch):
    monkeypatch.setattr(Chooser, "load", lambda folder, settings: chooser(folder))

    async def go():
        async with SimulatedServer(latency=Latency("constant", 0.1)) as server:
            file = pool_file([server.url] * 2).model_copy(update={"budget": BudgetSettings(calls=3)})
            made = await Service.open(coordinator, file)
            running = asyncio.create_task(made.answer(asked(trinity={"max_calls": 2}, seed=1)))
            await met(lambda: server.requests)
            await made.reload()
            assert (await running).text  # with the pool it began with
            assert (await made.answer(asked(trinity={"max_calls": 1}))).text
            with pytest.raises(Refused, match=r"budget.calls"):
                await made.answer(asked(trinity={"max_calls": 1}))
            await made.close()
            return len(server.requests)

    assert asyncio.run(go()) == 3
