"""Reading a run folder that may be unfinished: whole lines count, a half-written last line is skipped and said."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trinity_jax.errors import UserError

_LARGEST = 1e15


@dataclass(frozen=True)
class RunRecord:
    """What a run has left behind so far.

    ``metrics`` holds one mapping per generation in order, ``summary`` is ``None`` for a run that did not finish,
    ``notices`` are sentences about what is missing or was skipped.
    """

    name: str
    config: dict[str, Any]
    config_text: str
    metrics: tuple[dict[str, Any], ...]
    summary: dict[str, Any] | None
    evaluation: dict[str, Any] | None
    transcripts: tuple[dict[str, Any], ...]
    notices: tuple[str, ...]

    @property
    def model_names(self) -> list[str]:
        """Names of the pool's models in head order, as far as the configuration tells."""
        pool = as_dict(self.config.get("pool"))
        models = as_dicts(pool.get("simulated")) or as_dicts(pool.get("models"))
        return [str(m["name"]) for m in models if "name" in m]


def read(run: Path, transcripts: bool = True) -> RunRecord:
    """Read config.yaml, metrics.jsonl, summary.json, evaluation/evaluation.json and, where wanted, transcripts.jsonl.

    Raises:
        UserError: the folder is missing, is not a run folder, or holds something unreadable before its last line.
    """
    if not run.is_dir():
        raise UserError(f"{run}: expected a run folder, found {'a file' if run.exists() else 'nothing'}")
    notices: list[str] = []
    config, config_text = _config(run / "config.yaml")
    metrics = _lines(run / "metrics.jsonl", notices)
    if not metrics:
        notices.append("No generation has been completed.")
    summary = _object(run / "summary.json", notices)
    if summary is None and not (run / "summary.json").exists():
        notices.append("There is no summary.json: the run was stopped before its comparison on held-out questions.")
    evaluation = _object(run / "evaluation" / "evaluation.json", notices)
    episodes = _lines(run / "transcripts.jsonl", notices) if transcripts else []
    return RunRecord(
        run.resolve().name,
        config,
        config_text,
        tuple(metrics),
        summary,
        evaluation,
        tuple(episodes),
        tuple(notices),
    )


def number(value: Any) -> float | None:
    """``value`` as a number, or ``None`` for anything else; no run writes one that is not below 1e15."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) < _LARGEST else None


def clean(value: Any) -> Any:
    """``value`` with what no page can hold (NUL, halves of surrogate pairs) replaced in all its texts."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    if isinstance(value, list):
        return [clean(item) for item in value]
    return {clean(key): clean(item) for key, item in value.items()} if isinstance(value, dict) else value


def as_dict(value: Any) -> dict[str, Any]:
    """``value`` where it is a mapping, else an empty one; the same below for lists and for lists of mappings."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """See `as_dict`."""
    return value if isinstance(value, list) else []


def as_dicts(value: Any) -> list[dict[str, Any]]:
    """See `as_dict`."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def column(lines: Sequence[dict[str, Any]], *path: str) -> list[tuple[float, float]]:
    """(generation, value) of every line where the value at ``path`` is a finite number."""
    points = []
    for index, line in enumerate(lines):
        value: Any = line
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if (y := number(value)) is not None:
            x = number(line.get("generation"))
            points.append((float(index) if x is None else x, y))
    return points


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def _config(path: Path) -> tuple[dict[str, Any], str]:
    text = _text(path)
    if text is None:
        raise UserError(f"{path.parent}: not a run folder, it has no config.yaml")
    try:
        config = clean(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: such as a date that there is not
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: expected a mapping of settings, got {type(config).__name__}")
    return config, text


def _object(path: Path, notices: list[str]) -> dict[str, Any] | None:
    """An object of a file; ``None`` where there is no file, or half of one, which is said."""
    text = _text(path)
    if text is None:
        return None
    try:
        found = clean(json.loads(text))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        notices.append(f"{path.name} is half-written and was left out.")
        return None
    return found


def _lines(path: Path, notices: list[str]) -> list[dict[str, Any]]:
    text = _text(path)
    if text is None:
        notices.append(f"There is no {path.name}.")
        return []
    numbered = [(i, line) for i, line in enumerate(text.split("\n"), start=1) if line.strip()]
    found = []
    for position, line in numbered:
        try:
            value = clean(json.loads(line))
        except (ValueError, RecursionError) as error:
            if position == numbered[-1][0]:
                notices.append(f"The last line of {path.name} is half-written and was skipped.")
                break
            raise UserError(f"{path}: line {position} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise UserError(f"{path}: line {position}: expected an object, got {type(value).__name__}")
        found.append(value)
    return found
