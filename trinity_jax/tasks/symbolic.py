"""Symbolic algebra (math-verify) in worker processes with a hard time limit.

math-verify's own limit is a signal: off the main thread it does nothing, and a loop in C never sees it. Here a worker
that is late is killed and replaced. Nothing that goes wrong in a worker is a wrong answer: time, memory and crashes are
``None``.
"""

import atexit
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import IO

from trinity_jax.errors import UserError

LIMIT = 5.0
"""Seconds a worker may take for one answer."""
START_LIMIT = 120.0
"""Seconds a worker may take to load sympy: no answer waits in that time's account."""
WORKERS = max(1, min(4, os.cpu_count() or 1))
_SOLVER = Path(__file__).with_name("solver.py")


class Worker:
    """One interpreter that answers questions, until it is killed."""

    def __init__(self) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise UserError("mathematical answers need the package math-verify: pip install 'math-verify[antlr4_13_2]'")
        # -P: the folder of the program, where modules are named like the standard library's, stays off the path.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_SOLVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self._ready = False

    def ask(self, gold: str, said: str, limit: float) -> bool | None:
        """Whether the two are equal; ``None`` for not shown, too late or died. The clock starts once it has loaded."""
        if not self._ready:
            self._ready = self._line(START_LIMIT) == "ready"
        if not self._ready:
            raise UserError("the worker for mathematical answers does not start: try `python -c 'import math_verify'`")
        try:
            self._input.write(json.dumps([gold, said, limit + 1]) + "\n")
            self._input.flush()
        except OSError:
            self.kill()
            return None
        verdict = self._line(limit)
        return verdict if isinstance(verdict, bool) else None

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it, now."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # What was not read by a dead worker is lost anyway.
                try:
                    pipe.close()
                except OSError:
                    continue

    @property
    def _input(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _line(self, limit: float) -> bool | str | None:
        """The next line within a time, else ``None``, and the worker is gone: its death ends the wait."""
        assert self._process.stdout is not None
        watch = threading.Timer(limit, self._process.kill)
        watch.daemon = True
        watch.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        if not line.endswith("\n"):
            self.kill()
            return None
        return json.loads(line)


class Workers:
    """A few workers behind one door; any thread may ask. They start when first needed.

    Args:
        count: at most so many work at once.
        limit: seconds for an answer.
    """

    def __init__(self, count: int = WORKERS, limit: float = LIMIT):
        self.limit = limit
        # Last in, first out: whoever asks one at a time starts one worker only.
        self._free: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(count):
            self._free.put(None)
        self._count = count

    def same(self, gold: str, said: str) -> bool | None:
        """Whether two LaTeX expressions are equal; ``None`` where neither could be shown in time.

        Raises:
            UserError: math-verify is missing or its worker does not start.
        """
        worker = self._free.get()
        try:
            if worker is None or not worker.alive:
                worker = Worker()
            return worker.ask(gold, said, self.limit)
        finally:
            if worker is not None and not worker.alive:
                worker.kill()
                worker = None
            self._free.put(worker)

    def close(self) -> None:
        """End all workers, once those at work are done; they start again when needed."""
        workers = [self._free.get() for _ in range(self._count)]
        for worker in workers:
            if worker is not None:
                worker.kill()
            self._free.put(None)


@lru_cache(maxsize=1)
def workers() -> Workers:
    """The workers of this process."""
    made = Workers()
    atexit.register(made.close)
    return made


@lru_cache(maxsize=100_000)
def same(gold: str, said: str) -> bool | None:
    """As ``Workers.same``; the same question always has the same verdict within a process, a time-out included."""
    return workers().same(gold, said)
