"""Questions from JSON lines, and the three sets of a run from whichever source its settings name."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from trinity_jax.config import TaskSettings
from trinity_jax.errors import UserError
from trinity_jax.tasks import GRADERS, Grade, choice, grade, grader
from trinity_jax.tasks.benchmarks import load_benchmarks
from trinity_jax.tasks.generated import generate
from trinity_jax.tasks.question import Question

_TEXTS = ("id", "kind", "prompt", "answer", "grader", "solution")
_LISTS = ("options", "wrong")
_QUICK = ("choice", "numeric", "exact", "exact_case", "short")  # graders that start no process and make no call


class Tasks(NamedTuple):
    """The questions of a run."""

    train: tuple[Question, ...]
    validation: tuple[Question, ...]
    test: tuple[Question, ...]


def load_tasks(settings: TaskSettings) -> Tasks:
    """Generate the questions, load benchmarks, or read the three files and keep the first of each.

    Raises:
        UserError: for a bad file, one with fewer questions than asked for, a question in two of them, a family that
            runs out, or a benchmark that can't be had whole.
    """
    if settings.kind == "generated":
        return Tasks(*generate(settings))
    if settings.kind == "benchmarks":
        return Tasks(*load_benchmarks(settings))
    sets = []
    for split in Tasks._fields:
        path, count = getattr(settings, f"{split}_file"), getattr(settings, split)
        questions = load_questions(path)
        if len(questions) < count:
            raise UserError(f"{path}: tasks.{split} asks for {count} questions, the file has {len(questions)}")
        sets.append(questions[:count])
    _disjoint(Tasks(*sets))
    return Tasks(*sets)


def _disjoint(tasks: Tasks) -> None:
    seen: dict[str, str] = {}
    for split, questions in zip(Tasks._fields, tasks, strict=True):
        for question in questions:
            for what in (f"id {question.id!r}", f"prompt {question.prompt!r}"):
                if seen.setdefault(what, split) != split:
                    raise UserError(
                        f"tasks: {what[:100]} is in {seen[what]}_file and in {split}_file; the sets must be disjoint"
                    )


def load_questions(path: Path | str) -> tuple[Question, ...]:
    """Read one JSON object a line: ``prompt`` and ``answer``; maybe ``id, kind, grader, options, wrong, solution``.

    ``answer`` may be a number, or the tests of a program as an object (``tasks.tests.Tests``). Without ``grader`` it is
    ``choice`` where there are ``options``, ``code`` where the answer is an object, ``numeric`` where it is a number,
    else ``exact``. ``options`` are shown under the prompt as ``A) ...`` lines; ``answer`` is then a letter. Ids default
    to ``<file stem>/<line>``, kinds to the file's stem. Blank lines are skipped.

    Raises:
        UserError: naming file and line.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except ValueError as error:  # a name with a NUL in it
        raise UserError(f"{str(path)!r}: cannot be read ({error})") from error
    questions: dict[str, Question] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        question = _question(_object(line, where), where, path.stem, number)
        if question.id in questions:
            raise UserError(f"{where}: id {question.id!r} is used twice")
        questions[question.id] = question
    if not questions:
        raise UserError(f"{path}: holds no question")
    return tuple(questions.values())


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of absurd length
        raise UserError(f"{where}: not valid JSON ({error})") from error
    if not isinstance(data, dict):
        raise UserError(f"{where}: expected a JSON object, got {type(data).__name__}")
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: holds half of a surrogate pair, which is no text") from error
    unknown = sorted(data.keys() - {*_TEXTS, *_LISTS})
    if unknown:
        raise UserError(f"{where}: unknown key {unknown[0]!r} (known: {', '.join((*_TEXTS, *_LISTS))})")
    return data


def _question(data: dict[str, Any], where: str, stem: str, number: int) -> Question:
    given: Any = data.get("answer")
    if isinstance(given, int | float) and not isinstance(given, bool):
        data = {"grader": "numeric", **data, "answer": str(given)}
    if isinstance(given, dict):
        data = {"grader": "code", **data, "answer": json.dumps(given, ensure_ascii=False)}
    for key in ("prompt", "answer"):
        if key not in data:
            raise UserError(f"{where}: {key} is missing")
    for key in _TEXTS:
        if key in data and (not isinstance(data[key], str) or not data[key].strip()):
            raise UserError(f"{where}: {key} must be text that is not blank, got {data[key]!r}")
    for key in _LISTS:
        value = data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UserError(f"{where}: {key} must be a list of texts, got {value!r}")
    options, wrong = tuple(data.get("options", ())), tuple(data.get("wrong", ()))
    question = Question(
        id=data.get("id", f"{stem}/{number}"),
        kind=data.get("kind", stem),
        prompt=choice.render(data["prompt"], options) if options else data["prompt"],
        answer=data["answer"].strip(),
        grader=data.get("grader") or _guess(data["answer"], options),
        options=options,
        wrong=wrong,
        solution=data.get("solution", ""),
    )
    try:
        problem = grader(question.grader).problem(question)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    if problem:
        raise UserError(f"{where}: {problem}")
    for text in wrong if question.grader in _QUICK else ():
        if grade(question, f"<answer>{text}</answer>", True) is Grade.RIGHT:
            raise UserError(f"{where}: wrong answer {text!r} would be graded right")
    return question


def _guess(answer: str, options: tuple[str, ...]) -> str:
    if options:
        return "choice"
    number = GRADERS["numeric"].problem(Question("", "", "", answer, "numeric")) is None
    return "numeric" if number and not any(letter.isalpha() for letter in answer) else "exact"
