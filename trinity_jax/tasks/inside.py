"""What runs inside the sandbox. Standard library only: it is started as a file, not as a part of the package.

Messages are lines of JSON on two pipes of their own (numbers in ``sys.argv``): set-up in, "ready" out, job in, then
what the job's form exchanges. Nothing here is trusted once a program was loaded: whoever listens compares data with
what it alone knows. Python values travel as data (``encode``), never as pickles.
"""

import ctypes
import json
import os
import resource
import sys
from types import ModuleType
from typing import Any

_DUMPABLE, _NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 4, 38, 22, 2  # prctl(2)
_PLAIN_DIGITS = 4000  # longer integers travel in hexadecimal: Python refuses decimals beyond 4,300 digits


class Opaque:
    """A value that was no data: equal to nothing, not even to itself."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return False

    def __repr__(self):
        return f"<{self.name}>"


def encode(value: Any) -> Any:
    """A Python value as JSON data: None, bool, int, float, str as they are, everything else as ``[kind, ...]``."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        value = int.__index__(value)
        return value if value.bit_length() < 3 * _PLAIN_DIGITS else ["int", hex(value)]
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if isinstance(value, bytes | bytearray):
        return ["bytes", value.hex()]
    if isinstance(value, dict):
        return ["dict", *([encode(key), encode(item)] for key, item in value.items())]
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return [kind.__name__, *map(encode, value)]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist())
    return ["opaque", type(value).__name__]


def decode(data: Any) -> Any:
    """The value that ``encode`` made ``data`` of.

    Raises:
        ValueError, TypeError: for anything else.
    """
    if not isinstance(data, list):
        if isinstance(data, dict):
            raise ValueError("an object is no encoded value")
        return data
    kind, *rest = data
    if kind == "int":
        return int(rest[0], 16)
    if kind == "complex":
        return complex(*rest)
    if kind == "bytes":
        return bytes.fromhex(rest[0])
    if kind == "dict":
        return {decode(key): decode(item) for key, item in rest}
    if kind == "opaque":
        return Opaque(str(rest[0]))
    kinds = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
    if kind not in kinds:
        raise ValueError(f"no kind of value: {kind!r}"[:80])
    return kinds[kind](map(decode, rest))


class _Channel:
    def __init__(self, inbox, outbox):
        self.inbox, self.outbox = open(inbox, "rb"), open(outbox, "wb", buffering=0)  # noqa: SIM115

    def send(self, **message):
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            data = data[self.outbox.write(data) :]

    def receive(self):
        line = self.inbox.readline()
        if not line:
            raise SystemExit(0)
        return json.loads(line)

    def close(self):
        self.inbox.close()
        self.outbox.close()


def _set_up(setup):
    """Give up rights and set limits; only then is a program let in."""
    libc = ctypes.CDLL(None, use_errno=True)
    if setup["uid"]:
        os.setgroups([])
        os.setresgid(*[setup["uid"]] * 3)
        os.setresuid(*[setup["uid"]] * 3)
        libc.prctl(_DUMPABLE, 1, 0, 0, 0)  # else a program may not open its own /dev/stdin
    for name, (soft, hard) in setup["limits"].items():
        resource.setrlimit(getattr(resource, name), (soft, hard))
    code = bytes.fromhex(setup["filter"])
    rules = ctypes.create_string_buffer(code, len(code))

    class _Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("rules", ctypes.c_void_p)]

    wanted = _Program(len(code) // 8, ctypes.addressof(rules))
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(_SECCOMP, _FILTER, ctypes.byref(wanted), 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel takes no system-call filter")
    sys.set_int_max_str_digits(0)
    sys.setrecursionlimit(50_000)


def _load(name: str, *sources: str) -> dict[str, Any]:
    """Run sources one after another as module ``name`` (each may begin with ``from __future__``); its namespace."""
    module = ModuleType(name)
    module.__file__ = f"{name}.py"
    sys.modules[name] = module
    for source in sources:
        exec(compile(source, f"{name}.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _run_stdin(job, channel):
    channel.close()
    sys.argv = ["program.py"]
    _load("__main__", job["prefix"], job["source"])


def _run_calls(job, channel):
    """Load a program and answer calls of one of its functions."""
    try:
        names = _load("program", job["prefix"], job["source"])
    except BaseException as error:
        channel.send(problem=f"{type(error).__name__}: {error}"[:300])
        return
    name: str = job["function"]
    holder: Any = names.get("Solution")
    function: Any
    method = isinstance(holder, type) and hasattr(holder, name)
    if not method and not callable(names.get(name)):
        channel.send(problem=f"defines no {name}")
        return
    channel.send(loaded=True)
    while True:
        positional, named = decode(channel.receive()["call"])
        try:
            function = getattr(holder(), name) if method else names[name]
            channel.send(value=encode(function(*positional, **named)))
        except BaseException as error:
            channel.send(raised=type(error).__name__, text=str(error)[:300])


def _run_check(job, channel):
    """Run trusted tests; the function they test lives in another sandbox."""

    def function(*positional, **named):
        channel.send(call=encode([positional, named]))
        answer = channel.receive()
        if "raised" in answer:
            kind = getattr(__import__("builtins"), answer["raised"], None)
            known = isinstance(kind, type) and issubclass(kind, Exception)
            make: Any = kind if known else RuntimeError
            raise make(answer["text"])
        return decode(answer["value"])

    names = _load("tests", job["prefix"], job["program"])
    names[job["function"]] = function
    channel.send(loaded=True)
    try:
        names["check"](function)
    except Exception as error:
        channel.send(nonce=job["nonce"], passed=False, text=f"{type(error).__name__}: {error}"[:300])
    else:
        channel.send(nonce=job["nonce"], passed=True)


def _run_unittest(job, channel):
    """Run tests in the program's own process, since they hand objects about; what comes out needs a second look."""
    import unittest

    class _Result(unittest.TestResult):
        def addSuccess(self, test):  # noqa: N802
            channel.send(nonce=later["nonce"], passed=test.id().rpartition(".")[2])

        def stopTest(self, test):  # noqa: N802
            channel.send(nonce=later["nonce"], ran=test.id().rpartition(".")[2])

    try:
        names = _load("program", job["prefix"], job["source"])
    except BaseException as error:
        channel.send(problem=f"{type(error).__name__}: {error}"[:300])
        return
    channel.send(loaded=True)
    later = channel.receive()
    exec(compile(later["program"], "tests.py", "exec", dont_inherit=True), names)
    unittest.defaultTestLoader.loadTestsFromTestCase(names["TestCases"]).run(_Result())
    channel.send(nonce=later["nonce"], end=True)


def _main():
    channel = _Channel(int(sys.argv[1]), int(sys.argv[2]))
    _set_up(channel.receive())
    channel.send(ready=True)
    job = channel.receive()
    run = {"stdin": _run_stdin, "call": _run_calls, "check": _run_check, "unittest": _run_unittest}[job["form"]]
    run(job, channel)


if __name__ == "__main__":
    _main()
