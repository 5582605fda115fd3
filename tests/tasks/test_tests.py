import base64
import json
import pickle
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trinity_jax.errors import UserError
from trinity_jax.tasks.tests import Tests, livecodebench_cases, read_tests, unpack, write_tests

PAIRS = (("1 2\n", "3\n"), ("5 5", "10"))
CASES = [{"input": given, "output": wanted, "testtype": "stdin"} for given, wanted in PAIRS]


def packed(value):
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=4), st.text())
def test_tests_survive_being_written(cases, prefix):
    tests = Tests("call", "f", tuple(cases), prefix=prefix)
    assert read_tests(write_tests(tests)) == tests


def test_cases_as_livecodebench_packs_them():
    text = json.dumps(CASES)
    assert livecodebench_cases(text) == livecodebench_cases(packed(text)) == PAIRS
    assert unpack(Tests("stdin", cases=(("0", "0"),), packed=packed(text))) == (("0", "0"), *PAIRS)


class Evil:
    def __reduce__(self):
        return print, ("ran",)


ODD = ["", "xyz", "[1]", '[{"input": 1}]', packed(Evil()), packed(b"\xff"), packed("no json")]


@pytest.mark.parametrize("text", ODD)
def test_other_packings_are_told_and_run_nothing(text, capsys):
    with pytest.raises(UserError):
        livecodebench_cases(text)
    assert not capsys.readouterr().out


BAD = [
    ("no json", "must be a JSON object"),
    ("[]", "must be a JSON object"),
    ('{"form": "stdin", "case": []}', "must be a JSON object of form, function"),
    ('{"form": "print"}', "form must be one of stdin, call, check, unittest, got 'print'"),
    ('{"form": "stdin"}', "form stdin needs cases"),
    ('{"form": "stdin", "cases": [["1", 2]]}', r"list of \[input, output\], both text"),
    ('{"form": "call", "cases": [["1", "2"]]}', "form call needs function, the name that is called, got ''"),
    ('{"form": "check", "function": "f"}', "form check needs program"),
    ('{"form": "unittest", "function": "f()", "program": "x"}', r"needs function.*'f\(\)'"),
    ('{"form": "check", "function": 3, "program": "x"}', "must be text"),
]


@pytest.mark.parametrize("answer, message", BAD)
def test_bad_tests_are_explained(answer, message):
    with pytest.raises(UserError, match=message):
        read_tests(answer)
