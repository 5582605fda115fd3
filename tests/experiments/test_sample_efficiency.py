"""The sample-efficiency study: crossings, budgets, the warm start, and a small run from settings to page."""

import csv
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from experiments.results import Results
from experiments.sample_efficiency import page, study
from experiments.sample_efficiency.curves import Curves, calls_to, success_at
from experiments.sample_efficiency.settings import Settings
from experiments.sample_efficiency.warm_start import rule, warm_start
from experiments.study_settings import WorldSettings
from experiments.worlds import build_ground, coordinator, on_ground
from tests.experiments.changed import changed
from trinity_jax import config
from trinity_jax.config import HeadSettings
from trinity_jax.errors import UserError
from trinity_jax.world import histories
from trinity_jax.world.episode import VERIFIER, WORKER
from trinity_jax.world.evolve import Rules, worth

CONFIG = Path(__file__).parents[2] / "experiments" / "configs" / "sample_efficiency.yaml"
CURVES = Curves(np.array([[10.0, 20, 40], [10, 30, 50]]), np.zeros((2, 3)), np.zeros((2, 3)), 5)
SUCCESS = np.array([[0.1, 0.9, 0.8], [0.1, 0.2, 0.3]])


def test_calls_to_a_level_are_those_of_the_first_point_at_it():
    np.testing.assert_array_equal(calls_to(CURVES, SUCCESS, 0.8), [20, np.inf])
    np.testing.assert_array_equal(calls_to(CURVES, SUCCESS, 0.05), [10, 10])


def test_success_at_a_budget_is_that_of_the_last_affordable_point():
    np.testing.assert_array_equal(success_at(CURVES, SUCCESS, 35), [0.9, 0.2])
    np.testing.assert_array_equal(success_at(CURVES, SUCCESS, 1000), [0.8, 0.3])
    assert np.isnan(success_at(CURVES, SUCCESS, 5)).all()


def test_a_warm_start_knows_the_models_and_the_protocol():
    settings = WorldSettings.model_validate(
        {
            "states": "synthetic",
            "train": 48,
            "held_out": 24,
            "synthetic": {"width": 24, "drift": 1.0, "separability": 2},
        }
    )
    recipes = config.read(CONFIG)["recipes"]
    parsed = config.parse(config.read(CONFIG), "test", Settings)
    recipe, pool = parsed.recipes["ours"], parsed.pools["complementary"]
    assert recipes["ours"]["learning"]["warm_start"]["kind"] == "ridge"
    world = on_ground(build_ground(settings, 3), pool)
    last = histories.last_event("full", 4)
    start = warm_start(world, last, recipe.learning.warm_start, recipe.readout, 4, jax.random.key(0))
    assert 48 * 3 + 48 * 2 <= start.calls <= 48 * 3 + 48 * 4
    head = coordinator(HeadSettings(), recipe.readout, 24, 3)
    assert start.vector.shape == (head.layout.size,)

    def success(vector):
        rules = Rules(kinds=4, max_calls=4)
        value = worth(start.world, rules, head.logits, jnp.asarray(vector), world.held_out, sample=False)
        return float(value.reward.mean())

    assert success(start.vector) > success(np.zeros_like(start.vector)) + 0.15
    chances = rule(last)
    assert (chances.sum(axis=1) == 1).all()
    assert chances[1, VERIFIER] == 1
    assert chances[last == histories.Event.REJECT, WORKER].all()


def test_calls_are_told_as_a_share_of_the_references():
    assert [page._share(part) for part in (0.1, 0.49, 0.8, 2.5)] == ["1/10 of", "1/2 of", "0.80 times", "2.50 times"]


def small(**changes):
    data = config.read(CONFIG, ("study.preset=smoke",))
    data |= {"seeds": 2, "compare": None, "world": data["world"] | {"train": 16, "held_out": 8}}
    data["pools"] = {name: data["pools"][name] for name in ("complementary", "nearly_equal")}
    data["recipes"] = {name: data["recipes"][name] for name in ("reference", "ours", "start_alone")}
    for recipe in data["recipes"].values():
        recipe["learning"] = recipe["learning"] | {"questions": 8, "population": 8}
        if recipe["learning"]["generations"]:
            recipe["learning"]["generations"] = 3
    return config.parse(data | changes, "test", Settings)


def test_a_small_study_leaves_every_point_and_a_page(tmp_path):
    settings = small()
    with Results.begin(tmp_path / "run", settings) as results:
        study.run(settings, results, Console(quiet=True))
        results.check()
    rows = list(csv.DictReader((tmp_path / "run" / "results.csv").read_text().splitlines()))
    curve = [row for row in rows if row["part"] == "curve" and row["recipe"] == "ours"]
    assert len(curve) == 2 * 4
    assert all(float(row["low"]) <= float(row["success"]) <= float(row["high"]) for row in curve)
    # The reference pays for every call it asks for, the start alone stops at its start.
    assert len([row for row in rows if row["part"] == "curve" and row["recipe"] == "start_alone"]) == 2
    text = (tmp_path / "run" / "results.md").read_text()
    assert "## complementary" in text
    assert "Less than 0.03 to gain" in text
    assert "80% of the gain" in text
    assert {p.suffix for p in (tmp_path / "run" / "figures").iterdir()} == {".png", ".svg"}


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        (("ours",), "mine", "ours: expected one of"),
        (("ours",), "reference", "expected another recipe than reference"),
        (("compare",), ["ours", "reference", "ours"], "expected each recipe once"),
        (("pools", "complementary", "simulated"), [{"name": "a", "worker": {"x": 0.5}}], None),
        (("recipes", "ours", "learning", "questions"), 4000, "more than world.train"),
        (("recipes", "ours", "learning", "learner"), "sepcma", "sep_cma_es"),
        (("recipes", "ours", "readout"), {"kind": "raw"}, "no raw readout"),
        (("recipes", "ours", "learning", "fitness"), {"turn_weight": 0.1}, "learning.fitness: does not count"),
        (("recipes", "ours", "learning", "warm_start"), {"kind": "none", "roles": "script"}, "goes with a"),
        (("seeds",), 1, "seeds"),
    ],
)
def test_bad_settings_are_told_in_one_message(tmp_path, path, value, part):
    file = changed(CONFIG, path, value, tmp_path)
    if part is None:
        settings = config.parse(config.read(file), str(file), Settings)
        with pytest.raises(UserError, match="no skill for 'chain_sum'"):
            study.run(settings, Results(tmp_path), Console(quiet=True))
        return
    with pytest.raises(UserError, match=part):
        config.parse(config.read(file), str(file), Settings)
