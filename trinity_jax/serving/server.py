"""The HTTP server: OpenAI's chat completions, models and Responses over a `Service`, and what runs it.

A request's handler is cancelled when its client goes, and with it the calls made for it. All errors are in OpenAI's
form. Keys are never written anywhere.
"""

import asyncio
import gc
import json
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiohttp import web

from trinity_jax.errors import UserError
from trinity_jax.pool.limits import raise_descriptor_limit
from trinity_jax.report import dashboard_page, run_page, runs_data
from trinity_jax.serving import chat, responses
from trinity_jax.serving.keys import Client, Keys
from trinity_jax.serving.refused import Refused
from trinity_jax.serving.request import Asked
from trinity_jax.serving.service import Service
from trinity_jax.serving.trace import Trace

_log = logging.getLogger(__name__)
_READ_SECONDS = 60.0
_RETRY_AFTER = 1.0
_MOST_TRACES = 200
_COLLECTED = (20_000, 20, 50)
_OPEN = ("/health", "/dashboard")  # the dashboard's page holds no data: its script asks for it, with a key
_GONE = 499  # nginx's number for a client that has left
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Routes over a service.

    Args:
        service: who answers; belongs to whoever made it.
        keys: clients that may ask; None for everybody.
        keys_file: where they are read from again.
        runs: folders of runs, or of several, for the dashboard.

    Attributes:
        in_flight: requests being answered.
        draining: whether it is about to end.
    """

    def __init__(
        self, service: Service, keys: Keys | None = None, keys_file: Path | None = None, runs: Sequence[Path] = ()
    ):
        self.service = service
        self._runs_in = tuple(runs)
        self.in_flight = 0
        self.draining = False
        self._keys = keys
        self._keys_file = keys_file

    def app(self) -> web.Application:
        """The application; `run` runs it with what it needs."""
        most = int(self.service.engine.settings.max_body_mb * 2**20)
        app = web.Application(middlewares=[self._guard], client_max_size=most)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/responses", self._responses)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/models/{name}", self._model)
        app.router.add_get("/v1/traces", self._traces)
        app.router.add_get("/v1/traces/{number}", self._trace)
        app.router.add_post("/admin/reload", self._reload)
        app.router.add_get("/dashboard", self._dashboard)
        app.router.add_get("/dashboard/runs.json", self._runs)
        app.router.add_get("/dashboard/runs/{name}", self._run)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def reload(self) -> None:
        """Load coordinator, pool and keys anew.

        Raises:
            UserError: what is wrong with them; the old ones stay.
        """
        keys = Keys.read(self._keys_file) if self._keys_file else self._keys
        await self.service.reload()
        self._keys = keys
        _log.info("loaded the coordinator anew")

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Who asks, and every error in one form."""
        status = _GONE
        try:
            if request.path not in _OPEN:
                self._admit(request)
            response = await handler(request)
            status = response.status
        except Refused as refused:
            status, response = refused.status, _refusal(refused)
        except web.HTTPException as error:
            status, response = error.status, _refusal(_of_aiohttp(error, request))
        except ConnectionError:
            # The client has gone while it was written to.
            raise asyncio.CancelledError from None
        except Exception:
            _log.exception("a request failed for a fault of this program")
            status = 500
            response = _refusal(
                Refused(500, "internal error; the server's log has it", "server_error", "internal_error")
            )
        finally:
            resource = request.match_info.route.resource
            route = resource.canonical if resource is not None else "unknown"
            self.service.metrics.requests.labels(route, str(status)).inc()
        return response

    def _admit(self, request: web.Request) -> Client | None:
        if not self._keys:
            return None
        client = self._keys.client(request.headers.get("Authorization", ""))
        if client is None:
            message = "Incorrect or missing API key: expected the header Authorization: Bearer KEY"
            raise Refused(401, message, code="invalid_api_key")
        return client

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        name = self.service.engine.settings.name
        with _Place(self):
            asked, with_usage = chat.read(await _body(request), name)
            trace = Trace()
            if not asked.streamed:
                return _json(chat.whole(await self.service.answer(asked, trace=trace), name))
            chunks = chat.Chunks(trace.id, name)
            stream = _Stream(request)
            try:
                answer = await self._streamed(
                    stream, asked, trace, [chunks.first()], lambda line: [chunks.reasoning(line)]
                )
                await stream.send(chunks.rest(answer, with_usage))
            except Refused as refused:
                if not stream.begun:
                    raise
                await stream.send([refused.body()])
            return await stream.end(b"data: [DONE]\n\n")

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        name = self.service.engine.settings.name
        with _Place(self):
            asked = responses.read(await _body(request), name)
            trace = Trace()
            if not asked.streamed:
                return _json(responses.whole(await self.service.answer(asked, trace=trace), name))
            events = responses.Events(trace, name)
            stream = _Stream(request, named=True)
            try:
                answer = await self._streamed(stream, asked, trace, events.first(), events.reasoning)
                await stream.send(events.rest(answer))
            except Refused as refused:
                if not stream.begun:
                    raise
                await stream.send(events.failed(refused.body()["error"]))
            return await stream.end()

    async def _streamed(self, stream: "_Stream", asked: Asked, trace: Trace, first: Any, told: Callable[[str], Any]):
        """The answer, with what is told on the way sent. The stream begins with the first turn's end, so that a request
        that nobody can answer still gets an error's status."""

        async def tell(line: str) -> None:
            await stream.send([] if stream.begun else first)
            await stream.send(told(line))

        answer = await self.service.answer(asked, tell, trace)
        await stream.send([] if stream.begun else first)
        return answer

    async def _models(self, _: web.Request) -> web.Response:
        return _json({"object": "list", "data": [self._card()]})

    async def _model(self, request: web.Request) -> web.Response:
        if request.match_info["name"] != self.service.engine.settings.name:
            raise Refused(404, "The model does not exist", code="model_not_found", param="model")
        return _json(self._card())

    def _card(self) -> dict[str, Any]:
        engine = self.service.engine
        fallback = None if engine.fallback is None else engine.chooser.names[engine.fallback]
        about = {"pool": list(engine.chooser.names), "fallback": fallback}
        return {
            "id": engine.settings.name,
            "object": "model",
            "created": 0,
            "owned_by": "trinity_jax",
            "trinity": about,
        }

    async def _traces(self, request: web.Request) -> web.Response:
        asked = request.query.get("limit", "50")
        if not asked.isdecimal() or not 1 <= int(asked) <= _MOST_TRACES:
            raise Refused(400, f"limit: expected 1 to {_MOST_TRACES}", param="limit")
        return _json({"object": "list", "data": self.service.traces.latest(int(asked))})

    async def _trace(self, request: web.Request) -> web.Response:
        found = self.service.traces.get(request.match_info["number"])
        if found is None:
            raise Refused(404, "no such trace; only the latest are kept", code="trace_not_found")
        return _json(found)

    async def _reload(self, request: web.Request) -> web.Response:
        client = self._admit(request)
        if client is not None and not client.admin:
            raise Refused(403, "this key may not reload: make one with --admin", code="forbidden")
        try:
            await self.reload()
        except UserError as error:
            raise Refused(409, f"nothing changed: {error}", code="reload_failed") from error
        return _json(self._card())

    async def _dashboard(self, _: web.Request) -> web.Response:
        return web.Response(text=dashboard_page(), content_type="text/html")

    async def _runs(self, _: web.Request) -> web.Response:
        return _json(await asyncio.to_thread(runs_data, self._runs_in))

    async def _run(self, request: web.Request) -> web.Response:
        try:
            page = await asyncio.to_thread(run_page, self._runs_in, request.match_info["name"])
        except KeyError:
            raise Refused(404, "no such run", code="not_found") from None
        except UserError as error:
            raise Refused(409, str(error), code="unreadable_run") from error
        return web.Response(text=page, content_type="text/html")

    async def _health(self, _: web.Request) -> web.Response:
        state = "draining" if self.draining else "ok"
        return _json({"status": state, "in_flight": self.in_flight}, 503 if self.draining else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        self.service.metrics.in_flight.set(self.in_flight)
        return web.Response(body=self.service.metrics.page(), headers={"Content-Type": "text/plain; version=0.0.4"})


class _Place:
    """One of the requests that may be answered at once.

    Raises:
        Refused: all are taken.
    """

    def __init__(self, server: Server):
        self._server = server

    def __enter__(self) -> None:
        most = self._server.service.engine.settings.max_in_flight
        if self._server.in_flight >= most:
            message = f"{most} requests are being answered; try again"
            raise Refused(429, message, "rate_limit_error", "rate_limit_exceeded", after=_RETRY_AFTER)
        self._server.in_flight += 1

    def __exit__(self, *_: object) -> None:
        self._server.in_flight -= 1


class _Stream:
    """Server-sent events; ``named`` writes each one's type as Responses have it."""

    def __init__(self, request: web.Request, named: bool = False):
        self._request, self._named = request, named
        self._response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",
            }
        )

    @property
    def begun(self) -> bool:
        """Whether the status is out."""
        return self._response.prepared

    async def send(self, events: Any) -> None:
        """All in one write."""
        text = "".join(
            (f"event: {event['type']}\n" if self._named else "") + f"data: {json.dumps(event)}\n\n" for event in events
        )
        if text:
            if not self.begun:
                await self._response.prepare(self._request)
            await self._response.write(text.encode())

    async def end(self, last: bytes = b"") -> web.StreamResponse:
        """Nothing follows."""
        await self._response.write_eof(last)
        return self._response


def _json(data: Any, status: int = 200) -> web.Response:
    return web.Response(body=json.dumps(data).encode(), status=status, content_type="application/json")


def _refusal(refused: Refused) -> web.Response:
    response = _json(refused.body(), refused.status)
    if refused.after is not None:
        response.headers["Retry-After"] = f"{refused.after:.0f}"
    if refused.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _of_aiohttp(error: web.HTTPException, request: web.Request) -> Refused:
    if error.status == 413:
        return Refused(413, "the body is larger than serving.max_body_mb", code="request_too_large")
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status)
    return Refused(error.status, f"{request.method} {request.path}: {error.reason}", code=code)


async def _body(request: web.Request) -> Any:
    """The JSON object in a request's body, without halves of surrogate pairs (neither UTF-8 nor tokenizers take them).

    Raises:
        Refused: there is none.
    """
    try:
        async with asyncio.timeout(_READ_SECONDS):
            data = await request.read()
    except TimeoutError:
        raise Refused(408, f"the body did not come within {_READ_SECONDS:g} s", code="timeout") from None
    try:
        found = json.loads(data, parse_constant=_no_number)
        if b"\\u" in data:
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"We could not parse the JSON body of your request ({error})") from None
    if not isinstance(found, dict):
        raise Refused(400, f"body: expected a JSON object, got {type(found).__name__}")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def check_bind(host: str, keys: Keys | None) -> None:
    """A server that others can reach needs keys.

    Raises:
        UserError: it has none.
    """
    if keys:
        return
    try:
        local = ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local:
        raise UserError(f"--host {host}: others could spend this pool's money: add --keys FILE, or bind to 127.0.0.1")


async def run(server: Server, host: str, port: int, started: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then let what is being answered end; SIGHUP loads everything anew.

    Args:
        server: belongs to the caller, as its service does.
        host: address to bind.
        port: 0 for a free one.
        started: told the address.

    Raises:
        UserError: the address cannot be bound.
    """
    raise_descriptor_limit()
    # What is loaded stays; the collector need not walk it, a hundred milliseconds at a time, while requests wait.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTED)
    settings = server.service.engine.settings
    runner = web.AppRunner(
        server.app(),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=settings.drain_seconds,
        keepalive_timeout=75,
    )
    await runner.setup()
    stop, loop, reloads = asyncio.Event(), asyncio.get_running_loop(), set()

    async def reload() -> None:
        try:
            await server.reload()
        except UserError as error:
            _log.error("nothing was loaded anew: %s", error)

    def hang_up() -> None:
        task = asyncio.create_task(reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    try:
        try:
            await web.TCPSite(runner, host, port, backlog=2048).start()
        except OSError as error:
            raise UserError(f"{host}:{port}: cannot be bound ({error.strerror})") from error
        with suppress(NotImplementedError):  # Windows: Ctrl-C ends it the other way
            loop.add_signal_handler(signal.SIGTERM, stop.set)
            loop.add_signal_handler(signal.SIGINT, stop.set)
            loop.add_signal_handler(signal.SIGHUP, hang_up)
        where = runner.addresses[0]
        started(f"http://{f'[{where[0]}]' if ':' in where[0] else where[0]}:{where[1]}")
        await stop.wait()
    finally:
        server.draining = True
        await runner.cleanup()
        for task in reloads:
            task.cancel()
        await asyncio.gather(*reloads, return_exceptions=True)
