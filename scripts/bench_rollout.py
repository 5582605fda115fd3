"""How close a generation of real calls comes to what the endpoint allows, and what each call costs this machine.

Usage: python scripts/bench_rollout.py [--part NAME ...] [--repeats N] [--json]

A simulated server in a process of its own answers on loopback; every part runs in a fresh process, repeated with the
server's seeds 0, 1, ..., the best kept (another load on the machine only adds). The stub population takes 20 ms a batch
of decisions, calls are journaled and not shared, episodes have five turns. The last line of --json is one JSON object:

wall_over_bound       32 candidates x 16 questions, latency lognormal (mean 0.2 s, sigma 0.8): wall / bound, where the
                      bound is max(longest episode, total call time / slots), an episode being its calls' latencies as
                      the server drew them plus 20 ms a decision. Slots 1,024: more than there are episodes. The gate
                      starts at 64 as in every first generation.
wall_over_bound_128   the same with 128 slots.
calls_per_s           zero latency, no time for decisions, 1,024 in flight, 10,240 calls: episodes, journal, replies.
cpu_over_aiohttp      CPU seconds of that over those of as many POSTs by aiohttp alone, as it comes, 1,024 at once.
faulty_over_clean     5 % 429, 2 % HTTP 500, 1 % hang, 1 % cut body, 1.5 s for a request: wall / wall without faults,
                      medians over the seeds.
lost_episodes         of that run; each is checked to have lost a call whose five attempts ran out.
in_flight_4096_rss_gb peak memory of the client's process with 4,096 calls in flight at once.
shared_call_ratio     calls asked for / calls made, in three generations of the quickstart.
"""

import argparse
import asyncio
import gc
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trinity_jax.config import BudgetSettings, EpisodeSettings, ModelSettings, PoolSettings  # noqa: E402
from trinity_jax.coordinator.population import Choice, Row  # noqa: E402
from trinity_jax.pool.journal import Journal  # noqa: E402
from trinity_jax.pool.pool import Pool, build_pool  # noqa: E402
from trinity_jax.rollout.batcher import Batcher  # noqa: E402
from trinity_jax.rollout.decide import EpisodeKey  # noqa: E402
from trinity_jax.rollout.engine import EpisodeResult, rollout  # noqa: E402
from trinity_jax.tasks.question import Question  # noqa: E402

EPISODE = EpisodeSettings(verifier_needs_response=True)
LATENCY = ("--latency", "lognormal:0.2:0.8")
AT_ONCE = ("--latency", "constant:0")
FAULTS = [word for fault in ("429=0.05", "500=0.02", "hang=0.01", "cut body=0.01") for word in ("--fault", fault)]
DECISION = 0.02
CANDIDATES = 32
HANG_SECONDS = 1.5


class StubPopulation:
    """Takes its time and draws a role from the row's key alone."""

    def __init__(self, seconds: float):
        self._seconds = seconds

    def decide(self, rows: list[Row], mode: str) -> list[Choice]:
        """One batch."""
        if self._seconds:
            time.sleep(self._seconds)
        return [self._choice(row) for row in rows]

    @staticmethod
    def _choice(row: Row) -> Choice:
        open_roles = [role for role in range(3) if row.roles[role]]
        draw = hashlib.blake2b(repr((row.candidate, row.key)).encode(), digest_size=8)
        role = open_roles[int.from_bytes(draw.digest(), "big") % len(open_roles)]
        return Choice(0, role, (1.0,), (0.4, 0.3, 0.3), draw.hexdigest())


class StubRouter:
    """Token ids are not looked at."""

    def ids(self, view: str) -> tuple[int, ...]:
        """One id."""
        return (len(view),)


def generation(questions: int, slots: int, decision: float, **settings: Any) -> Callable[[str], dict[str, Any]]:
    """A part that plays ``CANDIDATES`` x ``questions`` episodes; what it measured, and each episode's times."""

    def part(url: str) -> dict[str, Any]:
        model = ModelSettings(name="m", model="m", base_url=url, concurrency=slots, **settings)
        sums = [Question(f"q{q}", "sum", f"[{q}] What is {q} + 0?", str(q), "numeric") for q in range(questions)]
        keys = [EpisodeKey(0, p, q, p) for p in range(CANDIDATES) for q in range(questions)]

        async def play() -> dict[str, Any]:
            with tempfile.TemporaryDirectory() as folder, Journal.open(Path(folder) / "journal.sqlite") as journal:
                pool = await build_pool(PoolSettings(kind="endpoints", models=(model,)), journal, BudgetSettings())
                batcher = Batcher(StubPopulation(decision), StubRouter(), EPISODE, journal, False)  # pyright: ignore[reportArgumentType]
                async with pool:
                    gc.collect()
                    gc.freeze()  # as training.train does
                    cpu, start = time.process_time(), time.perf_counter()
                    results = await rollout(keys, sums, batcher, pool, EPISODE, "bench")
                    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
                    batcher.close()
                    return {"wall": wall, "cpu": cpu, **_episodes(results, pool, decision, model.attempts)}

        return asyncio.run(play())

    return part


def _episodes(results: list[EpisodeResult], pool: Pool, decision: float, attempts: int) -> dict[str, Any]:
    # The simulated server counts its latency as tokens, one a millisecond.
    seconds = [sum(reply.output_tokens for reply in result.replies) / 1e3 for result in results]
    whole = [s + decision * len(result.decisions) for s, result in zip(seconds, results, strict=True)]
    lost = [result for result in results if result.reward is None]
    return {
        "calls": pool.counters.made,
        "longest": max(whole),
        "total": sum(seconds),
        "attempts": sum(reply.attempts for result in results for reply in result.replies),
        "lost": len(lost),
        "lost_early": sum(result.replies[-1].attempts < attempts for result in lost),
    }


def bare(questions: int, slots: int) -> Callable[[str], dict[str, Any]]:
    """As many POSTs by aiohttp alone: bodies written, replies read."""

    def part(url: str) -> dict[str, Any]:
        calls = CANDIDATES * questions * EPISODE.max_calls
        text = "x" * 600
        left = iter(range(calls))

        async def work(session: Any) -> None:
            for number in left:
                messages = [{"role": "system", "content": text}, {"role": "user", "content": f"{number} {text[:100]}"}]
                body = json.dumps({"model": "m", "messages": messages, "max_tokens": 4096, "temperature": 0.1})
                headers = {"Content-Type": "application/json"}
                async with session.post(f"{url}/chat/completions", data=body.encode(), headers=headers) as response:
                    assert json.loads(await response.read())["choices"]

        async def play() -> dict[str, Any]:
            import aiohttp

            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as session:
                cpu, start = time.process_time(), time.perf_counter()
                await asyncio.gather(*(work(session) for _ in range(slots)))
                return {"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu, "calls": calls}

        return asyncio.run(play())

    return part


PARTS: dict[str, tuple[Callable[[str], dict[str, Any]], list[str]]] = {
    "open": (generation(16, 1024, DECISION), [*LATENCY, "--accepts", "0"]),
    "slots_128": (generation(16, 128, DECISION), [*LATENCY, "--accepts", "0"]),
    "at_once": (generation(64, 1024, 0.0), [*AT_ONCE, "--accepts", "0"]),
    "aiohttp": (bare(64, 1024), [*AT_ONCE]),
    "clean": (generation(16, 1024, DECISION, total_seconds=HANG_SECONDS), [*LATENCY, "--accepts", "0"]),
    "faulty": (generation(16, 1024, DECISION, total_seconds=HANG_SECONDS), [*LATENCY, "--accepts", "0", *FAULTS]),
    "in_flight": (generation(160, 4096, DECISION), ["--latency", "constant:2", "--accepts", "0"]),
}


@contextmanager
def served(options: list[str]) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """A simulated server in its own process: its address, and a way to stop it that says what it counted."""
    command = [sys.executable, "-m", "trinity_jax.pool.simulated_server", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().strip()

    def counted() -> dict[str, Any]:
        process.terminate()
        return json.loads(process.stdout.readline() or "{}")  # pyright: ignore[reportOptionalMemberAccess]

    try:
        yield url, counted
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def measure(name: str, seed: int) -> dict[str, Any]:
    """One repeat of a part, in a process of its own."""
    with served([*PARTS[name][1], "--seed", str(seed)]) as (url, counted):
        command = [sys.executable, __file__, "--inside", name, url]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        return result | {"server": counted()}


def quickstart_sharing() -> float:
    """Calls asked for over calls made in three generations of the quickstart, from its metrics."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        changes = ("learning.generations=3", "tasks.test=4", "tasks.validation=4", "training.validate_every=3")
        command = [sys.executable, "experiments/run.py", "--config", "experiments/configs/quickstart.yaml"]
        command += ["--run-dir", str(run), *(word for change in changes for word in ("--set", change))]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return sum(line["calls_without_sharing"] for line in lines) / sum(line["calls"] for line in lines)


def main() -> int:
    """Exit code 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=[*PARTS, "sharing"], help="only these; default: all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        name, url = options.inside
        result = PARTS[name][0](url)
        print(json.dumps(result | {"rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))
        return 0
    runs: dict[str, list[dict[str, Any]]] = {}
    for name in options.part or [*PARTS, "sharing"]:
        if name == "sharing":
            continue
        for seed in range(1 if name == "in_flight" else options.repeats):
            runs.setdefault(name, []).append(measure(name, seed))
            load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
            print(f"{name}: {json.dumps(runs[name][-1])} load {load:.1f}", flush=True)
    figures = _figures(runs)
    if not options.part or "sharing" in options.part:
        figures["shared_call_ratio"] = quickstart_sharing()
    if options.json:
        print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
    return 0


def _figures(runs: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, part, slots in (("wall_over_bound", "open", 1024), ("wall_over_bound_128", "slots_128", 128)):
        if part in runs:
            figures[name] = min(r["wall"] / max(r["longest"], r["total"] / slots) for r in runs[part])
    if "at_once" in runs:
        figures["calls_per_s"] = max(r["calls"] / r["wall"] for r in runs["at_once"])
    if "at_once" in runs and "aiohttp" in runs:
        cheapest = {part: min(r["cpu"] / r["calls"] for r in runs[part]) for part in ("at_once", "aiohttp")}
        figures["cpu_over_aiohttp"] = cheapest["at_once"] / cheapest["aiohttp"]
    if "clean" in runs and "faulty" in runs:
        walls = {part: statistics.median(r["wall"] for r in runs[part]) for part in ("clean", "faulty")}
        figures["faulty_over_clean"] = walls["faulty"] / walls["clean"]
    if "faulty" in runs:
        figures["lost_episodes"] = max(r["lost"] for r in runs["faulty"])
        assert not any(r["lost_early"] for r in runs["faulty"]), "an episode was lost before its retries ran out"
    if "in_flight" in runs:
        figures["in_flight_4096_rss_gb"] = max(r["rss_gb"] for r in runs["in_flight"])
        assert all(r["server"]["most"] == 4096 for r in runs["in_flight"]), "4,096 calls were never in flight at once"
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
