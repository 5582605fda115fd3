"""Recorded outcomes of single calls: prompts.jsonl, scores.csv and, where there is one, response_chars.csv.

prompts.jsonl holds {"task", "id", "prompt"} a line; the tables hold task, id and one column a model: 1 right, 0 wrong,
or the length of the response in characters.
"""

import csv
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from trinity_jax.errors import UserError

PROMPTS, SCORES, CHARS = "prompts.jsonl", "scores.csv", "response_chars.csv"
ROOT = Path(__file__).resolve().parents[2]

Key = tuple[str, str]
"""Task and id: what names a prompt."""


class Outcomes(NamedTuple):
    """What every model made of every prompt.

    Attributes:
        tasks: names of the tasks.
        task: of each prompt, as an index into ``tasks``.
        ids: of each prompt within its task.
        prompts: their texts.
        models: L names.
        right: 1 right, 0 wrong.
        chars: length of each response; None where no file says.
    """

    tasks: tuple[str, ...]
    task: Int[np.ndarray, " Q"]
    ids: tuple[str, ...]
    prompts: tuple[str, ...]
    models: tuple[str, ...]
    right: Float[np.ndarray, "Q L"]
    chars: Float[np.ndarray, "Q L"] | None

    @property
    def train(self) -> Bool[np.ndarray, " Q"]:
        """The training half: sha1(task/id) mod 10 below 5. It depends on a prompt's name alone."""
        return np.array([_hash(self.tasks[t], i) % 10 < 5 for t, i in zip(self.task, self.ids, strict=True)])

    def pool(self, models: Sequence[str], where: str) -> "Outcomes":
        """These models alone, in this order.

        Raises:
            UserError: a model that was not recorded.
        """
        if unknown := [name for name in models if name not in self.models]:
            raise UserError(f"{where}: no outcomes of {unknown[0]!r}; recorded are {', '.join(self.models)}")
        columns = [self.models.index(name) for name in models]
        chars = None if self.chars is None else self.chars[:, columns]
        return self._replace(models=tuple(models), right=self.right[:, columns], chars=chars)

    def rows(self, kept: Bool[np.ndarray, " Q"] | Int[np.ndarray, " n"]) -> "Outcomes":
        """Some of the prompts."""
        index = np.arange(len(self.ids))[kept]
        return self._replace(
            task=self.task[index],
            ids=tuple(self.ids[i] for i in index),
            prompts=tuple(self.prompts[i] for i in index),
            right=self.right[index],
            chars=None if self.chars is None else self.chars[index],
        )

    def some(self, per_task: int | None) -> "Outcomes":
        """At most so many prompts of a task, those of the smallest hash: no matter how the file is sorted."""
        if per_task is None:
            return self
        kept: list[int] = []
        for t, name in enumerate(self.tasks):
            own = np.flatnonzero(self.task == t)
            kept += sorted(own.tolist(), key=lambda i: _hash(name, self.ids[i]) // 10)[:per_task]
        return self.rows(np.sort(np.array(kept)))


def find(folder: Path | None) -> Path:
    """The folder of recorded outcomes: as told, else $TRINITY_DATA, data/zeroeval, ../shared/data/zeroeval.

    The last two are relative to the repository.

    Raises:
        UserError: none of them holds scores.csv.
    """
    if folder is not None:
        if not (folder / SCORES).is_file():
            raise UserError(f"data.folder: {folder} holds no {SCORES}")
        return folder
    places = [Path(given)] if (given := os.environ.get("TRINITY_DATA")) else []
    places += [ROOT / "data" / "zeroeval", ROOT.parent / "shared" / "data" / "zeroeval"]
    for place in places:
        if (place / SCORES).is_file():
            return place
    looked = ", ".join(map(str, places))
    raise UserError(
        f"recorded outcomes: no {SCORES} in {looked}; name the folder of {PROMPTS} and {SCORES} "
        "in data.folder or in the environment variable TRINITY_DATA"
    )


def load(folder: Path) -> Outcomes:
    """Read a folder, in the order of its prompts.

    Raises:
        UserError: a file is missing or broken, a prompt stands twice, or the files' ids or models differ.
    """
    prompts = _prompts(folder / PROMPTS)
    models, right = _table(folder / SCORES, _score)
    _same(prompts, right, PROMPTS, SCORES, folder)
    chars = None
    if (folder / CHARS).is_file():
        of, chars = _table(folder / CHARS, _length)
        if set(of) != set(models):
            odd = sorted(set(of) ^ set(models))
            raise UserError(f"{folder}: {SCORES} and {CHARS} differ in the model {odd[0]!r}")
        _same(prompts, chars, PROMPTS, CHARS, folder)
        order = [of.index(name) for name in models]
        chars = np.array([chars[key] for key in prompts])[:, order]
    tasks = tuple(dict.fromkeys(task for task, _ in prompts))
    return Outcomes(
        tasks,
        np.array([tasks.index(task) for task, _ in prompts]),
        tuple(one for _, one in prompts),
        tuple(prompts.values()),
        models,
        np.array([right[key] for key in prompts]),
        chars,
    )


def _prompts(path: Path) -> dict[Key, str]:
    found: dict[Key, str] = {}
    for number, line in enumerate(_lines(path), 1):
        try:
            row = json.loads(line)
            task, one, prompt = row["task"], row["id"], row["prompt"]
            f"{task}{one}{prompt}".encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{path}:{number}: holds half of a surrogate pair, which is no text") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(f'{path}:{number}: expected {{"task", "id", "prompt"}} ({error!r})') from error
        key = (str(task), str(one))
        if key in found:
            raise UserError(f"{path}:{number}: {'/'.join(key)} stands there twice")
        if not isinstance(prompt, str) or not prompt:
            raise UserError(f"{path}:{number}: prompt: expected text, got {prompt!r}")
        found[key] = prompt
    if not found:
        raise UserError(f"{path}: no prompts there")
    return found


def _table(path: Path, number: Callable[[str], float]) -> tuple[tuple[str, ...], dict[Key, list[float]]]:
    """Model names, and a row of numbers for each (task, id)."""
    reader = csv.reader(_lines(path))
    header = next(_sound(reader, path), [])
    if header[:2] != ["task", "id"] or len(header) < 3:
        raise UserError(f"{path}: expected the columns task, id and one for each model, got {', '.join(header[:5])}")
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise UserError(f"{path}: the column {twice[0]!r} stands there twice")
    found: dict[Key, list[float]] = {}
    for row in _sound(reader, path):
        where = f"{path}:{reader.line_num}"
        if len(row) != len(header):
            raise UserError(f"{where}: expected {len(header)} columns, got {len(row)}")
        key = (row[0], row[1])
        if key in found:
            raise UserError(f"{where}: {'/'.join(key)} stands there twice")
        try:
            found[key] = [number(cell) for cell in row[2:]]
        except ValueError as error:
            raise UserError(f"{where}: {'/'.join(key)}: {error}") from error
    return tuple(header[2:]), found


def _sound(reader: Any, path: Path) -> Iterator[list[str]]:
    """Rows of a csv reader; what it cannot read is told."""
    try:
        yield from reader
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: not a table of comma-separated values ({error})") from error


def _score(cell: str) -> float:
    if cell.strip() not in ("0", "1", "0.0", "1.0"):
        raise ValueError(f"expected 1 (right) or 0 (wrong), got {cell!r}")
    return float(cell)


def _length(cell: str) -> float:
    if not cell.strip().isdigit():
        raise ValueError(f"expected a number of characters, got {cell!r}")
    return float(cell)


def _same(one: Iterable[Key], other: Iterable[Key], name: str, other_name: str, folder: Path) -> None:
    """Refuse two files of different prompts."""
    for missing, has, lacks in ((set(one) - set(other), name, other_name), (set(other) - set(one), other_name, name)):
        if missing:
            example = "/".join(min(missing))
            raise UserError(f"{folder}: {len(missing)} prompts of {has} are not in {lacks}, such as {example}")


def _lines(path: Path) -> list[str]:
    """Lines as they end in the file; only a newline ends one."""
    try:
        return [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})") from error


def _hash(task: str, one: str) -> int:
    return int(hashlib.sha1(f"{task}/{one}".encode()).hexdigest(), 16)
