"""One request: caps, masks, ways out, tools, images, and what models and coordinator read."""

import asyncio
from contextlib import asynccontextmanager, suppress

import numpy as np
import pytest

from tests.serving.served import chooser, met, pool_file, ready, service
from trinity_jax.config import BudgetSettings, PriceSettings
from trinity_jax.coordinator.familiar import Familiar
from trinity_jax.episode.episode import start
from trinity_jax.episode.transcript import view
from trinity_jax.errors import UserError
from trinity_jax.pool import simulated_server
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.simulated_server import Latency, SimulatedServer, completion
from trinity_jax.serving import chat, responses
from trinity_jax.serving.answer import plain, shortened
from trinity_jax.serving.chooser import Chooser
from trinity_jax.serving.refused import Refused
from trinity_jax.serving.service import Service
from trinity_jax.serving.trace import Trace

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


def test_where_one_model_is_too_dear_a_cheaper_one_answers(coordinator):
    async def go():
        async with SimulatedServer() as server:
            file = pool_file([server.url] * 2, max_tokens=10)
            dear = file.pool.models[0].model_copy(update={"price": PriceSettings(input=0.0, output=1e6)})
            models = file.pool.model_copy(update={"models": (dear, file.pool.models[1])})
            async with service(coordinator, file.model_copy(update={"pool": models})) as made:
                return [await made.answer(asked(trinity={"max_cost": 5}, seed=seed)) for seed in range(6)]

    answers = asyncio.run(go())
    assert {turn.model for answer in answers for turn in answer.trace.turns} == {"bo"}
    reasons = [answer.trace.fallback["reason"] for answer in answers if answer.trace.fallback]
    assert reasons
    assert all(reason.startswith("ada: max_cost: ") for reason in reasons)


def test_substitutes_are_calls_too_where_a_request_caps_them(coordinator):
    async def body(made, server):
        for seed in range(12):
            made.engine.pool.responders[0].limits.circuit._failures = 0
            with suppress(Refused):
                answer = await made.answer(asked(trinity={"max_calls": 2}, seed=seed))
                assert answer.text
        return [len(trace["turns"]) for trace in made.traces.latest(12)]

    turns = play(coordinator, body, urls=[NOWHERE, None], fallback="bo", accepts=0.0)
    assert max(turns) == 2


def test_a_dry_run_and_what_came_before_count_into_the_seconds(coordinator):
    async def body(made, server):
        for late, wishes in ((0.0, {"dry_run": True, "max_seconds": 1e-9}), (9.0, {"max_seconds": 8})):
            trace = Trace()
            trace.came -= late
            with pytest.raises(Refused) as refused:
                await made.answer(asked(trinity=wishes), trace=trace)
            assert (refused.value.status, trace.end) == (504, "seconds_spent")
            assert trace.ms >= 1e3 * late
        return len(server.requests)

    assert play(coordinator, body) == 0


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


def test_what_is_measured_is_the_last_question_bare(coordinator):
    """Neither a system message nor turns before make a training question foreign."""
    shared = ready(coordinator)
    transcript = shared.coordinator.description.episode.transcript
    tokens = [shared.router.ids(view(start(text), transcript)) for text in ("Say 42", "Say 43")]
    states = shared.population.encoder.states(tokens)
    near = Familiar(np.asarray(states, np.float32), 1e-3)
    around = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Say 1"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "Say 42"},
    ]

    async def body(made, server):
        answers = [await made.answer(asked(said)) for said in ("Say 42", around, around[:2], around[1:2])]
        return [answer.trace.distance for answer in answers]

    bare, within, *others = play(coordinator, body, fallback="bo", familiar=near)
    assert bare == within < 1e-3
    assert min(others) > 1e-3


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
        assert ledger.spent == kept[0]["cost"] > 0  # told alike
        return in_flight, ledger.reserved, kept[0]["end"], kept[0]["turns"][0]["outcome"]

    found = play(coordinator, body, latency=Latency("constant", 30.0))
    assert found == ([0, 0], 0.0, "cancelled", "cancelled")


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


def test_a_text_cut_by_stop_is_not_cut_by_length(coordinator):
    async def body(made, server):
        return [(await made.answer(asked(stop=stop, trinity={"max_calls": 1}))) for stop in (None, "f", "nowhere")]

    answers = play(coordinator, body, "length", "length", "length")
    whole = answers[0].text
    assert "f" in whole
    assert [(a.text, a.finish) for a in answers] == [
        (whole, "length"),
        (whole.partition("f")[0], "stop"),
        (whole, "length"),
    ]


def test_responses_repeat_what_was_asked_and_tell_what_was_cut(coordinator):
    tool = {"type": "function", "name": "add", "parameters": {"type": "object"}}
    request = {"model": "trinity", "input": "Say 42", "instructions": "Be brief.", "temperature": 0.5, "tools": [tool]}
    wanted, repeated = responses.read({**request, "tool_choice": "required", "trinity": {"max_calls": 1}}, "trinity")

    async def body(made, server):
        return await made.answer(wanted)

    found = responses.whole(play(coordinator, body, "length"), "trinity", repeated)
    assert {field: found[field] for field in ("instructions", "temperature", "tools", "tool_choice")} == {
        "instructions": "Be brief.",
        "temperature": 0.5,
        "tools": [tool],
        "tool_choice": "required",
    }
    assert (found["status"], found["output"][-1]["status"]) == ("incomplete", "incomplete")


def test_a_reload_takes_the_new_settings_and_waits_for_nobody(coordinator, monkeypatch):
    monkeypatch.setattr(Chooser, "load", lambda folder, settings: chooser(folder))

    async def go():
        async with SimulatedServer() as server:
            made = await Service.open(coordinator, pool_file([server.url] * 2))
            never, old = asyncio.Event(), made.engine.pool
            hang_up = old.hang_up

            async def slow():
                await never.wait()
                await hang_up()

            monkeypatch.setattr(old, "hang_up", slow)
            made._from = coordinator, pool_file([server.url] * 2, {"traces": 1})
            async with asyncio.timeout(30):
                await made.reload()
            for _ in range(2):
                await made.answer(asked(trinity={"max_calls": 1}))
            kept = len(list(made.traces.latest(9)))
            never.set()
            await made.close()
            return kept

    assert asyncio.run(go()) == 1


def test_a_server_with_a_journal_checks_its_endpoints_too(coordinator, monkeypatch, tmp_path):
    monkeypatch.setattr(Chooser, "load", lambda folder, settings: chooser(folder))

    async def go():
        async with SimulatedServer() as server:
            made = await Service.open(coordinator, pool_file([server.url] * 2), tmp_path / "j.sqlite")
            await made.answer(asked(trinity={"max_calls": 1}))
            made._from = coordinator, pool_file([NOWHERE] * 2)
            with pytest.raises(UserError, match="cannot be reached"):
                await made.reload()
            assert (await made.answer(asked(trinity={"max_calls": 1}))).text
            await made.close()

    asyncio.run(go())


def test_what_was_opened_is_closed_where_something_else_cannot_be(coordinator, monkeypatch, tmp_path):
    closed = []

    def load(folder, settings):
        made = chooser(folder)
        monkeypatch.setattr(made, "close", lambda: closed.append("chooser"))
        return made

    monkeypatch.setattr(Chooser, "load", load)
    held = Journal.open(tmp_path / "held.sqlite")
    with held, pytest.raises(UserError, match="another process"):
        asyncio.run(Service.open(coordinator, pool_file([NOWHERE] * 2), tmp_path / "held.sqlite"))
    assert closed == []  # nothing was loaded in vain
    with pytest.raises(UserError, match="cannot be reached"):
        asyncio.run(Service.open(coordinator, pool_file([NOWHERE] * 2), tmp_path / "j.sqlite"))
    assert closed == ["chooser"]
    Journal.open(tmp_path / "j.sqlite").close()


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
