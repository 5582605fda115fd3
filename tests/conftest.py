"""Settings that every test shares: CPU, no hub, Flax modules as plain pytrees."""

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NNX_GRAPH_MODE", "false")
os.environ.setdefault("NNX_GRAPH_UPDATES", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Nearly all of the suite's time is compilation of small programs that run once: a third less without LLVM's best.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
# Tests and the processes they start share what they compile, and leave the user's cache folder alone.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="trinity-jax-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)

# A shell that starts the tests in the background has SIGINT ignored, and processes inherit that: Ctrl-C has to work.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_MAPS = Path("/proc/self/maps")


@pytest.fixture(scope="module", autouse=True)
def _programs_let_go() -> Iterator[None]:
    """Let compiled programs go once they are many: each takes maps of memory, of which Linux gives a process 65,530."""
    yield
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > 20_000:
        sys.modules["jax"].clear_caches()
        gc.collect()
