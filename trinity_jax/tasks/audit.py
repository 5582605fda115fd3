"""Can the graders be believed? Gold answers must be right, corrupted ones must not: counted over whole tasks."""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from fractions import Fraction
from string import ascii_uppercase

from trinity_jax.errors import UserError
from trinity_jax.tasks import grade, numeric
from trinity_jax.tasks.jsonl import load_questions
from trinity_jax.tasks.question import Grade, Question

FORMS = ("<answer>{}</answer>", "Let me see.\n\nThe answer is {}.", "So it is clear.\n\n\\boxed{{{}}}")
"""How a reply puts its answer; a program stands in a fenced block."""
EMPTY = ("", "I don't know.", "<answer></answer>")
"""Replies that may never be right."""


@dataclass(frozen=True)
class Audit:
    """What a task's grader made of it. Shares are of the replies of their sort, ``undecided`` of the gold ones.

    ``false_negative``: gold replies that were not right. ``false_positive``: corrupted replies that were right.
    ``wrong``: corrupted replies that were wrong, the others being undecided. ``items`` are questions, ``seconds`` wall
    clock.
    """

    task: str
    items: int
    replies: int
    corrupted: int
    false_negative: float
    false_positive: float
    undecided: float
    wrong: float
    seconds: float
    examples: tuple[str, ...] = ()

    @property
    def per_s(self) -> float:
        """Replies graded a second."""
        return (self.replies + self.corrupted) / self.seconds if self.seconds else 0.0

    @property
    def believable(self) -> bool:
        """No gold reply but right, no corrupted one right."""
        return self.items > 0 and self.false_negative == self.false_positive == 0

    def line(self) -> str:
        """One line for the terminal."""
        return (
            f"{self.task}: {self.items} questions; of {self.replies} gold replies {self.false_negative:.2%} not right, "
            f"{self.undecided:.2%} undecided; of {self.corrupted} corrupted ones {self.false_positive:.2%} right, "
            f"{self.wrong:.2%} wrong; {self.per_s:,.0f} replies/s"
        )


def audit(task: str, questions: Sequence[Question], threads: int = 2) -> Audit:
    """Grade every question's gold answer in every form, and its corrupted answers.

    Args:
        task: a name for the report.
        questions: with gold answers and a grader each.
        threads: how many replies are graded at once; graders that start processes wait for them.
    """
    gold = [(question, reply) for question in questions for reply in said(question, question.gold)]
    bad = [(question, reply) for question in questions for reply in spoiled(question)]
    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        grades = list(pool.map(_grade, gold + bad))
    seconds = time.perf_counter() - started
    on_gold, on_bad = grades[: len(gold)], grades[len(gold) :]
    missed = [(*row, grade) for row, grade in zip(gold, on_gold, strict=True) if grade is not Grade.RIGHT]
    passed = [(*row, grade) for row, grade in zip(bad, on_bad, strict=True) if grade is Grade.RIGHT]
    return Audit(
        task=task,
        items=len(questions),
        replies=len(gold),
        corrupted=len(bad),
        false_negative=len(missed) / max(len(gold), 1),
        false_positive=len(passed) / max(len(bad), 1),
        undecided=on_gold.count(Grade.UNDECIDED) / max(len(gold), 1),
        wrong=on_bad.count(Grade.WRONG) / max(len(bad), 1),
        seconds=seconds,
        examples=tuple(f"{q.id}: {reply[-200:]!r} is {grade}" for q, reply, grade in (missed + passed)[:5]),
    )


def summary(audits: Sequence[Audit]) -> dict[str, float | int]:
    """All tasks as one: the last line of ``tasks audit --json``."""
    replies, bad = sum(a.replies for a in audits), sum(a.corrupted for a in audits)
    seconds = sum(a.seconds for a in audits)
    return {
        "items": sum(a.items for a in audits),
        "false_negative": sum(a.false_negative * a.replies for a in audits) / max(replies, 1),
        "false_positive": sum(a.false_positive * a.corrupted for a in audits) / max(bad, 1),
        "undecided": sum(a.undecided * a.replies for a in audits) / max(replies, 1),
        "per_s": (replies + bad) / seconds if seconds else 0.0,
    }


def report(audits: Sequence[Audit], as_json: bool) -> Iterator[str]:
    """A line a task with the first few mistakes, then all as one."""
    for one in audits:
        yield json.dumps(asdict(one) | {"per_s": one.per_s}, ensure_ascii=False) if as_json else one.line()
        if not as_json:
            yield from (f"  {example}" for example in one.examples)
    yield json.dumps(summary(audits))


def known(name: str, tasks: Mapping[str, Callable[[], list[Question]]]) -> list[Question]:
    """The questions of a task, or of a JSONL file.

    Raises:
        UserError: listing the known names.
    """
    if name.endswith(".jsonl"):
        return list(load_questions(name))
    if name not in tasks:
        raise UserError(f"unknown task {name!r} (known here: {', '.join(tasks)})")
    return tasks[name]()


def said(question: Question, answer: str) -> list[str]:
    """Replies that give an answer."""
    if question.grader == "code":
        return [f"Here it is.\n\n```python\n{answer}\n```"]
    return [form.format(answer) for form in FORMS]


def spoiled(question: Question) -> list[str]:
    """Replies that are not right: the question's wrong answers, changed gold answers, and no answer at all."""
    rng = random.Random(question.id)
    answers = [*question.wrong, *_CORRUPTIONS.get(question.grader, _texts)(question, rng)]
    return [reply for answer in dict.fromkeys(answers) for reply in said(question, answer)[:2]] + list(EMPTY)


def _grade(pair: tuple[Question, str]) -> Grade:
    return grade(*pair, strict_answer_tag=False)


def _letters(question: Question, rng: random.Random) -> list[str]:
    """Every other letter, one beyond the last, and another option's text."""
    letters = ascii_uppercase[: len(question.options) + 1]
    others = [letter for letter in letters if letter != question.answer]
    texts = [text for letter, text in zip(letters, question.options, strict=False) if letter != question.answer]
    return [*others, rng.choice(texts)]


def _numbers(question: Question, rng: random.Random) -> list[str]:
    """Off by one and by ten, ten times as much, the other sign."""
    number = numeric.parse(question.answer)
    if number is None:
        return _texts(question, rng)
    value = number.value
    changed = {value + 1, value - 1, value + 10, 10 * value, -value, value + Fraction(1, 2)} - {value}
    if number.percent:
        changed -= {100 * value, value / 100}
    return [str(each) for each in sorted(changed)]


def _maths(question: Question, rng: random.Random) -> list[str]:
    """As numbers; else a changed digit, or one more and twice as much of whatever it is."""
    if numeric.whole(question.answer):
        return _numbers(question, rng)
    places = [at for at, mark in enumerate(question.answer) if mark.isdigit()]
    if not places:
        return ["17", r"\frac{17}{19}"]
    at = rng.choice(places)
    digit = str((int(question.answer[at]) + rng.randint(1, 8)) % 10)
    return [question.answer[:at] + digit + question.answer[at + 1 :], "-17"]


def _texts(question: Question, rng: random.Random) -> list[str]:
    """Letters lost and swapped, another word, the words turned round."""
    answer = question.answer.strip()
    words = answer.split()
    slips = [answer[:-1] + "zq", "xyzzy " + answer[:1]]
    if len(words) > 1 and words != words[::-1]:
        slips.append(" ".join(words[::-1]))
    return [slip for slip in slips if slip.strip()]


def _programs(question: Question, rng: random.Random) -> list[str]:
    """The solution with nothing in it, with an exit in front, and no program but the word "passed"."""
    name = question.prompt.partition("def ")[2].partition("(")[0].strip() or "solve"
    return [f"def {name}(*arguments, **named):\n    return None", "raise SystemExit(0)", "print('passed')"]


_CORRUPTIONS: dict[str, Callable[[Question, random.Random], list[str]]] = {
    "choice": _letters,
    "numeric": _numbers,
    "math": _maths,
    "short": _maths,
    "code": _programs,
}
