"""Several runs at a glance, as JSON for the dashboard."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trinity_jax.errors import UserError
from trinity_jax.report.figures import thin
from trinity_jax.report.folder import as_dict, as_list, column, number, read
from trinity_jax.report.page import render

MOST_POINTS = 60
"""Of a validation curve."""


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
    runs = [_glance(name, run) for name, run in find_runs(folders).items()]
    return {"runs": sorted(runs, key=lambda run: -run["changed"])}


def _glance(name: str, path: Path) -> dict[str, Any]:
    files = [file for file in (path / "config.yaml", path / "metrics.jsonl", path / "summary.json") if file.exists()]
    glance: dict[str, Any] = {"name": name, "changed": max((file.stat().st_mtime for file in files), default=0.0)}
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
