"""OpenAI's chat completions as a server gives them: request to `Asked`, answer to an object or to chunks.

Source: https://platform.openai.com/docs/api-reference/chat. ``top_p``, ``seed`` (draws the coordinator's choices),
penalties, ``user`` and the like are taken and do not change what a model is sent: decoding is the pool's, as in
training. What would change the shape of an answer and cannot be given is refused.
"""

import time
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trinity_jax.serving.answer import Answer
from trinity_jax.serving.conversation import Conversation, Said
from trinity_jax.serving.refused import Refused
from trinity_jax.serving.request import Asked, Wishes

_PIECE = 256
"""Characters of one content delta."""

_DEPTH = 64
"""Of objects and lists in each other."""


class Open(BaseModel):
    """Part of a request: what is known of it is checked, the rest is let through."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Function(Open):
    name: str = Field(min_length=1)
    arguments: str = "{}"


class _ToolCall(Open):
    id: str
    type: Literal["function"] = "function"
    function: _Function


class _Url(Open):
    url: str
    detail: Literal["auto", "low", "high"] | None = None


class _Text(Open):
    type: Literal["text"]
    text: str


class _Image(Open):
    type: Literal["image_url"]
    image_url: _Url


class _Message(Open):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Text | _Image] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None


class _ToolFunction(Open):
    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = Field(min_length=1)


class Tool(Open):
    """A function that the client offers."""

    type: Literal["function"]
    function: _ToolFunction


class ResponseFormat(Open):
    """Text, JSON, or JSON of a schema."""

    model_config = ConfigDict(extra="allow", frozen=True)
    type: Literal["text", "json_object", "json_schema"]


class _StreamOptions(Open):
    include_usage: bool = False


class _Request(Open):
    model: str
    messages: list[_Message] = Field(min_length=1)
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    stop: str | list[str] | None = None
    seed: int | None = None
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    modalities: list[Literal["text"]] | None = None
    functions: None = None  # the form before tools
    function_call: None = None
    audio: None = None
    web_search_options: None = None
    trinity: Wishes = Wishes()


FIELDS = frozenset(_Request.model_fields) - {"model", "messages", "trinity", "stream", "stream_options"}
"""What a request may hold beside its conversation."""


def checked(model: type[Any], data: Any, name: str) -> Any:
    """A request's body as a model; ``name`` is the one model that is served.

    Raises:
        Refused: naming the field.
    """
    if _deep(data):
        raise Refused(400, f"body: nested more than {_DEPTH} deep")
    try:
        request = model.model_validate(data)
    except ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda item: len(item["loc"]))
        where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("_"))
        raise Refused(400, f"{where or 'body'}: {first['msg']}", param=where or None) from None
    if request.model != name:
        message = f"The model {request.model[:100]!r} does not exist; this server has {name!r}"
        raise Refused(404, message, code="model_not_found", param="model")
    return request


def _deep(data: Any) -> bool:
    """Whether a value is nested deeper than what works on it later can follow."""
    level = [data]
    for _ in range(_DEPTH):
        inside = [one.values() if isinstance(one, dict) else one for one in level]
        level = [value for values in inside for value in values if isinstance(value, dict | list)]
        if not level:
            return False
    return True


def read(data: Any, name: str) -> tuple[Asked, bool]:
    """A request's body to what is asked, and whether a stream's end shall tell the usage.

    Raises:
        Refused: what is wrong with it.
    """
    request: _Request = checked(_Request, data, name)
    offered = [tool.model_dump(exclude_none=True) for tool in request.tools or ()]
    wanted = request.response_format
    form = {
        "tools": offered or None,
        "tool_choice": request.tool_choice if offered else None,
        "parallel_tool_calls": request.parallel_tool_calls if offered else None,
        "response_format": wanted.model_dump() if wanted is not None and wanted.type != "text" else None,
    }
    asked = Asked(
        conversation([_said(message) for message in request.messages], "messages"),
        request.trinity,
        {field: value for field, value in form.items() if value is not None},
        request.max_completion_tokens or request.max_tokens,
        request.temperature,
        (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ()),
        request.seed,
        bool(request.stream),
    )
    return asked, request.stream_options is not None and request.stream_options.include_usage


def conversation(said: list[Said], param: str) -> Conversation:
    """Messages with system messages taken out.

    Raises:
        Refused: there is no user message to answer, or a tool's result without a call's id.
    """
    others = tuple(one for one in said if one.role != "system")
    if not any(one.role == "user" for one in others):
        raise Refused(400, f"{param}: expected at least one user message", param=param)
    if any(one.role == "tool" and not one.answers for one in others):
        raise Refused(400, f"{param}: a tool's message needs tool_call_id", param=param)
    return Conversation(others, "\n\n".join(one.text for one in said if one.role == "system" and one.text))


def _said(message: _Message) -> Said:
    role = "system" if message.role == "developer" else message.role
    parts = message.content if isinstance(message.content, list) else []
    text = message.content if isinstance(message.content, str) else "\n".join(p.text for p in parts if p.type == "text")
    images = tuple(part.model_dump(exclude_none=True) for part in parts if part.type == "image_url")
    if images and role != "user":
        raise Refused(400, "messages: images belong into user messages", param="messages")
    calls = tuple(call.model_dump() for call in message.tool_calls or ()) if role == "assistant" else ()
    return Said(role, text, images, calls, message.tool_call_id if role == "tool" else None)


def usage(answer: Answer) -> dict[str, Any]:
    """Tokens: the answer's own call, and those of all other calls as orchestration; the total has both.

    Cached tokens are not known here: the pool counts and charges them in full.
    """
    sent, received, more_sent, more_received = answer.trace.tokens()
    return {
        "prompt_tokens": sent,
        "completion_tokens": received,
        "total_tokens": sent + received + more_sent + more_received,
        "prompt_tokens_details": {
            "cached_tokens": 0,
            "orchestration_input_tokens": more_sent,
            "orchestration_input_cached_tokens": 0,
        },
        "completion_tokens_details": {"reasoning_tokens": 0, "orchestration_output_tokens": more_received},
    }


def whole(answer: Answer, name: str) -> dict[str, Any]:
    """The object of a request that is not streamed."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.text or (None if answer.calls else ""),
        "refusal": None,
    }
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = list(answer.calls)
    return {
        "id": _id(answer.trace.id),
        "object": "chat.completion",
        "created": int(answer.trace.created),
        "model": name,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}],
        "usage": usage(answer),
        "trinity": answer.trace.to_json(),
    }


class Chunks:
    """The chunks of one streamed request (`server.Form`)."""

    last = b"data: [DONE]\n\n"

    def __init__(self, number: str, name: str, with_usage: bool):
        self._with_usage = with_usage
        self._frame = {
            "id": _id(number),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": name,
        }

    def first(self) -> list[dict[str, Any]]:
        """Before anything is known."""
        return [self._chunk({"role": "assistant", "content": ""})]

    def reasoning(self, line: str) -> list[dict[str, Any]]:
        """A turn has ended."""
        return [self._chunk({"reasoning_content": line})]

    def failed(self, error: dict[str, Any]) -> list[dict[str, Any]]:
        """There is no answer."""
        return [{"error": error}]

    def rest(self, answer: Answer) -> list[dict[str, Any]]:
        """The answer."""
        chunks = [self._chunk({"content": piece}) for piece in pieces(answer.text)]
        if answer.calls:
            chunks.append(self._chunk({"tool_calls": [{"index": i, **call} for i, call in enumerate(answer.calls)]}))
        chunks.append(self._chunk({}, answer.finish) | {"trinity": answer.trace.to_json()})
        if self._with_usage:
            chunks.append({**self._frame, "choices": [], "usage": usage(answer)})
        return chunks

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**self._frame, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}


def pieces(text: str) -> list[str]:
    """A text in deltas."""
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _id(number: str) -> str:
    return f"chatcmpl-{number.removeprefix('trace_')}"
