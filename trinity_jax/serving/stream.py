"""One request's answer as server-sent events: begins with the first turn's end, and always ends in its own form."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from aiohttp import web

from trinity_jax.serving.answer import Answer
from trinity_jax.serving.refused import Refused, internal
from trinity_jax.serving.session import Tell

_log = logging.getLogger(__name__)
_WRITE_SECONDS = 60.0

Events = Iterable[dict[str, Any]]


class Form(Protocol):
    """What a wire form sends when (`chat.Chunks`, `responses.Events`); events with a ``type`` are named by it."""

    last: bytes

    def first(self) -> Events:
        """Before anything is known."""
        ...

    def reasoning(self, line: str) -> Events:
        """A turn has ended."""
        ...

    def rest(self, answer: Answer) -> Events:
        """The answer."""
        ...

    def failed(self, error: dict[str, Any]) -> Events:
        """There is none."""
        ...


async def streamed(request: web.Request, form: Form, answer: Callable[[Tell], Awaitable[Answer]]) -> web.StreamResponse:
    """Send the answer, and what is told on the way.

    Nothing is sent before the first turn has ended: a request that nobody can answer still gets an error's status.
    Later a failure, this program's too, is an event, and the connection ends with the stream.

    Args:
        request: whose client reads.
        form: what to send.
        answer: makes the answer.

    Raises:
        CancelledError: the client has gone, or reads nothing for 60 s.
        Exception: what went wrong before anything was sent.
    """
    stream = _Stream(request, form)

    async def tell(line: str) -> None:
        await stream.send(form.reasoning(line))

    try:
        await stream.send(form.rest(await answer(tell)))
    except Exception as error:
        if not stream.begun:
            raise
        if not isinstance(error, Refused):
            _log.exception("a stream failed for a fault of this program")
        refused = error if isinstance(error, Refused) else internal()
        # The body ends whole, so the connection stays good; closing it would cost the client that reuses it a request.
        await stream.send(form.failed(refused.body()["error"]))
    await stream.write(form.last, end=True)
    return stream.response


class _Stream:
    def __init__(self, request: web.Request, form: Form):
        self._request, self._form = request, form
        self.response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",
            }
        )

    @property
    def begun(self) -> bool:
        """Whether the status is out."""
        return self.response.prepared

    async def send(self, events: Events) -> None:
        """All in one write."""
        text = _text(events) if self.begun else _text(self._form.first()) + _text(events)
        await self.write(text.encode())

    async def write(self, data: bytes, end: bool = False) -> None:
        """Send bytes; a client that does not take them has gone."""
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                if not self.begun:
                    await self.response.prepare(self._request)
                await (self.response.write_eof(data) if end else self.response.write(data))
        except (ConnectionError, TimeoutError):
            raise asyncio.CancelledError from None


def _text(events: Events) -> str:
    return "".join(
        (f"event: {event['type']}\n" if "type" in event else "") + f"data: {json.dumps(event)}\n\n" for event in events
    )
