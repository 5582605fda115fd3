"""The comparison of learners: settings, steps of compiled programs, single-call starts, and what the page claims."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from experiments.learners import figures, page
from experiments.learners.arms import Arm, Ground, Trial
from experiments.learners.play import Player, Runs, Task, View
from experiments.learners.settings import KNOWN, Settings
from experiments.learners.steps import AtStep, step_of, without_step
from experiments.learners.study import run
from experiments.results import Results
from experiments.worlds import coordinator
from trinity_jax import config
from trinity_jax.config import HeadSettings, LearningSettings, PoolSettings, ReadoutSettings
from trinity_jax.errors import UserError
from trinity_jax.learning.learner import build
from trinity_jax.world import histories
from trinity_jax.world.evolve import Course, Rules, World
from trinity_jax.world.skills import from_pool
from trinity_jax.world.states import clusters
from trinity_jax.world.value import Attainable, Fixed

CONFIG = Path(__file__).resolve().parents[2] / "experiments" / "configs" / "learners.yaml"


def settings(*overrides: str) -> Settings:
    return config.parse(config.read(CONFIG, overrides), "learners.yaml", Settings)


# --- settings ---


def test_every_learner_has_as_many_episodes_and_trials():
    found = settings()
    assert set(found.compare) == set(KNOWN)
    for name in found.compare:
        assert len(found.learners[name].trials) == 9
        for version in ("published", "tuned"):
            arm = found.arm(name, version)
            if arm.generations:
                assert arm.population
                assert arm.generations * arm.population * arm.questions * arm.repeats == 30_720
            elif version == "tuned":
                models, train = len(found.pool.names), found.world.train
                assert arm.warm_start.calls(models, train) == 30_720


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("compare=[sep_cma_es,pso]", "expected names of sep_cma_es, .*, ridge, got 'pso'"),
        ("compare=[[ridge]]", r"expected names of sep_cma_es, .* got \['ridge'\]"),
        ("compare=[ridge,ridge]", "expected each learner once"),
        ("learners.sep_cma_es.published.learner=grpo", "learner: expected 'sep_cma_es', .* got 'grpo'"),
        ("learners.pso={}", "expected names of sep_cma_es, .*, ridge, got 'pso'"),
        ("learners.ridge.steps.raw=[0.1]", "expected equally many trials"),
        ("episodes=30721", "30721 is no multiple of a generation's 512"),
        ("learners.grpo.published.sigma=1", "learners.grpo.published.sigma"),
        ("world.train=16", "random_search_uniform.published.questions: 32 is more than world.train: 16"),
        ("learners.ridge.tuned.warm_start.samples=161", "30912 single calls .* more than episodes: 30720"),
        ("learners.sft.tuned.warm_start.questions=8", "sft.tuned.warm_start: every training question is asked"),
        ("learners.grpo.tuned.warm_start.kind=ridge", "grpo.tuned.warm_start: does not count"),
        ("learners.sep_cma_es.tuned.fitness.turn_weight=0.1", "sep_cma_es.tuned.fitness: does not count"),
    ],
)
def test_bad_settings_are_told(override, message):
    with pytest.raises(UserError, match=message):
        settings(override)


def test_trials_have_to_be_there():
    none = "{raw: [], centred: [], whitened: []}"
    with pytest.raises(UserError, match="at least one trial"):
        settings("compare=[ridge]", f"learners.ridge.steps={none}")


# --- steps ---


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in ("sft", "ridge")])
def test_a_step_set_later_is_the_step_of_the_settings(name):
    given = {"population": 4, "sigma0": 0.3, "gradient": {"learning_rate": 0.07}, "search": {"half_width": 0.2}}
    search = KNOWN[name].get("search", {})
    learning = LearningSettings.model_validate(given | KNOWN[name] | {"search": {"half_width": 0.2} | search})
    key, log_prob = jax.random.key(0), lambda *_: jnp.zeros((4, 1))
    later = AtStep(build(without_step(learning), 5, log_prob), step_of(learning)).init(key)
    for ours, direct in zip(
        jax.tree.leaves(later), jax.tree.leaves(build(learning, 5, log_prob).init(key)), strict=True
    ):
        np.testing.assert_allclose(ours, direct, rtol=1e-6)


# --- single calls ---


def test_single_calls_send_every_kind_to_its_model():
    kinds = np.arange(16) % 2
    models = [{"name": "a", "worker": {"x": 0.9, "y": 0.2}}, {"name": "b", "worker": {"x": 0.3, "y": 0.7}}]
    world = World(
        clusters(jax.random.key(0), kinds, histories.turns("counts", 2), 6, separability=4.0),
        from_pool(PoolSettings.model_validate({"simulated": models}), ["xy"[kind] for kind in kinds]),
        histories.build("counts", 2),
        jnp.asarray(kinds),
        jnp.arange(8),
        jnp.arange(8, 16),
    )
    view = View(world, coordinator(HeadSettings(), ReadoutSettings(kind="raw"), 6, 2), calls=5)
    player = Player({"raw": view}, Rules(kinds=2, max_calls=2))
    for kind in ("ridge", "sft"):
        warm = {"kind": kind, "samples": 20, "batch": 8, "steps": 200}
        learning = LearningSettings.model_validate({"generations": 0, "warm_start": warm})
        (runs,) = player.play([Task(learning, "raw", 0.1, [jax.random.key(1), jax.random.key(2)])])
        # With the largest logits all turns are Worker's, and the last one counts.
        np.testing.assert_allclose(runs.held_out[:, 1], (0.9 + 0.7) / 2, atol=1e-6)
        assert runs.calls.tolist() == [5 + 2 * 8 * 20] * 2


def test_a_study_without_evolution_leaves_everything(tmp_path):
    found = settings("study.preset=smoke", "compare=[sft]", "seeds=2")
    with Results.begin(tmp_path / "run", found) as results:
        run(found, results, Console(quiet=True))
        results.check()
    text = (tmp_path / "run" / "results.md").read_text()
    assert "# Learners at 768 episodes each" in text
    assert (tmp_path / "run" / "results.csv").read_text().count("\n") == 1 + 2 * 2
    assert (tmp_path / "run" / "trials.csv").read_text().count("\n") == 1 + 2


# --- page and figures ---

GROUND = Ground(
    Attainable(0.5, 0.9, Fixed(None, 0, 1), {"x": Fixed(None, 0, 1), "y": Fixed(0, 1, 1)}), 0.3, ("x", "y"), ("a", "b")
)


def arm(name: str, version, level: float, R: int = 6, G: int = 4) -> Arm:
    random = np.random.default_rng(0)
    values = level + 0.01 * random.normal(size=(R, G))
    values[:, 1] = np.nan
    first = np.full((R, G, 2, 2), 0.5)
    even = np.ones((R, G))
    course = Course(even, values, values + 0.01, even * 9, even * 8, even, first, np.ones((R, G, 3)), even, even)  # pyright: ignore[reportArgumentType]
    last = np.stack([values[:, -1], values[:, -1] + 0.01], axis=1)
    return Arm(
        name,
        version,
        "raw",
        0.1,
        "sigma0",
        "sample",
        10,
        0.05,
        8 * np.arange(1, G + 1),
        Runs(last, last, 40 * even[:, 0], course),
    )


def test_calls_before_the_first_generation_count():
    np.testing.assert_array_equal(arm("grpo", "tuned", 0.5).calls[0], [16, 24, 32, 40])


def test_the_page_says_where_the_order_turns():
    published = {"sep_cma_es": 0.6, "isotropic_es": 0.6, "reinforce": 0.4, "random_search_uniform": 0.5, "sft": 0.45}
    tuned = published | {"reinforce": 0.95}
    arms = [arm(name, "published", level) for name, level in published.items()]
    arms += [arm(name, "tuned", level) for name, level in tuned.items()]
    trials = {name: [Trial("raw", 0.1, np.array([0.5, 0.4]))] for name in published}
    found = page.text(settings(), GROUND, arms, trials)
    assert "**published**: sep_cma_es ~ isotropic_es > random_search_uniform > sft > reinforce" in found
    assert "published: 5 as in the paper" in found
    assert "1 the other way round (SFT over random search)" in found
    assert "tuned: 2 as in the paper (sep-CMA-ES over SFT, sep-CMA-ES over random search)" in found
    assert "**The ranking depends on the settings**: 4 of 10 pairs" in found
    assert "Tuned, sep_cma_es, isotropic_es, reinforce end clearly above the best fixed policy" in found
    assert "reinforce reach 90 % of the attainable gain of 0.400" in found
    assert "Tuning changed most for reinforce: +0.550" in found
    assert "learn from single calls: sft 32 as published and 32 tuned" in found
    worse = [
        one._replace(version="tuned") if one.name != "sep_cma_es" else arm("sep_cma_es", "tuned", 0.3)
        for one in arms[:5]
    ]
    assert "Tuning changed most for sep_cma_es: -0.300" in page.text(settings(), GROUND, [*arms[:5], *worse], trials)
    steady = page.text(settings(), GROUND, [*arms[:5], *(one._replace(version="tuned") for one in arms[:5])], trials)
    assert "None of the 10 pairs of learners clearly changes its order" in steady


def test_figures_show_both_versions():
    drawn = figures.draw([arm("grpo", "published", 0.5), arm("grpo", "tuned", 0.7)], GROUND)
    assert set(drawn) == {"success", "curves", "selection_published", "selection_tuned"}
    assert [ax.get_xlabel() for ax in drawn["curves"].axes] == [
        f"{axis} ({version})" for version in ("published", "tuned") for axis in ("episodes", "calls")
    ]
