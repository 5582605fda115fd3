"""One model behind an address, over HTTP, in any of the wire formats."""

import asyncio
import dataclasses
import itertools
import json
import os
import random
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from trinity_jax.config import ModelSettings
from trinity_jax.errors import UserError
from trinity_jax.pool.ledger import most_input_tokens, price_of
from trinity_jax.pool.limits import GivenUp, Limits, raise_descriptor_limit
from trinity_jax.pool.reply import Call, Outcome, Reply, Sampling
from trinity_jax.pool.wire import FORMATS, Failed, clashes, fit, header_wait, read_reply, request_body

# uvicorn closes idle connections after 5 s; a request sent in that instant would fail.
_KEEPALIVE_SECONDS = 4.0
# A server's queue of connections to accept is short, often 128; one that does not fit in is tried again after a second.
_NEW_CONNECTIONS = 64
_LONGEST_BACKOFF_SECONDS = 30.0
_SHORTEST_SECRET = 8


def open_session() -> aiohttp.ClientSession:
    """The HTTP session of a run, without aiohttp's limits of 100 connections and 300 s: each endpoint has its own.

    Requests are traced, so that each one's clock knows where it is (`_Request`).
    """
    raise_descriptor_limit()
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_SECONDS, ttl_dns_cache=300)
    traces = aiohttp.TraceConfig()
    traces.on_connection_create_start.append(_connecting)
    traces.on_connection_create_end.append(_connected)
    traces.on_request_headers_sent.append(_sent)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=None)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, trace_configs=[traces])


def sampling_of(settings: ModelSettings) -> Sampling:
    """The decoding settings of a configured model."""
    shared = settings.model_dump(include={field.name for field in dataclasses.fields(Sampling)} - {"extra_body"})
    return Sampling(**shared, extra_body=json.dumps(settings.extra_body, sort_keys=True))


def endpoint_responders(models: Sequence[ModelSettings], session: aiohttp.ClientSession) -> list["Endpoint"]:
    """A client for every configured model, in head order, all on one session."""
    return [Endpoint(model, session) for model in models]


class Endpoint:
    """One model in its wire format (a ``Responder``).

    Every attempt of a call asks the endpoint's limits first (`pool.limits`); a call that waits before its next attempt
    holds no place. Attempts are repeated after 408, 409, 429, 5xx, time-outs, and connections or bodies that break off:
    with full jitter on an exponential back-off, on top of what the server asks to wait. ``attempts`` bounds the
    requests that the server may have worked on. What it refused (429) or never got is tried again for as long as the
    call's patience lasts: ``patience_seconds`` of waiting in all, waiting for a place not counted.

    Args:
        settings: address, key's variable, limits and prices.
        session: from `open_session`, shared by all endpoints of a run; belongs to whoever opened it.
        backoff: seconds; the longest wait after the k-th failure is backoff 2^(k - 1), at most 30.

    Attributes:
        limits: what the endpoint takes at present.

    Raises:
        UserError: no usable address, a missing key, or body fields that this client sets itself.
    """

    def __init__(self, settings: ModelSettings, session: aiohttp.ClientSession, *, backoff: float = 0.5):
        self.name = settings.name
        self.limits = Limits(settings)
        self._settings = settings
        self._session = session
        base = _base_url(settings)
        form = FORMATS[settings.format]
        self._url = base / form.path(settings.model)
        self._models_url = base / "models"
        self._key = _key(settings)
        self._headers = form.headers(self._key) | {"Content-Type": "application/json"}
        self._opening = asyncio.Semaphore(_NEW_CONNECTIONS)
        self._backoff = backoff
        _check_extra_body(settings)

    async def reply(self, call: Call) -> Reply:
        """Answer one call; every failure of server or network is an outcome."""
        start = time.monotonic()
        try:
            call = fit(call)
        except Failed as failed:
            return Reply(failed.outcome, attempts=0, detail=str(failed))
        body = json.dumps(request_body(call)).encode()
        patience, sent, worked, billed = self._settings.patience_seconds, 0, 0, 0
        reply: Reply | None = None
        failed: Failed | None = None
        self.limits.called()
        for failures in itertools.count():
            try:
                if failed is not None:
                    patience -= await self.limits.retry(self._wait(failed, failures), patience)
                passed = await self.limits.enter(call, patience)
            except GivenUp as why:
                failed = Failed(failed.outcome, f"{failed}; given up: {why}") if failed else _unreached(why)
                break
            patience -= passed.waited
            request, failed = _Request(self._settings, self._opening), None
            try:
                reply = await self._attempt(call, body, request)
            except Failed as caught:
                failed = caught
            finally:
                self.limits.leave(
                    passed, reached=request.reached, pushed=_pushed(request, failed), used=_used(reply, failed)
                )
            sent += request.sent
            if failed is None:
                break
            billed += failed.billed
            worked += request.sent and failed.outcome is not Outcome.RATE_LIMITED
            if not failed.again or worked >= self._settings.attempts:
                break
        if reply is None:
            assert failed is not None
            reply = Reply(failed.outcome, detail=str(failed))
        if billed:
            # Tokens of an attempt that broke off are not known; the caps count them at their worst.
            worst = price_of(
                self._settings.price, most_input_tokens(call.messages, call.sampling), call.sampling.max_tokens
            )
            reply = dataclasses.replace(reply, cost=reply.cost + billed * worst)
        return dataclasses.replace(self._clean(reply), attempts=sent, seconds=time.monotonic() - start)

    async def check(self) -> None:
        """See whether the endpoint is there at all, before any work.

        Raises:
            UserError: nothing answers at the address, or it refuses the key.
        """
        where = f"pool model {self.name}: {self._settings.base_url}"
        try:
            async with (
                asyncio.timeout(self._settings.connect_seconds),
                self._session.get(self._models_url, headers=self._headers, allow_redirects=False) as response,
            ):
                status = response.status
        except TimeoutError as error:
            raise UserError(f"{where}: no answer within {self._settings.connect_seconds:g} s") from error
        except aiohttp.ClientError as error:
            raise UserError(f"{where}: cannot be reached ({self._without_key(_reason(error))})") from error
        if status in (401, 403):
            variable = self._settings.api_key_env
            blame = f"the key in {variable}" if variable else "requests without a key (set api_key_env)"
            raise UserError(f"{where}: refuses {blame} (HTTP {status})")

    async def close(self) -> None:
        """Nothing to free: the session belongs to whoever opened it."""

    async def _attempt(self, call: Call, body: bytes, request: "_Request") -> Reply:
        try:
            async with asyncio.timeout(None) as request.clock:
                # A redirect would turn the POST into a GET or carry the key elsewhere.
                async with self._session.post(
                    self._url, data=body, headers=self._headers, allow_redirects=False, trace_request_ctx=request
                ) as response:
                    content = response.content
                    parts = [content.read_nowait()]
                    request.reached = True
                    while not content.at_eof():
                        request.goes_on()
                        parts.append(await content.readany())
        except TimeoutError as error:
            raise Failed(Outcome.TIMEOUT, request.missed(), again=True, billed=request.sent) from error
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError) as error:
            raise Failed(Outcome.ERROR, f"no safe connection: {_reason(error)}") from error
        except (aiohttp.ClientError, OSError) as error:
            what = f"{request.broke()}: {_reason(error)}"
            raise Failed(Outcome.ERROR, what, again=True, billed=request.sent) from error
        finally:
            request.close()
        if 300 <= response.status < 400:
            target = _plain(response.headers.get("Location", "nowhere"))
            raise Failed(Outcome.ERROR, f"HTTP {response.status}: redirects to {target}; put that into base_url")
        after = header_wait(response.headers)
        return read_reply(call, self._settings.price, response.status, b"".join(parts), after)

    def _wait(self, failed: Failed, failures: int) -> float:
        # Jitter on top of Retry-After too: those who were told the same instant must not all come at it.
        longest = min(_LONGEST_BACKOFF_SECONDS, self._backoff * 2.0 ** min(failures - 1, 30))
        return (failed.after or 0.0) + random.uniform(0.0, longest)

    def _clean(self, reply: Reply) -> Reply:
        """The reply without the key, should a server have echoed it."""
        if not self._key or self._key not in f"{reply.text} {reply.reasoning} {reply.finish_reason} {reply.detail}":
            return reply
        texts = {field: getattr(reply, field) for field in ("text", "reasoning", "finish_reason", "detail")}
        clean = {field: self._without_key(text) for field, text in texts.items() if text}
        return dataclasses.replace(reply, **clean)

    def _without_key(self, text: str) -> str:
        # Placeholder keys of local servers ("EMPTY", "x") are no secrets and may be ordinary words of a reply.
        return text.replace(self._key, "***") if len(self._key) >= _SHORTEST_SECRET else text


class _Request:
    """Where one request is: its clock allows each stage its time, and all of them after the first the total.

    Args:
        settings: the times.
        opening: places for new connections of this endpoint; waiting for one is not timed.

    Attributes:
        clock: the time-out to be moved.
        sent: whether the server may have got it.
        reached: whether a connection came about and held until an answer; None as long as that is open.
    """

    def __init__(self, settings: ModelSettings, opening: asyncio.Semaphore):
        self.clock = asyncio.timeout(None)
        self.sent = False
        self.reached: bool | None = None
        self._settings = settings
        self._opening = opening
        self._holds_opening = False
        self._ends_at = 0.0

    async def connecting(self) -> None:
        """A new connection is due: one of its endpoint's 64 at a time."""
        await self._opening.acquire()
        self._holds_opening = True
        self._allow(self._settings.connect_seconds)

    def connected(self) -> None:
        """The new connection is there."""
        self.close()

    def went(self) -> None:
        """The request is on its way: from here on the total counts."""
        self.sent = True
        self._ends_at = asyncio.get_running_loop().time() + self._settings.total_seconds
        self._allow(self._settings.first_byte_seconds)

    def goes_on(self) -> None:
        """The reply has begun, and more of it is due."""
        self._allow(self._settings.idle_seconds)

    def missed(self) -> str:
        """Which time has run out."""
        times = self._settings
        if not self.sent:
            self.reached = False
            return f"no connection within {times.connect_seconds:g} s"
        answered, self.reached = self.reached, True
        if asyncio.get_running_loop().time() >= self._ends_at:
            return f"no whole reply within {times.total_seconds:g} s"
        if answered:
            return f"the reply stopped for {times.idle_seconds:g} s"
        return f"no reply began within {times.first_byte_seconds:g} s"

    def broke(self) -> str:
        """What was cut off."""
        if self.reached:
            return "the reply broke off"
        self.reached = False
        return "the connection broke off" if self.sent else "no connection"

    def close(self) -> None:
        """Give the place for new connections back."""
        if self._holds_opening:
            self._holds_opening = False
            self._opening.release()

    def _allow(self, seconds: float) -> None:
        at = asyncio.get_running_loop().time() + seconds
        self.clock.reschedule(min(at, self._ends_at) if self.sent else at)


async def _connecting(_session: aiohttp.ClientSession, context: SimpleNamespace, _: Any) -> None:
    if context.trace_request_ctx:
        await context.trace_request_ctx.connecting()


async def _connected(_session: aiohttp.ClientSession, context: SimpleNamespace, _: Any) -> None:
    if context.trace_request_ctx:
        context.trace_request_ctx.connected()


async def _sent(_session: aiohttp.ClientSession, context: SimpleNamespace, _: Any) -> None:
    if context.trace_request_ctx:
        context.trace_request_ctx.went()


def _pushed(request: _Request, failed: Failed | None) -> bool | None:
    """Whether the endpoint pushed back; None where it was not reached."""
    if not request.reached:
        return None
    return failed is not None and failed.again and failed.outcome in (Outcome.RATE_LIMITED, Outcome.TIMEOUT)


def _used(reply: Reply | None, failed: Failed | None) -> float | None:
    """Tokens that count into the endpoint's rate: a refused request uses none, one that broke off maybe all."""
    if reply is not None:
        return reply.input_tokens + reply.output_tokens
    return None if failed is None or failed.billed else 0.0


def _unreached(why: GivenUp) -> Failed:
    return Failed(Outcome.ERROR, f"not sent: {why}")


def _base_url(settings: ModelSettings) -> URL:
    where = f"pool model {settings.name}: base_url"
    try:
        url = URL(settings.base_url.rstrip("/"))
        (url.host or "").encode("idna")  # as the name look-up will
    except ValueError as error:
        raise UserError(f"{where}: not an address: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise UserError(f"{where}: expected http(s)://host[:port]/path, got {_plain(settings.base_url)!r}")
    if url.user or url.password or url.query_string or url.fragment:
        raise UserError(f"{where}: may hold no user, password, query or fragment; the key goes through api_key_env")
    return url


def _check_extra_body(settings: ModelSettings) -> None:
    where = f"pool model {settings.name}: extra_body"
    try:
        json.dumps(settings.extra_body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: cannot be sent as JSON ({error})") from error
    own = clashes(FORMATS[settings.format].own, settings.extra_body)
    if own:
        raise UserError(f"{where}: may not set {', '.join(own)}")
    for field in ("max_tokens", "max_completion_tokens"):
        limit = settings.extra_body.get(field)
        # The budget reserves for max_tokens.
        if limit is not None and not (isinstance(limit, int) and 1 <= limit <= settings.max_tokens):
            raise UserError(f"{where}.{field}: expected at most max_tokens ({settings.max_tokens}), got {limit!r}")


def _key(settings: ModelSettings) -> str:
    variable = settings.api_key_env
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(f"pool model {settings.name}: environment variable {variable} (api_key_env) is not set")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UserError(f"pool model {settings.name}: environment variable {variable} holds no usable key")
    return key


def _plain(url: str) -> str:
    return url.partition("?")[0].rpartition("@")[2]


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
