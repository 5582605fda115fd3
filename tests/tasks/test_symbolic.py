import os
import signal
import threading
import time

import pytest

from trinity_jax.errors import UserError
from trinity_jax.tasks import symbolic

TOWER = "10^{10^{10^{10}}}"


@pytest.fixture(scope="module")
def two():
    made = symbolic.Workers(2, limit=30)
    yield made
    made.close()


@pytest.mark.parametrize(
    "gold, said, verdict",
    [
        ("\\cot x", "\\frac{\\cos x}{\\sin x}", True),
        ("\\cot x", "\\tan x", False),
        ("x+1", "\\begin{", None),
    ],
)
def test_verdicts(two, gold, said, verdict):
    assert two.same(gold, said) is verdict


def test_a_late_worker_is_killed_and_replaced_from_any_thread(two, monkeypatch):
    monkeypatch.setattr(two, "limit", 1)
    verdicts, seconds = {}, {}

    def ask(name, said):
        started = time.perf_counter()
        verdicts[name] = two.same("2", said)
        seconds[name] = time.perf_counter() - started

    threads = [threading.Thread(target=ask, args=(name, TOWER)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == {"a": None, "b": None}
    assert max(seconds.values()) < symbolic.START_LIMIT
    monkeypatch.undo()
    assert two.same("2x", "x+x") is True


def test_a_worker_that_is_shot_is_no_verdict_and_the_next_one_answers():
    workers = symbolic.Workers(1, limit=60)
    try:
        assert workers.same("x+1", "1+x") is True
        worker = workers._free.get()
        workers._free.put(worker)
        assert worker is not None
        threading.Timer(0.5, os.kill, (worker._process.pid, signal.SIGKILL)).start()
        assert workers.same("2", TOWER) is None
        assert workers.same("x+1", "1+x") is True
    finally:
        workers.close()


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setattr(symbolic.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install 'math-verify"):
        symbolic.Workers(1).same("x", "y")


def test_workers_end_with_their_door():
    workers = symbolic.Workers(1, limit=60)
    assert workers.same("x+1", "1+x") is True
    worker = workers._free.get()
    workers._free.put(worker)
    workers.close()
    assert worker is not None
    assert not worker.alive
