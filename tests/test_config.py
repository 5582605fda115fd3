from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trinity_jax import config
from trinity_jax.errors import UserError

PRESETS = Path(__file__).parent.parent / "experiments" / "configs"
GOOD = {
    "pool": {"simulated": [{"name": "a", "worker": {"default": 0.5}}, {"name": "b", "worker": {"default": 0.6}}]},
    "tasks": {"mix": [{"kind": "chain_sum"}]},
}


def write(tmp_path, data):
    path = tmp_path / "run.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return path


def test_defaults_and_overrides(tmp_path):
    settings = config.load(write(tmp_path, GOOD), ("learning.generations=5", "pool.simulated.1.accepts_wrong=0.1"))
    assert settings.learning.generations == 5
    assert settings.pool.simulated[1].accepts_wrong == 0.1
    assert settings.seed == 42


def test_seed_zero_is_a_seed(tmp_path):
    assert config.load(write(tmp_path, GOOD), ("seed=0",)).seed == 0


def test_resolved_settings_round_trip(tmp_path):
    settings = config.load(write(tmp_path, GOOD), ("svf.preset=layer",))
    config.dump(settings, tmp_path / "config.yaml")
    assert config.load(tmp_path / "config.yaml") == settings


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("learning.generatoins=5", ["learning.generatoins", "unknown key", "generations"]),
        ("learning.generations=many", ["learning.generations", "integer", "many"]),
        ("learning.generations=0", ["learning.generations", "greater than or equal to 1", "0"]),
        ("svf.preset=laywer", ["svf.preset", "layer", "laywer"]),
        ("svf.preset=custom", ["svf", "svf.matrices"]),
        ("head.kind=block_diagonal", ["block_diagonal", "raw or centred"]),
        ("learning.questions=1000", ["learning.questions", "tasks.train"]),
        ("pool.kind=endpoints", ["pool.models"]),
        ("pool.simulated.1.name=a", ["names must differ"]),
        ("pool.simulated.9.name=a", ["position below 2", "9"]),
        ("encoder.buckets=[256, 128]", ["ascend"]),
        ("learning.generations", ["KEY=VALUE"]),
        ("seed.x=1", ["not a group"]),
        ("tasks.kind=jsonl", ["train_file"]),
    ],
)
def test_bad_settings_are_named(tmp_path, override, parts):
    with pytest.raises(UserError) as caught:
        config.load(write(tmp_path, GOOD | {"seed": 1}), (override,))
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "", "just words", "\x00"])
def test_files_that_are_no_settings(tmp_path, text):
    with pytest.raises(UserError, match=r"run\.yaml"):
        config.load(write(tmp_path, text))


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        config.load(tmp_path / "nowhere.yaml")


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner))
)
def test_any_mapping_gives_settings_or_a_user_error(data):
    try:
        outcome = str(config.parse({"pool": data, "tasks": data}, "x.yaml"))
    except UserError as error:
        outcome = str(error)
    assert outcome.startswith(("x.yaml: ", "kind="))


@pytest.mark.parametrize("path", sorted(PRESETS.glob("*.yaml")), ids=lambda p: p.stem)
def test_presets_are_valid(path):
    assert config.load(path).kind == "train"


def test_the_paper_preset_is_the_papers():
    paper = config.load(PRESETS / "paper.yaml")
    assert (paper.learning.population, paper.learning.generations, paper.learning.questions) == (32, 60, 16)
    assert (paper.episode.max_calls, len(paper.pool.models), paper.svf.preset) == (5, 7, "released")
    assert (paper.readout.kind, paper.encoder.source, paper.learning.sigma0) == ("raw", "Qwen/Qwen3-0.6B", 0.03)
