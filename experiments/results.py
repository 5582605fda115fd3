"""What a study leaves in its run folder: results.csv, figures/ (PNG and SVG), results.md; each written whole."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from trinity_jax import config
from trinity_jax.config import Group
from trinity_jax.errors import UserError
from trinity_jax.evaluation.intervals import Estimate

matplotlib.use("Agg")
# The same numbers give the same file.
matplotlib.rcParams |= {"svg.hashsalt": "trinity_jax", "svg.fonttype": "none", "figure.constrained_layout.use": True}


class Results:
    """The run folder of one study."""

    def __init__(self, folder: Path):
        self.folder = folder

    @classmethod
    def begin(cls, folder: Path, settings: Group) -> "Results":
        """A new study in a new or empty folder; writes config.yaml.

        Raises:
            UserError: the folder holds something already, or cannot be made.
        """
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder}: expected a folder, found a file")
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(f"{folder}: not empty; name another --run-dir")
        try:
            (folder / "figures").mkdir(parents=True)
        except OSError as error:
            raise UserError(f"{folder}: cannot be made ({error.strerror})") from error
        config.dump(settings, folder / "config.yaml")
        return cls(folder)

    def __enter__(self) -> "Results":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        """A study that failed before its first result leaves no folder behind."""
        kept = [path for path in self.folder.rglob("*") if path.is_file() and path.name != "config.yaml"]
        if kind is not None and not kept:
            (self.folder / "config.yaml").unlink(missing_ok=True)
            (self.folder / "figures").rmdir()
            if not self.folder.is_symlink():
                self.folder.rmdir()

    def table(self, rows: Sequence[Mapping[str, Any]], name: str = "results.csv") -> None:
        """Write every point; columns in order of first appearance, empty where a row has none."""
        columns = list(dict.fromkeys(key for row in rows for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
        self._write(name, text.getvalue().encode())

    def page(self, text: str) -> None:
        """Write results.md."""
        self._write("results.md", (text.rstrip() + "\n").encode())

    def figure(self, name: str, figure: Figure) -> None:
        """Write figures/NAME.png and figures/NAME.svg."""
        kinds: dict[str, dict[str, Any]] = {
            "png": {"dpi": 150, "metadata": {"Software": None}},
            "svg": {"metadata": {"Date": None}},
        }
        for kind, options in kinds.items():
            image = io.BytesIO()
            figure.savefig(image, format=kind, **options)
            self._write(f"figures/{name}.{kind}", image.getvalue())

    def check(self) -> None:
        """A study has to leave all three."""
        missing = [name for name in ("results.csv", "results.md") if not (self.folder / name).exists()]
        if missing or not list((self.folder / "figures").glob("*.svg")):
            raise RuntimeError(f"the study left no {', '.join(missing) or 'figures'}")

    def _write(self, name: str, content: bytes) -> None:
        partial = self.folder / f"{name}.partial"
        try:
            partial.write_bytes(content)
            partial.replace(self.folder / name)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def over_seeds(values: Sequence[float] | np.ndarray) -> Estimate:
    """Mean over independent seeds with its 95 % t interval; the interval is NaN for a single value."""
    known = np.asarray(values, float)
    mean = float(known.mean())
    if known.size < 2:
        return Estimate(mean, np.nan, np.nan)
    half = stats.t.ppf(0.975, known.size - 1) * known.std(ddof=1) / np.sqrt(known.size)
    return Estimate(mean, mean - half, mean + half)


def show(estimate: Estimate, digits: int = 3, sign: bool = False) -> str:
    """``0.812 [0.790, 0.834]``."""
    plus = "+" if sign else ""
    return "{0:{s}.{d}f} [{1:{s}.{d}f}, {2:{s}.{d}f}]".format(*estimate, s=plus, d=digits)


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; numbers to the right, text to the left."""
    numbers = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(header))]
    lines = [header, ["---:" if number else "---" for number in numbers], *rows]
    return "\n".join("| " + " | ".join(str(_cell(cell)) for cell in line) + " |" for line in lines)


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float | np.floating) else value
