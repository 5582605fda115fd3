import importlib
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
        ("learning.generations=-1", ["learning.generations", "greater than or equal to 0", "-1"]),
        ("learning.generations=0", ["learning.generations", "learning.warm_start"]),
        ("learning.learner=sgd", ["learning.learner", "'sep_cma_es'", "'grpo'", "'sgd'"]),
        ("learning={learner: grpo, fitness: {turn_weight: 0.1}}", ["grpo", "learning.fitness"]),
        ("learning={learner: open_es, population: 5}", ["learning.population", "even number, got 5"]),
        ("learning={active: true, learner: open_es}", ["learning.active", "sep_cma_es"]),
        ("learning.warm_start={kind: sft, questions: 1000}", ["learning.warm_start.questions: 1000", "tasks.train"]),
        ("svf.preset=laywer", ["svf.preset", "layer", "laywer"]),
        ("svf.preset=custom", ["svf", "svf.matrices"]),
        ("head.kind=block_diagonal", ["block_diagonal", "raw or centred"]),
        ("learning.questions=1000", ["learning.questions", "tasks.train"]),
        ("learning.warm_start.roles=script", ["warm_start.roles", "readout.source: script"]),
        ("pool.kind=endpoints", ["pool.models"]),
        ("pool.simulated.1.name=a", ["names must differ"]),
        ("pool.simulated.9.name=a", ["position below 2", "9"]),
        ("encoder.buckets=[256, 128]", ["ascend"]),
        ("learning.generations", ["KEY=VALUE"]),
        ("seed.x=1", ["not a group"]),
        ("tasks.kind=jsonl", ["train_file"]),
        ("encoder.buckets=[]", ["encoder.buckets", "at least 1"]),
        ("seed=4294967296", ["seed", "less than 4294967296"]),
        ("learning.sigma0=.inf", ["learning.sigma0", "finite"]),
        ("svf.scale=.nan", ["svf.scale", "finite"]),
        ("evaluation.bootstrap=1", ["evaluation.bootstrap", "greater than or equal to 100"]),
        ("pool.simulated.0.wrker={}", ["pool.simulated.0.wrker", "known here", "worker"]),
        ("pool.simulated.0.name=''", ["pool.simulated.0.name", "at least 1 character"]),
        ("pool.simulated.\N{SUPERSCRIPT TWO}.name=x", ["expected a position"]),
        ("seed=2024-99-99", ["--set seed=2024-99-99", "not valid YAML", "month"]),
        ("seed={a: 1, a: 2}", ["not valid YAML", "the key a stands there twice"]),
    ],
)
def test_bad_settings_are_named(tmp_path, override, parts):
    with pytest.raises(UserError) as caught:
        config.load(write(tmp_path, GOOD | {"seed": 1}), (override,))
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (("learning.learner=reinforce", "svf.preset=layer"), ["reinforce needs svf.preset: none"]),
        (("learning.learner=grpo", "head.kind=low_rank", "policy.train=argmax"), ["block_diagonal", "policy.train"]),
        (("learning.warm_start.kind=ridge", "head.kind=block_diagonal", "readout.kind=raw"), ["head.kind: linear"]),
    ],
)
def test_settings_that_do_not_go_together_are_named(tmp_path, overrides, parts):
    with pytest.raises(UserError) as caught:
        config.load(write(tmp_path, GOOD), overrides)
    assert all(part in str(caught.value) for part in parts)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "", "just words", "\x00", "[" * 5000, "a: 2024-99-99"])
def test_files_that_are_no_settings(tmp_path, text):
    with pytest.raises(UserError, match=r"run\.yaml"):
        config.load(write(tmp_path, text))


def test_a_group_that_stands_there_twice_is_not_lost_unseen(tmp_path):
    text = yaml.safe_dump(GOOD) + "learning: {generations: 3}\nseed: 1\nlearning: {questions: 2}\n"
    with pytest.raises(UserError, match=r"run\.yaml: not valid YAML: the key learning stands there twice .* line "):
        config.load(write(tmp_path, text))


def test_merged_yaml_groups_may_share_keys(tmp_path):
    text = "x: &x {kind: chain_sum}\n<<: {seed: 5}\n" + yaml.safe_dump({"pool": GOOD["pool"]})
    text += "tasks: {mix: [{<<: *x, difficulty: normal}]}\n"
    with pytest.raises(UserError, match=r"run\.yaml: x: unknown key"):
        config.load(write(tmp_path, text))


@pytest.mark.parametrize("key", ["sk-live-0123456789abcdef", "0123456789abcdef0123456789abcdef", "A KEY"])
def test_a_key_in_the_place_of_its_variable_is_not_repeated(tmp_path, key):
    model = {"name": "m", "model": "m", "base_url": "http://host/v1", "api_key_env": key}
    with pytest.raises(UserError, match=r"pool\.models\.0\.api_key_env: expected the name") as caught:
        config.load(write(tmp_path, GOOD | {"pool": {"kind": "endpoints", "models": [model]}}))
    assert key not in str(caught.value)


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
    data = config.read(path)
    if data["kind"] == "train":
        assert config.parse(data, str(path)).kind == "train"
        return
    study = importlib.import_module(f"experiments.{data['kind']}.settings").Settings
    assert config.parse(data, str(path), study).kind == data["kind"]
    smoke = config.read(path, ("study.preset=smoke",))
    assert smoke != data
    assert config.parse(smoke, str(path), study).study.preset == "smoke"


def test_a_preset_is_laid_over_the_file_and_overrides_count_last(tmp_path):
    data = {"a": {"x": 1, "y": 2}, "presets": {"smoke": {"a": {"x": 10, "z": 3}, "b": [1]}}, "b": [5, 6]}
    path = write(tmp_path, data)
    assert config.read(path) == {"a": {"x": 1, "y": 2}, "b": [5, 6]}
    smoke = config.read(path, ("study.preset=smoke", "a.z=7"))
    assert smoke == {"a": {"x": 10, "y": 2, "z": 7}, "b": [1], "study": {"preset": "smoke"}}
    with pytest.raises(UserError, match=r"study.preset: expected one of full, smoke, got 'somke'"):
        config.read(path, ("study.preset=somke",))
    with pytest.raises(UserError, match=r"study.preset: expected one of full, smoke, got \['smoke'\]"):
        config.read(path, ("study.preset=[smoke]",))
    with pytest.raises(UserError, match=r"study.preset: expected one of full, got 'smoke'"):
        config.read(write(tmp_path, GOOD), ("study.preset=smoke",))


def test_the_paper_preset_is_the_papers():
    paper = config.load(PRESETS / "paper.yaml")
    assert (paper.learning.population, paper.learning.generations, paper.learning.questions) == (32, 60, 16)
    assert (paper.episode.max_calls, len(paper.pool.models), paper.svf.preset) == (5, 7, "released")
    assert (paper.readout.kind, paper.encoder.source, paper.learning.sigma0) == ("raw", "Qwen/Qwen3-0.6B", 0.03)
