import hashlib
import io
import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from rich.console import Console
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tests.tiny import make_encoder, paid, tiny_run, vector
from tests.training.test_tensorboard import numbers
from trinity_jax import cli, config
from trinity_jax.coordinator.export import load_coordinator
from trinity_jax.errors import UserError
from trinity_jax.evaluation.baselines import Comparison, Search
from trinity_jax.evaluation.deciders import FixedPolicy
from trinity_jax.evaluation.scores import Scores
from trinity_jax.training.train import _best_alone, train

BOARD = {"validate_every": 2, "tensorboard": True}
DEAD = {"name": "m", "model": "m", "base_url": "http://127.0.0.1:9/v1"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_encoder(tmp_path_factory.mktemp("tiny") / "encoder")


def run(folder, settings, resume=False):
    return train(config.parse(settings, "test"), folder, resume=resume, console=Console(quiet=True))


@pytest.fixture(scope="module")
def finished(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    return folder, run(folder, tiny_run(encoder, training=BOARD))


def test_a_run_leaves_what_it_promises(finished):
    folder, summary = finished
    for name in ("config.yaml", "metrics.jsonl", "summary.json", "report.html", "coordinator", "journal.sqlite"):
        assert (folder / name).exists(), name
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["generation"] for line in lines] == [0, 1, 2]
    assert [line["validation_accuracy"] is None for line in lines] == [True, False, False]
    assert json.loads((folder / "summary.json").read_text()) == summary
    needed = {
        "coordinator_accuracy", "fixed_policy_accuracy", "best_single_equal_calls", "paired_diff_fixed", "ci_low",
        "ci_high", "calls", "calls_without_sharing", "distinct_transcripts", "compilations", "seconds",
    }  # fmt: skip
    assert needed <= summary.keys()


def test_event_files_hold_the_numbers_of_the_metrics(finished):
    folder, _ = finished
    found = numbers(folder / "tensorboard")
    for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        g = line["generation"]
        assert found["fitness_mean", g] == pytest.approx(line["fitness_mean"])
        assert found["role_share/worker", g] == pytest.approx(line["role_share"]["worker"])
        assert (("validation_accuracy", g) in found) == (line["validation_accuracy"] is not None)
    assert {step for _, step in found} == {0, 1, 2}


def test_choices_are_recorded_as_pairs(finished):
    folder, _ = finished
    for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        for kind, pairs in line["choice_share_by_kind"].items():
            by_model = {model: sum(roles.values()) for model, roles in pairs.items()}
            whole = {model: share for model, share in line["model_share_by_kind"][kind].items() if share}
            assert by_model == pytest.approx(whole, abs=2e-4)
        assert line["fitness_low"] <= line["fitness_high"] <= line["fitness_best"]
        assert line["validation_episodes"] == (0 if line["validation_accuracy"] is None else 6)


def test_transcripts_tell_how_sure_and_at_what_cost(finished):
    folder, _ = finished
    turns = [
        turn for line in (folder / "transcripts.jsonl").read_text().splitlines() for turn in json.loads(line)["turns"]
    ]
    assert turns
    assert all(0 < turn["probability"] <= 1 and turn["input_tokens"] > 0 for turn in turns)


def test_no_call_is_paid_twice_and_sharing_saves_some(finished):
    folder, summary = finished
    calls, different = paid(folder)
    assert calls == different == summary["calls"]
    assert summary["calls_without_sharing"] > calls


def test_few_compilations(finished):
    # Three functions, two buckets: trunk and tip once a bucket, the choice once.
    assert finished[1]["compilations"] <= 5


def test_inspect_prints_the_coordinator(finished, capsys):
    assert cli.main(["inspect", str(finished[0] / "coordinator")]) == 0
    printed = capsys.readouterr().out
    tensors = hashlib.sha256((finished[0] / "coordinator" / "coordinator.safetensors").read_bytes()).hexdigest()
    for part in ("ada, bo", "linear", "whitened", tensors, str(len(vector(finished[0])))):
        assert part in printed


def test_the_coordinator_knows_its_questions_and_who_is_best_alone(finished):
    found = load_coordinator(finished[0] / "coordinator")
    assert found.familiar is not None
    assert len(found.familiar.states) == 9  # training questions
    assert found.description.fallback in ("ada", "bo")


def test_who_is_best_alone_is_told_by_training_questions_where_they_were_played():
    def scores(name, *rewards):
        table = np.array(rewards)[:, None]
        return Scores(name, table, np.zeros_like(table, bool), np.ones_like(table, int))

    held_out = (scores("ada, one call", 1.0, 1.0), scores("bo, one call", 0.0, 1.0))
    policies = tuple(FixedPolicy(worker, verifier) for worker in range(2) for verifier in range(2))
    played = (scores("", 0.0), scores("", 1.0), scores("", 1.0), scores("", 0.5))
    search = Search(policies, played, ("sum",), 4, 4)
    kinds = ("sum", "sum")
    assert _best_alone(Comparison(held_out, kinds, (), search), ("ada", "bo")) == "bo"
    assert _best_alone(Comparison(held_out, kinds, (), None), ("ada", "bo")) == "ada"


def test_same_settings_same_vector(finished, encoder, tmp_path):
    run(tmp_path / "again", tiny_run(encoder))
    assert np.array_equal(vector(tmp_path / "again"), vector(finished[0]))


def test_another_seed_gives_another_run(finished, encoder, tmp_path):
    run(tmp_path / "other", tiny_run(encoder, seed=0, evaluation__fixed_policy=False))
    assert not np.array_equal(vector(tmp_path / "other"), vector(finished[0]))


def test_a_cap_stops_the_run_and_a_higher_one_goes_on(finished, encoder, tmp_path):
    folder = tmp_path / "capped"
    with pytest.raises(UserError, match=r"budget\.calls"):
        run(folder, tiny_run(encoder, budget={"calls": 60}))
    assert paid(folder)[0] == 60
    run(folder, tiny_run(encoder), resume=True)
    assert np.array_equal(vector(folder), vector(finished[0]))
    assert paid(folder) == paid(finished[0])


def test_a_cap_holds_in_the_evaluation_too(finished, encoder, tmp_path):
    folder, cap = tmp_path / "capped late", finished[1]["calls"] - 5
    with pytest.raises(UserError, match="evaluation: the budget is spent"):
        run(folder, tiny_run(encoder, budget={"calls": cap}))
    assert not (folder / "summary.json").exists()
    assert paid(folder)[0] == cap
    again = run(folder, tiny_run(encoder), resume=True)
    same = again.keys() - {"seconds", "distinct_transcripts", "compilations", "compiled"}
    assert {key: again[key] for key in same} == {key: finished[1][key] for key in same}


def test_resuming_a_finished_run_pays_nothing(encoder, tmp_path):
    folder = tmp_path / "twice"
    settings = tiny_run(encoder, evaluation__fixed_policy=False)
    first = run(folder, settings)
    before, metrics = paid(folder), (folder / "metrics.jsonl").read_text()
    again = run(folder, settings, resume=True)
    assert paid(folder) == before
    assert (folder / "metrics.jsonl").read_text() == metrics
    assert again["coordinator_accuracy"] == first["coordinator_accuracy"]


@pytest.mark.parametrize(
    "changes",
    [
        {"readout__kind": "raw", "svf__preset": "none"},
        {"readout__kind": "centred", "head": {"kind": "block_diagonal", "blocks": 5}},
        {"svf__preset": "released", "readout__source": "episodes", "episode__transcript": "full"},
        {"learning__common_random_numbers": False, "learning__step_size": "tpa", "policy": {"evaluate": "argmax"}},
    ],
    ids=["raw", "block-diagonal", "released", "own-questions"],
)
def test_every_kind_of_vector_trains(encoder, tmp_path, changes):
    quick = {"learning__generations": 1} if "learning__step_size" not in changes else {}
    summary = run(tmp_path / "run", tiny_run(encoder, evaluation__fixed_policy=False, **changes, **quick))
    assert 0 <= summary["coordinator_accuracy"] <= 1
    assert load_coordinator(tmp_path / "run" / "coordinator").vector.shape == (summary["n"],)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"readout__k": 17, "tasks__train": 30}, "readout.k: this encoder's states have 16 directions"),
        ({"encoder": {"source": "nowhere/at/all"}}, "nowhere/at/all"),
        ({"svf": {"preset": "custom", "matrices": ["layers.9.q"]}}, "layers.9.q"),
        ({"head": {"kind": "block_diagonal", "blocks": 6}, "readout": {"kind": "raw"}}, "head.blocks"),
        ({"tasks__mix": [{"kind": "tea_leaves"}]}, "tea_leaves"),
        ({"encoder__buckets": [8]}, "encoder.buckets"),
        ({"encoder__buckets": [140]}, "readout.k: expected at most"),
        ({"pool": {"simulated": [{"name": "a", "worker": {}}]}}, "no default"),
        (
            {"pool": {"kind": "endpoints", "models": [DEAD]}},
            "cannot be reached",
        ),
    ],
)
def test_bad_input_leaves_no_folder(encoder, tmp_path, changes, message):
    with pytest.raises(UserError) as caught:
        run(tmp_path / "run", tiny_run(encoder, **changes))
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_of_another_encoder_is_refused(encoder, tmp_path):
    folder = tmp_path / "encoder"
    shutil.copytree(encoder, folder)
    path = folder / "tokenizer.json"
    tokens = json.loads(path.read_text())
    tokens["added_tokens"] += [tokens["added_tokens"][0] | {"id": 258 + i, "content": f"<more {i}>"} for i in range(9)]
    path.write_text(json.dumps(tokens))
    with pytest.raises(UserError, match=r"tokenizer has \d+ tokens, the weights embed 260"):
        run(tmp_path / "run", tiny_run(folder))


def test_a_run_that_paid_before_it_stopped_is_kept(encoder, tmp_path):
    # The warm-up's calls are paid when the read-out turns out to be impossible.
    readout = {"kind": "whitened", "k": 12, "source": "episodes"}
    with pytest.raises(UserError, match=r"readout\.k"):
        run(tmp_path / "run", tiny_run(encoder, readout=readout, tasks__train=3, episode__max_calls=1))
    assert paid(tmp_path / "run")[0] > 0


def test_names_are_no_markup(encoder, tmp_path):
    names = ["[/bold]", "<b>&amp;", "[red]"]
    pool = {"simulated": [{"name": name, "worker": {"default": 0.5}} for name in names]}
    settings = tiny_run(encoder, pool=pool, learning__generations=1, evaluation__fixed_policy=False)
    screen = io.StringIO()
    train(config.parse(settings, "test"), tmp_path / "run", resume=False, console=Console(file=screen, width=200))
    assert all(name in screen.getvalue() for name in names)


def _rewrite_readout(change):
    def damage(folder):
        path = folder / "readout.safetensors"
        with safe_open(path, "numpy") as file:
            metadata = file.metadata()
        save_file(change(load_file(path)), path, metadata=metadata)

    return damage


def _sql(script):
    def damage(folder):
        with closing(sqlite3.connect(folder / "journal.sqlite")) as connection:
            connection.executescript(script)

    return damage


def _checkpoints_are_a_file(folder):
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").write_text("x")


def _checkpoints_are_empty_files(folder):
    for path in (folder / "checkpoints").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")


DAMAGES = {
    "a tensor more": (_rewrite_readout(lambda t: t | {"more": np.zeros(3)}), "readout.safetensors: expected"),
    "no tensors": (_rewrite_readout(lambda t: {}), "readout.safetensors: expected"),
    "another width": (_rewrite_readout(lambda t: {n: a[:3] for n, a in t.items()}), "readout.safetensors: expected"),
    "no numbers": (_rewrite_readout(lambda t: {n: a * np.nan for n, a in t.items()}), "readout.safetensors: expected"),
    "no table": (_sql("DROP TABLE decisions"), "journal.sqlite: not a usable journal"),
    "another version": (_sql("PRAGMA user_version = 9"), "journal.sqlite: journal format 9"),
    "no folder": (_checkpoints_are_a_file, "checkpoints: expected a folder"),
    "emptied": (_checkpoints_are_empty_files, "checkpoints: checkpoint 3 cannot be read"),
    "no metrics": (lambda folder: (folder / "metrics.jsonl").unlink(), "metrics.jsonl: the line of generation 0"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_run_is_told_and_not_made_worse(finished, encoder, tmp_path, damage, message):
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    damage(folder)
    files = [path for path in folder.rglob("*") if path.is_file() and "journal" not in path.name]
    before = {path: path.read_bytes() for path in files}
    with pytest.raises(UserError) as caught:
        run(folder, tiny_run(encoder, training=BOARD), resume=True)
    assert message in str(caught.value)
    assert {path: path.read_bytes() for path in files} == before


def test_lost_checkpoints_are_played_again_without_calls(finished, encoder, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    shutil.rmtree(folder / "checkpoints")
    (folder / "metrics.jsonl").unlink()
    run(folder, tiny_run(encoder, training=BOARD), resume=True)
    assert np.array_equal(vector(folder), vector(finished[0]))
    assert paid(folder) == paid(finished[0])


def test_exported_tensors_are_the_evolved_mean(finished):
    tensors = load_file(finished[0] / "coordinator" / "coordinator.safetensors")
    assert any(np.array_equal(value.ravel(), vector(finished[0])) for value in tensors.values())
