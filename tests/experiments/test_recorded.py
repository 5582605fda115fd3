"""Recorded outcomes: what is read, how it is split and scored, what is learnt, and the study from end to end."""

import csv
import hashlib
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from experiments.recorded.evolve import Head, evolve, expected_reward, logits, task_weights
from experiments.recorded.names import EVOLVED
from experiments.recorded.outcomes import Outcomes, find, load
from experiments.recorded.routers import (
    Option,
    best_model_label,
    best_per_task,
    best_single,
    evolved_head,
    neighbours,
    per_model_regression,
)
from experiments.recorded.scores import folds, macro, macro_error, macro_interval, out_of_fold
from experiments.recorded.selection import select
from experiments.recorded.settings import Settings
from experiments.run import main
from tests.tiny import make_encoder
from trinity_jax.config import LearningSettings
from trinity_jax.errors import UserError
from trinity_jax.evaluation.intervals import mean_interval

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "experiments" / "configs" / "recorded_zeroeval.yaml"
ZEROEVAL = ROOT.parent / "shared" / "data" / "zeroeval"
LEARNING = LearningSettings(generations=40, population=16, sigma0=1.0)
TEXTS = {
    "sums": "What is {0} + {0}?",
    "words": "Spell the word number {0} backward, please.",
    "code": "def f(): return {0}",
}
MODELS = ("ada", "bo", "cy")


def write(folder: Path, per_task: int = 40) -> Path:
    """Three tasks, three models; each model is right on most of one task and on some of the others."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    prompts: list[str] = []
    scores: list[list[str | int]] = [["task", "id", *MODELS]]
    chars: list[list[str | int]] = [["task", "id", *MODELS[::-1]]]
    for t, (task, text) in enumerate(TEXTS.items()):
        for i in range(per_task):
            prompts.append(json.dumps({"task": task, "id": f"{i}", "prompt": text.format(i)}))
            scores.append([task, f"{i}", *(int(rng.random() < (0.95 if t == j else 0.3)) for j in range(3))])
            chars.append([task, f"{i}", *(100 * (j + 1) for j in (2, 1, 0))])
    (folder / "prompts.jsonl").write_text("\n".join(prompts) + "\n")
    for name, rows in (("scores.csv", scores), ("response_chars.csv", chars[:1] + chars[:0:-1])):
        with (folder / name).open("w", newline="") as stream:
            csv.writer(stream).writerows(rows)
    return folder


def table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write(tmp_path_factory.mktemp("recorded") / "data")


@pytest.fixture(scope="module")
def outcomes(data):
    return load(data)


# --- reading ---


def test_tables_meet_prompts_by_name(data, outcomes):
    assert outcomes.tasks == tuple(TEXTS)
    assert outcomes.models == MODELS
    assert outcomes.right.shape == (120, 3)
    assert outcomes.prompts[41] == TEXTS["words"].format(1)
    rows = {(row["task"], row["id"]): row for row in table(data / "scores.csv")}
    for q in (0, 41, 119):
        row = rows[outcomes.tasks[outcomes.task[q]], outcomes.ids[q]]
        assert outcomes.right[q].tolist() == [float(row[model]) for model in MODELS]
    # another order of rows and of columns in the other table
    np.testing.assert_array_equal(outcomes.chars, np.broadcast_to([100, 200, 300], (120, 3)))


def test_the_split_depends_on_names_alone(outcomes):
    expected = [
        int(hashlib.sha1(f"{outcomes.tasks[t]}/{i}".encode()).hexdigest(), 16) % 10 < 5
        for t, i in zip(outcomes.task, outcomes.ids, strict=True)
    ]
    assert outcomes.train.tolist() == expected
    order = np.random.default_rng(0).permutation(120)
    assert outcomes.rows(order).train.tolist() == [expected[i] for i in order]
    assert set(outcomes.some(10).ids) == set(outcomes.rows(order).some(10).ids)
    assert np.bincount(outcomes.some(10).task).tolist() == [10, 10, 10]
    assert outcomes.some(None) is outcomes


def test_a_pool_is_some_models_in_an_order(outcomes):
    pool = outcomes.pool(("cy", "ada"), "pools.p")
    np.testing.assert_array_equal(pool.right, outcomes.right[:, [2, 0]])
    np.testing.assert_array_equal(pool.chars, outcomes.chars[:, [2, 0]])
    with pytest.raises(UserError, match=r"pools\.p: no outcomes of 'eve'; recorded are ada, bo, cy"):
        outcomes.pool(("ada", "eve"), "pools.p")


def changed(name, old, new):
    def change(folder):
        file = folder / name
        content = file.read_text()
        assert old in content
        file.write_text(content.replace(old, new, 1))

    return change


def repeated(name):
    def change(folder):
        file = folder / name
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([*lines, lines[1]]))

    return change


def dropped(name):
    def change(folder):
        file = folder / name
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:1] + lines[2:]))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (dropped("scores.csv"), r"1 prompts of prompts.jsonl are not in scores.csv, such as sums/0"),
        (dropped("prompts.jsonl"), r"1 prompts of scores.csv are not in prompts.jsonl, such as sums/1"),
        (dropped("response_chars.csv"), r"1 prompts of prompts.jsonl are not in response_chars.csv"),
        (changed("scores.csv", "words,3,", "words,3x,"), r"not in scores.csv, such as words/3"),
        (changed("scores.csv", "ada,bo,cy", "ada,bob,cy"), r"response_chars.csv differ in the model 'bo'"),
        (changed("scores.csv", "ada,bo,cy", "ada,bo,ada"), r"the column 'ada' stands there twice"),
        (changed("scores.csv", "task,id", "task,name"), r"expected the columns task, id and one .* got task, name"),
        (changed("scores.csv", "sums,0,1", "sums,0,2"), r"scores.csv:2: sums/0: expected 1 .* got '2'"),
        (changed("scores.csv", "sums,0,1", "sums,0,"), r"scores.csv:2: sums/0: expected 1 .* got ''"),
        (changed("scores.csv", "sums,0,1", f"sums,0,{'1' * 200_000}"), r"scores.csv:2: not a table .* larger than"),
        (changed("prompts.jsonl", "{", "[" * 100_000), r"prompts.jsonl:1: expected"),
        (changed("prompts.jsonl", '"prompt": "', '"prompt": "\\ud800'), r"prompts.jsonl:1: holds half of a surrogate"),
        (changed("scores.csv", "sums,0,1", "sums,0,1,1"), r"scores.csv:2: expected 5 columns, got 6"),
        (changed("response_chars.csv", "300", "-1"), r"expected a number of characters, got '-1'"),
        (repeated("scores.csv"), r"scores.csv:122: sums/0 stands there twice"),
        (repeated("prompts.jsonl"), r"prompts.jsonl:121: sums/1 stands there twice"),
        (changed("prompts.jsonl", '"prompt"', '"text"'), r"prompts.jsonl:1: expected .*prompt"),
        (changed("prompts.jsonl", "{", "["), r"prompts.jsonl:1: expected"),
        (lambda folder: (folder / "prompts.jsonl").unlink(), r"prompts.jsonl: cannot be read"),
        (lambda folder: (folder / "prompts.jsonl").write_text("\n"), r"prompts.jsonl: no prompts there"),
        (lambda folder: (folder / "scores.csv").write_bytes(b"\xff"), r"scores.csv: not UTF-8 text"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_told(data, tmp_path, damage, message):
    folder = shutil.copytree(data, tmp_path / "copy")
    damage(folder)
    with pytest.raises(UserError, match=message):
        load(folder)


def test_without_lengths_there_is_no_cost(data, tmp_path):
    folder = shutil.copytree(data, tmp_path / "copy")
    (folder / "response_chars.csv").unlink()
    assert load(folder).chars is None
    assert load(folder).pool(("bo",), "x").rows(np.arange(3)).chars is None


def test_where_the_data_is(data, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.recorded.outcomes.ROOT", tmp_path / "repository")
    monkeypatch.delenv("TRINITY_DATA", raising=False)
    with pytest.raises(UserError, match=r"no scores.csv in .*repository/data/zeroeval, .*TRINITY_DATA"):
        find(None)
    beside = shutil.copytree(data, tmp_path / "shared" / "data" / "zeroeval")
    assert find(None) == beside
    inside = shutil.copytree(data, tmp_path / "repository" / "data" / "zeroeval")
    assert find(None) == inside
    monkeypatch.setenv("TRINITY_DATA", str(data))
    assert find(None) == data
    assert find(beside) == beside
    with pytest.raises(UserError, match=r"data.folder: .* holds no scores.csv"):
        find(tmp_path)


# --- scores ---


def test_the_metric_and_its_interval():
    rng = np.random.default_rng(0)
    task = np.repeat([0, 1], [400, 100])
    values = (rng.random(500) < np.where(task == 0, 0.9, 0.3)).astype(float)
    means = [values[task == t].mean() for t in (0, 1)]
    assert macro(values, task) == pytest.approx(np.mean(means))
    error = np.sqrt(sum(p * (1 - p) / n for p, n in zip(means, (400, 100), strict=True))) / 2
    assert macro_error(values, task) == pytest.approx(error)
    found = macro_interval(values, task, 4000, 0)
    assert found.mean == macro(values, task)
    np.testing.assert_allclose([found.low, found.high], found.mean + 1.96 * error * np.array([-1, 1]), atol=0.01)
    one = macro_interval(values[:400], task[:400], 4000, 0)
    np.testing.assert_allclose(one, mean_interval(values[:400], 4000, 0), atol=0.004)
    assert macro_interval(np.ones(500), task, 100, 0) == (1.0, 1.0, 1.0)


def test_folds_are_even_and_what_is_judged_was_not_seen():
    task = np.repeat([0, 1, 2], [11, 20, 7])
    fold = folds(task, 5, 3)
    assert np.array_equal(fold, folds(task, 5, 3))
    assert not np.array_equal(fold, folds(task, 5, 4))
    for t in range(3):
        counts = np.bincount(fold[task == t], minlength=5)
        assert counts.max() - counts.min() <= 1
    train = np.arange(60) % 20 < 13
    train[39:] = False
    train[:38] = True
    right = np.random.default_rng(0).integers(0, 2, (60, 4)).astype(float)
    masks = []

    def learn(seen):
        masks.append(seen)
        return np.full(60, len(masks) % 4)

    values = out_of_fold(learn, right, train, fold)
    assert len(masks) == 5
    for number, seen in enumerate(masks, 1):
        held = train & ~seen
        assert not (seen & ~train).any()
        np.testing.assert_array_equal(values[held[:38]], right[held, number % 4])
    assert (np.sum([~seen & train for seen in masks], axis=0) == train).all()


# --- learning ---


def clusters(per_cluster=30, seed=0):
    """Two coordinates that tell three tasks apart, and outcomes in which model t is the best on task t."""
    rng = np.random.default_rng(seed)
    task = np.repeat([0, 1, 2], per_cluster)
    centre = 2 * np.array([[0, 1], [1, -0.5], [-1, -0.5]])
    z = centre[task] + 0.3 * rng.normal(size=(len(task), 2))
    right = (rng.random((len(task), 3)) < np.where(task[:, None] == np.arange(3), 0.9, 0.3)).astype(float)
    ids = tuple(str(i) for i in range(len(task)))
    return z, Outcomes(("a", "b", "c"), task, ids, ids, MODELS, right, None)


def test_fitness_is_what_drawing_gives_on_average():
    rng = np.random.default_rng(0)
    z, right, weight = rng.normal(size=(5, 2)), rng.integers(0, 2, (5, 3)).astype(float), np.full(5, 0.2)
    head = Head(jnp.asarray(rng.normal(size=(3, 2))), jnp.asarray(rng.normal(size=3)))
    scores = z @ np.asarray(head.weights).T + np.asarray(head.bias)
    np.testing.assert_allclose(logits(head, jnp.asarray(z)), scores, rtol=1e-5)
    chance = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    expected = sum(0.2 * chance[q, j] * right[q, j] for q in range(5) for j in range(3))
    assert float(expected_reward(head, jnp.asarray(z), jnp.asarray(right), jnp.asarray(weight))) == pytest.approx(
        expected, rel=1e-5
    )


def test_weights_make_a_mean_over_tasks():
    task, kept = np.array([0, 0, 0, 1, 1, 2]), np.array([True, True, False, True, True, False])
    weight = task_weights(task, kept)
    assert weight.tolist() == [0.25, 0.25, 0, 0.25, 0.25, 0]
    values = np.random.default_rng(0).random(6)
    assert weight @ values == pytest.approx(macro(values[kept], task[kept]))


def test_evolution_finds_who_is_best_where():
    z, outcomes = clusters()
    everything = np.ones(90, bool)
    choice = evolved_head(z, outcomes, 1e-5, everything, 0, train=everything, learning=LEARNING)
    assert (choice == outcomes.task).mean() > 0.95
    again = evolved_head(z, outcomes, 1e-5, everything, 0, train=everything, learning=LEARNING)
    np.testing.assert_array_equal(choice, again)


def test_a_large_penalty_leaves_one_choice_for_all():
    z, outcomes = clusters()
    everything = np.ones(90, bool)
    choice = evolved_head(z, outcomes, 10.0, everything, 0, train=everything, learning=LEARNING)
    assert len(set(choice)) == 1


def test_what_is_held_out_is_not_learnt_from():
    z, outcomes = clusters()
    seen = np.arange(90) % 3 > 0
    inverted = outcomes._replace(right=np.where(seen[:, None], outcomes.right, 1 - outcomes.right))
    everything = np.ones(90, bool)
    # which prompts tell models apart is the same in both, so are the shapes
    for learn in (
        lambda o: evolved_head(z, o, 1e-4, seen, 0, train=everything, learning=LEARNING),
        lambda o: per_model_regression(z, o, 0.1, seen, 0),
        lambda o: neighbours(z, o, 5, seen, 0),
        lambda o: best_model_label(z, o, 0.1, seen, 0),
    ):
        np.testing.assert_array_equal(learn(outcomes), learn(inverted))


def test_prompts_on_which_all_models_agree_change_nothing():
    z, outcomes = clusters()
    agreed = outcomes.right.min(axis=1) == outcomes.right.max(axis=1)
    assert 5 < agreed.sum() < 85
    everything = np.ones(90, bool)
    weight = jnp.asarray(task_weights(outcomes.task, everything), jnp.float32)
    right, coordinates = jnp.asarray(outcomes.right, jnp.float32), jnp.asarray(z, jnp.float32)
    whole = evolve(LEARNING, coordinates, right, weight, jnp.float32(1e-4), jax.random.key(0))
    part = evolved_head(z, outcomes, 1e-4, everything, 0, train=everything, learning=LEARNING)
    np.testing.assert_array_equal(logits(whole, coordinates).argmax(1), part)


def test_neighbours_by_hand():
    z, outcomes = clusters()
    seen = np.arange(90) % 2 == 0
    choice = neighbours(z, outcomes, 7, seen, 0)
    for q in range(90):
        near = np.flatnonzero(seen)[np.argsort(((z[seen] - z[q]) ** 2).sum(axis=1))[:7]]
        votes = outcomes.right[near].sum(axis=0)
        assert votes[choice[q]] == votes.max()
    assert (neighbours(z, outcomes, 10_000, seen, 0) == outcomes.right[seen].mean(axis=0).argmax()).all()


@pytest.mark.parametrize("learn", [per_model_regression, best_model_label])
def test_regressions_find_who_is_best_where(learn):
    z, outcomes = clusters(60)
    choice = learn(z, outcomes, 1.0, np.arange(180) % 2 == 0, 0)
    assert (choice == outcomes.task).mean() > 0.9


def test_regressions_meet_models_that_never_or_always_fail():
    z, outcomes = clusters()
    seen = np.ones(90, bool)
    constant = outcomes._replace(right=np.broadcast_to([0.0, 1.0, 0.0], (90, 3)))
    assert set(per_model_regression(z, constant, 1.0, seen, 0)) == {1}
    assert set(best_model_label(z, constant, 1.0, seen, 0)) == {1}
    assert len(best_model_label(z, constant._replace(right=np.zeros((90, 3))), 1.0, seen, 0)) == 90


def test_fixed_rules():
    _, outcomes = clusters()
    assert best_per_task(outcomes).tolist() == [0, 1, 2]
    uneven = outcomes.rows(np.r_[0:30, 30:33, 60:63])
    means = [np.mean([uneven.right[uneven.task == t, j].mean() for t in range(3)]) for j in range(3)]
    assert best_single(uneven) == int(np.argmax(means))


# --- choosing ---


def test_an_option_is_used_only_where_its_lead_exceeds_its_error():
    task, rng = np.repeat([0, 1], 200), np.random.default_rng(0)
    single = (rng.random((1, 400)) < 0.5).astype(float)
    better = np.where(rng.random((1, 400)) < 0.1, 1.0, single)
    noise = np.where(rng.random((1, 400)) < 0.1, 1 - single, single)
    noise[0, :20] = single[0, :20]
    stiff, loose = Option(4, 2, 1.0), Option(8, 2, 0.1)
    found = select({stiff: single, loose: better}, single, task)
    assert (found.option, found.used) == (loose, True)
    assert found.lead == pytest.approx(macro((better - single)[0], task))
    assert found.error == pytest.approx(macro_error((better - single)[0], task))
    found = select({stiff: single, loose: single}, single, task)
    assert (found.option, found.used, found.lead) == (stiff, False, 0.0)
    found = select({stiff: noise}, single, task)
    assert found.used == (found.lead > found.error)


# --- the study ---


@pytest.fixture(scope="module")
def config_file(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    settings = {
        "kind": "recorded",
        "seeds": 2,
        "data": {"folder": str(data)},
        "encoder": {"source": str(make_encoder(folder / "encoder")), "buckets": [448]},
        "layers": [1, 2],
        "pools": {"all": list(MODELS)},
        "folds": 3,
        "evolved": {"k": [2], "penalty": [1e-4], "learning": {"generations": 20, "population": 8, "sigma0": 1.0}},
        "rivals": {"k": [4], "C": [0.1], "neighbours": [5]},
        "bootstrap": 100,
    }
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRINITY_CACHE", str(tmp_path / "cache"))


def test_a_study_leaves_the_same_files_twice(config_file, cache, tmp_path):
    for name in ("one", "other"):
        assert main(["--config", str(config_file), "--run-dir", str(tmp_path / name)]) == 0
    one, other = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("one", "other")
    )
    assert one == other
    assert {str(path) for path in one} >= {"results.csv", "results.md", "figures/accuracy.svg", "figures/choices.png"}
    rows = table(tmp_path / "one" / "results.csv")
    test = {(r["pool"], r["policy"]): float(r["accuracy"]) for r in rows if r["on"] == "test" and r["seed"] == "mean"}
    assert test["all", "oracle"] >= test["all", EVOLVED] >= test["all", "random model"]
    page = (tmp_path / "one" / "results.md").read_text()
    assert "## all" in page
    assert "Against best single model: " in page


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("pools.all=[ada, eve]", "pools.all: no outcomes of 'eve'; recorded are ada, bo, cy"),
        ("pools.all=[ada, ada]", "pools.all: ada is named twice"),
        ("data.folder=/nowhere", "data.folder: /nowhere holds no scores.csv"),
        ("layers=[1, 9]", "this encoder has 3 layers, expected 1 to 3, got 9"),
        ("evolved.k=[100]", "readout.k: expected at most"),
        ("folds=30", "expected at least 30 prompts to learn from and 2 to judge on"),
    ],
)
def test_bad_input_is_one_message_and_leaves_no_folder(config_file, cache, tmp_path, capsys, override, message):
    code = main(["--config", str(config_file), "--set", override, "--run-dir", str(tmp_path / "run")])
    said = " ".join(capsys.readouterr().err.split())
    assert code == 2
    assert message in said
    assert not (tmp_path / "run").exists()


def test_the_shipped_config_and_its_preset():
    from trinity_jax import config

    for overrides in ((), ("study.preset=smoke",)):
        settings = config.parse(config.read(CONFIG, overrides), "recorded_zeroeval.yaml", Settings)
        assert set(settings.pools) == {"frontier7", "mid7"}


@pytest.mark.skipif(not ZEROEVAL.is_dir(), reason="needs ../shared/data/zeroeval, which is absent")
def test_the_published_reference_values():
    """Its README's split, and its values for what is not learnt."""
    recorded = load(ZEROEVAL)
    assert (recorded.train.sum(), (~recorded.train).sum()) == (1427, 1413)
    settings = Settings.model_validate({k: v for k, v in yaml.safe_load(CONFIG.read_text()).items() if k != "presets"})
    expected = {"frontier7": (72.61, 81.47, 82.46, 92.42), "mid7": (66.96, 75.44, 75.44, 88.81)}
    for pool, values in expected.items():
        outcomes = recorded.pool(settings.pools[pool], pool)
        train, test = outcomes.rows(outcomes.train), outcomes.rows(~outcomes.train)
        single = test.right[:, best_single(train)]
        per_task = test.right[np.arange(len(test.ids)), best_per_task(train)[test.task]]
        found = [test.right.mean(axis=1), single, per_task, test.right.max(axis=1)]
        assert [round(100 * macro(rewards, test.task), 2) for rewards in found] == list(values)
