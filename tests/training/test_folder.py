import json

import pytest

from trinity_jax import config
from trinity_jax.errors import UserError
from trinity_jax.training.folder import RunFolder

SETTINGS = config.parse(
    {
        "pool": {"simulated": [{"name": "a", "worker": {"default": 0.5}}]},
        "tasks": {"mix": [{"kind": "chain_sum"}]},
    },
    "test",
)


def test_begin_writes_the_resolved_settings(tmp_path):
    folder = RunFolder.begin(tmp_path / "run", SETTINGS)
    assert config.load(folder.config) == SETTINGS


def test_begin_leaves_a_full_folder_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="not empty"):
        RunFolder.begin(tmp_path, SETTINGS)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_begin_points_to_resume(tmp_path):
    RunFolder.begin(tmp_path, SETTINGS)
    with pytest.raises(UserError, match="--resume"):
        RunFolder.begin(tmp_path, SETTINGS)


def test_resume_allows_another_cap_and_nothing_else(tmp_path):
    RunFolder.begin(tmp_path, SETTINGS)
    richer = SETTINGS.model_copy(update={"budget": config.BudgetSettings(calls=7)})
    assert RunFolder.resume(tmp_path, richer).path == tmp_path
    with pytest.raises(UserError, match="changed: seed"):
        RunFolder.resume(tmp_path, SETTINGS.model_copy(update={"seed": 1}))
    with pytest.raises(UserError, match="no run to resume"):
        RunFolder.resume(tmp_path / "elsewhere", SETTINGS)


def test_metrics_are_cut_at_the_checkpoint(tmp_path):
    folder = RunFolder.begin(tmp_path, SETTINGS)
    for generation in range(4):
        folder.append_metrics({"generation": generation})
    with folder.metrics.open("a") as file:
        file.write('{"generation": 4, "half')
    folder.cut_metrics(3)
    assert [json.loads(line)["generation"] for line in folder.metrics.read_text().splitlines()] == [0, 1, 2]


def test_metrics_refuse_nan(tmp_path):
    folder = RunFolder.begin(tmp_path, SETTINGS)
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.append_metrics({"generation": 0, "sigma": float("nan")})
