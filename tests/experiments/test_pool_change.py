"""The study of pool changes: what each way may use, and a small run from settings to page."""

import csv
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from experiments.pool_change import study
from experiments.pool_change.recorded import replace_each
from experiments.pool_change.settings import RecordedSettings, Settings
from experiments.pool_change.ways import Curve, at_calls
from experiments.recorded.outcomes import Outcomes
from experiments.results import Results
from tests.experiments.changed import changed
from trinity_jax import config
from trinity_jax.errors import UserError

CONFIG = Path(__file__).parents[2] / "experiments" / "configs" / "pool_change.yaml"


def small(**changes):
    data = config.read(CONFIG, ("study.preset=smoke",))
    data["world"] = data["world"] | {"train": 16, "held_out": 8, "max_calls": 2}
    data["pools"] = {name: data["pools"][name] for name in ("specialists",)}
    data["training"] = data["training"] | {"generations": 2, "population": 6, "questions": 8}
    data["new_row"] = {"samples": 2, "looks": 1, "evolution": {"generations": 1, "population": 6, "questions": 8}}
    data["profile"] = {"evolution": {"generations": 2, "population": 6, "questions": 8}}
    data["recorded"] = {"pools": {}}
    return config.parse(data | changes, "test", Settings)


def test_success_at_a_budget_is_that_of_the_last_affordable_point():
    curve = Curve(np.array([[0.0, 10, 20]]), np.array([[0.5, 0.6, 0.7]]))
    assert [float(at_calls(curve, calls)[0]) for calls in (0, 15, 20, 99)] == [0.5, 0.6, 0.7, 0.7]
    assert np.isnan(at_calls(Curve(curve.calls + 5, curve.success), 0)).all()


def test_a_small_study_leaves_every_point_and_a_page(tmp_path):
    settings = small()
    with Results.begin(tmp_path / "run", settings) as results:
        study.run(settings, results, Console(quiet=True))
        results.check()
    rows = list(csv.DictReader((tmp_path / "run" / "results.csv").read_text().splitlines()))
    models = [model.name for model in settings.pools["specialists"].simulated]
    assert list(dict.fromkeys(row["model"] for row in rows)) == models
    curve = [row for row in rows if row["way"] == "row" and row["point"]]
    # Nothing, one answer, all answers, a look, one generation; for each model.
    assert len(curve) == 5 * len(models)
    calls = np.array([float(row["calls"]) for row in curve]).reshape(len(models), 5)
    np.testing.assert_array_equal(calls[:, :3], [[0, 16, 32]] * len(models))
    assert (np.diff(calls) > 0).all()
    text = (tmp_path / "run" / "results.md").read_text()
    for part in (
        "When is each enough?",
        "Mask",
        "Profile head",
        "After 1,000 calls",
        "Left out: recorded.pools is empty",
    ):
        assert part in text
    assert {p.suffix for p in (tmp_path / "run" / "figures").iterdir()} == {".png", ".svg"}


def test_recorded_outcomes_that_are_not_there_are_skipped_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.recorded.outcomes.ROOT", tmp_path / "a" / "b")
    monkeypatch.delenv("TRINITY_DATA", raising=False)
    settings = small(recorded={"pools": {"three": ["a", "b", "c"]}})
    found, why = study._recorded(settings, Console(quiet=True))
    assert found == {}
    assert "no scores.csv" in why
    named = small(recorded={"pools": {"three": ["a", "b", "c"]}, "data": {"folder": str(tmp_path)}})
    with pytest.raises(UserError, match=r"holds no scores\.csv"):
        study._recorded(named, Console(quiet=True))


def test_a_real_newcomer_that_is_better_on_one_task_is_asked_there():
    rng = np.random.default_rng(0)
    Q = 400
    task = np.arange(Q) % 2
    states = np.column_stack([4.0 * task, rng.normal(size=(Q, 3))]) + rng.normal(0, 0.1, (Q, 4))
    # The old two differ along the same line: a profile head learns from that what the line is worth.
    first, second, newest = (np.where(task == 0, *pair) for pair in ((0.7, 0.3), (0.3, 0.6), (0.05, 0.95)))
    chance = np.column_stack([first, second, newest])
    right = (rng.random((Q, 3)) < chance).astype(float)
    ids = tuple(map(str, range(Q)))
    outcomes = Outcomes(("x", "y"), task, ids, ids, ("a", "b", "c"), right, None)
    settings = RecordedSettings.model_validate(
        {"k": 2, "anchors": 60, "learning": {"generations": 20, "population": 16, "sigma0": 1.0}}
    )
    of = {one.model: one for one in replace_each(outcomes, states, settings, (0, 100), range(2))}
    gain = of["c"].full.mean() - of["c"].old.mean()
    assert gain > 0.1
    assert of["c"].row[100].mean() - of["c"].old.mean() > 0.7 * gain
    assert of["c"].profile.mean() - of["c"].old.mean() > 0.5 * gain
    # With the newcomer there, nobody misses the model that it outdoes.
    assert abs(of["b"].masked.mean() - of["b"].old.mean()) < 0.05
    assert jnp.asarray(of["a"].old).shape == (2, int((~outcomes.train).sum()))


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        (("training", "warm_start"), {"kind": "none"}, "training.warm_start"),
        (("new_row", "evolution", "questions"), 4000, "more than world.train"),
        (("new_row", "evolution", "learner"), "open_es", "learner: does not count"),
        (("pools", "specialists", "simulated"), [{"name": "a", "worker": {"default": 0.5}}], "3 models or more"),
        (("seeds",), 1, "seeds"),
    ],
)
def test_bad_settings_are_told_in_one_message(tmp_path, path, value, part):
    file = changed(CONFIG, path, value, tmp_path)
    with pytest.raises(UserError, match=part):
        config.parse(config.read(file), str(file), Settings)
