"""The server under load: what it adds to a request, how many it answers beside LiteLLM's proxy, minutes of faults.

Usage: python scripts/bench_serving.py [--minutes M] [--seconds S] [--litellm VENV] [--json]

A tiny coordinator of one call a request, a simulated endpoint and the server, each in a process of its own on loopback;
the clients are here. What is added is a request's time at the client, less what the endpoint took on purpose (its usage
says so), less the coordinator's forward passes (the trace says so), less the way without us: what remains at the client
where as many requests go to the endpoint itself (the median, measured before and after). LiteLLM's proxy
(`pip install 'litellm[proxy]'` in VENV) stands before the same endpoint, one worker, as ours; without --litellm it is
left out.

The last line of --json is one JSON object: added_p50_ms and added_p99_ms at 64 requests in flight, direct_p50_ms (the
way without us), forward_p50_ms, rps (sustained, 64 in flight, an endpoint that answers at once), rps_over_litellm, and
of the minutes of mixed load, 200 in flight: leak_percent (resident memory from the end of the warm-up to the end), lost
(requests without an answer), malformed (errors that are not in OpenAI's form).
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.serving.served import write_tiny  # noqa: E402
from trinity_jax.pool.limits import raise_descriptor_limit  # noqa: E402

AT_ONCE, IN_FLIGHT = 64, 200
LATENCY = "lognormal:0.5:0.4"
FAULTS = {"429": 0.02, "500": 0.02, "reset": 0.01, "cut body": 0.01, "empty choices": 0.01, "null content": 0.01}
WARM_UP_SHARE = 0.2
BUCKETS = (256, 512, 1024)
# A small cache is full before the warm-up ends: what grows later is no cache.
SERVING = {"fallback": "bo", "cache_mb": 8}
WORDS = ["apple", "river", "stone", "cloud", "seven", "green", "table", "music", "paper", "quick", "north", "silver"]


def main() -> int:
    """Exit code 0; the figures are for whoever asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of mixed load with faults; 0 leaves it out")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each other measurement")
    parser.add_argument("--litellm", type=Path, metavar="VENV", help="a virtual environment with litellm[proxy]")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = parser.parse_args()
    raise_descriptor_limit()
    say = (lambda *_: None) if options.json else print
    with tempfile.TemporaryDirectory() as name:
        found = asyncio.run(measured(Path(name), options, say))
    print(json.dumps(found))
    return 0


async def measured(folder: Path, options: argparse.Namespace, say: Callable[..., None]) -> dict[str, Any]:
    """All figures."""
    coordinator = write_tiny(folder, max_calls=1, buckets=BUCKETS)
    found: dict[str, Any] = {}
    async with endpoint(folder, LATENCY) as url, ours(folder, coordinator, url) as (address, _), client() as session:
        await load(session, address, AT_ONCE, 3.0)
        before = await load(session, url.removesuffix("/v1"), AT_ONCE, options.seconds / 4)
        through = await load(session, address, AT_ONCE, options.seconds)
        after = await load(session, url.removesuffix("/v1"), AT_ONCE, options.seconds / 4)
    direct = quantile(before.beside + after.beside, 0.5)
    found["added_p50_ms"], found["added_p99_ms"] = (round(quantile(through.beside, q) - direct, 2) for q in (0.5, 0.99))
    found["direct_p50_ms"], found["forward_p50_ms"] = round(direct, 2), round(quantile(through.forward, 0.5), 2)
    say(
        f"{AT_ONCE} in flight, {through.rate:.0f} requests/s: added {found['added_p50_ms']} ms (p50), "
        f"{found['added_p99_ms']} ms (p99); the way without us takes {found['direct_p50_ms']} ms"
    )
    async with endpoint(folder, "constant:0") as url, client() as session:
        rates: dict[str, list[float]] = {"ours": [], "litellm": []}
        for _ in range(2):
            async with ours(folder, coordinator, url) as (address, _):
                await load(session, address, AT_ONCE, 3.0)
                rates["ours"].append((await load(session, address, AT_ONCE, options.seconds / 2)).rate)
            if options.litellm:
                async with litellm(folder, options.litellm, url) as address:
                    await load(session, address, AT_ONCE, 3.0)
                    rates["litellm"].append((await load(session, address, AT_ONCE, options.seconds / 2)).rate)
    rps = statistics.mean(rates["ours"])
    theirs = statistics.mean(rates["litellm"]) if options.litellm else None
    found |= {"rps": round(rps, 1), "rps_litellm": theirs and round(theirs, 1)}
    found["rps_over_litellm"] = theirs and round(rps / theirs, 2)
    say(f"sustained: {found['rps']} requests/s; LiteLLM: {found['rps_litellm'] or 'left out (--litellm VENV)'}")
    found |= {"leak_percent": None, "lost": None, "malformed": None}
    if options.minutes:
        faults = [part for name, chance in FAULTS.items() for part in ("--fault", f"{name}={chance}")]
        async with (
            endpoint(folder, LATENCY, *faults) as url,
            # Three calls a request here: turns, not just a proxy.
            ours(folder, write_tiny(folder / "three", max_calls=3, buckets=BUCKETS), url) as (address, process),
        ):
            found |= await soak(address, process, 60 * options.minutes, say)
    return found


class Load:
    """What a load of equal requests came to; times in milliseconds, ``beside`` those of endpoint and forward passes."""

    def __init__(self) -> None:
        self.beside: list[float] = []
        self.forward: list[float] = []
        self.seconds = 0.0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.beside) / self.seconds


async def load(session: aiohttp.ClientSession, address: str, at_once: int, seconds: float) -> Load:
    """Ask new questions for so long, so many at once.

    Raises:
        RuntimeError: an answer that is none.
    """
    found, numbers = Load(), itertools.count()
    began = time.perf_counter()

    async def ask() -> None:
        # Not all in one instant: what is measured is so many in flight, not so many that arrive together.
        await asyncio.sleep(random.random())
        while time.perf_counter() - began < seconds:
            sent = time.perf_counter()
            async with session.post(f"{address}/v1/chat/completions", json=body(next(numbers))) as response:
                answer = await response.json()
            took = 1e3 * (time.perf_counter() - sent)
            if response.status != 200:
                raise RuntimeError(f"{address}: HTTP {response.status}: {answer}")
            forward = sum(turn["forward_ms"] for turn in answer.get("trinity", {}).get("turns", ()))
            found.forward.append(forward)
            found.beside.append(took - forward - answer["usage"]["completion_tokens"])

    await asyncio.gather(*(ask() for _ in range(at_once)))
    found.seconds = time.perf_counter() - began
    return found


async def soak(
    address: str, process: subprocess.Popen[str], seconds: float, say: Callable[..., None]
) -> dict[str, Any]:
    """Mixed requests, 200 in flight: streams, Responses, dry runs, clients that leave, nonsense."""
    outcomes: Counter[str] = Counter()
    memory: list[tuple[float, float]] = []
    began, luck, numbers = time.perf_counter(), random.Random(0), itertools.count()

    async def ask(session: aiohttp.ClientSession) -> None:
        while time.perf_counter() - began < seconds:
            kind = luck.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
            try:
                async with asyncio.timeout(60):
                    outcomes[await KINDS[kind][1](session, address, next(numbers))] += 1
            except Exception as error:
                outcomes["lost"] += 1
                say(f"lost: {kind}: {type(error).__name__}: {error}")

    async def watch() -> None:
        while time.perf_counter() - began < seconds:
            memory.append((time.perf_counter() - began, resident_mb(process.pid)))
            await asyncio.sleep(1.0)

    async with client() as session:
        await asyncio.gather(watch(), *(ask(session) for _ in range(IN_FLIGHT)))
        async with session.get(f"{address}/health") as response:
            left = (await response.json())["in_flight"]
    window = seconds * WARM_UP_SHARE / 2
    after = statistics.mean(mb for at, mb in memory if seconds * WARM_UP_SHARE <= at < seconds * WARM_UP_SHARE + window)
    end = statistics.mean(mb for at, mb in memory if at >= seconds - window)
    tenths = [statistics.mean(mb for at, mb in memory if i <= 10 * at / seconds < i + 1) for i in range(10)]
    say(f"resident MB by tenths: {', '.join(f'{mb:.0f}' for mb in tenths)}")
    say(f"{sum(outcomes.values())} requests in {seconds:.0f} s, {dict(outcomes)}; {after:.1f} MB, then {end:.1f} MB")
    return {
        "leak_percent": round(100 * (end - after) / after, 2),
        "lost": outcomes["lost"] + left,
        "malformed": outcomes["malformed"],
        "outcomes": dict(outcomes),
    }


async def plain(session: aiohttp.ClientSession, address: str, number: int) -> str:
    """A chat completion."""
    return await answered(session, f"{address}/v1/chat/completions", body(number))


async def dry(session: aiohttp.ClientSession, address: str, number: int) -> str:
    """Who would answer."""
    return await answered(session, f"{address}/v1/chat/completions", body(number, trinity={"dry_run": True}))


async def response(session: aiohttp.ClientSession, address: str, number: int) -> str:
    """OpenAI's Responses."""
    asked = body(number)
    asked["input"] = asked.pop("messages")
    return await answered(session, f"{address}/v1/responses", asked)


async def nonsense(session: aiohttp.ClientSession, address: str, number: int) -> str:
    """A request that has to be refused."""
    wrong = [{"model": "trinity"}, {"model": "nix", "messages": []}, body(number, n=3), body(number, messages="hello")]
    return await answered(session, f"{address}/v1/chat/completions", wrong[number % len(wrong)])


async def streamed(session: aiohttp.ClientSession, address: str, number: int) -> str:
    """A stream, read to its end."""
    async with session.post(f"{address}/v1/chat/completions", json=body(number, stream=True)) as found:
        if found.content_type != "text/event-stream":
            return in_form(found.status, await found.read())
        text = (await found.read()).decode()
    if text.endswith("data: [DONE]\n\n") and ('"finish_reason": "stop"' in text or '"finish_reason": "length"' in text):
        return "answered"
    return "refused" if '{"error": {"message"' in text else "malformed"


async def left(session: aiohttp.ClientSession, address: str, number: int) -> str:
    """A client that goes before it has an answer."""
    try:
        async with asyncio.timeout(0.05):
            await plain(session, address, number)
    except TimeoutError:
        return "left"
    return "answered"


KINDS: dict[str, tuple[float, Callable[[aiohttp.ClientSession, str, int], Awaitable[str]]]] = {
    "plain": (0.5, plain),
    "streamed": (0.2, streamed),
    "response": (0.15, response),
    "dry": (0.05, dry),
    "left": (0.05, left),
    "nonsense": (0.05, nonsense),
}


async def answered(session: aiohttp.ClientSession, url: str, asked: dict[str, Any]) -> str:
    """How one request that is not streamed ended."""
    async with session.post(url, json=asked) as found:
        return in_form(found.status, await found.read())


def in_form(status: int, content: bytes) -> str:
    """``answered``, ``refused`` in OpenAI's form, or ``malformed``."""
    try:
        data = json.loads(content)
        if status == 200:
            return "answered" if data["object"] in ("chat.completion", "response") else "malformed"
        error = data["error"]
        whole = error.keys() == {"message", "type", "param", "code"} and isinstance(error["message"], str)
        return "refused" if whole and isinstance(error["type"], str) else "malformed"
    except (ValueError, TypeError, KeyError, AttributeError):
        return "malformed"


def body(number: int, **fields: Any) -> dict[str, Any]:
    """A question that was not asked before."""
    luck = random.Random(number)
    words = " ".join(luck.choices(WORDS, k=3))
    question = f"Read this: {words}. What is {luck.randrange(1000)} * {number}?"
    return {"model": "trinity", "messages": [{"role": "user", "content": question}], **fields}


def quantile(values: list[float], share: float) -> float:
    """The value below which a share of all lies."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def resident_mb(process: int) -> float:
    """Resident memory of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """A session without limits of its own."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
        yield session


@contextlib.asynccontextmanager
async def endpoint(folder: Path, latency: str, *faults: str) -> AsyncIterator[str]:
    """The address of a simulated endpoint in its own process."""
    command = [sys.executable, "-m", "trinity_jax.pool.simulated_server", "--latency", latency, *faults]
    with running(command, folder / "endpoint.log") as process:
        assert process.stdout is not None
        yield (await asyncio.to_thread(process.stdout.readline)).strip()


@contextlib.asynccontextmanager
async def ours(folder: Path, coordinator: Path, url: str) -> AsyncIterator[tuple[str, subprocess.Popen[str]]]:
    """The address of our server, and its process."""
    models = [{"name": name, "model": name, "base_url": url, "concurrency": 256} for name in ("ada", "bo")]
    pool = folder / "pool.yaml"
    pool.write_text(yaml.safe_dump({"pool": {"kind": "endpoints", "models": models}, "serving": SERVING}))
    command = [sys.executable, "-m", "trinity_jax", "serve", str(coordinator), "--pool", str(pool), "--port", "0"]
    with running(command, folder / "serve.log", JAX_PLATFORMS="cpu") as process:
        assert process.stdout is not None
        line = (await asyncio.to_thread(process.stdout.readline)).strip()
        if not line:
            raise RuntimeError((folder / "serve.log").read_text()[-2000:])
        yield line.rpartition(" ")[2].removesuffix("/v1"), process


@contextlib.asynccontextmanager
async def litellm(folder: Path, venv: Path, url: str) -> AsyncIterator[str]:
    """The address of LiteLLM's proxy with one worker before the same endpoint."""
    parameters = {"model": "openai/ada", "api_base": url, "api_key": "none"}
    config = folder / "litellm.yaml"
    config.write_text(yaml.safe_dump({"model_list": [{"model_name": "trinity", "litellm_params": parameters}]}))
    port = random.randrange(20_000, 60_000)
    command = [str(venv / "bin/litellm"), "--config", str(config), "--port", str(port), "--num_workers", "1"]
    command += ["--host", "127.0.0.1", "--telemetry", "False"]
    address = f"http://127.0.0.1:{port}"
    variables = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    variables["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"  # on loopback, as ours without keys
    with running(command, folder / "litellm.log", **variables):
        async with client() as session:
            for _ in range(240):
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{address}/health/liveliness") as found:
                        if found.status == 200:
                            break
                await asyncio.sleep(0.5)
            else:
                raise RuntimeError(f"LiteLLM did not start: {(folder / 'litellm.log').read_text()[-2000:]}")
        yield address


@contextlib.contextmanager
def running(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block."""
    with log.open("w") as errors:
        variables = {**os.environ, **environment}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=variables, cwd=ROOT)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
