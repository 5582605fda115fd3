"""The entry ``experiments/run.py``: exit codes and the one line on stderr."""

import errno
import signal

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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_the_run_with_a_word_on_how_to_go_on(run, number, code):
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    got, said = run(lambda: signal.raise_signal(number))
    assert got == code
    assert "--resume" in said
    assert said.count("\n") == 1
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


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
