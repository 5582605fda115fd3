"""Separability: support vector machines against scikit-learn's search, scatter by definition, the study end to end."""

import csv
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from experiments.recorded.outcomes import Outcomes
from experiments.recorded.scores import folds
from experiments.run import main
from experiments.separability.heads import choices, taught
from experiments.separability.measure import fisher, held_out_hits, planes, standardised, tfidf
from experiments.separability.sets import generated
from experiments.separability.settings import HeadSettings, MixSettings, Settings, SimulatedSettings, SvmSettings
from tests.experiments.test_recorded import MODELS, write
from tests.tiny import make_encoder
from trinity_jax import config
from trinity_jax.config import LearningSettings
from trinity_jax.errors import UserError

CONFIG = Path(__file__).resolve().parents[2] / "experiments" / "configs" / "separability.yaml"


def clusters(per_class=25, spread=1.0, seed=0):
    """Three overlapping classes in six dimensions of very different scale."""
    rng = np.random.default_rng(seed)
    label = np.repeat([0, 1, 2], per_class)
    centre = rng.normal(size=(3, 6))
    x = (centre[label] + spread * rng.normal(size=(len(label), 6))) * 10.0 ** np.arange(-2, 4)
    return x, label


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_same_as_a_nested_search_of_scikit_learn(kernel):
    x, label = clusters(24)  # inner folds of equal size: their mean accuracy is our count of hits
    settings = SvmSettings(C=(1.0, 10.0, 100.0), folds=4, inner_folds=3)
    found = held_out_hits(standardised(x), label, kernel, settings, seed=5)
    outer, hits = folds(label, 4, 5), np.zeros(len(label), bool)
    for held in range(4):
        train, test = outer != held, outer == held
        machine = SVC(kernel=kernel, gamma="scale")
        # Our squared lengths are divided by the number of features.
        grid = [C / 6 if kernel == "linear" else C for C in settings.C]
        z = StandardScaler().fit(x[train]).transform(x)
        search = GridSearchCV(machine, {"C": grid}, cv=PredefinedSplit(folds(label[train], 3, 5)))
        hits[test] = search.fit(z[train], label[train]).predict(z[test]) == label[test]
    assert 0.4 < hits.mean() < 1
    np.testing.assert_array_equal(found, hits)


def test_labels_by_lot_cannot_be_told():
    x, label = clusters(60)
    lot = np.random.default_rng(1).permutation(label)
    settings = SvmSettings(C=(1.0, 100.0))
    assert held_out_hits(standardised(x), lot, "linear", settings, 0).mean() < 0.48
    apart, label = clusters(20, spread=0.02)
    assert held_out_hits(standardised(apart), label, "linear", settings, 0).all()


def test_a_label_of_one_class_or_rare_classes():
    x, _ = clusters(10)
    settings = SvmSettings(C=(1.0,), folds=3)
    assert held_out_hits(standardised(x), np.zeros(30, int), "linear", settings, 0).all()
    rare = np.where(np.arange(30) == 7, 1, 0)
    assert held_out_hits(standardised(x), rare, "rbf", settings, 0).sum() == 29


def test_words_are_learnt_from_the_training_part_alone():
    texts = ["one two", "two three", "three four", "five six"]
    train = np.array([0, 1, 2])
    found = tfidf(texts, "word", (1, 1))(train)
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit(texts[:3])
    np.testing.assert_allclose(found, vectorizer.transform(texts).toarray())
    assert (found[3] == 0).all()


def test_scatter_by_its_definition():
    x, label = clusters()
    z = StandardScaler().fit_transform(x)
    within = sum(((z[label == t] - z[label == t].mean(0)) ** 2).sum() for t in range(3))
    between = sum((label == t).sum() * (z[label == t].mean(0) ** 2).sum() for t in range(3))
    found = fisher(x, label, 200, 0)
    assert found.ratio == pytest.approx(between / within)
    # With K classes of N items by lot, between / within is about (K - 1)/(N - K).
    assert 2 / 72 < found.by_lot < 4 * 2 / 72
    lot = np.random.default_rng(3).permutation(label)
    assert fisher(x, lot, 200, 0).ratio < 2 * found.by_lot


def test_projections_are_of_prompts_that_were_not_fitted():
    x, label = clusters(30)
    fitted = np.arange(90) % 3 == 0
    found = planes(x, label, fitted)
    assert found.pca.shape == found.lda.shape == (60, 2)
    changed = np.where(fitted[:, None], x, x + np.arange(90)[:, None] * 0.0)
    np.testing.assert_array_equal(planes(changed, label, fitted).lda, found.lda)
    moved = x.copy()
    moved[~fitted] = 0
    assert np.ptp(planes(moved, label, fitted).lda, axis=0) == pytest.approx([0, 0], abs=1e-9)


def test_generated_sets_have_kinds_and_outcomes():
    mix = MixSettings.model_validate(
        {
            "kinds": [
                {"kind": "chain_sum"},
                {"kind": "chain_sum", "difficulty": "normal"},
                {"kind": "leg_counting"},
            ],
            "per_kind": 60,
        }
    )
    found = generated(mix, SimulatedSettings(models=2, specialist=0.9, otherwise=0.2), 1, "mixes.m")
    assert found.tasks == ("chain_sum/easy", "chain_sum/normal", "leg_counting/easy")
    assert np.bincount(found.task).tolist() == [60, 60, 60]
    assert len(set(found.prompts)) == 180
    rates = np.array([found.right[found.task == t].mean(axis=0) for t in range(3)])
    np.testing.assert_allclose(rates, [[0.9, 0.2], [0.2, 0.9], [0.9, 0.2]], atol=0.17)
    again = generated(mix, SimulatedSettings(models=2, specialist=0.9, otherwise=0.2), 1, "mixes.m")
    assert again.prompts == found.prompts
    np.testing.assert_array_equal(again.right, found.right)
    with pytest.raises(UserError, match=r"mixes\.m: unknown family 'sudoku'; there are chain_sum, "):
        generated(
            MixSettings.model_validate({"kinds": [{"kind": k} for k in ("sudoku", "gcd", "products")]}),
            SimulatedSettings(),
            1,
            "mixes.m",
        )


def test_a_head_chooses_for_prompts_that_it_was_not_evolved_on():
    rng = np.random.default_rng(0)
    task = np.repeat([0, 1, 2], 30)
    states = 3 * np.eye(3)[task] @ rng.normal(size=(3, 8)) + 0.1 * rng.normal(size=(90, 8))
    right = (rng.random((90, 3)) < np.where(task[:, None] == np.arange(3), 0.95, 0.2)).astype(float)
    ids = tuple(map(str, range(90)))
    outcomes = Outcomes(("a", "b", "c"), task, ids, ids, MODELS, right, None)
    marked = taught(task, 1 / 3, 0)
    assert np.bincount(task[marked]).tolist() == [10, 10, 10]
    assert taught(task, 0.01, 0).sum() == 9
    head = HeadSettings(k=2, learning=LearningSettings(generations=40, population=16, sigma0=1.0))
    found = choices(states, outcomes, marked, head, 0)
    assert (found.first == task[~marked]).mean() > 0.9
    np.testing.assert_array_equal(found.first, found.logits.argmax(axis=1))
    chance = np.exp(found.logits) / np.exp(found.logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.likeliest, chance.max(axis=1), rtol=1e-5)
    assert (found.drawn == found.first).mean() == pytest.approx(found.likeliest.mean(), abs=0.2)


# --- the study ---


@pytest.fixture(scope="module")
def config_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    kinds = [{"kind": kind} for kind in ("chain_sum", "spell_backward", "leg_counting")]
    settings = {
        "kind": "separability",
        "encoder": {"source": str(make_encoder(folder / "encoder")), "buckets": [448]},
        "layers": [1, 3],
        "positions": [-2, -1],
        "mixes": {"small": {"kinds": kinds, "per_kind": 12}},
        "recorded": {"folder": str(write(folder / "data")), "per_task": 12, "pool": list(MODELS)},
        "head": {"layer": 3, "k": 2, "learning": {"generations": 10, "population": 8, "sigma0": 1.0}},
        "svm": {"C": [1.0], "folds": 3, "inner_folds": 2},
        "permutations": 20,
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
    assert {str(path) for path in one} >= {
        "results.csv",
        "results.md",
        "figures/by_layer.svg",
        "figures/projections.png",
    }
    with (tmp_path / "one" / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    kinds = [r for r in rows if r["features"] == "states" and r["label"] == "kind" and r["measure"] == "accuracy"]
    assert len(kinds) == 2 * 2 * 2 * 2  # sets, layers, positions, kernels
    assert all(0 <= float(r["low"]) <= float(r["value"]) <= float(r["high"]) <= 1 for r in kinds)
    page = (tmp_path / "one" / "results.md").read_text()
    assert "0.713" in page
    assert "recorded: kind is told from states right in" in page


def test_without_recorded_outcomes_the_page_says_so(config_file, cache, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.recorded.outcomes.ROOT", tmp_path / "repository")
    monkeypatch.delenv("TRINITY_DATA", raising=False)
    changes = ["recorded.folder=null", "layers=[3]", "svm.kernels=[linear]"]
    overrides = [part for change in changes for part in ("--set", change)]
    assert main(["--config", str(config_file), *overrides, "--run-dir", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "results.md").read_text()
    assert "No recorded outcomes of real models: recorded outcomes: no scores.csv in" in page


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("head.layer=2", "head.layer: 2 must be one of layers: [1, 3]"),
        ("encoder.read_position=-3", "encoder.read_position: -3 must be one of positions: [-2, -1]"),
        ("layers=[3, 7]", "this encoder has 3 layers, expected 1 to 3, got 7"),
        ("recorded.pool=[ada, eve]", "recorded.pool: no outcomes of 'eve'"),
        ("recorded.folder=/nowhere", "data.folder: /nowhere holds no scores.csv"),
        ("mixes.small.kinds=[{kind: chain_sum}]", "mixes.small.kinds"),
        ("head.share=0.9", "0.9 of mixes.small.per_kind: 12 leaves 1 prompts of a kind to judge"),
        ("svm.kernels=[]", "svm.kernels"),
        ("head.k=40", "readout.k: expected at most"),
        ("head.learning.learner=isotropic_es", "learning.learner: does not count in this study"),
    ],
)
def test_bad_input_is_one_message_and_leaves_no_folder(config_file, cache, tmp_path, capsys, override, message):
    code = main(["--config", str(config_file), "--set", override, "--run-dir", str(tmp_path / "run")])
    said = " ".join(capsys.readouterr().err.split())
    assert code == 2
    assert message in said
    assert not (tmp_path / "run").exists()


def test_the_shipped_config_and_its_preset():
    for overrides in ((), ("study.preset=smoke",)):
        settings = config.parse(config.read(CONFIG, overrides), "separability.yaml", Settings)
        assert set(settings.mixes) == {"easy", "hard"}
