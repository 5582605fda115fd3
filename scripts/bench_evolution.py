"""A study of many seeds on the jitted world beside the same study as a Python loop with pycma and numpy episodes.

    python scripts/bench_evolution.py [--json] [--seeds 50] [--pycma-seeds 4] [--generations 60] [--step-size csa] ...

Both sides evolve the same linear head on the same synthetic world: in every generation all candidates play the same
questions with common random numbers. Ours is one program: a scan over generations, seeds one after another on each CPU
device and side by side on the devices (``--devices``, one a core). The other side is a loop over seeds: pycma's ask and
tell around episodes that advance together turn by turn as numpy arrays. It runs ``--pycma-seeds`` and is scaled to
``--seeds``, since its time is proportional to them. The exact value of the final mean is part of our program and not of
the other side's time.

Each side is a process of its own and they take turns, so a busy machine slows both; ratios are taken round by round.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

import numpy as np

KINDS, MODELS, MAX_CALLS = 4, 7, 5
CANDIDATES, REPLICATIONS, SIGMA0 = 32, 16, 0.03
QUESTIONS = 96  # to train on, and as many held out


class Round(NamedTuple):
    """A study by one side: wall and processor seconds, and exact held-out success of every seed's final mean."""

    seconds: float
    cpu_seconds: float
    success: list[float]


def main() -> None:
    """Print medians and ratios; with ``--json`` one JSON object on the last line."""
    options = _options()
    if options.side:
        _work(options)
        return
    rounds: dict[str, list[Round]] = {"jax": [], "pycma": []}
    workers = {side: _start(side, options) for side in rounds}
    try:
        # Round 0 compiles on our side and fills caches on both.
        for number in range(options.rounds + 1):
            for side, worker in workers.items():
                rounds[side].append(Round(*_ask(worker, str(number))))
                print(f"round {number}, {side}: {rounds[side][-1].seconds:.2f} s", flush=True)
        facts = _ask(workers["jax"], "facts")
    finally:
        for worker in workers.values():
            worker.kill()
    found = summary(options, rounds["jax"], rounds["pycma"]) | facts
    width = max(map(len, found))
    print("\n".join(f"{key:>{width}}  {value}" for key, value in found.items()))
    if options.json:
        print(json.dumps(found))


def summary(options: argparse.Namespace, ours: list[Round], theirs: list[Round]) -> dict[str, Any]:
    """Medians over the rounds after the first, and ratios with their range."""
    scale = options.seeds / options.pycma_seeds
    pairs = list(zip(ours[1:], theirs[1:], strict=True))
    ratios = [scale * other.seconds / own.seconds for own, other in pairs]
    pycma = scale * statistics.median(other.seconds for _, other in pairs)
    return {
        "speedup_vs_pycma_loop": round(statistics.median(ratios), 2),
        "speedup_range": [round(min(ratios), 2), round(max(ratios), 2)],
        "speedup_with_compilation": round(pycma / ours[0].seconds, 2),
        "speedup_in_cpu_seconds": round(
            statistics.median(scale * other.cpu_seconds / own.cpu_seconds for own, other in pairs), 2
        ),
        "jax_seconds": round(statistics.median(own.seconds for own, _ in pairs), 3),
        "jax_seconds_with_compilation": round(ours[0].seconds, 3),
        "pycma_seconds_scaled": round(pycma, 3),
        "jax_success": _mean_and_error([own for own, _ in pairs]),
        "pycma_success": _mean_and_error([other for _, other in pairs]),
        "n": (MODELS + 3) * options.width,
        "candidates": CANDIDATES,
        "replications": REPLICATIONS,
        "max_calls": MAX_CALLS,
    } | {name: value for name, value in vars(options).items() if name not in ("side", "json")}


def _mean_and_error(rounds: list[Round]) -> list[float]:
    every = np.concatenate([one.success for one in rounds])
    return [round(float(every.mean()), 4), round(float(every.std() / np.sqrt(every.size)), 4)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench_evolution.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--pycma-seeds", type=int, default=4, help="how many of them the other side runs")
    parser.add_argument("--generations", type=int, default=60)
    parser.add_argument("--width", type=int, default=1024, help="of a hidden state; n is ten times as much")
    parser.add_argument("--step-size", choices=("tpa", "csa"), default="tpa", help="tpa is pycma's choice at this n")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--devices", type=int, default=None, help="CPU devices that share the seeds; default: cores")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=("jax", "pycma"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.devices is None:
        cores = range(1, (os.cpu_count() or 1) + 1)
        options.devices = max(count for count in cores if options.seeds % count == 0)
    elif options.seeds % options.devices:
        parser.error(f"--devices: expected a divisor of the {options.seeds} seeds, got {options.devices}")
    return options


# --- processes ---


def _start(side: str, options: argparse.Namespace) -> subprocess.Popen[str]:
    # More threads make numpy's small products ten times slower.
    settings = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    settings |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    if side == "jax":
        flag = f"--xla_force_host_platform_device_count={options.devices}"
        settings["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
    given = [
        f"--{name.replace('_', '-')}={value}" for name, value in vars(options).items() if name not in ("side", "json")
    ]
    command = [sys.executable, __file__, *given, "--side", side]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=os.environ | settings
    )


def _ask(worker: subprocess.Popen[str], question: str) -> Any:
    assert worker.stdin
    assert worker.stdout
    worker.stdin.write(question + "\n")
    answer = worker.stdout.readline()
    if not answer:
        raise SystemExit(f"a side of the bench ended: exit code {worker.wait()}")
    return json.loads(answer)


def _work(options: argparse.Namespace) -> None:
    side = JaxSide(options) if options.side == "jax" else PycmaSide(options)
    for line in sys.stdin:
        number = line.strip()
        answer = side.facts() if number == "facts" else side.study(int(number))
        print(json.dumps(answer), flush=True)


# --- both sides ---


class Setting:
    """The world, on either side the same; JAX is imported here only, so that the parent process stays small."""

    def __init__(self, options: argparse.Namespace):
        import jax
        import jax.numpy as jnp

        from trinity_jax.config import PoolSettings
        from trinity_jax.world import evolve, histories
        from trinity_jax.world.skills import from_pool
        from trinity_jax.world.states import clusters

        self.options = options
        models = [
            {"name": f"m{i}", "worker": {"default": 0.4, f"k{i % KINDS}": 0.8}, "accepts_right": 0.9}
            for i in range(MODELS)
        ]
        kinds = np.arange(2 * QUESTIONS) % KINDS
        turns = histories.turns("counts", MAX_CALLS)
        self.world = evolve.World(
            clusters(jax.random.key(0), kinds, turns, options.width, separability=2.0, common=1.0),
            from_pool(PoolSettings.model_validate({"simulated": models}), [f"k{kind}" for kind in kinds]),
            histories.build("counts", MAX_CALLS),
            jnp.asarray(kinds),
            jnp.arange(QUESTIONS),
            jnp.arange(QUESTIONS, 2 * QUESTIONS),
        )
        self.rules = evolve.Rules(KINDS, MAX_CALLS, REPLICATIONS, judge_every=options.generations)
        self.n = (MODELS + 3) * options.width

        def logits(vector, z):
            # The matrix first: the other way round XLA copies the whole population transposed.
            matrix = vector.reshape(MODELS + 3, options.width)
            return jnp.moveaxis(jnp.tensordot(matrix, z, axes=(1, -1)), 0, -1)

        self.logits = logits


class JaxSide(Setting):
    """All seeds as one program."""

    def __init__(self, options: argparse.Namespace):
        super().__init__(options)
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        from trinity_jax.config import LearningSettings
        from trinity_jax.learning.learner import build
        from trinity_jax.world.evolve import evolve

        learning = LearningSettings(population=CANDIDATES, sigma0=SIGMA0, step_size=options.step_size, active=True)
        learner = build(learning, self.n)
        spec = PartitionSpec("seeds")
        mesh = Mesh(np.array(jax.devices()), ("seeds",))

        def one(key):
            return evolve(learner, self.world, self.rules, self.logits, options.generations, key)[1].sampled[-1]

        # Scans begin with plain zeros, which the check takes for a mistake: nothing is exchanged between devices.
        seeds = jax.shard_map(
            lambda keys: jax.lax.map(one, keys), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
        )
        self._run = jax.jit(seeds)
        root = jax.random.key(1)
        self._keys = [
            jax.device_put(jax.random.split(jax.random.fold_in(root, number), options.seeds), NamedSharding(mesh, spec))
            for number in range(options.rounds + 1)
        ]
        self._compilations = 0
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def study(self, number: int) -> Round:
        """All seeds; other ones in every round."""
        clock = _Clock()
        success = np.asarray(self._run(self._keys[number]))
        return clock.round(success.tolist())

    def facts(self) -> dict[str, Any]:
        """What is known after the last round."""
        import jax

        return {
            "peak_rss_gb": round(_peak_rss_gb(), 3),
            "compilations": self._compilations,
            "jax": jax.__version__,
            "random_bits": str(jax.config.jax_default_prng_impl),  # pyright: ignore[reportAttributeAccessIssue]
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        }

    def _hear(self, event: str, duration_secs: float, **rest: Any) -> None:
        self._compilations += event == "/jax/core/compile/backend_compile_duration"


class PycmaSide(Setting):
    """Seed after seed."""

    def __init__(self, options: argparse.Namespace):
        super().__init__(options)
        import jax

        from trinity_jax.world.evolve import worth

        self._twin = Episodes(self.world)
        self._worth = jax.jit(
            lambda vector: worth(self.world, self.rules, self.logits, vector, self.world.held_out).reward.mean()
        )

    def study(self, number: int) -> Round:
        """As many seeds as are measured; the value of their means is not timed."""
        clock, count = _Clock(), self.options.pycma_seeds
        means = [self._one(1 + number * count + seed) for seed in range(count)]
        return clock.round([])._replace(success=[float(self._worth(mean)) for mean in means])

    def _one(self, seed: int) -> np.ndarray:
        import cma
        from cma.sigma_adaptation import CMAAdaptSigmaCSA, CMAAdaptSigmaTPA

        rule = {"csa": CMAAdaptSigmaCSA, "tpa": CMAAdaptSigmaTPA}[self.options.step_size]
        settings = {"CMA_diagonal": True, "AdaptSigma": rule, "popsize": CANDIDATES, "seed": seed, "verbose": -9}
        strategy = cma.CMAEvolutionStrategy(np.zeros(self.n), SIGMA0, settings)
        random = np.random.default_rng(seed)
        for _ in range(self.options.generations):
            X = strategy.ask()
            reward, _ = self._twin.play(np.asarray(X), self._twin.draw(random, REPLICATIONS), random)
            strategy.tell(X, (-reward.mean(axis=1)).tolist())
        return np.asarray(strategy.mean)

    def facts(self) -> dict[str, Any]:
        """Nothing."""
        return {}


class _Clock:
    def __init__(self):
        self._start = time.perf_counter(), time.process_time()

    def round(self, success: list[float]) -> Round:
        wall, cpu = self._start
        return Round(time.perf_counter() - wall, time.process_time() - cpu, success)


def _peak_rss_gb() -> float:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**3 if sys.platform == "darwin" else 1024**2)


# --- the twin ---


class Episodes:
    """`trinity_jax.world.episode.play` on synthetic states in numpy: all candidates and replications turn by turn.

    Common random numbers as there: candidates share their questions, the Gumbel noise of their choices, and the luck
    of equal calls of the same turn.
    """

    def __init__(self, world: Any):
        skills, histories = world.skills, world.histories
        self.base, self.drift = np.asarray(world.states.base, float), np.asarray(world.states.drift, float)
        self.worker, self.thinker = np.asarray(skills.worker), np.asarray(skills.thinker)
        # By response: there is none, it is wrong, it is right.
        self.accepts = np.stack([skills.accepts_wrong, skills.accepts_wrong, skills.accepts_right])
        self.boost = float(skills.boost)
        self.after = np.asarray(histories.after)
        self.by_kind = [np.asarray(world.train)[np.asarray(world.kinds[world.train]) == k] for k in range(KINDS)]

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """Different training questions [R], as many of each kind."""
        return np.concatenate([random.choice(mine, count // KINDS, replace=False) for mine in self.by_kind])

    def play(self, X: np.ndarray, questions: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rewards and numbers of calls [P, R] of candidates X [P, n] on questions [R]."""
        P, R, L = len(X), len(questions), self.worker.shape[1]
        rows = np.concatenate([self.drift, self.base[questions]])
        scores = (X.reshape(P * (L + 3), -1) @ rows.T).reshape(P, L + 3, -1).transpose(0, 2, 1)
        moved, start = scores[:, : len(self.drift)], scores[:, len(self.drift) :]
        noise = random.gumbel(size=(MAX_CALLS, R, L + 3))
        luck = random.random((MAX_CALLS, R, L, 3))
        candidate, slot = np.arange(P)[:, None], np.arange(R)
        history, response, suggestion, calls = (np.zeros((P, R), int) for _ in range(4))
        running = np.ones((P, R), bool)
        for turn in range(MAX_CALLS):
            logits = start + moved[candidate, history] + noise[turn]
            model = logits[..., :L].argmax(axis=2)
            role = np.where(suggestion > 0, 0, logits[..., L:].argmax(axis=2))
            called = running & ((response > 0) | (role < 2))
            chance = np.where(
                role == 0,
                self.worker[questions, model] + self.boost * (suggestion == 2),
                np.where(role == 1, self.thinker[questions, model], self.accepts[response, model]),
            )
            success = luck[turn, slot, model, role] < chance
            calls += called
            running = called & ~((role == 2) & success)
            worked = called & (role == 0)
            event = np.where(role == 0, success, role + 1)
            history = np.where(running, self.after[history, event], history)
            response = np.where(worked, 1 + success, response)
            suggestion = np.where(called & (role == 1), 1 + success, 0)
            if not running.any():
                break
        return (response == 2).astype(float), calls


if __name__ == "__main__":
    main()
