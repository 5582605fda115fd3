"""One model behind an address, over HTTP, in any of the wire formats."""

import asyncio
import dataclasses
import json
import os
import time
from collections.abc import Sequence

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential
from yarl import URL

from trinity_jax.config import ModelSettings
from trinity_jax.errors import UserError
from trinity_jax.pool.ledger import most_input_tokens, price_of
from trinity_jax.pool.reply import Call, Outcome, Reply, Sampling
from trinity_jax.pool.wire import FORMATS, Failed, clashes, fit, header_wait, read_reply, request_body

# uvicorn closes idle connections after 5 s; a request sent in that instant would fail.
_KEEPALIVE_SECONDS = 4.0
_LONGEST_BACKOFF_SECONDS = 30.0
_LONGEST_RETRY_AFTER_SECONDS = 120.0
_SHORTEST_SECRET = 8
_DESCRIPTORS = 65_536


def open_session() -> aiohttp.ClientSession:
    """The HTTP session of a run, without aiohttp's limits of 100 connections and 300 s: each endpoint has its own."""
    _raise_descriptor_limit()
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_SECONDS, ttl_dns_cache=300)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))


def sampling_of(settings: ModelSettings) -> Sampling:
    """The decoding settings of a configured model."""
    shared = settings.model_dump(include={field.name for field in dataclasses.fields(Sampling)} - {"extra_body"})
    return Sampling(**shared, extra_body=json.dumps(settings.extra_body, sort_keys=True))


def endpoint_responders(models: Sequence[ModelSettings], session: aiohttp.ClientSession) -> list["OpenAIChat"]:
    """A client for every configured model, in head order, all on one session."""
    return [OpenAIChat(model, session) for model in models]


class OpenAIChat:
    """One model in its wire format (a ``Responder``).

    A slot of the endpoint's ``concurrency`` is held over all attempts of a call, so a server that pushes back is asked
    less; the time limit of an attempt starts once the slot is held. Attempts are repeated with full jitter, or when the
    server's Retry-After says, after 408, 409, 429, 5xx, time-outs, and connections or bodies that break off.

    Args:
        settings: address, key's variable, limits and prices.
        session: shared by all endpoints of a run; belongs to whoever opened it.
        backoff: seconds; the longest wait before attempt k + 1 is backoff 2^k.

    Raises:
        UserError: no usable address, a missing key, or body fields that this client sets itself.
    """

    def __init__(self, settings: ModelSettings, session: aiohttp.ClientSession, *, backoff: float = 0.5):
        self.name = settings.name
        self._settings = settings
        self._session = session
        base = _base_url(settings)
        form = FORMATS[settings.format]
        self._url = base / form.path(settings.model)
        self._models_url = base / "models"
        self._key = _key(settings)
        self._headers = form.headers(self._key)
        self._gate = asyncio.Semaphore(settings.concurrency)
        self._backoff = wait_random_exponential(multiplier=backoff, max=_LONGEST_BACKOFF_SECONDS)
        _check_extra_body(settings)

    async def reply(self, call: Call) -> Reply:
        """Answer one call; every failure of server or network is an outcome."""
        start = time.monotonic()
        attempts, billed = 0, 0
        try:
            call = fit(call)
        except Failed as failed:
            return Reply(failed.outcome, attempts=0, detail=str(failed))
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._settings.attempts),
            retry=retry_if_exception(_again),
            wait=self._wait,
            reraise=True,
        )
        async with self._gate:
            try:
                async for attempt in retrying:
                    with attempt:
                        attempts += 1
                        try:
                            reply = await self._attempt(call)
                        except Failed as failed:
                            billed += failed.billed
                            raise
            except Failed as failed:
                reply = Reply(failed.outcome, detail=str(failed))
        # Tokens of an attempt that broke off are not known; the caps count them at their worst.
        unseen = billed * price_of(self._settings.price, most_input_tokens(call.messages), call.sampling.max_tokens)
        return self._clean(
            dataclasses.replace(reply, cost=reply.cost + unseen, attempts=attempts, seconds=time.monotonic() - start)
        )

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

    async def _attempt(self, call: Call) -> Reply:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_seconds)
        body = json.dumps(request_body(call)).encode()
        headers = self._headers | {"Content-Type": "application/json"}
        sent = False
        try:
            async with asyncio.timeout(self._settings.total_seconds):
                # A redirect would turn the POST into a GET or carry the key elsewhere.
                async with self._session.post(
                    self._url, data=body, headers=headers, timeout=limits, allow_redirects=False
                ) as response:
                    sent = True
                    content = await response.read()
        except aiohttp.ServerTimeoutError as error:
            raise Failed(Outcome.TIMEOUT, f"no connection: {_reason(error)}", again=True) from error
        except TimeoutError as error:
            limit = f"no reply within {self._settings.total_seconds:g} s"
            raise Failed(Outcome.TIMEOUT, limit, again=True, billed=True) from error
        except aiohttp.ClientConnectorError as error:
            raise Failed(Outcome.ERROR, f"no connection: {_reason(error)}", again=True) from error
        except (aiohttp.ClientError, OSError) as error:
            what = "the reply broke off" if sent else "the connection broke off"
            raise Failed(Outcome.ERROR, f"{what}: {_reason(error)}", again=True, billed=True) from error
        if 300 <= response.status < 400:
            target = _plain(response.headers.get("Location", "nowhere"))
            raise Failed(Outcome.ERROR, f"HTTP {response.status}: redirects to {target}; put that into base_url")
        return read_reply(call, self._settings.price, response.status, content, header_wait(response.headers))

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        after = error.after if isinstance(error, Failed) else None
        # Jitter on top of Retry-After too: those who were told the same instant must not all come at it.
        return (after or 0.0) + self._backoff(state)

    def _clean(self, reply: Reply) -> Reply:
        """The reply without the key, should a server have echoed it."""
        texts = {field: getattr(reply, field) for field in ("text", "reasoning", "finish_reason", "detail")}
        clean = {field: self._without_key(text) for field, text in texts.items() if text}
        return dataclasses.replace(reply, **clean)

    def _without_key(self, text: str) -> str:
        # Placeholder keys of local servers ("EMPTY", "x") are no secrets and may be ordinary words of a reply.
        return text.replace(self._key, "***") if len(self._key) >= _SHORTEST_SECRET else text


def _again(error: BaseException) -> bool:
    if not isinstance(error, Failed) or not error.again:
        return False
    return error.after is None or error.after <= _LONGEST_RETRY_AFTER_SECONDS


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


def _raise_descriptor_limit() -> None:
    try:
        import resource
    except ImportError:  # no such limit on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
