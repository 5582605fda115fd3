"""How large the report of a long run is, and how long Chromium takes to open it: one JSON line.

The long run is a real one whose generations and transcripts are repeated: ``python scripts/bench_report.py RUN``.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.browser import Tab, chromium
from trinity_jax.report import write_report

LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--generations", type=int, default=60)
    parser.add_argument("--transcripts", type=int, default=120)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        run = long_run(options.run, Path(folder) / "run", options.generations, options.transcripts)
        began = time.perf_counter()
        page = write_report(run)
        written, size = time.perf_counter() - began, page.stat().st_size
        loads = []
        for _ in range(options.repeats):
            tab = Tab(browser, page.as_uri())
            loads.append(tab.run(LOADED))
            tab.close()
    found = {"generations": options.generations, "megabytes": round(size / 1e6, 2), "write_seconds": round(written, 2)}
    print(json.dumps(found | {"load_ms": round(statistics.median(loads)), "load_ms_worst": round(max(loads))}))


def long_run(run: Path, to: Path, generations: int, transcripts: int) -> Path:
    """A copy of a run folder with so many lines of metrics and of transcripts."""
    to.mkdir()
    for name in ("config.yaml", "summary.json"):
        shutil.copy(run / name, to / name)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    long = [lines[g % len(lines)] | {"generation": g} for g in range(generations)]
    (to / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in long))
    episodes = (run / "transcripts.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (to / "transcripts.jsonl").write_text("".join(episodes[i % len(episodes)] for i in range(transcripts)))
    return to


if __name__ == "__main__":
    main()
