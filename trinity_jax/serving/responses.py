"""OpenAI's Responses as a server gives them; nothing is stored, so a request carries its whole conversation.

Source: https://platform.openai.com/docs/api-reference/responses.
"""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import ConfigDict, Field

from trinity_jax.serving.answer import Answer
from trinity_jax.serving.chat import Open, ResponseFormat, checked, conversation, pieces, usage
from trinity_jax.serving.conversation import Said
from trinity_jax.serving.refused import Refused
from trinity_jax.serving.request import Asked, Wishes
from trinity_jax.serving.trace import Trace


class _Part(Open):
    type: Literal["input_text", "output_text", "text", "input_image", "refusal"]
    text: str = ""
    image_url: str | None = None
    detail: Literal["auto", "low", "high"] | None = None


class _Item(Open):
    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[_Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    output: str | list[_Part] = ""


class _Tool(Open):
    model_config = ConfigDict(extra="allow", frozen=True)
    type: Literal["function"]
    name: str = Field(min_length=1)


class _Text(Open):
    format: ResponseFormat | None = None


class _Request(Open):
    model: str
    input: str | list[_Item]
    instructions: str | None = None
    stream: bool | None = False
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    tools: list[_Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: _Text | None = None
    previous_response_id: None = None
    conversation: None = None
    background: Literal[False] | None = None
    prompt: None = None
    trinity: Wishes = Wishes()


def read(data: Any, name: str) -> tuple[Asked, dict[str, Any]]:
    """A request's body to what is asked, and what of it every response object repeats.

    Raises:
        Refused: what is wrong with it.
    """
    request: _Request = checked(_Request, data, name)
    items = [_Item(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    said = [Said("system", request.instructions)] if request.instructions else []
    said += _joined([one for item in items if (one := _said(item)) is not None])
    offered = [
        {"type": "function", "function": t.model_dump(exclude={"type"}, exclude_none=True)} for t in request.tools or ()
    ]
    choice = request.tool_choice
    if isinstance(choice, dict) and "name" in choice:
        choice = {"type": "function", "function": {"name": choice["name"]}}
    form = {
        "tools": offered or None,
        "tool_choice": choice if offered else None,
        "parallel_tool_calls": request.parallel_tool_calls if offered else None,
        "response_format": _format(request.text),
    }
    asked = Asked(
        conversation(said, "input"),
        request.trinity,
        {field: value for field, value in form.items() if value is not None},
        request.max_output_tokens,
        request.temperature,
        streamed=bool(request.stream),
    )
    wanted = request.text and request.text.format
    return asked, {
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "temperature": request.temperature,
        "text": {"format": wanted.model_dump() if wanted else {"type": "text"}},
        "tool_choice": request.tool_choice or "auto",
        "tools": [tool.model_dump() for tool in request.tools or ()],
    }


def _format(text: _Text | None) -> dict[str, Any] | None:
    """As chat completions have it: there a schema's fields are one level further in."""
    if text is None or text.format is None or text.format.type == "text":
        return None
    found = text.format.model_dump()
    kind = found.pop("type")
    return {"type": kind, "json_schema": found} if kind == "json_schema" else {"type": kind}


def _said(item: _Item) -> Said | None:
    if item.type == "reasoning":
        return None
    if item.type == "function_call":
        if not item.call_id or not item.name:
            raise Refused(400, "input: a function_call needs call_id and name", param="input")
        function = {"name": item.name, "arguments": item.arguments}
        return Said("assistant", "", calls=({"id": item.call_id, "type": "function", "function": function},))
    if item.type == "function_call_output":
        return Said("tool", _text(item.output), answers=item.call_id)
    role = "system" if item.role == "developer" else item.role or "user"
    parts = item.content if isinstance(item.content, list) else []
    images = tuple(_image(part) for part in parts if part.type == "input_image")
    if images and role != "user":
        raise Refused(400, "input: images belong into user messages", param="input")
    return Said(role, _text(item.content or ""), images)


def _joined(said: list[Said]) -> list[Said]:
    """Tool calls that follow one another are one assistant's message in chat completions."""
    joined: list[Said] = []
    for one in said:
        if one.calls and joined and joined[-1].role == "assistant":
            joined[-1] = Said("assistant", joined[-1].text, calls=(*joined[-1].calls, *one.calls))
        else:
            joined.append(one)
    return joined


def _text(content: str | list[_Part]) -> str:
    return content if isinstance(content, str) else "\n".join(p.text for p in content if p.text)


def _image(part: _Part) -> dict[str, Any]:
    if not part.image_url:
        raise Refused(400, "input: an input_image needs image_url (files are not kept here)", param="input")
    detail = {"detail": part.detail} if part.detail else {}
    return {"type": "image_url", "image_url": {"url": part.image_url, **detail}}


def whole(answer: Answer, name: str, repeated: dict[str, Any]) -> dict[str, Any]:
    """The object of a request that is not streamed; ``repeated`` is from `read`."""
    cut = answer.finish == "length"
    status = "incomplete" if cut else "completed"
    output = [_reasoning(answer.trace, answer.reasoning)] if answer.reasoning else []
    if answer.text or not answer.calls:
        output.append(_message(answer.trace, answer.text, status))
    output += [_call(answer.trace, i, call) for i, call in enumerate(answer.calls)]
    found = _response(answer.trace, name, status, output, repeated)
    found["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
    counts = usage(answer)
    found["usage"] = {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": counts["prompt_tokens_details"],
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": counts["completion_tokens_details"],
        "total_tokens": counts["total_tokens"],
    }
    found["trinity"] = answer.trace.to_json()
    return found


class Events:
    """The events of one streamed request, numbered (`server.Form`)."""

    last = b""

    def __init__(self, trace: Trace, name: str, repeated: dict[str, Any]):
        self._trace, self._name, self._repeated, self._next = trace, name, repeated, 0
        self._thought = ""

    def first(self) -> Iterator[dict[str, Any]]:
        """Before anything is known."""
        begun = _response(self._trace, self._name, "in_progress", [], self._repeated)
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)

    def reasoning(self, line: str) -> Iterator[dict[str, Any]]:
        """A turn has ended."""
        item = _reasoning(self._trace, "")
        if not self._thought:
            yield self._event("response.output_item.added", output_index=0, item={**item, "summary": []})
            part = {"type": "summary_text", "text": ""}
            yield self._event("response.reasoning_summary_part.added", **self._at(item["id"]), part=part)
        self._thought += line
        yield self._event("response.reasoning_summary_text.delta", **self._at(item["id"]), delta=line)

    def rest(self, answer: Answer) -> Iterator[dict[str, Any]]:
        """The answer."""
        response = whole(answer, self._name, self._repeated)
        for index, item in enumerate(response["output"]):
            if item["type"] == "reasoning":
                text = item["summary"][0]["text"]
                yield self._event("response.reasoning_summary_text.done", **self._at(item["id"]), text=text)
                yield self._event(
                    "response.reasoning_summary_part.done", **self._at(item["id"]), part=item["summary"][0]
                )
            elif item["type"] == "message":
                yield from self._said(index, item)
            else:
                yield from self._called(index, item)
            yield self._event("response.output_item.done", output_index=index, item=item)
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, error: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """There is no answer."""
        response = _response(self._trace, self._name, "failed", [], self._repeated)
        response["error"] = {"code": error["code"] or "server_error", "message": error["message"]}
        yield self._event("response.failed", response=response)

    def _said(self, index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        part = item["content"][0]
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        opened = {**item, "status": "in_progress", "content": []}
        yield self._event("response.output_item.added", output_index=index, item=opened)
        yield self._event("response.content_part.added", **at, part={**part, "text": ""})
        for piece in pieces(part["text"]):
            yield self._event("response.output_text.delta", **at, delta=piece, logprobs=[])
        yield self._event("response.output_text.done", **at, text=part["text"], logprobs=[])
        yield self._event("response.content_part.done", **at, part=part)

    def _called(self, index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        at = {"item_id": item["id"], "output_index": index}
        opened = {**item, "status": "in_progress", "arguments": ""}
        yield self._event("response.output_item.added", output_index=index, item=opened)
        yield self._event("response.function_call_arguments.delta", **at, delta=item["arguments"])
        yield self._event("response.function_call_arguments.done", **at, name=item["name"], arguments=item["arguments"])

    def _at(self, item: str) -> dict[str, Any]:
        return {"item_id": item, "output_index": 0, "summary_index": 0}

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._next += 1
        return {"type": kind, "sequence_number": self._next - 1, **fields}


def _response(
    trace: Trace, name: str, status: str, output: list[dict[str, Any]], repeated: dict[str, Any]
) -> dict[str, Any]:
    return {
        **repeated,
        "id": f"resp_{_tail(trace)}",
        "object": "response",
        "created_at": int(trace.created),
        "status": status,
        "error": None,
        "incomplete_details": None,
        "metadata": {},
        "model": name,
        "output": output,
        "previous_response_id": None,
        "store": False,
        "top_p": None,
        "usage": None,
    }


def _reasoning(trace: Trace, text: str) -> dict[str, Any]:
    return {"id": f"rs_{_tail(trace)}", "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def _message(trace: Trace, text: str, status: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"id": f"msg_{_tail(trace)}", "type": "message", "role": "assistant", "status": status, "content": content}


def _call(trace: Trace, index: int, call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "id": f"fc_{_tail(trace)}_{index}",
        "type": "function_call",
        "status": "completed",
        "call_id": call["id"],
        "name": function["name"],
        "arguments": function["arguments"],
    }


def _tail(trace: Trace) -> str:
    return trace.id.removeprefix("trace_")
