"""A question, its gold answer, and the three ways a reply can be graded."""

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """``UNDECIDED``: no answer could be found or compared; it earns nothing and is reported on its own."""

    RIGHT = "right"
    WRONG = "wrong"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Question:
    """One question of a task.

    ``kind`` names the family (for reports and for simulated skills), ``grader`` the entry of ``tasks.GRADERS`` that
    compares a reply with ``answer``; ``options`` are the choices of a multiple-choice question in order (A, B, ...);
    ``wrong`` are plausible wrong answers in the same form as ``answer``, which simulated models give. For the grader
    ``code`` the answer is the JSON text of ``tasks.tests.Tests`` and ``solution`` a program that passes them; for
    ``judge`` the answer is a reference, or what the reply is judged by.
    """

    id: str
    kind: str
    prompt: str
    answer: str
    grader: str
    options: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    solution: str = ""

    @property
    def gold(self) -> str:
        """What a right reply says: the solution where the answer is none itself."""
        return self.solution or self.answer
