"""The paper's benchmarks as data: what they are, where they come from, how they are cut; never less than asked for."""

import hashlib
import importlib.util
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trinity_jax.config import BenchmarkTask, TaskSettings
from trinity_jax.errors import UserError
from trinity_jax.tasks import grader, offline, schemas
from trinity_jax.tasks.generated import in_turn
from trinity_jax.tasks.question import Question
from trinity_jax.tasks.schemas import Row, Schema

SEED = 42  # of the shuffle before a cut, as `datasets.Dataset.shuffle(seed=42)` draws it
_log = logging.getLogger(__name__)
MAX_LEFT_OUT = 0.02  # share of rows that no grader can grade (options that repeat); more, and it is another file


class Cut(NamedTuple):
    """How many questions each split has, taken in this order after the shuffle."""

    train: int
    validation: int
    test: int


class Benchmark(NamedTuple):
    """One data set on the Hugging Face hub, and what must be true of it.

    ``dataset, config, split, revision`` are the arguments of ``datasets.load_dataset``; ``file`` picks one file of a
    repository that has several. ``size`` is its number of rows and ``sha256`` the ``digest`` of its questions, ``None``
    where we do not know it for certain. Answers longer than ``answer_chars`` are left out (the paper's rule for RLPR).
    """

    schema: Schema
    dataset: str
    split: str
    cut: Cut
    size: int | None
    licence: str
    config: str | None = None
    file: str | None = None
    revision: str = "main"
    sha256: str | None = None
    answer_chars: int | None = None
    note: str = ""


BENCHMARKS: dict[str, Benchmark] = {
    "math500": Benchmark(schemas.math500, "HuggingFaceH4/MATH-500", "test", Cut(300, 100, 100), 500, "MIT (MATH)"),
    "mmlu": Benchmark(
        schemas.mmlu, "cais/mmlu", "test", Cut(4593, 1531, 1531), 14_042, "MIT", config="all",
        note="the paper's sizes; it does not say from which of MMLU's splits",
    ),
    "rlpr": Benchmark(
        schemas.rlpr, "openbmb/RLPR-Train-Dataset", "train", Cut(4593, 1531, 1531), None, "see the data set's card",
        answer_chars=30, note="the paper gives no sizes; MMLU's are used",
    ),
    "livecodebench_v1": Benchmark(
        schemas.livecodebench, "livecodebench/code_generation_lite", "train", Cut(240, 80, 0), 400,
        "CC; problems of AtCoder, Codeforces, LeetCode", file="test.jsonl",
    ),
    "livecodebench_v6": Benchmark(
        schemas.livecodebench, "livecodebench/code_generation_lite", "train", Cut(0, 0, 175), 175,
        "CC; problems of AtCoder, Codeforces, LeetCode", file="test6.jsonl", note="only what release 6 added",
    ),
    "aime2025": Benchmark(schemas.aime, "math-ai/aime25", "test", Cut(0, 0, 30), 30, "Apache-2.0; problems of the MAA"),
    "gpqa_diamond": Benchmark(
        schemas.gpqa, "Idavidrein/gpqa", "train", Cut(0, 0, 198), 198, "CC BY 4.0", config="gpqa_diamond",
        note="gated: accept its terms on the hub and log in first; do not publish its text",
    ),
    "bigcodebench": Benchmark(
        schemas.bigcodebench, "bigcode/bigcodebench", "v0.1.4", Cut(0, 0, 1140), 1140, "Apache-2.0",
        note="its tests import many packages (column libs), which the sandbox must have",
    ),
    "mt_bench": Benchmark(
        schemas.mt_bench, "HuggingFaceH4/mt_bench_prompts", "train", Cut(0, 0, 80), 80, "Apache-2.0",
        note="first turns only: an episode has one question",
    ),
}  # fmt: skip


class Loaded(NamedTuple):
    """The usable questions of one benchmark in the order of its rows.

    ``left_out`` counts rows by the reason they are no question; ``digest`` is the SHA-256 of what is left, ``pinned``
    whether it was compared with a known one.
    """

    name: str
    questions: tuple[Question, ...]
    left_out: Mapping[str, int]
    source: str
    digest: str
    pinned: bool

    def __str__(self) -> str:
        gone = "".join(f", {count:,} left out ({reason})" for reason, count in sorted(self.left_out.items()))
        known = "as pinned" if self.pinned else f"not pinned: sha256: {self.digest} pins it"
        return f"{self.name}: {len(self.questions):,} questions of {self.source}{gone}; {known}"


def load_benchmarks(settings: TaskSettings) -> tuple[tuple[Question, ...], tuple[Question, ...], tuple[Question, ...]]:
    """Training, validation and test questions of ``settings.benchmarks``, in turn.

    A split's count is shared equally by the benchmarks that have such a split (one more of the first ones where it
    does not divide): the paper's balanced mix. Held-out benchmarks have test questions only. What was loaded and
    whether its content is pinned goes to the log.

    Raises:
        UserError: where a benchmark can't be had whole, or has fewer questions than its share.
    """
    names = [task.name for task in settings.benchmarks]
    if len(set(names)) < len(names):
        raise UserError(f"tasks.benchmarks: a benchmark may come once, got {names}")
    loaded = [load(task, settings.folder) for task in settings.benchmarks]
    for each in loaded:
        _log.log(logging.INFO if each.pinned else logging.WARNING, "%s", each)
    sets = {each.name: cut(each) for each in loaded}
    made: list[tuple[Question, ...]] = []
    for place, split in enumerate(Cut._fields):
        having = {name: splits[place] for name, splits in sets.items() if splits[place]}
        count = getattr(settings, split)
        if not having:
            raise UserError(f"tasks.benchmarks: none of {', '.join(names)} has {split} questions; add one that has")
        columns = []
        for turn, (name, questions) in enumerate(having.items()):
            share = len(range(turn, count, len(having)))
            if share > len(questions):
                raise UserError(
                    f"tasks.{split}: {count} questions of {len(having)} benchmarks are {share} of {name}, which has "
                    f"{len(questions)}; at most {len(questions) * len(having)} can be shared equally"
                )
            columns.append(list(questions[:share]))
        made.append(in_turn(columns))
    train, validation, test = made
    return train, validation, test


def load(task: BenchmarkTask, folder: Path) -> Loaded:
    """All questions of a benchmark, or of an offline set, from its file, from ``folder`` or from the hub; checked.

    Raises:
        UserError: for an unknown name, a file of another schema, size or content, ids that repeat; where nothing can
            be had, with the command that gets it and the place to put it.
    """
    if task.name in offline.SETS:
        questions = tuple(offline.load(task.name))
        return _checked(task.name, questions, {}, f"package {offline.SETS[task.name].package}", task.sha256)
    if task.name not in BENCHMARKS:
        raise UserError(
            f"tasks.benchmarks: unknown name {task.name!r} (known: {', '.join((*BENCHMARKS, *offline.SETS))})"
        )
    benchmark = BENCHMARKS[task.name]
    here = [path for suffix in (".jsonl", ".parquet") if (path := folder / f"{task.name}{suffix}").exists()]
    path = task.file or next(iter(here), None)
    if path is not None:
        source, rows = str(path), read_rows(path)
    else:
        revision = task.revision or benchmark.revision
        source, rows = f"{benchmark.dataset} at {revision}", _hub_rows(task.name, benchmark, revision, folder)
    questions, left_out, count = _questions(task.name, benchmark, rows, source)
    if benchmark.size is not None and count != benchmark.size:
        raise UserError(
            f"{task.name}: expected {benchmark.size:,} rows, {source} has {count:,}: not the whole benchmark"
        )
    return _checked(task.name, questions, left_out, source, task.sha256 or benchmark.sha256)


def cut(loaded: Loaded) -> tuple[tuple[Question, ...], tuple[Question, ...], tuple[Question, ...]]:
    """Training, validation and test questions: a seed-42 shuffle, no prompt twice, then the benchmark's cut.

    Offline sets are cut 60/20/20.

    Raises:
        UserError: where there are too few.
    """
    order = np.random.default_rng(SEED).permutation(len(loaded.questions))
    distinct = {question.prompt: question for question in (loaded.questions[place] for place in reversed(order))}
    questions = tuple(reversed(distinct.values()))
    if loaded.name in BENCHMARKS:
        sizes = BENCHMARKS[loaded.name].cut
    else:
        fifth = len(questions) // 5
        sizes = Cut(len(questions) - 2 * fifth, fifth, fifth)
    if len(questions) < sum(sizes):
        raise UserError(
            f"{loaded.name}: its cut {tuple(sizes)} needs {sum(sizes)} questions, there are {len(questions)}"
        )
    first, second = sizes.train, sizes.train + sizes.validation
    return questions[:first], questions[first:second], questions[second : second + sizes.test]


def digest(questions: Iterable[Question]) -> str:
    """SHA-256 of ids, prompts, answers and options in order: the same whichever way the rows came."""
    total = hashlib.sha256()
    for question in questions:
        line = [question.id, question.prompt, question.answer, question.options]
        total.update(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    return total.hexdigest()


def get_it(name: str, folder: Path) -> str:
    """What to run where the hub can be reached, and where to put what it writes."""
    benchmark = BENCHMARKS[name]
    if benchmark.file:
        url = f"hf://datasets/{benchmark.dataset}@{benchmark.revision}/{benchmark.file}"
        arguments = f"'json', data_files='{url}', split='train'"
    else:
        config = f", '{benchmark.config}'" if benchmark.config else ""
        arguments = f"'{benchmark.dataset}'{config}, split='{benchmark.split}', revision='{benchmark.revision}'"
    code = f"from datasets import load_dataset; load_dataset({arguments}).to_json('{name}.jsonl')"
    note = f" ({benchmark.note})" if benchmark.note else ""
    command = f'pip install datasets && python -c "{code}"'
    return f"where the hub is reachable run\n  {command}\nand put {name}.jsonl into {folder}{note}"


def read_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Rows of a JSONL or parquet file, one at a time.

    Raises:
        UserError: naming the file, and the line where there are lines.
    """
    if path.suffix == ".parquet":
        yield from _parquet(path)
        return
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _object(line, f"{path}:{number}")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text; expected JSON lines or a file named .parquet") from error


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: not valid JSON ({error})") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected a JSON object, got {type(row).__name__}")
    return row


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError(
            f"{path}: parquet files need pyarrow (pip install pyarrow); JSONL files need nothing"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except (OSError, ArrowException) as error:
        raise UserError(f"{path}: not a readable parquet file ({str(error)[:100]})") from error


def _hub_rows(name: str, benchmark: Benchmark, revision: str, folder: Path) -> Iterator[Mapping[str, Any]]:
    if importlib.util.find_spec("datasets") is None:
        raise UserError(f"{name}: no file, and the package datasets is not installed; {get_it(name, folder)}")
    import datasets  # pyright: ignore[reportMissingImports]

    try:
        if benchmark.file:
            url = f"hf://datasets/{benchmark.dataset}@{revision}/{benchmark.file}"
            rows = datasets.load_dataset("json", data_files=url, split="train")
        else:
            rows = datasets.load_dataset(benchmark.dataset, benchmark.config, split=benchmark.split, revision=revision)
    except Exception as error:  # its errors have no common base: connection, gate, schema, checksum
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise UserError(f"{name}: {benchmark.dataset} could not be had ({reason}); {get_it(name, folder)}") from error
    yield from rows  # pyright: ignore[reportReturnType]


def _questions(
    name: str, benchmark: Benchmark, rows: Iterable[Mapping[str, Any]], source: str
) -> tuple[tuple[Question, ...], Mapping[str, int], int]:
    made: dict[str, Question] = {}
    left_out: Counter[str] = Counter()
    count = problems = 0
    for count, data in enumerate(rows, start=1):
        question = benchmark.schema(Row(data, f"{source}: row {count}", count - 1), name)
        if question.id in made:
            raise UserError(f"{source}: row {count}: id {question.id!r} is there twice")
        if benchmark.answer_chars and len(question.answer) > benchmark.answer_chars:
            left_out[f"answers over {benchmark.answer_chars} characters"] += 1
        elif problem := grader(question.grader).problem(question):
            left_out[problem if len(problem) < 60 else f"{problem[:57]}..."] += 1
            problems += question.grader != "judge"  # many an open question has no reference
        else:
            made[question.id] = question
    if problems > MAX_LEFT_OUT * count:
        raise UserError(
            f"{name}: {problems} of {count} rows of {source} can't be graded: {left_out.most_common(1)[0][0]}"
        )
    return tuple(made.values()), left_out, count


def _checked(
    name: str, questions: tuple[Question, ...], left_out: Mapping[str, int], source: str, known: str | None
) -> Loaded:
    found = digest(questions)
    if known is not None and found != known.lower():
        raise UserError(f"{name}: {source} is not what was pinned: expected sha256 {known}, got {found}")
    return Loaded(name, questions, left_out, source, found, known is not None)
