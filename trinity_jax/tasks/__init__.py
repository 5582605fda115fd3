"""Questions to prompts, replies to grades."""

from collections.abc import Callable
from typing import NamedTuple

from trinity_jax.errors import UserError
from trinity_jax.tasks import choice, code, exact, judge, maths, numeric, short
from trinity_jax.tasks.question import Grade, Question


class Grader(NamedTuple):
    """``compare(question, reply, strict_answer_tag)`` grades; ``problem(question)`` says why a question can't be.

    A costly one runs programs or algebra under a limit of time, which may come out otherwise a second time; its
    ``terms`` say what else its grades hang on.
    """

    compare: Callable[[Question, str, bool], Grade]
    problem: Callable[[Question], str | None]
    terms: Callable[[], str] | None = None


GRADERS = {
    "choice": Grader(choice.grade, choice.problem),
    "numeric": Grader(numeric.grade, numeric.problem),
    "exact": Grader(exact.grade, exact.problem),
    "exact_case": Grader(exact.grade_case, exact.problem),
    "math": Grader(maths.grade, maths.problem, maths.terms),
    "short": Grader(short.grade, short.problem),
    "judge": Grader(judge.grade, judge.problem),
    "code": Grader(code.grade, code.problem, code.terms),
}


def grader(name: str) -> Grader:
    """Look a grader up.

    Raises:
        UserError: listing the known names.
    """
    if name not in GRADERS:
        raise UserError(f"unknown grader {name!r} (known: {', '.join(GRADERS)})")
    return GRADERS[name]


def grade(question: Question, reply_text: str, strict_answer_tag: bool) -> Grade:
    """Grade a reply; with ``strict_answer_tag`` only ``<answer>...</answer>`` counts.

    Raises:
        UserError: for an unknown grader.
    """
    return grader(question.grader).compare(question, reply_text, strict_answer_tag)


__all__ = ["GRADERS", "Grade", "Grader", "Question", "grade", "grader"]
