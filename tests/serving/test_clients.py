"""Clients that people have: openai-python in all its ways, and lm-evaluation-harness."""

import asyncio
import importlib
import json
import warnings

import pytest

openai = pytest.importorskip("openai")

QUESTION = [{"role": "user", "content": "Say 42"}]
MODEL = "trinity"


@pytest.fixture(scope="module")
def client(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_a_completion_with_usage_and_trace(client):
    found = client.chat.completions.create(model=MODEL, messages=QUESTION)
    trace = found.model_extra["trinity"]
    answering = trace["turns"][trace["answered_by"]]
    assert found.choices[0].finish_reason == "stop"
    assert answering["role"] == "worker"
    others = [turn for turn in trace["turns"] if turn is not answering]
    details = found.usage.prompt_tokens_details.model_extra
    assert found.usage.prompt_tokens == answering["input_tokens"]
    assert details["orchestration_input_tokens"] == sum(turn["input_tokens"] for turn in others)
    made = found.usage.completion_tokens_details.model_extra["orchestration_output_tokens"]
    assert made == sum(turn["output_tokens"] for turn in others)
    assert found.usage.total_tokens == sum(turn["input_tokens"] + turn["output_tokens"] for turn in trace["turns"])
    said = found.choices[0].message.model_extra["reasoning_content"]
    assert len(said.splitlines()) == len(trace["turns"])


def test_raw_responses_models_and_errors(client):
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=QUESTION)
    assert raw.headers["content-type"].startswith("application/json")
    assert raw.parse().object == "chat.completion"
    assert [model.id for model in client.models.list()] == [MODEL]
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=QUESTION)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=9)


def test_a_stream_tells_the_turns_then_the_answer_then_the_usage(client):
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=QUESTION, stream=True, seed=3, stream_options={"include_usage": True}
        )
    )
    whole = client.chat.completions.create(model=MODEL, messages=QUESTION, seed=3)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thought = [delta.model_extra["reasoning_content"] for delta in deltas if "reasoning_content" in delta.model_extra]
    first_word = next(i for i, delta in enumerate(deltas) if delta.content)
    assert all("reasoning_content" not in delta.model_extra for delta in deltas[first_word:])
    assert "".join(thought) == whole.choices[0].message.model_extra["reasoning_content"]
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert chunks[-2].model_extra["trinity"]["end"] == whole.model_extra["trinity"]["end"]


def test_responses_whole_and_streamed(client):
    found = client.responses.create(model=MODEL, input="Say 42", instructions="Be brief.")
    assert found.status == "completed"
    assert found.output_text
    assert "orchestration_input_tokens" in found.usage.input_tokens_details.model_extra
    events = list(client.responses.create(model=MODEL, input=QUESTION, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == events[-1].response.output_text
    with client.responses.stream(model=MODEL, input="Say 42") as stream:
        assert stream.get_final_response().output_text  # the library's own book-keeping accepts the events


def test_many_at_once_and_several_turns(address):
    async def go():
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:

            async def ask(number):
                messages = [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Say 1"},
                    {"role": "assistant", "content": "1"},
                    {"role": "user", "content": f"Say {number}"},
                ]
                found = await client.chat.completions.create(model=MODEL, messages=messages)
                return found.choices[0].message.content

            stream = await client.chat.completions.create(model=MODEL, messages=QUESTION, stream=True)
            return await asyncio.gather(*(ask(i) for i in range(16))), [chunk async for chunk in stream]

    answers, chunks = asyncio.run(go())
    assert len(answers) == 16
    assert all(answers)
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    """Takes seconds to import, and keeps its data sets where it is told before."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hub")))
        found = pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
        for name in ("datasets", "lm_eval.evaluator", "lm_eval.tasks", "lm_eval.models.openai_completions"):
            importlib.import_module(name)
        yield found


@pytest.mark.filterwarnings("ignore")
def test_lm_evaluation_harness_on_a_generated_task(harness, address, tmp_path):
    lines = tmp_path / "echo.jsonl"
    lines.write_text("".join(json.dumps({"number": str(i * i)}) + "\n" for i in range(8)))
    task = {
        "task": "echo",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(lines)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "Say {{number}}",
        "doc_to_target": "{{number}}",
        "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 64, "trinity": {"max_calls": 1}},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    found = harness.simple_evaluate(
        model="local-chat-completions",
        model_args={
            "base_url": f"{address}/v1/chat/completions",
            "model": MODEL,
            "num_concurrent": 4,
            "max_retries": 1,
        },
        tasks=[task],
        apply_chat_template=True,
        bootstrap_iters=0,
    )
    assert found["results"]["echo"]["exact_match,none"] == 1.0
