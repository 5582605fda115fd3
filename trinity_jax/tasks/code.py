"""Programs: what a reply's program is, whether it passes all tests of its question, and how that is found out.

The model's program runs in a sandbox that holds inputs but no expected output. Its outputs come back as data and are
compared out here (``stdin``, ``call``) or in a second sandbox that holds the tests and knows a nonce (``check``): the
function under test is there a proxy that asks the first. So nothing a program prints, patches, kills or exits with
counts, only what it computes. The one exception are ``unittest`` tests, which hand objects and patches about and must
run in the program's own process. There the tests come after the program was loaded, mixed with as many that fail by
construction, and only the exact pattern of passes counts: patched assertions or a forged report break it. A program
made to tell the two apart from their source could still win, and so could one whose results lie about equality.
"""

import ast
import json
import math
import os
import random
import re
import secrets
import sys
import textwrap
import threading
import time
from collections import deque
from functools import cache
from typing import Any, NamedTuple

from trinity_jax.errors import UserError
from trinity_jax.reasoning import visible
from trinity_jax.tasks import inside
from trinity_jax.tasks.extract import tagged
from trinity_jax.tasks.question import Grade, Question
from trinity_jax.tasks.sandbox import Isolation, Limits, Process, SandboxError, StoppedError, checked, chosen
from trinity_jax.tasks.tests import Tests, read_tests, unpack

SECONDS = 6.0  # a test, on the reference machine (LiveCodeBench's limit)
LOAD_SECONDS = 10.0  # until a program's definitions stand
CHECK_SECONDS = 60.0  # what the tests themselves may take between two calls
TOLERANCE = 1e-6  # of floats, relative or absolute, as contests have it
_REFERENCE_SECONDS = 0.05  # what the calibration takes on the reference machine (one core at about 3 GHz, Python 3.11)
_SLOWEST = 10.0
_SLOTS = threading.BoundedSemaphore(os.cpu_count() or 1)  # more at once would only wait for one another

_FENCE = re.compile(r"^[ \t]{0,3}(?:`{3,}|~{3,})[ \t]*([\w+.#-]*)[^\n]*$", re.MULTILINE)
_PYTHON = {"", "py", "python", "python3", "py3"}
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?")
_INTEGER = re.compile(r"[-+]?\d+")


class Verdict(NamedTuple):
    """``reason`` says what failed or why nothing could be decided; ``seconds`` is wall clock."""

    grade: Grade
    reason: str
    seconds: float


class _WrongError(Exception):
    """The program fails its tests; the message says how."""


class _UnknownError(Exception):
    """Something other than the program failed; the message says what."""


def grade(question: Question, reply: str, strict_answer_tag: bool) -> Grade:
    """Run the program of a reply; undecided where there is none, or where the sandbox or the tests failed.

    Raises:
        UserError: where no sandbox is to be had.
    """
    return verdict(question, reply, strict_answer_tag).grade


def terms() -> str:
    """Isolation and interpreter: what a program can import, and what it may do.

    Raises:
        UserError: where no sandbox is to be had.
    """
    return f"{chosen()}, {os.environ.get('TRINITY_SANDBOX_PYTHON') or sys.version}"


def problem(question: Question) -> str | None:
    """Why a question's tests can't be run, or ``None``."""
    try:
        unpack(read_tests(question.answer))
    except UserError as error:
        return str(error)
    return None


def verdict(question: Question, reply: str, strict_answer_tag: bool = False) -> Verdict:
    """``grade`` with its reason."""
    tests = read_tests(question.answer)
    source = program(reply, tests.function, strict_answer_tag)
    if source is None:
        return Verdict(Grade.UNDECIDED, "the reply holds no program", 0.0)
    return judge(tests, source)


def judge(tests: Tests, source: str) -> Verdict:
    """Run a program against tests, all of which must pass.

    Raises:
        UserError: where no sandbox is to be had.
    """
    isolation = checked(chosen())
    began = time.monotonic()
    run = {"stdin": _stdin, "call": _call, "check": _check, "unittest": _unittest}[tests.form]
    try:
        with _SLOTS:
            run(tests, source, isolation, calibration(isolation))
        graded, reason = Grade.RIGHT, ""
    except (_WrongError, StoppedError) as error:
        graded, reason = Grade.WRONG, str(error)
    except (_UnknownError, SandboxError, OSError) as error:
        graded, reason = Grade.UNDECIDED, str(error)
    return Verdict(graded, reason, time.monotonic() - began)


@cache
def calibration(isolation: Isolation) -> float:
    """How much slower than the reference a sandbox on this machine is, at least 1; measured once."""
    source = (
        "import time\ndef measure():\n    began = time.process_time()\n    table = {}\n    for i in range(200_000):\n"
        "        table[i % 1000] = table.get(i % 1000, 0) + i * i % 7\n    return time.process_time() - began\n"
    )
    best = math.inf
    with Process(isolation) as process:
        _load(process, source, "measure")
        for _ in range(3):
            process.send(call=inside.encode([[], {}]))
            best = min(best, process.receive(CHECK_SECONDS)["value"])
    return min(max(best / _REFERENCE_SECONDS, 1.0), _SLOWEST)


def program(reply: str, function: str = "", strict_answer_tag: bool = False) -> str | None:
    """The program of a reply: its last fenced block, or the last that defines ``function`` or a class ``Solution``.

    A last fence left open counts up to the end. Without fences the whole text is taken if it parses as Python.
    """
    text = visible(reply)
    inner = tagged(text)
    if strict_answer_tag:
        if inner is None:
            return None
        text = inner
    elif inner is not None and (_blocks(inner) or not _blocks(text)):
        text = inner
    blocks = _blocks(text)
    if blocks:
        wanted = re.compile(rf"^(?:async )?def {re.escape(function)}\b|^class Solution\b", re.MULTILINE)
        defining = [block for block in blocks if wanted.search(block)] if function else []
        return (defining or blocks)[-1]
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return text if text.strip() else None


def _blocks(text: str) -> list[str]:
    """Contents of fenced blocks that are Python or of no named language and not blank."""
    found: deque[str] = deque(maxlen=64)
    start, language, mark = None, "", ""
    for fence in _FENCE.finditer(text):
        marks = fence[0].strip()
        if start is None:
            start, language, mark = fence.end(), fence[1].lower(), marks[:3]
        elif marks.startswith(mark) and not fence[1]:
            if language in _PYTHON:
                found.append(text[start : fence.start()])
            start = None
    if start is not None and language in _PYTHON:
        found.append(text[start:])
    return [textwrap.dedent(block).strip("\n") + "\n" for block in found if block.strip()]


def same_output(wanted: str, got: str) -> bool:
    """Equal line by line and word by word, blank lines at the end aside; numbers with a point within ``TOLERANCE``."""
    left, right = ([line.split() for line in text.rstrip().splitlines()] for text in (wanted, got))
    return len(left) == len(right) and all(
        len(a) == len(b) and all(map(_same_word, a, b)) for a, b in zip(left, right, strict=True)
    )


def _same_word(wanted: str, got: str) -> bool:
    if wanted == got:
        return True
    if not (_NUMBER.fullmatch(wanted) and _NUMBER.fullmatch(got)):
        return False
    if _INTEGER.fullmatch(wanted):  # "3" may be printed as "3.0", and nothing else
        whole, _, rest = got.partition(".")
        return bool(rest) and not rest.strip("0") and whole == wanted
    return math.isclose(float(wanted), float(got), rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def same_value(wanted: Any, got: Any) -> bool:
    """A JSON value against a decoded one: tuples are lists, floats are within ``TOLERANCE``."""
    if isinstance(wanted, list):
        return isinstance(got, list | tuple) and len(wanted) == len(got) and all(map(same_value, wanted, got))
    if isinstance(wanted, dict):
        alike = isinstance(got, dict) and wanted.keys() == got.keys()
        return alike and all(same_value(wanted[key], got[key]) for key in wanted)
    if isinstance(wanted, float) and isinstance(got, int | float):
        try:
            return math.isclose(wanted, got, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        except OverflowError:
            return False
    if isinstance(wanted, int):  # and bool: in Python True == 1
        return isinstance(got, int | float) and wanted == got
    return type(wanted) is type(got) and wanted == got


def _stdin(tests: Tests, source: str, isolation: Isolation, scale: float) -> None:
    for number, (given, wanted) in enumerate(unpack(tests), start=1):
        with Process(isolation) as process:
            process.send(form="stdin", prefix=tests.prefix, source=source)
            try:
                code, out, errors = process.finish(given.encode(), SECONDS * scale)
            except StoppedError as error:
                raise _WrongError(f"test {number}: {error}") from error
        if code:
            raise _WrongError(f"test {number}: exit code {code}, {_last_line(errors)}")
        if not same_output(wanted, out.decode(errors="replace")):
            raise _WrongError(f"test {number}: another output")


def _last_line(errors: bytes) -> str:
    return errors.decode(errors="replace").strip().rpartition("\n")[2][:200]


def _load(process: Process, source: str, function: str, prefix: str = "") -> None:
    process.send(form="call", prefix=prefix, source=source, function=function)
    answer = process.receive(LOAD_SECONDS)
    if answer != {"loaded": True}:
        raise _WrongError(f"does not load: {answer.get('problem')}")


def _call(tests: Tests, source: str, isolation: Isolation, scale: float) -> None:
    with Process(isolation) as process:
        _load(process, source, tests.function, tests.prefix)
        for number, (given, wanted) in enumerate(unpack(tests), start=1):
            try:
                arguments = [_json(line) for line in given.splitlines() if line.strip()]
                expected = _json(wanted)
            except (ValueError, RecursionError) as error:
                raise _UnknownError(f"test {number}: not JSON ({error})") from error
            process.send(call=inside.encode([arguments, {}]))
            try:
                answer = process.receive(SECONDS * scale)
            except StoppedError as error:
                raise _WrongError(f"test {number}: {error}") from error
            if "value" not in answer:
                raise _WrongError(f"test {number}: raised {answer.get('raised')}: {answer.get('text')}"[:300])
            try:
                equal = same_value(expected, inside.decode(answer["value"]))
            except (ValueError, TypeError, LookupError, RecursionError, AttributeError, OverflowError) as error:
                raise _WrongError(f"test {number}: sent what is no value") from error
            if not equal:
                raise _WrongError(f"test {number}: another result")


def _json(text: str) -> Any:
    return json.loads(text, parse_int=_integer)


def _integer(digits: str) -> int:
    """Of any length; Python's own conversion stops at 4,300 digits, to spare servers."""
    if len(digits) <= 4000:
        return int(digits)
    sign, digits = (-1, digits[1:]) if digits[0] == "-" else (1, digits)
    value = 0
    for start in range(0, len(digits), 4000):
        piece = digits[start : start + 4000]
        value = value * 10 ** len(piece) + int(piece)
    return sign * value


def _check(tests: Tests, source: str, isolation: Isolation, scale: float) -> None:
    nonce = secrets.token_hex(16)
    with Process(isolation) as process, Process(isolation) as checker:
        _load(process, source, tests.function, tests.prefix)
        checker.send(form="check", program=tests.program, prefix=tests.prefix, function=tests.function, nonce=nonce)
        if _asked(checker, scale) != {"loaded": True}:
            raise _UnknownError("the tests do not load")
        while True:
            message = _asked(checker, scale)
            if "call" not in message:
                break
            process.send(call=message["call"])
            answer = process.receive(SECONDS * scale)
            if "value" in answer:
                checker.send(value=answer["value"])
            else:
                checker.send(raised=str(answer.get("raised")), text=str(answer.get("text")))
    if message.get("nonce") != nonce:
        raise _UnknownError("the tests ended without a verdict")
    if message.get("passed") is not True:
        raise _WrongError(str(message.get("text")))


def _asked(checker: Process, scale: float) -> dict[str, Any]:
    try:
        return checker.receive(CHECK_SECONDS * scale)
    except StoppedError as error:
        raise _UnknownError(f"the tests {error}") from error


def _unittest(tests: Tests, source: str, isolation: Isolation, scale: float) -> None:
    nonce = secrets.token_hex(16)
    text, real, canaries = with_canaries(tests.program)
    with Process(isolation, Limits(memory_mb=4096, files_mb=256)) as process:
        process.send(form="unittest", prefix=tests.prefix, source=source)
        answer = process.receive(LOAD_SECONDS * scale)
        if answer != {"loaded": True}:
            raise _WrongError(f"does not load: {answer.get('problem')}")
        process.send(program=text, nonce=nonce)
        passed, ran = set(), set()
        while True:
            message = process.receive(SECONDS * scale)
            if message.get("nonce") != nonce:
                raise _WrongError("a report that is not signed")
            if "end" in message:
                break
            passed.add(str(message.get("passed")))
            ran.add(str(message.get("ran")))
    if passed & canaries or not canaries <= ran:
        raise _WrongError("tampers with its tests: one that must fail did not")
    if not real <= passed:
        raise _WrongError(f"fails {', '.join(sorted(real - passed))[:200]}")


def with_canaries(source: str) -> tuple[str, set[str], set[str]]:
    """Tests mixed with as many that fail by construction: the new source, the names of the tests, those of the others.

    All get names without a meaning and in an order by chance, so that only their source tells them apart. Test classes
    that order their tests by name keep their own relative order.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise _UnknownError(f"the tests are not Python ({error})") from error
    holder = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "TestCases"), None)
    methods = [n for n in holder.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test")] if holder else []
    if holder is None or not methods:
        raise _UnknownError("the tests hold no class TestCases with tests")
    chance = random.SystemRandom()
    failing = [ast.parse(_failing(chance)).body[0] for _ in range(max(8, len(methods)))]
    ordered = sorted({method.name: method for method in methods}.values(), key=lambda method: method.name)
    marks = [True] * len(ordered) + [False] * len(failing)
    chance.shuffle(marks)
    real, canaries, ours = set(), set(), iter(ordered)
    for place, mark in enumerate(marks):
        method = next(ours) if mark else failing.pop()
        assert isinstance(method, ast.FunctionDef)
        method.name = f"test_{place:04d}_{secrets.token_hex(4)}"
        (real if mark else canaries).add(method.name)
        if not mark:
            holder.body.append(method)
    return ast.unparse(ast.fix_missing_locations(tree)), real, canaries


def _failing(chance: random.SystemRandom) -> str:
    number = chance.randrange(2, 1000)
    line = chance.choice(
        (
            f"self.assertEqual({number}, {number + 1})",
            f"self.assertTrue({number} < 1)",
            f"self.assertIn({number}, [1, {number + 1}])",
            f"self.assertIsNone({number})",
            f"self.assertAlmostEqual({number}.5, {number}.25)",
            f"self.fail('{number}')",
            f"assert {number} == 1",
            f"raise ValueError('{number}')",
            f"with self.assertRaises(ValueError):\n        int('{number}')",
        )
    )
    return f"def test(self):\n    {line}\n"
