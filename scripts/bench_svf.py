"""Scaled kernels by their factors beside kernels written out first: from how many tokens does rebuilding pay?

    python scripts/bench_svf.py [--json] [--tokens 256,512,...] [--rounds 5] [--dtype float32] [--shape D,Q,K,F]

One candidate reads T tokens in the seven kernels of one layer (Qwen3-0.6B's by default). Factored: ((x U) s') V^T for
each. Rebuilt: every kernel is written out, which is counted, and x W' for each. Attention and norms are the same and
left out. In a round both sides do the same T one after the other, and ratios are taken round by round; processor
seconds are given too, since a busy machine stretches the wall's.

``svf.crossover`` is the count by operations. Printed beside it: where the measured ratio crosses 1, read off between
the two token counts around it, and the same from straight lines through all of them (rebuilt = fixed + per token).
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trinity_jax.encoder import svf
from trinity_jax.encoder.factors import Factors


class Cost(NamedTuple):
    """Of one call, in seconds."""

    wall: float
    cpu: float


def main() -> None:
    """Print a table; with ``--json`` one JSON object on the last line."""
    options = _options()
    shapes = kernels(*options.shape)
    sides = programs(shapes, options.dtype)
    costs: dict[int, dict[str, list[Cost]]] = {}
    for tokens in sorted(set(options.tokens)):
        xs = [0.1 * jax.random.normal(jax.random.key(tokens), (tokens, rows), options.dtype) for rows, _ in shapes]
        costs[tokens] = {name: [] for name in sides}
        for side in sides.values():
            jax.block_until_ready(side(xs))  # compiles
        for number in range(options.rounds):
            for name in sorted(sides, reverse=number % 2 == 1):
                costs[tokens][name].append(_timed(sides[name], xs))
        wall = [median(costs[tokens][name], "wall") for name in ("factored", "rebuilt")]
        print(f"{tokens:>6} tokens: factored {wall[0]:.3f} s, rebuilt {wall[1]:.3f} s", flush=True)
    found = summary(shapes, costs) | {
        "dtype": options.dtype,
        "rounds": options.rounds,
        "shape": options.shape,
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    }
    print("\n".join(f"{key:>32}  {value}" for key, value in found.items()))
    if options.json:
        print(json.dumps(found))


def kernels(hidden: int, queries: int, keys: int, feed: int) -> list[tuple[int, int]]:
    """[in, out] of q, k, v, o, gate, up, down."""
    attention = [(hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden)]
    return [*attention, (hidden, feed), (hidden, feed), (feed, hidden)]


def programs(shapes: list[tuple[int, int]], dtype: Any) -> dict[str, Callable[[list[jax.Array]], Any]]:
    """Both sides, jitted; random numbers of the right shapes stand for kernels and factors."""
    root = jax.random.key(0)

    def random(i: int, *shape: int) -> jax.Array:
        return 0.02 * jax.random.normal(jax.random.fold_in(root, i), shape, dtype)

    weights = [random(4 * i, *shape) for i, shape in enumerate(shapes)]
    factors, scales = [], []
    for i, (rows, columns) in enumerate(shapes):
        r = min(rows, columns)
        s = jnp.linspace(2.0, 0.1, r)
        factors.append(Factors(random(4 * i + 1, rows, r), s, random(4 * i + 2, columns, r)))
        scales.append(svf.scale(s, 0.1 * jax.random.normal(jax.random.fold_in(root, 4 * i + 3), (r,))))

    # Everything is an argument: XLA would fold constants at compile time.
    @jax.jit
    def factored(xs, factors, scales):
        return [svf.projected(x, f, s) for x, f, s in zip(xs, factors, scales, strict=True)]

    @jax.jit
    def rebuilt(xs, weights, factors, scales):
        new = [svf.scaled(w, f, s) for w, f, s in zip(weights, factors, scales, strict=True)]
        return [jnp.matmul(x, w, precision=jax.lax.Precision.HIGHEST) for x, w in zip(xs, new, strict=True)]

    return {
        "factored": lambda xs: factored(xs, factors, scales),
        "rebuilt": lambda xs: rebuilt(xs, weights, factors, scales),
    }


def summary(shapes: list[tuple[int, int]], costs: dict[int, dict[str, list[Cost]]]) -> dict[str, Any]:
    """Medians, paired ratios, crossovers."""
    found: dict[str, Any] = {"crossover_by_operations": round(svf.crossover(shapes))}
    tokens = list(costs)
    for clock in ("wall", "cpu"):
        pairs = {t: zip(costs[t]["factored"], costs[t]["rebuilt"], strict=True) for t in tokens}
        ratios = {t: [getattr(a, clock) / getattr(b, clock) for a, b in pairs[t]] for t in tokens}
        middle = {t: statistics.median(ratios[t]) for t in tokens}
        found[f"crossover_{clock}"] = _rounded(crossing(middle))
        medians = [[median(costs[t][name], clock) for t in tokens] for name in ("factored", "rebuilt")]
        lines = [np.polyfit(tokens, seconds, 1) for seconds in medians]
        slope, fixed = lines[0] - lines[1]
        found[f"crossover_{clock}_by_lines"] = _rounded(-fixed / slope if slope > 0 > fixed else None)
        found[f"factored_over_rebuilt_{clock}"] = {t: round(value, 3) for t, value in middle.items()}
        if clock == "wall":
            found["ratio_range"] = {t: [round(min(r), 3), round(max(r), 3)] for t, r in ratios.items()}
    for name in ("factored", "rebuilt"):
        found[f"{name}_seconds"] = {t: round(median(costs[t][name], "wall"), 4) for t in tokens}
    return found


def crossing(ratios: dict[int, float]) -> float | None:
    """Tokens at which a ratio by tokens first reaches 1, straight in their logarithms; None if it is not in range."""
    points = sorted(ratios.items())
    for (t, a), (u, b) in itertools.pairwise(points):
        if a < 1 <= b:
            share = -np.log(a) / (np.log(b) - np.log(a))
            return float(t * (u / t) ** share)
    return None


def median(costs: list[Cost], clock: str) -> float:
    """Seconds by one clock."""
    return statistics.median(getattr(cost, clock) for cost in costs)


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def _timed(side: Callable[[Any], Any], xs: Any) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(side(xs))
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench_svf.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=_whole_numbers, default=[256, 512, 1024, 2048, 4096, 8192])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument(
        "--shape", type=_whole_numbers, default=[1024, 2048, 1024, 3072], help="hidden, queries, keys, feed forward"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if len(options.shape) != 4:
        parser.error(f"--shape: expected four numbers, got {len(options.shape)}")
    if options.rounds < 1 or len(options.tokens) < 2:
        parser.error("expected at least one round and two token counts")
    return options


def _whole_numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"expected positive numbers, got {text}")
    return numbers


if __name__ == "__main__":
    main()
