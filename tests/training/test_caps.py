"""Caps on money and tokens stop a run with all it has paid for kept; a higher cap goes on with it."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from rich.console import Console

from tests.tiny import make_encoder, tiny_run
from trinity_jax import config
from trinity_jax.coordinator.export import load_coordinator
from trinity_jax.errors import UserError
from trinity_jax.training.train import train


def run(folder, settings, resume=False):
    return train(config.parse(settings, "test"), folder, resume=resume, console=Console(quiet=True))


def spent(folder):
    with closing(sqlite3.connect(folder / "journal.sqlite")) as connection:
        return connection.execute(
            "SELECT COUNT(*), COUNT(DISTINCT key), SUM(cost), SUM(input_tokens + output_tokens) FROM calls"
        ).fetchone()


def test_money_and_tokens(tmp_path):
    settings = tiny_run(make_encoder(tmp_path / "encoder"), learning__generations=2, evaluation__fixed_policy=False)
    for model in settings["pool"]["simulated"]:
        model["price"] = {"input": 1.0, "output": 2.0}
    whole = run(tmp_path / "whole", settings)
    _, _, cost, tokens = spent(tmp_path / "whole")
    for name, cap in (("cost", 0.6 * cost), ("tokens", int(0.6 * tokens))):
        folder = tmp_path / name
        # A call may take its worst: the simulation's max_tokens is 4096.
        with pytest.raises(UserError, match=rf"budget\.{name}: .*raise the cap and add --resume"):
            run(folder, settings | {"budget": {name: cap}})
        assert 0 < spent(folder)[2 if name == "cost" else 3] <= cap
        again = run(folder, settings, resume=True)
        assert again["calls"] == whole["calls"]
        assert spent(folder)[:2] == spent(tmp_path / "whole")[:2]
        one, other = (load_coordinator(f / "coordinator").vector for f in (folder, tmp_path / "whole"))
        assert np.array_equal(one, other)
