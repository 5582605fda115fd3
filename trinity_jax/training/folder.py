"""The run folder: what is in it, how it is begun and taken up again. Every file is replaced whole or appended to."""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from trinity_jax import config
from trinity_jax.config import Settings
from trinity_jax.errors import UserError
from trinity_jax.pool.journal import Journal

# What may differ between a run and its resumption: caps, the final report, who plays. All else changes numbers.
_MAY_CHANGE = ("budget", "evaluation", "preflight", "hosts")
# What a preflight or an imported journal leaves, and a run may begin with.
_BEFORE = ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "journal.sqlite.lock", "preflight.json")


class RunFolder:
    """Paths of one run, and the only code that writes its small files."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.yaml"
        self.journal = path / "journal.sqlite"
        self.preflight = path / "preflight.json"
        self.readout = path / "readout.safetensors"
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"
        self.transcripts = path / "transcripts.jsonl"
        self.summary = path / "summary.json"
        self.coordinator = path / "coordinator"
        self.exchange = path / "exchange"

    def journal_of(self, process: int) -> Path:
        """The journal that this process writes: the run's, or one beside it."""
        return self.path / f"{self.journal.name}.{process}" if process else self.journal

    def other_journals(self) -> list[Path]:
        """Those beside the run's that are there."""
        return sorted(p for p in self.path.glob(f"{self.journal.name}.*") if p.suffix[1:].isdecimal())

    @classmethod
    def checked(cls, path: Path) -> "RunFolder":
        """Where a new run may go; nothing is written.

        Raises:
            UserError: the folder holds something already.
        """
        if path.exists() and not path.is_dir():
            raise UserError(f"{path}: expected a folder, found a file")
        if path.is_dir() and any(file.name not in _BEFORE for file in path.iterdir()):
            hint = "add --resume to go on with it, or" if (path / "config.yaml").exists() else "it holds no run;"
            raise UserError(f"{path}: not empty; {hint} name another --run-dir")
        return cls(path)

    @classmethod
    def begin(cls, path: Path, settings: Settings) -> "RunFolder":
        """A new run in a new or empty folder.

        Raises:
            UserError: the folder holds something already, or cannot be made.
        """
        folder = cls.checked(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{path}: cannot be made ({error.strerror})") from error
        partial = folder.config.with_suffix(".partial")
        config.dump(settings, partial)
        partial.replace(folder.config)
        return folder

    def abandon_unpaid(self) -> None:
        """Take a run back that could not begin, so that the same command can be given again; not if it has paid."""
        with Journal.open(self.journal) as journal:
            paid = journal.totals().calls
        if not paid:
            self.abandon()

    def abandon(self) -> None:
        """Delete the run."""
        shutil.rmtree(self.exchange, ignore_errors=True)
        for path in (self.config, *self.path.glob(f"{self.journal.name}*")):
            path.unlink(missing_ok=True)
        # A folder that holds something else is no longer ours to delete.
        with suppress(OSError):
            self.path.rmdir()

    @classmethod
    def resume(cls, path: Path, settings: Settings) -> "RunFolder":
        """The folder of a run that was stopped.

        Raises:
            UserError: no run there, or one with other settings (caps, evaluation and hosts may differ).
        """
        folder = cls(path)
        if not folder.config.exists():
            raise UserError(f"{path}: no run to resume (no config.yaml)")
        before, now = (s.model_dump(mode="json") for s in (config.load(folder.config), settings))
        changed = [key for key in now if key not in _MAY_CHANGE and now[key] != before[key]]
        if changed:
            raise UserError(
                f"{path}: cannot resume with other settings than the run's; changed: {', '.join(changed)} "
                f"(only {', '.join(_MAY_CHANGE)} may differ)"
            )
        return folder

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """One generation's line, on disk when this returns."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def cut_metrics(self, generation: int) -> None:
        """Keep the lines before ``generation``; later ones, and a half-written last one, are about to be written again.

        Raises:
            UserError: a line that must be kept is missing or damaged.
        """
        text = self.metrics.read_text(encoding="utf-8", errors="replace") if self.metrics.exists() else ""
        lines = text.split("\n")[:generation]
        good = sum(1 for _ in takewhile(lambda pair: _generation(pair[1]) == pair[0], enumerate(lines)))
        if good < generation:
            raise UserError(
                f"{self.metrics}: the line of generation {good} is missing or damaged; delete {self.checkpoints} and "
                "add --resume: the generations are played again from the journal, without calls"
            )
        write_whole(self.metrics, "".join(line + "\n" for line in lines))

    def total(self, key: str) -> int:
        """Sum of a count over all generations' lines."""
        return sum(json.loads(line)[key] for line in self.metrics.read_text(encoding="utf-8").splitlines())

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """The run's result."""
        write_whole(self.summary, json.dumps(summary, indent=2, allow_nan=False) + "\n")

    def write_preflight(self, found: Mapping[str, Any]) -> None:
        """What a preflight saw."""
        write_whole(self.preflight, json.dumps(found, indent=2, allow_nan=False) + "\n")

    def preflight_calls(self) -> int:
        """How many calls a preflight asked for, if there was one."""
        return json.loads(self.preflight.read_text(encoding="utf-8"))["calls"] if self.preflight.exists() else 0

    def write_transcripts(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Episodes to read."""
        write_whole(self.transcripts, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def _generation(line: str) -> Any:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found.get("generation") if isinstance(found, dict) else None


def write_whole(path: Path, text: str) -> None:
    """Replace a file as a whole, or leave it as it was."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8", errors="replace")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
