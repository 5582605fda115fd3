"""A chat-completions server on loopback that fails as told: each request takes the next fault of a script."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from aiohttp import web

USAGE = {"prompt_tokens": 11, "completion_tokens": 7}


def completion(content: Any = "fine", finish: str | None = "stop", usage: Any = USAGE, **message: Any) -> dict:
    said = {"role": "assistant", "content": content, **message}
    return {"choices": [{"index": 0, "message": said, "finish_reason": finish}], "usage": usage}


def _error(message: str, status: int = 400, code: Any = None) -> Callable[[], web.Response]:
    return lambda: web.json_response({"error": {"message": message, "code": code}}, status=status)


def _retry_after(value: Callable[[], str]) -> Callable[[], web.Response]:
    return lambda: web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": value()})


def _date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


RESPONSES: dict[str, Callable[[], web.Response]] = {
    "ok": lambda: web.json_response(completion()),
    "429": _error("slow down", 429),
    "429 seconds": _retry_after(lambda: "0.05"),
    "429 date": _retry_after(lambda: _date(-5)),
    "429 nonsense": _retry_after(lambda: "soon"),
    "429 an hour": _retry_after(lambda: "3600"),
    "429 date in an hour": _retry_after(lambda: _date(3600)),
    "429 quota": _error("insufficient_quota: check your plan", 429),
    "500": _error("boom", 500),
    "503 html": lambda: web.Response(text="<html>bad gateway</html>", status=503, content_type="text/html"),
    "400": _error("unknown field", 400),
    "401": _error("bad key", 401),
    "403": _error("no", 403),
    "404": _error("no such model", 404),
    "408": _error("slow", 408),
    "409": _error("busy", 409),
    "400 overflow": _error("This model's maximum context length is 4096 tokens", 400, "context_length_exceeded"),
    "400 overflow llama": lambda: web.json_response(
        {
            "error": {
                "code": 400,
                "message": "request exceeds the available context size",
                "type": "exceed_context_size_error",
            }
        },
        status=400,
    ),
    "400 filtered": _error("blocked by policy", 400, "content_filter"),
    "200 error": _error("it did not work", 200),
    "200 rate error": _error("Rate limit reached", 200, 429),
    "200 502 error": _error("upstream died", 200, 502),
    "200 overflow": _error("prompt is too long: 9000 tokens", 200),
    "choice error": lambda: web.json_response({"choices": [{"error": {"message": "upstream died", "code": 502}}]}),
    "half json": lambda: web.Response(text=json.dumps(completion())[:40], content_type="application/json"),
    "html": lambda: web.Response(text="<html>please log in</html>", content_type="text/html"),
    "json list": lambda: web.json_response([1, 2]),
    "text/plain": lambda: web.Response(text=json.dumps(completion()), content_type="text/plain"),
    "empty choices": lambda: web.json_response({"choices": [], "usage": USAGE}),
    "no choices": lambda: web.json_response({"id": "x"}),
    "null content": lambda: web.json_response(completion(None)),
    "reasoning only": lambda: web.json_response(completion(None, "length", reasoning_content="hmm")),
    "reasoning": lambda: web.json_response(completion("fine", reasoning="hmm")),
    "inline reasoning": lambda: web.json_response(completion("<think>hmm</think>\n\nfine")),
    "open reasoning": lambda: web.json_response(completion("<think>hmm", "length")),
    "parts": lambda: web.json_response(completion([{"type": "text", "text": "fi"}, {"type": "text", "text": "ne"}])),
    "length": lambda: web.json_response(completion("fin", "length")),
    "content_filter": lambda: web.json_response(completion("fi", "content_filter")),
    "refusal": lambda: web.json_response(completion(None, refusal="I can't")),
    "null usage": lambda: web.json_response(completion(usage=None)),
    "partial usage": lambda: web.json_response(completion(usage={"prompt_tokens": 3})),
    "redirect": lambda: web.Response(status=307, headers={"Location": "http://elsewhere.invalid/v1?token=t"}),
}


class FaultyServer:
    """Runs inside the test's event loop.

    Attributes:
        script: faults still to come.
        requests: bodies received.
        headers: their headers.
        most: the most requests that were open at once.
    """

    def __init__(self, *script: str, delay: float = 0.0):
        self.script = list(script)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most = 0
        self._delay = delay
        self._open = 0
        self._hung = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> "FaultyServer":
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._handle)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=2048)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._hung.set()
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.StreamResponse:
        if self.script and self.script[0] in ("hang", "401", "404"):
            fault = self.script.pop(0)
            if fault == "hang":
                await self._hung.wait()
            return web.json_response({}, status=int(fault) if fault.isdigit() else 200)
        return web.json_response({"data": []})

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.headers.append(dict(request.headers))
        self._open += 1
        self.most = max(self.most, self._open)
        try:
            await asyncio.sleep(self._delay)
            return await self._answer(request, self.script.pop(0) if self.script else "ok")
        finally:
            self._open -= 1

    async def _answer(self, request: web.Request, fault: str) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        if fault == "hang":
            await self._hung.wait()
        elif fault == "reset":
            transport.abort()
        elif fault == "cut body":
            response = web.StreamResponse(headers={"Content-Length": "500", "Content-Type": "application/json"})
            await response.prepare(request)
            await response.write(b'{"choices": [')
            transport.close()
            return response
        elif fault == "echo key":
            said = {"error": {"message": f"bad header {request.headers.get('Authorization')}"}}
            return web.json_response(said, status=400)
        elif fault == "echo key as content":
            return web.json_response(completion(f"you sent {request.headers.get('Authorization')}"))
        return RESPONSES.get(fault, RESPONSES["ok"])()
