"""The heads that are not linear maps of fixed coordinates, from settings to a coordinator on disk."""

import json

import numpy as np
import pytest
from rich.console import Console

from tests.tiny import make_encoder, tiny_run
from trinity_jax import config
from trinity_jax.coordinator.export import load_coordinator
from trinity_jax.coordinator.heads import Factors
from trinity_jax.errors import UserError
from trinity_jax.training.train import train

QUICK = {"learning__generations": 2, "training__validate_every": 2, "evaluation__fixed_policy": False, "svf": {}}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_encoder(tmp_path_factory.mktemp("tiny") / "encoder", layers=1)


def run(folder, encoder, **changes):
    settings = config.parse(tiny_run(encoder, **QUICK, **changes), "test")
    return train(settings, folder, resume=False, console=Console(quiet=True))


@pytest.mark.parametrize(
    "changes, size",
    [
        ({"head": {"kind": "low_rank", "rank": 3}}, 3 * (4 + 5) + 5),
        ({"head": {"kind": "sparse"}, "readout": {"kind": "raw"}}, 6 * 16 + 2),
    ],
    ids=["low-rank", "sparse"],
)
def test_a_run_evolves_keeps_and_repeats(encoder, tmp_path, changes, size):
    summaries = [run(tmp_path / name, encoder, **changes) for name in ("one", "two")]
    one, two = (load_coordinator(tmp_path / name / "coordinator") for name in ("one", "two"))
    assert summaries[0]["n"] == one.layout.size == size
    assert 0 <= summaries[0]["coordinator_accuracy"] <= 1
    assert np.any(one.vector)
    np.testing.assert_array_equal(one.vector, two.vector)
    assert one.description.sha256 == two.description.sha256
    assert isinstance(one.weights, Factors) == (changes["head"]["kind"] == "low_rank")
    lines = [json.loads(line) for line in (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2


def test_a_rank_above_the_width_of_the_read_out_leaves_no_folder(encoder, tmp_path):
    with pytest.raises(UserError, match=r"head.rank: expected 1 to 4 \(5 outputs, 4 inputs\), got 20"):
        run(tmp_path / "run", encoder, head={"kind": "low_rank"})
    assert not (tmp_path / "run").exists()
