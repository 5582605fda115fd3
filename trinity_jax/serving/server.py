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
from trinity_jax.serving import chat, dashboard, responses
from trinity_jax.serving.body import read_body
from trinity_jax.serving.keys import Client, Keys
from trinity_jax.serving.refused import Refused, internal
from trinity_jax.serving.service import Service
from trinity_jax.serving.stream import streamed
from trinity_jax.serving.trace import Trace

_log = logging.getLogger(__name__)
_CLOSE_SECONDS = 2.0
_RETRY_AFTER = 1.0
_MOST_TRACES = 200
_COLLECTED = (20_000, 20, 50)
_OPEN = ("/health", dashboard.PATH)
_GONE = 499  # nginx's number for a client that has left
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Routes over a service.

    Args:
        service: who answers; belongs to whoever made it.
        keys: clients that may ask; None for everybody on this machine.
        keys_file: where they are read from again.
        runs: folders of runs, or of several, for the dashboard.

    Attributes:
        in_flight: requests being answered.
        held: bytes of their bodies.
        draining: whether it is about to end: nothing new is begun.
    """

    def __init__(
        self, service: Service, keys: Keys | None = None, keys_file: Path | None = None, runs: Sequence[Path] = ()
    ):
        self.service = service
        self._runs_in = tuple(runs)
        self.in_flight = 0
        self.held = 0
        self.draining = False
        self._keys = keys
        self._keys_file = keys_file

    def app(self) -> web.Application:
        """The application; `run` runs it with what it needs."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/responses", self._responses)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/models/{name}", self._model)
        app.router.add_get("/v1/traces", self._traces)
        app.router.add_get("/v1/traces/{number}", self._trace)
        app.router.add_post("/admin/reload", self._admins(self._reload))
        app.add_routes(dashboard.routes(self._runs_in, self._admins))
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._admins(self._metrics))
        return app

    async def reload(self) -> None:
        """Load keys, coordinator and pool anew. A key that was taken away is refused even where the rest fails.

        Raises:
            UserError: what is wrong with them; the old coordinator and pool stay.
        """
        if self._keys_file:
            self._keys = Keys.read(self._keys_file)
        await self.service.reload()
        _log.info("loaded the coordinator anew")

    async def idle(self) -> None:
        """Wait until no request is being answered."""
        while self.in_flight:  # noqa: ASYNC110 (asked once, at the end)
            await asyncio.sleep(0.02)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Who asks, and every error in one form."""
        status = _GONE
        try:
            self._admit(request)
            response = await handler(request)
            status = response.status
        except Refused as refused:
            status, response = refused.status, _refusal(refused)
        except web.HTTPException as error:
            status, response = error.status, _refusal(_of_aiohttp(error, request))
        except Exception:
            _log.exception("a request failed for a fault of this program")
            status, response = 500, _refusal(internal())
        finally:
            resource = request.match_info.route.resource
            route = resource.canonical if resource is not None else "unknown"
            self.service.metrics.requests.labels(route, str(status)).inc()
        return response

    def _admit(self, request: web.Request) -> None:
        """See who asks.

        A page from anywhere can make its reader's browser send requests here. It can neither send JSON, nor a key, nor
        (by a name that it points at this machine) a Host of this machine's own.

        Raises:
            Refused: nobody whom this server knows.
        """
        if not self._keys and not _local(_host(request.host)):
            message = f"Host {request.host}: without keys this server answers to 127.0.0.1 and localhost alone"
            raise Refused(403, message, code="forbidden_host")
        if request.method == "POST" and request.content_type != "application/json":
            message = f"expected the header Content-Type: application/json, got {request.content_type}"
            raise Refused(415, message, code="unsupported_media_type")
        if request.path not in _OPEN:
            self._client(request)

    def _client(self, request: web.Request) -> Client | None:
        """Whose key came with a request; None where there are no keys.

        Raises:
            Refused: nobody's.
        """
        if not self._keys:
            return None
        client = self._keys.client(request.headers.get("Authorization", ""))
        if client is None:
            message = "Incorrect or missing API key: expected the header Authorization: Bearer KEY"
            raise Refused(401, message, code="invalid_api_key")
        return client

    def _admins(self, handler: Handler) -> Handler:
        """A handler for admins' keys alone, where there are keys: it tells, or changes, what is everybody's."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            client = self._client(request)
            if client is not None and not client.admin:
                raise Refused(403, "an admin's key is needed here: make one with --admin", code="forbidden")
            return await handler(request)

        return guarded

    def _whose(self, request: web.Request) -> str | None:
        """Whose traces may be read: None for everybody's."""
        client = self._client(request)
        return None if client is None or client.admin else client.name

    def _begun(self, request: web.Request) -> Trace:
        client = self._client(request)
        return Trace(client=None if client is None else client.name)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        name, trace = self.service.engine.settings.name, self._begun(request)
        with _Place(self) as place:
            asked, with_usage = chat.read(await read_body(request, place.hold), name)
            if not asked.streamed:
                return _json(chat.whole(await self.service.answer(asked, trace=trace), name))
            form = chat.Chunks(trace.id, name, with_usage)
            return await streamed(request, form, lambda tell: self.service.answer(asked, tell, trace))

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        name, trace = self.service.engine.settings.name, self._begun(request)
        with _Place(self) as place:
            asked, repeated = responses.read(await read_body(request, place.hold), name)
            if not asked.streamed:
                return _json(responses.whole(await self.service.answer(asked, trace=trace), name, repeated))
            form = responses.Events(trace, name, repeated)
            return await streamed(request, form, lambda tell: self.service.answer(asked, tell, trace))

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
        if not asked.isdecimal() or len(asked) > 3 or not 1 <= int(asked) <= _MOST_TRACES:
            raise Refused(400, f"limit: expected 1 to {_MOST_TRACES}", param="limit")
        return _json({"object": "list", "data": self.service.traces.latest(int(asked), self._whose(request))})

    async def _trace(self, request: web.Request) -> web.Response:
        found = self.service.traces.get(request.match_info["number"], self._whose(request))
        if found is None:
            raise Refused(404, "no such trace; only the latest are kept", code="trace_not_found")
        return _json(found)

    async def _reload(self, _: web.Request) -> web.Response:
        try:
            await self.reload()
        except UserError as error:
            raise Refused(409, f"coordinator and pool stay as they were: {error}", code="reload_failed") from error
        return _json(self._card())

    async def _health(self, _: web.Request) -> web.Response:
        state = "draining" if self.draining else "ok"
        return _json({"status": state, "in_flight": self.in_flight}, 503 if self.draining else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        self.service.metrics.in_flight.set(self.in_flight)
        return web.Response(body=self.service.metrics.page(), headers={"Content-Type": "text/plain; version=0.0.4"})


class _Place:
    """One of the requests that may be answered at once, and the memory that its body takes.

    Raises:
        Refused: all are taken, or the server is about to end.
    """

    def __init__(self, server: Server):
        self._server = server
        self._bytes = 0

    def __enter__(self) -> "_Place":
        most = self._server.service.engine.settings.max_in_flight
        if self._server.draining:
            raise Refused(503, "this server is about to end", "server_error", "draining", after=_RETRY_AFTER)
        if self._server.in_flight >= most:
            raise _full(f"{most} requests are being answered; try again")
        self._server.in_flight += 1
        return self

    def hold(self, more: int) -> None:
        """So many bytes more of the body have come.

        Raises:
            Refused: it is too large, or all bodies together are.
        """
        settings = self._server.service.engine.settings
        self._server.held += more
        self._bytes += more
        if self._bytes > settings.max_body_mb * 2**20:
            raise Refused(413, "the body is larger than serving.max_body_mb", code="request_too_large")
        if self._server.held > settings.max_in_flight_mb * 2**20:
            raise _full("large requests are being answered; try again")

    def __exit__(self, *_: object) -> None:
        self._server.in_flight -= 1
        self._server.held -= self._bytes


def _full(message: str) -> Refused:
    return Refused(429, message, "rate_limit_error", "rate_limit_exceeded", after=_RETRY_AFTER)


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
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status)
    return Refused(error.status, f"{request.method} {request.path}: {error.reason}", code=code)


def _host(header: str) -> str:
    """The name in a Host header, without its port."""
    return header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0]


def _local(host: str) -> bool:
    """Whether a name or address is this machine's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_bind(host: str, keys: Keys | None) -> None:
    """A server that others can reach needs keys.

    Raises:
        UserError: it has none.
    """
    if not keys and not _local(host):
        raise UserError(f"--host {host}: others could spend this pool's money: add --keys FILE, or bind to 127.0.0.1")


async def run(server: Server, host: str, port: int, started: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then let what is being answered end; SIGHUP loads everything anew.

    Meanwhile it still listens: new work is refused with 503, and ``/health`` says that it is draining.

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
    runner = web.AppRunner(
        server.app(),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=_CLOSE_SECONDS,
        keepalive_timeout=75,
    )
    await runner.setup()
    stop, loop, reloads = asyncio.Event(), asyncio.get_running_loop(), set()

    async def reload() -> None:
        try:
            await server.reload()
        except UserError as error:
            _log.error("coordinator and pool stay as they were: %s", error)
        except Exception:
            _log.exception("coordinator and pool stay as they were, for a fault of this program")

    def hang_up() -> None:
        _log.info("SIGHUP: loading keys, coordinator and pool anew")
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
        server.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(server.service.engine.settings.drain_seconds):
                await server.idle()
    finally:
        server.draining = True
        await runner.cleanup()
        for task in reloads:
            task.cancel()
        await asyncio.gather(*reloads, return_exceptions=True)
