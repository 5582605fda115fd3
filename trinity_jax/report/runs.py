"""Several runs at a glance, as JSON for the dashboard."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from trinity_jax.errors import UserError
from trinity_jax.report.figures import thin
from trinity_jax.report.folder import as_dict, as_list, column, number, read
from trinity_jax.report.page import render

MOST_POINTS = 60
"""Of a validation curve."""

_SHOWN = ("config.yaml", "metrics.jsonl", "summary.json", "evaluation/evaluation.json")
_REMEMBERED = 512


def find_runs(folders: Iterable[Path]) -> dict[str, Path]:
    """Run folders by a name of their own: each folder that is one, and those directly inside the others."""
    found: dict[str, Path] = {}
    for folder in folders:
        inside = (
            [folder] if (folder / "config.yaml").exists() else sorted(p.parent for p in folder.glob("*/config.yaml"))
        )
        for run in inside:
            name, again = run.resolve().name, 2
            while name in found:
                name, again = f"{run.resolve().name} ({again})", again + 1
            found[name] = run
    return found


def run_page(folders: Iterable[Path], name: str) -> str:
    """The report of a run that `find_runs` found, as it is now.

    Raises:
        KeyError: there is no run of that name.
        UserError: a file in it cannot be read.
    """
    return render(read(find_runs(folders)[name]))


def runs_data(folders: Iterable[Path]) -> dict[str, Any]:
    """``{"runs": [...]}``, the latest change first; all that the dashboard's table shows."""
    runs = [{"name": name, **_glance(run, _stamp(run))} for name, run in find_runs(folders).items()]
    return {"runs": sorted(runs, key=lambda run: -run["changed"])}


def _stamp(path: Path) -> tuple[tuple[int, int], ...]:
    """When each file that is shown was changed (nanoseconds), and its size; zeros where there is none."""
    stamp = []
    for name in _SHOWN:
        try:
            found = (path / name).stat()
        except OSError:
            stamp.append((0, 0))
        else:
            stamp.append((found.st_mtime_ns, found.st_size))
    return tuple(stamp)


@lru_cache(_REMEMBERED)
def _glance(path: Path, stamp: tuple[tuple[int, int], ...]) -> dict[str, Any]:
    """A run's line, but for its name; read once for each ``stamp``, since every open page asks every ten seconds."""
    glance: dict[str, Any] = {"changed": max(changed for changed, _ in stamp) / 1e9}
    try:
        run = read(path, transcripts=False)
    except UserError as error:
        return glance | {"problem": str(error)}
    validation = column(run.metrics, "validation_accuracy")
    return glance | {
        "finished": run.summary is not None,
        "generations": len(run.metrics),
        "of": number(as_dict(run.config.get("learning")).get("generations")),
        "validation": thin(validation, MOST_POINTS),
        "calls": sum(value for _, value in column(run.metrics, "calls")),
        "cost": sum(value for _, value in column(run.metrics, "cost")),
        "failed_share": next((value for _, value in reversed(column(run.metrics, "failed_share"))), None),
        "alarms": sum(len(as_list(line.get("alarms"))) for line in run.metrics),
        "verdict": str((run.evaluation or run.summary or {}).get("verdict") or ""),
    }
