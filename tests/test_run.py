"""The entry ``experiments/run.py``: exit codes and the one line on stderr."""

import errno
import os
import signal
from contextlib import suppress

import pytest
import yaml

from experiments.run import main
from trinity_jax.errors import UserError
from trinity_jax.training import train

GOOD = {"pool": {"simulated": [{"name": "a", "worker": {"default": 0.5}}]}, "tasks": {"mix": [{"kind": "chain_sum"}]}}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Exit code and stderr of a run whose training is ``work``."""
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(GOOD))

    def go(work):
        monkeypatch.setattr(train, "train", lambda *_, **__: work())
        code = main(["--config", str(config), "--run-dir", str(tmp_path / "run")])
        return code, capsys.readouterr().err

    return go


def failing(error):
    def work():
        raise error

    return work


@pytest.fixture
def heard_ctrl_c():
    """Python's own handler: a test run in the background may have been started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_the_run_with_a_word_on_how_to_go_on(run, heard_ctrl_c):
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    code, said = run(lambda: signal.raise_signal(signal.SIGINT))
    assert code == 130
    assert "--resume" in said
    assert said.count("\n") == 1
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_sigterm_ends_the_process_even_where_exceptions_are_swallowed(run, monkeypatch):
    codes = []
    monkeypatch.setattr(os, "_exit", codes.append)

    def work():
        with suppress(BaseException):
            signal.raise_signal(signal.SIGTERM)

    _, said = run(work)
    assert codes == [143]
    assert "--resume" in said


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (UserError("a [bold]key[/] is wrong"), "a [bold]key[/] is wrong"),
        (OSError(errno.ENOSPC, "No space left on device", "RUN/metrics.jsonl"), "RUN/metrics.jsonl: No space left"),
        (PermissionError(errno.EACCES, "Permission denied", "RUN"), "RUN: Permission denied"),
        (OSError("unnamed"), "unnamed"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_code_2(run, error, part):
    code, said = run(failing(error))
    assert code == 2
    assert part in said
    assert said.count("\n") == 1


def test_other_errors_are_not_hidden(run):
    with pytest.raises(ZeroDivisionError):
        run(lambda: 1 / 0)


def test_success_is_silent(run):
    assert run(lambda: None) == (0, "")


STUDY = ["--config", "experiments/configs/efficiency.yaml"]


@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (KeyboardInterrupt(), 130, "stopped"),
        (OSError(errno.ENOSPC, "No space left on device", "RUN"), 2, "RUN: No space"),
    ],
)
def test_a_study_that_ends_early_is_not_told_to_resume(tmp_path, monkeypatch, capsys, error, code, part):
    monkeypatch.setattr("experiments.efficiency.study.run", lambda *_: failing(error)())
    assert main([*STUDY, "--run-dir", str(tmp_path / "run")]) == code
    said = capsys.readouterr().err
    assert part in said
    assert "anew" in said
    assert "--resume" not in said
    assert not (tmp_path / "run").exists()
