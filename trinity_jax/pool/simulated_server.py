"""A chat-completions server that fails in every known way: for tests, benches and rehearsals without keys.

    python -m trinity_jax.pool.simulated_server --port 8000 --latency lognormal:0.2:0.8 --fault 429=0.05

It speaks three roles: a Worker's reply echoes the last number of what it was asked, a Thinker asks for a Worker, a
Verifier accepts a given share. Latency, faults and verdicts are drawn from a hash of (seed, request body, how often
this body came before): the same requests meet the same luck in whatever order they come. A reply counts its latency as
generated tokens, one a millisecond, so that whoever reads the usage knows how long the server took on purpose.
"""

import argparse
import asyncio
import json
import math
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import blake2b
from statistics import NormalDist
from typing import Any, NamedTuple

from aiohttp import web

from trinity_jax.pool.limits import raise_descriptor_limit

USAGE = {"prompt_tokens": 11, "completion_tokens": 7}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_SLOW_SECONDS = 1.0


class Latency(NamedTuple):
    """How long the server takes: ``constant``, ``exponential`` or ``lognormal``, with its mean in seconds.

    ``sigma`` is the standard deviation of the logarithm (lognormal only).
    """

    kind: str = "constant"
    mean: float = 0.0
    sigma: float = 0.8

    @classmethod
    def parse(cls, text: str) -> "Latency":
        """``KIND:MEAN`` or ``lognormal:MEAN:SIGMA``.

        Raises:
            ValueError: neither.
        """
        kind, *numbers = text.split(":")
        if kind not in ("constant", "exponential", "lognormal") or not 1 <= len(numbers) <= 2:
            raise ValueError(f"expected constant:MEAN, exponential:MEAN or lognormal:MEAN:SIGMA, got {text!r}")
        latency = cls(kind, *map(float, numbers))
        if not (0 <= latency.mean < math.inf and 0 <= latency.sigma < math.inf):
            raise ValueError(f"expected seconds of at least 0, got {text!r}")
        return latency

    def draw(self, share: float) -> float:
        """The latency that a share of all requests stays below; ``share`` in (0, 1)."""
        if self.kind == "exponential":
            return -self.mean * math.log1p(-share)
        if self.kind == "lognormal":
            return self.mean * math.exp(self.sigma * NormalDist().inv_cdf(share) - self.sigma**2 / 2)
        return self.mean


_AT_ONCE = Latency()


def completion(content: Any = "fine", finish: str | None = "stop", usage: Any = USAGE, **message: Any) -> dict:
    """A reply's JSON."""
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
    "429 milliseconds": lambda: web.json_response(
        {"error": {"message": "slow down"}}, status=429, headers={"retry-after-ms": "50"}
    ),
    "429 message": _error("Rate limit reached. Please try again in 50ms.", 429),
    "429 details": lambda: web.json_response(
        {
            "error": {
                "code": 429,
                "status": "RESOURCE_EXHAUSTED",
                "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.05s"}],
            }
        },
        status=429,
    ),
    "429 quota": _error("insufficient_quota: check your plan", 429),
    "500": _error("boom", 500),
    "503 html": lambda: web.Response(text="<html>bad gateway</html>", status=503, content_type="text/html"),
    "502": _error("upstream died", 502),
    "503": _error("overloaded", 503),
    "504": _error("upstream is slow", 504),
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
    "empty content": lambda: web.json_response(completion("")),
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

_BY_HAND = ("hang", "reset", "cut body", "slow first byte", "slow body", "closes", "echo key", "echo key as content")
FAULTS = (*RESPONSES, *_BY_HAND)
"""What can go wrong. ``hang``: no answer ever; ``closes``: the connection ends unannounced behind a whole reply."""


class SimulatedServer:
    """Serves while it is entered (``async with``), in the running event loop.

    Args:
        script: what to do with the first requests, one name of ``FAULTS`` each; ``ok`` says "fine".
        latency: of every request that is not cut short.
        faults: chance of each fault once the script is done.
        seed: of latencies, faults and verdicts.
        slots: requests it works on at once; the rest get 429. None for any number.
        accepts: a Verifier's chance to accept.
        slow: seconds of ``slow first byte`` and of the gap in ``slow body``.
        remember: whether to keep requests and headers.
        host: where to listen.
        port: 0 for a free one.

    Attributes:
        requests: bodies received.
        headers: their headers.
        most: the most requests that were open at once.
        port: where it listens, once entered.
        counts: how often which fault was played, ``ok`` included.
    """

    def __init__(
        self,
        *script: str,
        latency: Latency = _AT_ONCE,
        faults: Mapping[str, float] | None = None,
        seed: int = 0,
        slots: int | None = None,
        accepts: float = 0.5,
        slow: float = _SLOW_SECONDS,
        remember: bool = True,
        host: str = "127.0.0.1",
        port: int = 0,
    ):
        self.script = list(script)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most = 0
        self.counts: Counter[str] = Counter()
        self._latency = latency
        self._faults = dict(faults or {})
        self._seed = seed
        self._slots = math.inf if slots is None else slots
        self._accepts = accepts
        self._slow = slow
        self._remember = remember
        self._host, self.port = host, port
        self._came: Counter[bytes] = Counter()
        self._open = 0
        self._stopped = asyncio.Event()

    @property
    def url(self) -> str:
        """The base address for a client's settings."""
        return f"http://{self._host}:{self.port}/v1"

    async def __aenter__(self) -> "SimulatedServer":
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self._handle)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, shutdown_timeout=0.05, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self.port, backlog=8192).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped.set()
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.StreamResponse:
        if self.script and self.script[0] in ("hang", "401", "404"):
            fault = self.script.pop(0)
            if fault == "hang":
                await self._stopped.wait()
            return web.json_response({}, status=int(fault) if fault.isdigit() else 200)
        return web.json_response({"data": []})

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        if self._remember:
            self.requests.append(json.loads(content))
            self.headers.append(dict(request.headers))
        with self._counted():
            if self._open > self._slots:
                self.counts["429"] += 1
                return RESPONSES["429"]()
            luck = self._luck(content)
            drawn, seconds = self._fault(next(luck)), self._latency.draw(next(luck))
            scripted = self.script.pop(0) if self.script else None
            fault = scripted or drawn
            self.counts[fault] += 1
            if seconds:
                await asyncio.sleep(seconds)
            if scripted is None and fault == "ok":
                return web.json_response(self._spoken(json.loads(content), next(luck), seconds))
            return await self._answer(request, fault)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._open += 1
        self.most = max(self.most, self._open)
        try:
            yield
        finally:
            self._open -= 1

    def _luck(self, content: bytes) -> Iterator[float]:
        """Uniform draws in (0, 1) of this request."""
        body = blake2b(content, digest_size=16).digest()
        self._came[body] += 1
        drawn = blake2b(b"%d %d " % (self._seed, self._came[body]) + body, digest_size=24).digest()
        return ((int.from_bytes(drawn[i : i + 8], "big") + 0.5) / 2.0**64 for i in (0, 8, 16))

    def _fault(self, draw: float) -> str:
        for fault, chance in self._faults.items():
            if draw < chance:
                return fault
            draw -= chance
        return "ok"

    def _spoken(self, body: dict[str, Any], draw: float, seconds: float) -> dict[str, Any]:
        system, asked = (str(body["messages"][i].get("content")) for i in (0, -1))
        if "VERDICT" in system:
            text = f"VERDICT: {'ACCEPT' if draw < self._accepts else 'REJECT'}"
        elif "<suggested_role>" in system:
            text = "<suggestion>Look again.</suggestion><suggested_role>worker</suggested_role>"
        else:
            number = (_NUMBER.findall(asked) or ["0"])[-1]
            text = f"<idea>I echo.</idea><answer>{number}</answer>"
        usage = {"prompt_tokens": len(asked) // 4, "completion_tokens": round(1000 * seconds)}
        return completion(text, usage=usage)

    async def _answer(self, request: web.Request, fault: str) -> web.StreamResponse:
        transport = request.transport
        if transport is None:  # the client has gone meanwhile
            return web.Response()
        if fault == "hang":
            await self._stopped.wait()
        elif fault == "reset":
            transport.abort()
        elif fault == "slow first byte":
            await asyncio.sleep(self._slow)
        elif fault in ("cut body", "slow body"):
            return await self._in_parts(request, transport, json.dumps(completion()).encode(), fault == "cut body")
        elif fault == "closes":
            response = web.json_response(completion())
            await response.prepare(request)
            await response.write_eof()
            transport.close()
            return response
        elif fault == "echo key":
            said = {"error": {"message": f"bad header {request.headers.get('Authorization')}"}}
            return web.json_response(said, status=400)
        elif fault == "echo key as content":
            return web.json_response(completion(f"you sent {request.headers.get('Authorization')}"))
        return RESPONSES.get(fault, RESPONSES["ok"])()

    async def _in_parts(
        self, request: web.Request, transport: asyncio.BaseTransport, content: bytes, cut: bool
    ) -> web.StreamResponse:
        headers = {"Content-Length": str(len(content)), "Content-Type": "application/json"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(content[:14])
        if cut:
            transport.close()
            return response
        await asyncio.sleep(self._slow)
        await response.write(content[14:])
        await response.write_eof()
        return response


def main(arguments: list[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM; the first line printed is the address."""
    parser = argparse.ArgumentParser(prog="python -m trinity_jax.pool.simulated_server", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency", type=Latency.parse, default=Latency("lognormal", 0.2, 0.8), metavar="KIND:MEAN")
    parser.add_argument(
        "--fault", action="append", type=_chance, default=[], metavar="NAME=CHANCE", help=", ".join(FAULTS)
    )
    parser.add_argument("--slots", type=int, help="requests worked on at once; more get 429")
    parser.add_argument("--accepts", type=float, default=0.5, help="a Verifier's chance to accept")
    parser.add_argument("--slow", type=float, default=_SLOW_SECONDS, help="seconds of the slow faults")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    given = {**vars(options), "faults": dict(options.fault)}
    del given["fault"]
    if sum(given["faults"].values()) > 1:
        parser.error("--fault: the chances sum to more than 1")
    raise_descriptor_limit()
    return asyncio.run(_serve(SimulatedServer(remember=False, **given)))


def _chance(text: str) -> tuple[str, float]:
    name, _, chance = text.rpartition("=")
    if name not in FAULTS or not 0 <= float(chance) <= 1:
        raise ValueError(f"expected NAME=CHANCE with a chance in [0, 1], got {text!r}")
    return name, float(chance)


async def _serve(server: SimulatedServer) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: Ctrl-C ends it the other way
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with server:
        print(server.url, flush=True)
        await stop.wait()
        print(json.dumps({"most": server.most, **server.counts}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
