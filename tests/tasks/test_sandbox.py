"""Attacks on the sandbox, under every isolation that works here; what it says where there is none."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tasks import attacks
from trinity_jax.cli import main
from trinity_jax.errors import UserError
from trinity_jax.tasks import inside, sandbox, watch
from trinity_jax.tasks.sandbox import Isolation, Limits, Process, SandboxError, StoppedError

pytestmark = pytest.mark.skipif(os.uname().sysname != "Linux", reason="the sandbox is Linux's")
BUBBLEWRAP = pytest.param(
    Isolation.BUBBLEWRAP,
    marks=pytest.mark.skipif(not shutil.which("bwrap") and not os.environ.get("CI"), reason="bubblewrap not installed"),
)
SMALL = Limits(memory_mb=256, files_mb=32, output_mb=8)
STOPPED = {  # attacks that no refusal ends: they run until the limit named
    "memory": "memory limit",
    "endless output": "output limit",
    "endless errors": "output limit",
    "endless report": "output limit",
    "sleep past the limit": "time limit",
    "busy and deaf": "time limit",
    "threads that hold on": "",
}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A file of the user's, a listener on loopback and one on an abstract socket; all untouched in the end."""
    file = tmp_path_factory.mktemp("home") / "id_canary"
    file.write_text("TRINITY_CANARY")
    name = f"trinity{os.getpid()}"
    with (
        socket.socket() as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as local,
    ):
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))
        local.bind(f"\0{name}")
        local.listen()
        yield {"@PORT@": str(port), "@PID@": str(os.getpid()), "@FILE@": repr(str(file)), "@NAME@": name}
        for listener in (tcp, udp, local):
            listener.setblocking(False)
        for listener in (tcp, local):
            with pytest.raises(BlockingIOError):
                listener.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(1)
    assert file.read_text() == "TRINITY_CANARY"


def attack(source, target, isolation, seconds=30.0) -> Any:
    """What ``solve`` says, or at which limit it was stopped."""
    for mark, value in target.items():
        source = source.replace(mark, value)
    with Process(isolation, SMALL) as process:
        process.send(form="call", prefix="", source=source, function="solve")
        assert process.receive(30.0) == {"loaded": True}
        process.send(call=inside.encode([[0], {}]))
        try:
            answer = process.receive(seconds)
        except StoppedError as stopped:
            return str(stopped)
        return answer.get("value", answer.get("raised"))


def held(name, said):
    return said == "held" or said in ("MemoryError", "SystemExit") or STOPPED.get(name, "memory limit") in said


@pytest.mark.parametrize("isolation", [BUBBLEWRAP, Isolation.RLIMITS])
@pytest.mark.parametrize("name", attacks.ESCAPES)
def test_attack_is_contained(name, isolation, target, monkeypatch):
    monkeypatch.setenv("TRINITY_CANARY", "canary")
    seconds = 0.5 if STOPPED.get(name) == "time limit" else 30.0
    said = attack(attacks.ESCAPES[name], target, isolation, seconds)
    assert held(name, said), said
    _nothing_left(target["@NAME@"])


@pytest.mark.parametrize("isolation", [BUBBLEWRAP])
@pytest.mark.parametrize("name", attacks.FILES)
def test_attack_on_files_is_contained_by_bubblewrap(name, isolation, target):
    said = attack(attacks.FILES[name], target, isolation)
    assert held(name, said), said


def test_attacks_succeed_where_nothing_contains_them(target, monkeypatch):
    """The attacks are real: without a filter and limits these get what they want (none of them does harm)."""
    monkeypatch.setattr(sandbox.syscalls, "program", lambda alone: bytes.fromhex("0600000000 00ff7f".replace(" ", "")))
    for name in ("network", "abstract socket", "signal to the parent", "limits of the parent"):
        said = attack(attacks.ESCAPES[name], target | {"@PORT@": _own_port(), "@NAME@": _own_name()}, Isolation.RLIMITS)
        assert said not in ("held", None), name


_KEPT = []


def _own_port():
    listener = socket.create_server(("127.0.0.1", 0))
    _KEPT.append(listener)
    return str(listener.getsockname()[1])


def _own_name():
    listener = socket.socket(socket.AF_UNIX)
    name = f"trinity-open-{os.getpid()}-{len(_KEPT)}"
    listener.bind(f"\0{name}")
    listener.listen()
    _KEPT.append(listener)
    return name


@pytest.fixture(autouse=True)
def _close_listeners():
    yield
    while _KEPT:
        _KEPT.pop().close()


def _nothing_left(name):
    end = time.monotonic() + 20
    while name[:15] in _running():
        assert time.monotonic() < end, "a child outlived its sandbox"
        time.sleep(0.05)


def _running():
    found = set()
    for status in Path("/proc").glob("[0-9]*/comm"):
        try:
            found.add(status.read_text().strip())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("isolation", [BUBBLEWRAP, Isolation.RLIMITS])
def test_runs_share_no_files(isolation):
    write = "def solve(x):\n    open('left', 'w').close()\n    import os\n    return os.path.exists('left')\n"
    read = "import os\ndef solve(x): return os.listdir('.')\n"
    assert attack(write, {}, isolation) is True
    assert attack(read, {}, isolation) == ["list"]


@pytest.mark.parametrize("isolation", [BUBBLEWRAP, Isolation.RLIMITS])
def test_limits_leave_room_for_ordinary_programs(isolation):
    source = (
        "import threading\n"
        "def depth(n): return 0 if n == 0 else 1 + depth(n - 1)\n"
        "def solve(x):\n"
        "    threading.stack_size(256 << 20)\n"
        "    got = []\n"
        "    thread = threading.Thread(target=lambda: got.append(depth(40_000)))\n"
        "    thread.start(); thread.join()\n"
        "    return [got[0], depth(20_000), len(str(7 ** 20_000)), len(bytearray(100 << 20))]\n"
    )
    assert attack(source, {}, isolation) == ["list", 40_000, 20_000, 16_902, 100 << 20]


@pytest.mark.parametrize("isolation", [BUBBLEWRAP, Isolation.RLIMITS])
def test_packages_only_of_an_interpreter_that_was_named(isolation, monkeypatch):
    source = "def solve(x):\n    import numpy\n    return [numpy.float64(2.5), numpy.arange(3)]\n"
    assert attack(source, {}, isolation) == "ModuleNotFoundError"
    monkeypatch.setenv("TRINITY_SANDBOX_PYTHON", sys.executable)
    assert attack(source, {}, isolation) == ["list", 2.5, ["list", 0, 1, 2]]
    monkeypatch.setenv("TRINITY_SANDBOX_PYTHON", "/nowhere/python")
    with pytest.raises(UserError, match="/nowhere/python cannot be started"):
        Process(isolation)


@pytest.mark.parametrize("isolation", [BUBBLEWRAP])
def test_the_interpreter_may_lie_in_the_folder_that_a_sandbox_has_of_its_own(isolation, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)  # inside, root is nobody
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        packages = next(Path(folder).glob("lib/python3*/site-packages"))
        (packages / "only_here.py").write_text("FOUND = 42\n")
        monkeypatch.setenv("TRINITY_SANDBOX_PYTHON", f"{folder}/bin/python")
        assert attack("def solve(x):\n    import only_here\n    return only_here.FOUND\n", {}, isolation) == 42
        source = "def solve(x):\n    open('/tmp/mine', 'w').write('x')\n    return open('/tmp/mine').read()\n"
        assert attack(source, {}, isolation) == "x"


def test_nothing_of_a_run_is_left_behind():
    before = set(os.listdir("/proc/self/fd")), set(Path(sandbox.tempfile.gettempdir()).glob("trinity-sandbox-*"))
    attack("def solve(x): return 1", {}, Isolation.RLIMITS)
    after = set(os.listdir("/proc/self/fd")), set(Path(sandbox.tempfile.gettempdir()).glob("trinity-sandbox-*"))
    assert after == before


def test_without_bubblewrap_the_user_is_told(monkeypatch):
    monkeypatch.delenv("TRINITY_SANDBOX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=r"apt-get install bubblewrap.*TRINITY_SANDBOX=rlimits"):
        sandbox.chosen()
    monkeypatch.setenv("TRINITY_SANDBOX", "rlimits")
    assert sandbox.chosen() is Isolation.RLIMITS
    assert "read and write your files" in sandbox.report()
    monkeypatch.setenv("TRINITY_SANDBOX", "docker")
    with pytest.raises(UserError, match="bubblewrap or rlimits, got 'docker'"):
        sandbox.chosen()


def test_command_tells_which_isolation_is_active(monkeypatch, capsys):
    monkeypatch.setenv("TRINITY_SANDBOX", "rlimits")
    assert main(["tasks", "sandbox"]) == 0
    assert capsys.readouterr().out.startswith("sandbox: rlimits and system-call filter only")
    monkeypatch.setenv("TRINITY_SANDBOX", "none")
    assert main(["tasks", "sandbox"]) == 2


def test_bubblewrap_that_cannot_start_is_told(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SandboxError, match="No permissions"):
        Process(Isolation.BUBBLEWRAP)
    with pytest.raises(UserError, match=r"No permissions.*user namespaces"):
        sandbox.checked.__wrapped__(Isolation.BUBBLEWRAP)


def test_out_of_descriptors_is_the_sandbox_failing(monkeypatch):
    def none_left():
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(sandbox.os, "pipe", none_left)
    with pytest.raises(SandboxError, match="Too many open files"):
        Process(Isolation.RLIMITS)


def test_a_machine_that_is_not_known_is_told(monkeypatch):
    monkeypatch.setattr(sandbox.syscalls.platform, "machine", lambda: "vax")
    with pytest.raises(UserError, match="x86_64 or aarch64, this is Linux on vax"):
        Process(Isolation.RLIMITS)


@pytest.mark.parametrize("held_up", [False, True])
def test_time_in_which_it_could_not_run_is_not_counted(held_up, monkeypatch):
    """A second's sleep passes a limit of 0.6 s where it was spent in a queue, or while the watching was held up."""
    waits = iter(range(1000))

    def usage(pid):
        if held_up:
            time.sleep(1.1)
        return 0, 0.0 if held_up else float(next(waits))

    source = "import time\ndef solve(x):\n    time.sleep(1.0)\n    return 1\n"
    assert "time limit" in attack(source, {}, Isolation.RLIMITS, seconds=0.6)
    monkeypatch.setattr(watch, "usage", usage)
    assert attack(source, {}, Isolation.RLIMITS, seconds=0.6) == 1


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -5, 10**5000, 2.5, "text", b"bytes", [1, (2, [3])], {1: "a", (2, 3): {4}}, frozenset({1}), 1j],
    ids=lambda value: type(value).__name__,
)
def test_values_travel_as_data(value):
    back = inside.decode(sandbox.json.loads(sandbox.json.dumps(inside.encode(value))))
    assert back == value
    assert type(back) is type(value)


def test_the_filter_names_the_calls_of_this_kernel():
    """Numbers against those of the C library's headers, where they are installed."""
    column, header = {"x86_64": (0, "asm/unistd_64.h"), "aarch64": (1, "asm-generic/unistd.h")}[os.uname().machine]
    found = subprocess.run(["find", "/usr/include", "-path", f"*{header}"], capture_output=True, text=True, check=False)
    if not found.stdout.strip():
        pytest.skip("no kernel headers installed")
    text = Path(found.stdout.split()[0]).read_text()
    for name, numbers in (sandbox.syscalls._NUMBERS | sandbox.syscalls._ALONE).items():
        number = numbers[column]
        if number is not None and name != "memfd_secret":
            assert f"#define __NR_{name} {number}\n" in text or f"#define __NR3264_{name} {number}\n" in text, name
