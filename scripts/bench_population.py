"""A population's decisions at full size beside what one would write with transformers and PyTorch, on the same work.

    python scripts/bench_population.py [--json] [--rounds 3] [--layers 28] [--dtype float32] [--sides jax,torch] ...

The encoder has Qwen3-0.6B's shape and random weights (the same on both sides, made from a seed). 32 candidates scale
the singular values of the seven matrices of layer 26. Three ways:

* ours: trunk once per transcript, factored tip per (candidate, transcript), of the last layer only the row read;
* loop: for each candidate write out its adapted matrices, then transformers' whole forward pass;
* shared: PyTorch with the layers below 26 run once, layer 26 written out once per candidate, then layers 26 and 27.

Work: one transcript of 256 tokens for 32 candidates; 64 transcripts of 64 to 512 tokens, each of one of 32 candidates
(PyTorch runs the layers below 26 sorted by length and padded in batches of 8, then candidate by candidate; and beside
it, as `ragged_over_one_candidate`, the easier work of one candidate for all, padded in the same way through all layers:
only padding and the speed of products differ there); 32 candidates against 1; head only; one decision at 512 and 2,048
tokens against our own jitted forward pass of all layers. Every round has tokens of its own, so nothing is remembered
from one to the next.

Each side is a process of its own and they take turns, so a busy machine slows both; ratios are taken round by round.
The hidden states of the first round are compared across the sides. Where PyTorch is missing, and on an accelerator
that it does not see, leave its side out with ``--sides jax``.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

ADAPTED = -2  # layer 26 of 28
MATRICES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
RAGGED, SHORTEST, LONGEST, BATCH = 64, 64, 512, 8
LATENCY = (512, 2048)
MODELS = 7


def main() -> None:
    """Print medians and ratios; with ``--json`` one JSON object on the last line."""
    options = _options()
    if options.side:
        side = {"jax": JaxSide, "torch": TorchSide}[options.side](options)
        for line in sys.stdin:
            name, number = line.split()
            print(json.dumps(side.facts() if name == "facts" else getattr(side, name)(int(number))), flush=True)
        return
    sides = options.sides.split(",")
    workers = {side: _start(side) for side in sides}
    work = [("jax", "one"), ("torch", "loop"), ("torch", "shared"), ("jax", "single")]
    work += [("jax", "head_32"), ("jax", "head_1"), ("jax", "ragged"), ("torch", "ragged_own"), ("torch", "ragged")]
    work += [("jax", f"{kind}_{T}") for T in LATENCY for kind in ("decision", "forward")]
    seconds: dict[str, list[float]] = {}
    states: dict[str, Any] = {}
    try:
        for number in range(options.rounds + 1):  # round 0 compiles and fills caches
            for side, name in work:
                if side not in workers:
                    continue
                took, h = _ask(workers[side], name, number)
                seconds.setdefault(f"{side}_{name}", []).append(took)
                states.setdefault(f"{side}_{name}", h)
                print(f"round {number}, {side} {name}: {took:.3f} s", file=sys.stderr, flush=True)
        facts = {side: _ask(worker, "facts", 0) for side, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.kill()
    found = summary(options, {name: took[1:] for name, took in seconds.items()}, states, facts)
    width = max(map(len, found))
    print("\n".join(f"{key:>{width}}  {value}" for key, value in found.items()))
    if options.json:
        print(json.dumps(found))


def summary(
    options: argparse.Namespace, seconds: dict[str, list[float]], states: dict[str, Any], facts: dict[str, Any]
) -> dict[str, Any]:
    """Medians of paired ratios, medians of seconds, and how far the sides' hidden states lie apart."""

    def ratio(over: str, under: str) -> float | None:
        if over not in seconds or under not in seconds:
            return None
        return round(statistics.median(a / b for a, b in zip(seconds[over], seconds[under], strict=True)), 3)

    def apart(one: str, other: str) -> float | None:
        if one not in states or other not in states:
            return None
        a, b = np.array(states[one]), np.array(states[other])
        return float(f"{np.abs(a - b).max() / np.abs(b).max():.1e}")

    found: dict[str, Any] = {
        "speedup_vs_transformers": ratio("torch_loop", "jax_one"),
        "speedup_vs_shared_trunk_torch": ratio("torch_shared", "jax_one"),
        "ragged_speedup": ratio("torch_ragged_own", "jax_ragged"),
        "ragged_over_one_candidate": ratio("torch_ragged", "jax_ragged"),
        "p32_over_p1": ratio("jax_one", "jax_single"),
        "head_only_p32_over_p1": ratio("jax_head_32", "jax_head_1"),
        **{f"latency_ratio_{T}": ratio(f"jax_decision_{T}", f"jax_forward_{T}") for T in LATENCY},
        "peak_rss_gb": facts["jax"]["peak_rss_gb"],
        "compilations": facts["jax"]["compilations"],
        "relative_difference_loop": apart("jax_one", "torch_loop"),
        "relative_difference_shared": apart("jax_one", "torch_shared"),
        "relative_difference_ragged": apart("jax_ragged", "torch_ragged"),
        "relative_difference_ragged_own": apart("jax_ragged", "torch_ragged_own"),
        **{f"{name}_seconds": round(statistics.median(took), 3) for name, took in seconds.items()},
        **{f"{name}_range": [round(min(took), 3), round(max(took), 3)] for name, took in seconds.items()},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "facts": facts,
    }
    return found | {name: getattr(options, name) for name in ("tokens", "candidates", "layers", "dtype", "rounds")}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench_population.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=int, default=256, help="of the shared transcript")
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--layers", type=int, default=28, help="fewer for a quick look")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", default="jax,torch")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=("jax", "torch"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if "jax" not in options.sides.split(",") or set(options.sides.split(",")) - {"jax", "torch"}:
        parser.error(f"--sides: expected jax or jax,torch, got {options.sides}")
    return options


def _start(side: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *sys.argv[1:], "--side", side]
    settings = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1, env=os.environ | settings)


def _ask(worker: subprocess.Popen[str], name: str, number: int) -> Any:
    assert worker.stdin
    assert worker.stdout
    worker.stdin.write(f"{name} {number}\n")
    answer = worker.stdout.readline()
    if not answer:
        raise SystemExit(f"a side of the bench ended: exit code {worker.wait()}")
    return json.loads(answer)


# --- the work ---


def config(layers: int) -> dict[str, Any]:
    """Qwen3-0.6B's config.json, with perhaps fewer layers."""
    return {
        "model_type": "qwen3",
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40_960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": True,
    }


def weights(shapes: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, np.ndarray]]:
    """Norms of 1 and Gaussian matrices of standard deviation 0.02, one seed a tensor."""
    for i, name in enumerate(sorted(shapes)):
        if name.endswith("norm.weight"):
            yield name, np.ones(shapes[name], np.float32)
        else:
            yield name, np.float32(0.02) * np.random.default_rng(i).standard_normal(shapes[name], np.float32)


class Work:
    """Tokens, candidates and head of every round: the same on all sides."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        rng = np.random.default_rng(7)
        # A relative change of a tenth: large enough to tell candidates apart, small as in training.
        self.deltas = 0.1 * rng.standard_normal((options.candidates, 7 * 1024), np.float32)
        self.head = rng.standard_normal((MODELS + 3, 1024), np.float32)

    def transcript(self, length: int, *seed: int) -> tuple[int, ...]:
        """Random tokens."""
        return tuple(np.random.default_rng([length, *seed]).integers(0, 150_000, length).tolist())

    def mixed(self, number: int) -> list[tuple[int, ...]]:
        """Transcripts of `SHORTEST` to `LONGEST` tokens in any order."""
        count = RAGGED if number else RAGGED // 8  # the first round compiles and compares
        lengths = np.random.default_rng([3, number]).permutation(np.linspace(SHORTEST, LONGEST, count).astype(int))
        return [self.transcript(int(length), number, i) for i, length in enumerate(lengths)]

    def candidates(self, number: int) -> list[int]:
        """Whose each of `mixed` is; in the first round all are the first one's."""
        return [i % self.options.candidates if number else 0 for i in range(RAGGED if number else RAGGED // 8)]

    def facts(self) -> dict[str, Any]:
        """Memory of this process."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"peak_rss_gb": round(peak / (1024**3 if sys.platform == "darwin" else 1024**2), 3)}


# --- ours ---


class JaxSide(Work):
    """`PopulationEncoder.decide`: token ids in, choices out."""

    def __init__(self, options: argparse.Namespace):
        super().__init__(options)
        import jax
        import jax.numpy as jnp

        from trinity_jax.config import EncoderSettings, SvfSettings
        from trinity_jax.coordinator.transcripts import TranscriptEncoder
        from trinity_jax.encoder.checkpoint import from_tensors, tensor_shapes
        from trinity_jax.encoder.decoder import DecoderConfig, hidden

        shape = DecoderConfig.from_hf(config(options.layers), "bench")
        tensors = dict(weights(tensor_shapes(shape)))
        self.decoder = from_tensors(shape, tensors.pop, jnp.dtype(options.dtype))
        del tensors
        self.buckets = tuple(sorted({*range(128, LONGEST + 1, 32), options.tokens, *LATENCY}))
        settings = EncoderSettings(buckets=self.buckets, dtype=options.dtype, cache_mb=512)
        svf = SvfSettings(preset="layer", layer=ADAPTED)
        self.adapted = self._population(TranscriptEncoder(self.decoder, svf, settings, options.candidates))
        plain = TranscriptEncoder(self.decoder, SvfSettings(), settings, options.candidates)
        self.plain = self._population(plain)
        self._forward = jax.jit(hidden)
        self._jax = jax

    def _population(self, encoder: Any) -> Any:
        from trinity_jax.config import HeadSettings, ReadoutSettings
        from trinity_jax.coordinator.layout import plan
        from trinity_jax.coordinator.population import PopulationEncoder
        from trinity_jax.coordinator.readout import Readout

        pool = tuple(f"m{i}" for i in range(MODELS))
        sizes = encoder.adaptation.sizes
        head, layout = plan(sizes, 1.0, HeadSettings(), ReadoutSettings(kind="raw"), encoder.width, pool)
        vectors = np.tile(self.head.ravel(), (self.options.candidates, 1))
        if sizes:
            vectors = np.concatenate([self.deltas, vectors], axis=1)
        population = PopulationEncoder(encoder, layout, head, Readout(), seed=0)
        population.load(vectors)
        return population

    def _decide(self, population: Any, pairs: list[tuple[int, tuple[int, ...]]], show: bool) -> tuple[float, Any]:
        from trinity_jax.coordinator.population import Row

        rows = [Row(candidate, tokens, (0, candidate, i, 0, 0)) for i, (candidate, tokens) in enumerate(pairs)]
        started = time.perf_counter()
        population.decide(rows)
        took = time.perf_counter() - started
        # Afterwards they come from memory.
        return took, np.stack(population.encoder.encode(pairs))[:, :32].tolist() if show else None

    def one(self, number: int) -> Any:
        """All candidates read one transcript."""
        tokens = self.transcript(self.options.tokens, number)
        return self._decide(self.adapted, [(p, tokens) for p in range(self.options.candidates)], number == 0)

    def single(self, number: int) -> Any:
        """One candidate reads one transcript."""
        return self._decide(self.adapted, [(0, self.transcript(self.options.tokens, number, 1))], False)

    def head_32(self, number: int) -> Any:
        """All candidates, head only."""
        tokens = self.transcript(self.options.tokens, number, 2)
        return self._decide(self.plain, [(p, tokens) for p in range(self.options.candidates)], False)

    def head_1(self, number: int) -> Any:
        """One candidate, head only."""
        return self._decide(self.plain, [(0, self.transcript(self.options.tokens, number, 3))], False)

    def ragged(self, number: int) -> Any:
        """Transcripts of mixed length; the first round with one candidate, for the comparison of states."""
        texts = self.mixed(number)
        return self._decide(self.adapted, list(zip(self.candidates(number), texts, strict=True)), number == 0)

    def __getattr__(self, name: str) -> Callable[[int], Any]:
        kind, _, T = name.partition("_")
        if kind not in ("decision", "forward"):
            raise AttributeError(name)
        return lambda number: getattr(self, f"_one_{kind}")(int(T), number)

    def _one_decision(self, T: int, number: int) -> Any:
        return self._decide(self.adapted, [(0, self.transcript(T, number, 4))], False)

    def _one_forward(self, T: int, number: int) -> Any:
        tokens = np.asarray(self.transcript(T, number, 5), np.int32)
        started = time.perf_counter()
        self._jax.block_until_ready(self._forward(self.decoder, tokens))
        return time.perf_counter() - started, None

    def facts(self) -> dict[str, Any]:
        """Compilations, device, and on an accelerator tokens/s, MFU and memory."""
        device = self._jax.local_devices()[0]
        stats = device.memory_stats() or {}
        compiled = {name: getattr(self, name).compilations for name in ("adapted", "plain")}
        facts = super().facts() | {"compilations": compiled["adapted"], "compilations_head_only": compiled["plain"]}
        facts |= {"buckets": self.buckets, "device": device.device_kind}
        facts |= {"attention": self.decoder.config.attention, "jax": self._jax.__version__}
        if "peak_bytes_in_use" in stats:
            facts["peak_device_gb"] = round(stats["peak_bytes_in_use"] / 2**30, 3)
        return facts | self._trunk_speed(number=99)

    def _trunk_speed(self, number: int) -> dict[str, Any]:
        """Of the trunk on many transcripts of 512 tokens: tokens and operations a second, and share of the peak."""
        count = 8 if self._jax.default_backend() == "cpu" else 512
        texts = [self.transcript(512, number, i) for i in range(count)]
        encoder = self.plain.encoder
        encoder.states([self.transcript(512, number, count + i) for i in range(count)])
        started = time.perf_counter()
        encoder.states(texts)
        took = time.perf_counter() - started
        per_token = 2 * sum(int(np.prod(leaf.shape)) for leaf in self._jax.tree.leaves(self.decoder.blocks))
        done = per_token * count * 512 / took
        facts = {"tokens_per_s": round(count * 512 / took), "tflops": round(done / 1e12, 3)}
        peak = PEAK_BF16.get(self._jax.local_devices()[0].device_kind)
        return facts | ({"mfu": round(done / peak, 3)} if peak and self.options.dtype == "bfloat16" else {})


PEAK_BF16 = {
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA L4": 121e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
}
"""Dense bfloat16 operations a second, from the makers' data sheets."""


# --- what one would write with PyTorch ---


class TorchSide(Work):
    """transformers' Qwen3, and the same with a shared trunk."""

    def __init__(self, options: argparse.Namespace):
        super().__init__(options)
        import torch
        from transformers import Qwen3Config, Qwen3Model

        self.torch = torch
        torch.set_grad_enabled(False)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        given = config(options.layers)
        given["rope_parameters"] = {"rope_type": "default", "rope_theta": given.pop("rope_theta")}
        with torch.device("meta"):
            model = Qwen3Model(Qwen3Config(**{k: v for k, v in given.items() if k != "model_type"})).eval()
        shapes = {f"model.{name}": tuple(p.shape) for name, p in model.named_parameters()}
        state = {name.removeprefix("model."): torch.from_numpy(array) for name, array in weights(shapes)}
        model.load_state_dict(state, assign=True)
        # Tables of angles are no parameters: made anew, off the meta device.
        model.rotary_emb = type(model.rotary_emb)(config=model.config)
        self.model: Any = model
        self.model.to(self.device, getattr(torch, options.dtype))
        block = self.model.layers[ADAPTED]
        self.targets = {name: block.get_submodule(path) for name, path in MATRICES.items()}
        self.kernels = {name: module.weight.data for name, module in self.targets.items()}
        self.factors = {
            name: tuple(one.to(kernel.dtype) for one in torch.linalg.svd(kernel.float(), full_matrices=False))
            for name, kernel in self.kernels.items()
        }
        self.vectors = torch.from_numpy(self.deltas).to(self.device, getattr(torch, options.dtype)).split(1024, dim=1)

    def _adapt(self, candidate: int) -> None:
        """Write out the candidate's matrices: W' = c U diag(s (1 + delta)) V^T."""
        for (name, (u, s, vt)), deltas in zip(self.factors.items(), self.vectors, strict=True):
            changed = s * (1 + deltas[candidate])
            self.targets[name].weight.data = (u * (changed * (s.sum() / changed.sum()))) @ vt

    def _timed(self, work: Callable[[], Any], number: int) -> tuple[float, Any]:
        if self.device == "cuda":
            self.torch.cuda.synchronize()
        started = time.perf_counter()
        h = self.torch.stack(work()).float().cpu()
        self._choose(h)
        return time.perf_counter() - started, None if number else h[:, :32].tolist()

    def _choose(self, h: Any) -> None:
        _ = (h @ self.torch.from_numpy(self.head).T).argmax(dim=1)

    def _ids(self, tokens: Any) -> Any:
        return self.torch.tensor([tokens], device=self.device)

    def loop(self, number: int) -> Any:
        """For each candidate: its matrices, then the whole forward pass."""
        ids = self._ids(self.transcript(self.options.tokens, number))

        def work() -> list[Any]:
            found = []
            for candidate in range(self.options.candidates):
                self._adapt(candidate)
                found.append(self.model(input_ids=ids, use_cache=False).last_hidden_state[0, -2])
            return found

        return self._timed(work, number)

    def _run(self, x: Any, first: int, last: int | None) -> Any:
        """Layers ``first`` to ``last`` on x [rows, T, D]; right padding needs no mask under causal attention."""
        position = self.torch.arange(x.shape[1], device=self.device)[None]
        angles = self.model.rotary_emb(x, position)
        for layer in self.model.layers[first:last]:
            x = layer(x, attention_mask=None, position_ids=position, position_embeddings=angles)
        return x

    def shared(self, number: int) -> Any:
        """Layers below the adapted one once; its matrices and the layers from it on for each candidate."""
        ids = self._ids(self.transcript(self.options.tokens, number))

        def work() -> list[Any]:
            x = self._run(self.model.embed_tokens(ids), 0, ADAPTED)
            found = []
            for candidate in range(self.options.candidates):
                self._adapt(candidate)
                found.append(self.model.norm(self._run(x, ADAPTED, None))[0, -2])
            return found

        return self._timed(work, number)

    def _padded(self, texts: list[tuple[int, ...]]) -> Iterator[tuple[list[int], Any, Any]]:
        """Places, ids and mask of batches of 8, sorted by length."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            ids = self.torch.zeros((len(part), len(texts[part[-1]])), dtype=self.torch.long, device=self.device)
            mask = self.torch.zeros_like(ids)
            for row, i in enumerate(part):
                ids[row, : len(texts[i])] = self._ids(texts[i])[0]
                mask[row, : len(texts[i])] = 1
            yield part, ids, mask

    def ragged(self, number: int) -> Any:
        """One candidate for all, padded per batch."""
        texts = self.mixed(number)

        def work() -> list[Any]:
            self._adapt(0)
            found: dict[int, Any] = {}
            for part, ids, mask in self._padded(texts):
                h = self.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
                found |= {i: h[row, len(texts[i]) - 2] for row, i in enumerate(part)}
            return [found[i] for i in range(len(texts))]

        return self._timed(work, number)

    def ragged_own(self, number: int) -> Any:
        """Each its own candidate: layers below the adapted one padded per batch, then candidate by candidate."""
        texts = self.mixed(number)
        candidates = self.candidates(number)

        def work() -> list[Any]:
            below: dict[int, Any] = {}
            for part, ids, _ in self._padded(texts):
                x = self._run(self.model.embed_tokens(ids), 0, ADAPTED)
                below |= {i: x[row, : len(texts[i])] for row, i in enumerate(part)}
            found: dict[int, Any] = {}
            for candidate in sorted(set(candidates)):
                self._adapt(candidate)
                for i in (i for i, other in enumerate(candidates) if other == candidate):
                    found[i] = self.model.norm(self._run(below[i][None], ADAPTED, None))[0, -2]
            return [found[i] for i in range(len(texts))]

        return self._timed(work, number)

    def facts(self) -> dict[str, Any]:
        """Memory, versions."""
        import transformers

        versions = {"torch": self.torch.__version__, "transformers": transformers.__version__}
        return super().facts() | versions | {"device": self.device}


if __name__ == "__main__":
    main()
