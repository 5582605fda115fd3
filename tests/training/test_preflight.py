"""Preflight before a run and alone: what it asks, when it stops, what a run takes over."""

import io
import json

import numpy as np
import pytest
import yaml
from rich.console import Console

from tests.tiny import make_encoder, tiny_run
from trinity_jax import cli, config
from trinity_jax.coordinator.export import load_coordinator
from trinity_jax.errors import UserError
from trinity_jax.training import preflight
from trinity_jax.training.train import train


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_encoder(tmp_path_factory.mktemp("tiny") / "encoder")


def quick(encoder, **more):
    return tiny_run(encoder, learning__generations=1, evaluation__fixed_policy=False, **more)


def run(folder, settings):
    return train(config.parse(settings, "test"), folder, resume=False, console=Console(quiet=True))


def test_a_run_takes_over_what_preflight_paid_and_is_the_same_run(encoder, tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(quick(encoder)))
    folder = tmp_path / "flown"
    for _ in range(2):  # the second time from the journal
        assert cli.main(["preflight", "--config", str(path), "--run-dir", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "no terminal to ask on: going on" in said
    found = json.loads((folder / "preflight.json").read_text())
    assert found["calls"] == 2 * (6 + 2)
    flown, plain = run(folder, quick(encoder)), run(tmp_path / "plain", quick(encoder))
    one, other = (load_coordinator(f / "coordinator").vector for f in (folder, tmp_path / "plain"))
    assert np.array_equal(one, other)
    assert plain["calls"] <= flown["calls"] < plain["calls"] + found["calls"]
    assert flown["calls_without_sharing"] == plain["calls_without_sharing"] + found["calls"]
    assert flown["calls_made_share"] == flown["calls"] / flown["calls_without_sharing"]


def test_a_model_that_fails_stops_it_and_the_same_command_can_be_given_again(encoder, tmp_path):
    run_settings = quick(encoder, preflight={"run": "always"}, budget={"calls": 3})
    for _ in range(2):
        with pytest.raises(UserError, match=r"preflight: .*refused_budget: budget.calls"):
            run(tmp_path / "run", run_settings)
        assert not (tmp_path / "run" / "config.yaml").exists()
    assert run(tmp_path / "run", quick(encoder, preflight={"run": "always"}))["calls"] > 3


@pytest.mark.parametrize(("answer", "goes_on"), [("y", True), ("Yes ", True), ("n", False), ("", False)])
def test_on_a_terminal_it_asks(encoder, tmp_path, monkeypatch, answer, goes_on):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    settings = config.parse(quick(encoder), "test")
    monkeypatch.setattr("sys.stdin", Terminal(answer + "\n"))
    console = Console(file=Terminal(), force_terminal=True, width=120)
    if goes_on:
        preflight.alone(settings, tmp_path / "run", console)
    else:
        with pytest.raises(UserError, match="stopped by the answer"):
            preflight.alone(settings, tmp_path / "run", console)
    preflight.alone(settings, tmp_path / "run", console, yes=True)


@pytest.mark.parametrize(
    ("pool", "run_it", "expected"),
    [
        ("simulated", "auto", False),
        ("simulated", "always", True),
        ("endpoints", "auto", True),
        ("endpoints", "never", False),
    ],
)
def test_by_default_where_models_are_called(encoder, pool, run_it, expected):
    models = {"kind": "endpoints", "models": [{"name": "m", "model": "m", "base_url": "http://127.0.0.1:9/v1"}]}
    chosen = {"pool": models} if pool == "endpoints" else {}
    assert preflight.wanted(config.parse(quick(encoder, preflight={"run": run_it}, **chosen), "test")) is expected
