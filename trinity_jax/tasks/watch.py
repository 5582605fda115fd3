"""What a run uses, seen from outside: the memory of all its processes, and time in which it could have run.

A machine under load must not turn right programs into slow ones. So the clock stands still while the program waits in
the queue for a processor, and while whoever watches was itself held up (a paused or starved machine).
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

START_SECONDS = 120.0  # a sandbox may take so long to come up, on a machine however busy
_BUSY = 20  # a wait that takes this many times its limit, mostly in the queue for a processor, says nothing
_EVERY = 0.05
_HELD_UP = 0.25  # no more than this is counted between two looks


class SandboxError(Exception):
    """The sandbox failed, not the program in it."""


class StoppedError(Exception):
    """The program ended early or was stopped at a limit; the message says at which."""


class Watch:
    """Over the process ``pid`` and all below it, for one answer; ``seconds`` is ``None`` while a sandbox comes up."""

    def __init__(self, pid: int, memory_mb: int, seconds: float | None):
        self._pid, self._memory_mb, self._seconds = pid, memory_mb, seconds
        self._patience = START_SECONDS + _BUSY * (seconds or 0.0)
        self._seen = time.monotonic()
        self._total = self._spent = 0.0
        self._queued: float | None = None

    def look(self) -> None:
        """Add up what was used since the last look; looks in quick succession cost nothing.

        Raises:
            StoppedError: when memory or time is used up.
            SandboxError: when the machine gave too little time to tell.
        """
        step = time.monotonic() - self._seen
        if step < _EVERY:
            return
        self._seen += step
        self._total += min(step, 1.0)
        if self._total > self._patience:
            raise SandboxError(f"no answer in {self._patience:.0f} s on a busy machine")
        if self._seconds is None:
            return
        memory, queued = usage(self._pid)
        waited = 0.0 if self._queued is None else max(0.0, queued - self._queued)
        self._queued = queued
        self._spent += max(0.0, min(step, _HELD_UP) - waited)
        if memory > self._memory_mb << 20:
            raise StoppedError(f"memory limit of {self._memory_mb} MB")
        if self._spent > self._seconds:
            raise StoppedError(f"time limit of {self._seconds:.1f} s")


def usage(pid: int) -> tuple[int, float]:
    """Of a process and all below it: anonymous memory in bytes, and the longest wait of a thread for a processor, s."""
    memory, waited = 0, 0.0
    for process in _tree(pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            _, resident, shared, *_ = map(int, Path(f"/proc/{process}/statm").read_text().split())
            memory += (resident - shared) * os.sysconf("SC_PAGE_SIZE")
            for task in os.listdir(f"/proc/{process}/task"):
                schedule = Path(f"/proc/{process}/task/{task}/schedstat").read_text().split()
                waited = max(waited, int(schedule[1]) / 1e9)
    return memory, waited


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from _tree(int(child))
