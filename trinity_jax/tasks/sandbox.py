"""Where code that a model wrote runs: processes that can do no harm and know no answer.

Two isolations. ``bubblewrap``: namespaces of their own for processes, network, IPC, host name and files; of the disk
only the interpreter and /usr, read-only; an empty /tmp of bounded size; nothing outlives the run. ``rlimits``: a plain
process with limits and the strict system-call filter. It starts no process, signals nobody and opens no socket, but
**reads and writes every file its user may**; so it has to be chosen by name (``TRINITY_SANDBOX=rlimits``). Both have
the filter of ``syscalls.py``; memory and time are watched from outside over all processes of a run.

Settings, as environment variables: ``TRINITY_SANDBOX`` (``bubblewrap``, the default, or ``rlimits``) and
``TRINITY_SANDBOX_PYTHON``, an interpreter whose packages the programs may import (default: this one's, without
packages, since packages may hold the answers of a benchmark).
"""

import contextlib
import json
import os
import random
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from trinity_jax.errors import UserError
from trinity_jax.tasks import inside, syscalls
from trinity_jax.tasks.watch import START_SECONDS, SandboxError, StoppedError, Watch


class Isolation(StrEnum):
    """What stands between a program and the machine."""

    BUBBLEWRAP = "bubblewrap"
    RLIMITS = "rlimits"


class Limits(NamedTuple):
    """Of one run, all its processes together unless it says otherwise."""

    memory_mb: int = 1024
    files_mb: int = 64
    output_mb: int = 16  # printed in all, and the message it is sending
    processes: int = 32
    descriptors: int = 128  # each process
    cpu_seconds: int = 3600  # each process; a backstop behind the time limit


__all__ = ["Isolation", "Limits", "Process", "SandboxError", "StoppedError", "checked", "chosen", "report"]

_INSTALL = (
    "programs run under bubblewrap, which is not installed. Install it (Debian, Ubuntu: apt-get install bubblewrap;"
    " Fedora: dnf install bubblewrap; Arch: pacman -S bubblewrap), or set TRINITY_SANDBOX=rlimits to run them with"
    " limits only: they could then read and write your files"
)
_NO_NAMESPACES = (
    "bubblewrap is installed but cannot start a sandbox ({why}). Mostly user namespaces are forbidden: try"
    " 'sysctl kernel.apparmor_restrict_unprivileged_userns=0' or 'kernel.unprivileged_userns_clone=1', in Docker"
    " '--security-opt seccomp=unconfined'; version 0.8 or newer is needed. Or set TRINITY_SANDBOX=rlimits to run with"
    " limits only: programs could then read and write your files"
)
_POLL = 0.01  # seconds
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"} | {
    f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")
}


def chosen() -> Isolation:
    """The isolation that the environment names.

    Raises:
        UserError: for a name that is none, or for bubblewrap where it is not installed.
    """
    name = os.environ.get("TRINITY_SANDBOX") or Isolation.BUBBLEWRAP
    if name not in list(Isolation):
        raise UserError(f"TRINITY_SANDBOX must be {' or '.join(Isolation)}, got {name!r}")
    if name == Isolation.BUBBLEWRAP and not shutil.which("bwrap"):
        raise UserError(_INSTALL)
    return Isolation(name)


@cache
def checked(isolation: Isolation) -> Isolation:
    """Start a sandbox and let a program count, import, start a thread and write a file; success is remembered.

    Raises:
        UserError: where that fails.
    """
    source = (
        "def probe():\n    import fractions, tempfile, threading\n    thread = threading.Thread(target=int)\n"
        "    thread.start(); thread.join()\n    tempfile.TemporaryFile().write(b'x')\n    return 6 * 7\n"
    )
    try:
        with Process(isolation) as process:
            process.send(form="call", prefix="", source=source, function="probe")
            process.receive(START_SECONDS)
            process.send(call=inside.encode([[], {}]))
            answer = process.receive(START_SECONDS)
    except (SandboxError, StoppedError) as error:
        why = _NO_NAMESPACES.format(why=error) if isolation is Isolation.BUBBLEWRAP else f"the sandbox fails: {error}"
        raise UserError(why) from error
    if answer != {"value": 42}:
        raise UserError(f"the sandbox ({isolation}) cannot run a simple program: {answer}")
    return isolation


def report() -> str:
    """One line on which isolation is active here.

    Raises:
        UserError: where none is.
    """
    isolation = checked(chosen())
    if isolation is Isolation.RLIMITS:
        return "sandbox: rlimits and system-call filter only; programs can read and write your files"
    version = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return f"sandbox: {version}; namespaces, no network, read-only root, private /tmp, system-call filter"


class _Python(NamedTuple):
    """The interpreter inside: the folders it needs to see, and those it must not."""

    executable: str
    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    flags: tuple[str, ...]


@cache
def _python(wanted: str | None) -> _Python:
    executable = wanted or getattr(sys, "_base_executable", sys.executable)
    ask = "import json, site, sys; print(json.dumps([sys.prefix, sys.base_prefix, site.getsitepackages()]))"
    try:
        asked = subprocess.run([executable, "-I", "-c", ask], capture_output=True, text=True, check=True)
        prefix, base, packages = json.loads(asked.stdout)
    except subprocess.CalledProcessError as error:
        raise UserError(f"TRINITY_SANDBOX_PYTHON: {executable} does not run ({error})") from error
    except OSError as error:
        if wanted is None:
            raise SandboxError(f"{executable} cannot be started ({error})") from error
        raise UserError(f"TRINITY_SANDBOX_PYTHON: {executable} cannot be started ({error})") from error
    shown = [folder for folder in dict.fromkeys((base, prefix)) if not Path(folder).is_relative_to("/usr")]
    if wanted:
        return _Python(os.path.abspath(executable), tuple(shown), (), ("-I", "-B"))
    hidden = [folder for folder in packages if os.path.isdir(folder)]
    return _Python(executable, tuple(shown), tuple(hidden), ("-I", "-B", "-S"))


def _bubblewrap(python: _Python, limits: Limits, root: bool) -> list[str]:
    """Root keeps its user namespace, to become a user of its own inside: the kernel counts no processes for root."""
    size = ["--size", str(limits.files_mb << 20), "--perms", "1777", "--tmpfs"]
    nobody = ["--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else nobody
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("bubblewrap is gone")
    command = [program, *rights, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--hostname", "sandbox"]
    command += ["--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/sbin", "/lib", "/lib64"):
        if os.path.islink(name):
            command += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            command += ["--ro-bind", name, name]
    for name in ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"):
        command += ["--ro-bind-try", name, name]
    # Before the interpreter, which may lie in /tmp.
    command += ["--proc", "/proc", "--dev", "/dev", *size, "/dev/shm", *size, "/tmp"]
    for folder in python.shown:
        for parent in reversed(Path(folder).parents[:-1]):  # bubblewrap would let none but root pass
            command += ["--perms", "0755", "--dir", str(parent)]
        command += ["--ro-bind", folder, folder]
    for folder in python.hidden:
        command += ["--tmpfs", folder, "--remount-ro", folder]
    command += ["--ro-bind", inside.__file__, "/inside.py"]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]
    return [*command, python.executable, *python.flags, "/inside.py"]


class Process:
    """One sandbox and the interpreter in it; a context manager that leaves nothing behind.

    ``send`` and ``receive`` exchange messages with ``inside.py``; ``finish`` runs a program on an input to its end.

    Raises:
        SandboxError: when it does not come up; the messages of a program that runs raise ``StoppedError``.
    """

    def __init__(self, isolation: Isolation, limits: Limits = Limits()):  # noqa: B008 (immutable)
        self.limits, self.isolation = limits, isolation
        self._buffers: dict[int, bytearray] = {}
        self._pending: dict[int, memoryview] = {}
        self._selector = selectors.DefaultSelector()
        self._output = 0
        self._open: set[int] = set()
        self._folder: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start()
            if self.receive(None) != {"ready": True}:
                raise SandboxError("the sandbox did not get ready")
        except (OSError, StoppedError) as error:
            said = bytes(self._buffers.get(self._error, b""))[-300:] if self._process else b""
            self.close()
            raise SandboxError(f"{error} {said.decode(errors='replace').strip()}".strip()) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        root = os.geteuid() == 0 and self.isolation is Isolation.BUBBLEWRAP
        uid = 0x70000000 + random.SystemRandom().randrange(1 << 24) if root else 0  # so that no two runs share limits
        python = _python(os.environ.get("TRINITY_SANDBOX_PYTHON"))
        if self.isolation is Isolation.BUBBLEWRAP:
            command, folder = _bubblewrap(python, self.limits, root), "/"
        else:
            self._folder = folder = tempfile.mkdtemp(prefix="trinity-sandbox-")
            command = [python.executable, *python.flags, inside.__file__]
        pipes = [self._pipe(uid) for _ in range(5)]
        (stdin, self._stdin), (self._out, stdout), (self._error, stderr) = pipes[:3]
        (jobs, self._jobs), (self._replies, replies) = pipes[3:]
        self._process = subprocess.Popen(
            [*command, str(jobs), str(replies)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(jobs, replies),
            env=_ENVIRONMENT | dict.fromkeys(("HOME", "TMPDIR"), self._folder or "/tmp"),
            cwd=folder,
            start_new_session=True,
        )
        for descriptor in (stdin, stdout, stderr, jobs, replies):
            self._close(descriptor)
        for descriptor in (self._out, self._error, self._replies):
            os.set_blocking(descriptor, False)
            self._buffers[descriptor] = bytearray()
            self._selector.register(descriptor, selectors.EVENT_READ)
        for descriptor in (self._stdin, self._jobs):
            os.set_blocking(descriptor, False)
        self.send(uid=uid, limits=self._rlimits(), filter=syscalls.program(self.isolation is Isolation.RLIMITS).hex())

    def _rlimits(self) -> dict[str, tuple[int, int]]:
        memory, file, stack = self.limits.memory_mb << 22, self.limits.files_mb << 20, 128 << 20
        limits = {"RLIMIT_AS": memory, "RLIMIT_FSIZE": file, "RLIMIT_STACK": stack, "RLIMIT_CORE": 0}
        limits |= {"RLIMIT_NOFILE": self.limits.descriptors, "RLIMIT_CPU": self.limits.cpu_seconds}
        if self.isolation is Isolation.BUBBLEWRAP:  # elsewhere it would count all processes of the user
            limits["RLIMIT_NPROC"] = self.limits.processes
        return {name: (value, value) for name, value in limits.items()}

    def _pipe(self, uid: int) -> tuple[int, int]:
        ends = os.pipe()
        self._open.update(ends)
        if uid:  # the new user may open /dev/stdin
            os.fchown(ends[0], uid, uid)
        return ends

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            self._pending.pop(descriptor, None)
            with contextlib.suppress(KeyError):
                self._selector.unregister(descriptor)
            os.close(descriptor)

    def send(self, **message: Any) -> None:
        """Queue a message; it is written while waiting."""
        self._write(self._jobs, json.dumps(message).encode() + b"\n")

    def _write(self, descriptor: int, data: bytes) -> None:
        if descriptor in self._open:
            if descriptor not in self._pending:
                self._selector.register(descriptor, selectors.EVENT_WRITE)
            self._pending[descriptor] = memoryview(bytes(self._pending.get(descriptor, b"")) + data)

    def receive(self, seconds: float | None) -> dict[str, Any]:
        """The next message; ``seconds`` of time in which the program could run, ``None`` while starting.

        Raises:
            StoppedError: at a limit, when the program has ended, or for what is no message.
            SandboxError: when the machine gave it too little time to tell.
        """
        replies = self._buffers[self._replies]
        if not self._wait(lambda: b"\n" in replies, seconds):
            raise StoppedError(f"ended early ({self._status()})")
        line, _, rest = bytes(replies).partition(b"\n")
        replies[:] = rest
        self._output -= len(line)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StoppedError("sent what is no message") from error
        if not isinstance(message, dict):
            raise StoppedError("sent what is no message")
        return message

    def finish(self, stdin: bytes, seconds: float) -> tuple[int, bytes, bytes]:
        """Give the program its input and wait for its end: exit code, standard output, standard error.

        Raises:
            StoppedError, SandboxError: as ``receive``.
        """
        self._write(self._stdin, stdin)
        if not stdin:
            self._close(self._stdin)
        self._wait(lambda: False, seconds)
        assert self._process
        return self._process.wait(), bytes(self._buffers[self._out]), bytes(self._buffers[self._error])

    def _status(self) -> str:
        assert self._process
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def _wait(self, done: Callable[[], bool], seconds: float | None) -> bool:
        """Move bytes until ``done`` (true) or until the process has ended and all is read (false)."""
        assert self._process
        watch = Watch(self._process.pid, self.limits.memory_mb, seconds)
        while not done():
            ended = self._process.poll() is not None
            moved = self._move(0.0 if ended else _POLL)
            if ended and not moved:
                return done()
            watch.look()
        return True

    def _move(self, seconds: float) -> bool:
        events = self._selector.select(seconds)
        if not events and not self._selector.get_map():
            time.sleep(seconds)
        moved = False
        for key, event in events:
            if event & selectors.EVENT_WRITE:
                self._push(key.fd)
                continue
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            moved = moved or bool(data)
            self._buffers[key.fd] += data
            self._output += len(data)
            if not data:
                self._close(key.fd)
            if self._output > self.limits.output_mb << 20:
                raise StoppedError(f"output limit of {self.limits.output_mb} MB")
        return moved

    def _push(self, descriptor: int) -> None:
        data = self._pending[descriptor]
        try:
            data = data[os.write(descriptor, data[: 1 << 16]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._close(descriptor)
            return
        self._pending[descriptor] = data
        if not data:
            del self._pending[descriptor]
            self._selector.unregister(descriptor)
            if descriptor == self._stdin:
                self._close(descriptor)

    def close(self) -> None:
        """End every process of the run and forget its files."""
        if self._process:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)  # bubblewrap's namespace dies with it
            self._process.kill()
            self._process.wait()
        for descriptor in tuple(self._open):
            self._close(descriptor)
        self._selector.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
