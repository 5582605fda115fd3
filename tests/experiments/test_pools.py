"""Pools of a user's own: tables are looked at before any state is computed."""

import re

import pytest

from experiments.learners import study as learners
from experiments.run import main
from experiments.sample_efficiency import study as sample_efficiency


def entry(name="a", worker="{default: 0.5}", more=""):
    return f"[{{name: {name}, worker: {worker}{more}}}, {{name: b, worker: {{default: 0.5}}}}]"


@pytest.mark.parametrize(
    ("study", "key", "models", "message"),
    [
        (sample_efficiency, "pools.mine", entry(worker="{chain_sum: 1}"), "pools.mine: .*a: worker has no skill for"),
        (
            sample_efficiency,
            "pools.mine",
            entry(worker="{chain: 1, default: 0}"),
            "pools.mine: a: worker: 'chain' is no",
        ),
        (
            sample_efficiency,
            "pools.mine",
            entry(more=", thinker: {x: 1, default: 0}"),
            "mine: a: thinker: 'x' is no kind",
        ),
        (sample_efficiency, "pools.my/pool", entry(), "pools: expected names of letters, .* got 'my/pool'"),
        (learners, "pool", entry(worker="{chain_sum: 1}"), "pool: .*a: worker has no skill for"),
        (learners, "pool", entry(worker="{chain: 1, default: 0}"), "pool: a: worker: 'chain' is no kind of question"),
    ],
)
def test_a_bad_table_is_told_before_the_work_begins(monkeypatch, tmp_path, capsys, study, key, models, message):
    monkeypatch.setattr(study, "build_ground", lambda *_: pytest.fail("the work began"))
    config = f"experiments/configs/{study.__name__.split('.')[1]}.yaml"
    assert main(["--config", config, "--set", f"{key}.simulated={models}", "--run-dir", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(message, said)
    assert not (tmp_path / "run").exists()
