"""The tests of a coding question, as the JSON text that ``Question.answer`` holds."""

import base64
import binascii
import io
import json
import pickle
import zlib
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from trinity_jax.errors import UserError

Form = Literal["stdin", "call", "check", "unittest"]


@dataclass(frozen=True)
class Tests:
    r"""What a program has to do; all of it, or it is wrong.

    ``stdin``: run the program on each case's input and compare what it prints with the case's output.
    ``call``: call ``function`` (of a class ``Solution`` where there is one) with a case's input, one JSON value a line
    and argument, and compare with the case's output, a JSON value.
    ``check``: ``program`` defines ``check(candidate)``, which raises unless ``function`` is right (HumanEval).
    ``unittest``: ``program`` defines ``TestCases`` about ``function`` (BigCodeBench).
    ``prefix`` is source to put before the solution: imports and helpers the prompt shows. ``packed`` are more cases
    in LiveCodeBench's own compressed form: megabytes a question, so that only ``unpack`` spreads them.
    """

    form: Form
    function: str = ""
    cases: tuple[tuple[str, str], ...] = ()
    program: str = ""
    prefix: str = ""
    packed: str = ""

    __test__ = False  # pytest takes classes named Tests for its own


def write_tests(tests: Tests) -> str:
    """The JSON text of ``tests``, without what is empty."""
    return json.dumps({name: value for name, value in asdict(tests).items() if value}, ensure_ascii=False)


def read_tests(answer: str) -> Tests:
    """The tests that an answer holds, ``packed`` cases still packed.

    Raises:
        UserError: for text that is no such object, or lacks what its form needs.
    """
    try:
        data = json.loads(answer)
    except ValueError as error:
        raise UserError(f"tests of a program must be a JSON object, got {answer[:60]!r}") from error
    known = [field.name for field in fields(Tests)]
    if not isinstance(data, dict) or data.keys() - known:
        raise UserError(f"tests of a program must be a JSON object of {', '.join(known)}, got {answer[:60]!r}")
    form, cases = data.get("form"), data.pop("cases", [])
    if form not in get_args(Form):
        raise UserError(f"form must be one of {', '.join(get_args(Form))}, got {form!r}")
    if not all(isinstance(value, str) for value in data.values()):
        raise UserError(f"{', '.join(sorted(data))} must be text")
    tests = Tests(**data, cases=_pairs(cases))
    if form in ("stdin", "call") and not (tests.cases or tests.packed):
        raise UserError(f"form {form} needs cases: [[input, output], ...]")
    if form in ("check", "unittest") and not tests.program.strip():
        raise UserError(f"form {form} needs program, the source that tests")
    if form != "stdin" and not tests.function.isidentifier():
        raise UserError(f"form {form} needs function, the name that is called, got {tests.function!r}")
    return tests


def unpack(tests: Tests) -> tuple[tuple[str, str], ...]:
    """All cases, the packed ones behind the others.

    Raises:
        UserError: where ``packed`` is neither JSON nor LiveCodeBench's base64 of a compressed pickle of JSON text.
    """
    return tests.cases + (livecodebench_cases(tests.packed) if tests.packed else ())


def livecodebench_cases(text: str) -> tuple[tuple[str, str], ...]:
    """Cases of a column ``public_test_cases`` (JSON) or ``private_test_cases`` (JSON, or base64 of compressed pickle).

    Raises:
        UserError: as ``unpack``.
    """
    try:
        rows = json.loads(text if text.lstrip()[:1] == "[" else _PlainText(io.BytesIO(_inflated(text))).load())
        return _pairs([[row["input"], row["output"]] for row in rows])
    except (ValueError, KeyError, TypeError, EOFError, zlib.error, pickle.UnpicklingError) as error:
        raise UserError(f"not test cases as LiveCodeBench packs them ({str(error)[:80]})") from error


def _inflated(text: str) -> bytes:
    try:
        return zlib.decompress(base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise ValueError(error) from error


class _PlainText(pickle.Unpickler):
    """Unpickles text and other plain values; a pickle that names a class could run anything."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"holds {module}.{name}, which is no plain text")


def _pairs(cases: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(cases, list) or not all(
        isinstance(case, list) and len(case) == 2 and all(isinstance(text, str) for text in case) for case in cases
    ):
        raise UserError("cases must be a list of [input, output], both text")
    return tuple((given, wanted) for given, wanted in cases)
