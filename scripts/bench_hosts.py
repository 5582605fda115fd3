"""One small run on one process and on several local ones: the same vector, the same calls.

Usage: python scripts/bench_hosts.py [--processes N] [--config FILE] [--set K=V ...] [--json]

Without --config a random encoder of a few kilobytes plays a simulated pool. The last line of --json is one JSON object:
same_vector, same_metrics, calls (of one process and of several), processes, seconds (of both, start to end).
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.tiny import make_encoder, tiny_run  # noqa: E402
from trinity_jax.coordinator.export import load_coordinator  # noqa: E402

MAY_DIFFER = ("seconds",)


def main() -> int:
    """Exit code 0 where both are the same run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--config", help="a training run's YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="K=V")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = options.config or tiny_config(folder)
        seconds = [play(settings, folder / "one", 1, options.set)]
        seconds.append(play(settings, folder / "several", options.processes, options.set))
        found = compare(folder / "one", folder / "several")
    found |= {"processes": options.processes, "seconds": [round(s, 1) for s in seconds]}
    if not options.json:
        print(f"1 process: {found['calls'][0]} calls, {seconds[0]:.1f} s")
        print(f"{options.processes} processes: {found['calls'][1]} calls, {seconds[1]:.1f} s")
        print(f"same vector: {found['same_vector']}; same metrics: {found['same_metrics']}")
    print(json.dumps(found))
    return 0 if found["same_vector"] and found["same_metrics"] and len(set(found["calls"])) == 1 else 1


def tiny_config(folder: Path) -> str:
    """A run of seconds."""
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_run(make_encoder(folder / "encoder"), evaluation__fixed_policy=False)))
    return str(path)


def commands(config: str, run_dir: Path, processes: int, more: list[str]) -> list[list[str]]:
    """One command a process, all on this machine."""
    command = [sys.executable, str(ROOT / "experiments" / "run.py"), "--config", config, "--run-dir", str(run_dir)]
    command += [part for one in more for part in ("--set", one)]
    if processes == 1:
        return [command]
    shared = [f"hosts.coordinator=127.0.0.1:{free_ports()}", f"hosts.processes={processes}"]
    each = [[*shared, f"hosts.process={i}"] for i in range(processes)]
    return [command + [part for one in hosts for part in ("--set", one)] for hosts in each]


def play(config: str, run_dir: Path, processes: int, more: list[str]) -> float:
    """Seconds from start to the end of the last process."""
    started = time.perf_counter()
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands(config, run_dir, processes, more)
    ]
    said = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit("\n".join(said))
    return time.perf_counter() - started


def compare(one: Path, several: Path) -> dict[str, Any]:
    """Whether two run folders hold the same run."""
    first, second = (load_coordinator(folder / "coordinator").vector for folder in (one, several))
    calls = [json.loads((folder / "summary.json").read_text())["calls"] for folder in (one, several)]
    return {
        "same_vector": bool(np.array_equal(first, second)),
        "same_metrics": metrics(one) == metrics(several),
        "calls": calls,
    }


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl without the times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in line.items() if key not in MAY_DIFFER} for line in lines]


def free_ports() -> int:
    """A port that is free together with the next one."""
    while True:
        with socket.socket() as here, socket.socket() as following:
            here.bind(("", 0))
            port = here.getsockname()[1]
            try:
                following.bind(("", port + 1))
            except OSError:
                continue
            return port


if __name__ == "__main__":
    sys.exit(main())
