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


@pytest.mark.parametrize(
    "lines", [b"", b'{"generation": 0}\n', b'{"gen\n{"generation": 1}\n', b"[0]\n[1]\n", b"\xff\xfe" * 9, b"1\n2\n"]
)
def test_a_line_lost_before_the_checkpoint_is_told_and_the_file_left_alone(tmp_path, lines):
    folder = RunFolder.begin(tmp_path, SETTINGS)
    folder.metrics.write_bytes(lines)
    with pytest.raises(UserError, match=r"metrics\.jsonl: the line of generation [01] is missing or damaged"):
        folder.cut_metrics(2)
    assert folder.metrics.read_bytes() == lines


def test_a_file_that_cannot_be_replaced_leaves_no_half_of_another(tmp_path):
    folder = RunFolder.begin(tmp_path, SETTINGS)
    folder.summary.mkdir()
    with pytest.raises(OSError, match="summary"):
        folder.write_summary({})
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "summary.json"}


def test_abandoning_leaves_what_is_not_the_runs(tmp_path):
    folder = RunFolder.begin(tmp_path / "run", SETTINGS)
    (folder.path / "notes.txt").write_text("mine")
    folder.abandon()
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]
    RunFolder.begin(tmp_path / "other", SETTINGS).abandon()
    assert not (tmp_path / "other").exists()


def test_metrics_refuse_nan(tmp_path):
    folder = RunFolder.begin(tmp_path, SETTINGS)
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.append_metrics({"generation": 0, "sigma": float("nan")})
