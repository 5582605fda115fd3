"""Ablations: what arms are, masks, rotations, shorter worlds, scales in the loop, and the text from made-up numbers."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import run as entry
from experiments.ablation import scales, study
from experiments.ablation.arms import ALL_ROLES, FULL, Arm, distinct, plan
from experiments.ablation.ceilings import ceilings
from experiments.ablation.runs import Measured, Outcome, masked, measure, rows, shorter, tabulated, views
from experiments.ablation.settings import ScalesSettings, Settings
from experiments.results import Results
from experiments.study_settings import WorldSettings
from experiments.worlds import build_ground, coordinator, kind_names, on_ground
from tests.tiny import make_encoder
from trinity_jax import config
from trinity_jax.config import LearningSettings, PoolSettings, ReadoutSettings
from trinity_jax.coordinator.heads import make
from trinity_jax.errors import UserError
from trinity_jax.learning.strategy import Strategy
from trinity_jax.world import histories
from trinity_jax.world.evolve import Rules, evolve
from trinity_jax.world.states import Drifting, Table
from trinity_jax.world.value import attainable, probabilities

CONFIG = "experiments/configs/ablation_heads.yaml"
KINDS = ("chain_sum", "spell_backward")
POOL = PoolSettings.model_validate(
    {
        "simulated": [
            {"name": "a", "worker": {"chain_sum": 0.9, "spell_backward": 0.2}, "thinker": {"default": 0.9}},
            {"name": "b", "worker": {"chain_sum": 0.2, "spell_backward": 0.9}, "accepts_wrong": 0.05},
        ]
    }
)


def load(*overrides):
    return config.parse(config.read(CONFIG, overrides), CONFIG, Settings)


@pytest.fixture(scope="module")
def smoke():
    return load("study.preset=smoke")


def synthetic(**changes):
    own = {"states": "synthetic", "mix": [{"kind": kind} for kind in KINDS], "train": 6, "held_out": 4, "max_calls": 3}
    return WorldSettings.model_validate(own | {"synthetic": {"width": 8, "separability": 2.0, "common": 3.0}} | changes)


@pytest.fixture(scope="module")
def world():
    return on_ground(build_ground(synthetic(), 2), POOL)


def table(world):
    assert isinstance(world.states, Table)
    return np.asarray(world.states.h)


def test_heads_have_the_papers_numbers_of_parameters():
    settings = load()
    sizes = {name: make(arm.head, 10, 1024).size for name, arm in plan(settings)["heads, centred"].items()}
    assert list(sizes.values()) == [10_240, 20_680, 11_266, 5_120, 1_024, 1_024]
    assert list(sizes) == list(settings.heads)


def test_arms_stand_once_and_together_with_those_of_their_program():
    groups = plan(load())
    arms = distinct(groups)
    assert len(arms) == len(set(arms))
    assert {arm for group in groups.values() for arm in group.values()} == set(arms)
    programs = [(arm.head, arm.learning, arm.max_calls, arm.position is None) for arm in arms]
    changes = sum(before != after for before, after in pairwise(programs))
    assert changes + 1 == len(set(programs)) < len(arms) / 2
    equal = groups["replications, equal episodes"].values()
    assert {arm.learning.questions * arm.learning.generations for arm in equal} == {16 * 60}
    raw = groups["heads, paper"]["linear"]
    assert (raw.coordinates, raw.sigma0) == ("raw", 0.03)
    reference = groups["protocol"][FULL]
    assert (
        groups["blocks, centred"]["1"]
        == groups["calls"]["4"]
        == groups["replications, equal episodes"]["16"]
        == reference
    )


def test_a_masked_role_is_never_chosen(world):
    parts = coordinator(config.HeadSettings(), ReadoutSettings(kind="raw"), 8, 2)
    vector = jax.random.normal(jax.random.key(0), (parts.layout.size,))
    without = masked(parts.logits, jnp.array([True, False, True]))
    for states in (world.states, tabulated(world).states):
        policy = states.policy(without, vector, jnp.int32(1))
        scores = jax.vmap(policy)(jnp.arange(len(world.histories.response)))
        _, roles = probabilities(scores, world.histories)
        assert np.isfinite(np.asarray(scores)).all()
        np.testing.assert_array_equal(roles[:, 1], 0)
        np.testing.assert_allclose(roles.sum(1), 1, rtol=1e-6)


def test_a_shorter_world_is_the_world_of_fewer_calls(world):
    direct = on_ground(build_ground(synthetic(max_calls=2), 2), POOL)
    cut = shorter(tabulated(world), "full", 3, 2)
    np.testing.assert_allclose(table(cut), table(tabulated(direct)), atol=1e-6)
    np.testing.assert_array_equal(cut.histories.after, direct.histories.after)
    np.testing.assert_array_equal(cut.histories.response, histories.build("full", 2).response)


def test_views_turn_the_centred_states_and_nothing_else(world, smoke):
    seen = {name: table(view) for name, view in views(world, smoke).items()}
    assert isinstance(world.states, Drifting)
    np.testing.assert_allclose(seen["raw"], world.states.base[:, None] + world.states.drift, atol=1e-5)
    np.testing.assert_allclose(seen["centred"][:6, 0].mean(0), 0, atol=1e-5)
    moved = seen["raw"] - seen["centred"]
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0, 0], moved.shape), atol=1e-5)
    centred, rotated = (seen[name].reshape(-1, 8) for name in ("centred", "rotated"))
    np.testing.assert_allclose(rotated @ rotated.T, centred @ centred.T, atol=1e-3)
    assert not np.allclose(rotated, centred, atol=0.1)


def test_an_arm_is_the_run_of_its_step_size(world, smoke):
    learning = LearningSettings(population=6, questions=4, generations=3, sigma0=0.7)
    arm = Arm(learning, 3, coordinates="raw", roles=(True, False, True), sigma0=0.7)
    table = tabulated(world)
    found = measure(arm, table, smoke)
    assert (found.n, found.sigma0, found.tuning) == (40, 0.7, {})
    parts = coordinator(arm.head, ReadoutSettings(kind="raw"), 8, 2)
    logits = masked(parts.logits, jnp.asarray(arm.roles))
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(smoke.seed), 1), 1)
    _, course = evolve(Strategy(learning, 40), table, Rules(2, 3, 4), logits, 3, key)
    mine = found.runs[1]
    direct = course.sampled[-1], course.greedy[-1], course.turns[-1], course.made.sum()
    np.testing.assert_allclose((mine.drawn, mine.largest, mine.turns, mine.made), direct, rtol=1e-5)
    line = rows(arm, found)[1]
    assert (line["roles"], line["seed"], line["purpose"]) == ("Worker+Verifier", 1, "judged")
    # The same program, another step size: tuned on seeds of its own.
    tuned = measure(Arm(learning, 3, coordinates="raw", roles=(True, False, True)), table, smoke)
    assert set(tuned.tuning) == set(smoke.step_sizes)
    trained = {step: np.mean([one.train_drawn for one in runs]) for step, runs in tuned.tuning.items()}
    assert trained[tuned.sigma0] == max(trained.values())


def test_kinds_of_the_small_world_need_skills_too():
    known = dict.fromkeys(("chain_sum", "spell_backward", "leg_counting", "weekday_choice"), 0.5)
    pool = f"pool.simulated=[{{name: a, worker: {known}}}]"
    assert study.check(load("study.preset=smoke", pool, "small={}"), {}) == 16
    with pytest.raises(UserError, match="no skill for 'other'"):
        study.check(load("study.preset=smoke", pool, "small={world: {mix: [{kind: other}]}}"), {})


def test_ceilings(world):
    found = ceilings(world, [(3, ALL_ROLES), (3, (True, False, True)), (3, (True, False, False))])
    names = kind_names([KINDS[kind] for kind in np.asarray(world.kinds)])
    kinds = [names[int(kind)] for kind in np.asarray(world.kinds[world.held_out])]
    known = attainable(world.skills.take(world.held_out), kinds, 3)
    assert found[3, ALL_ROLES] == pytest.approx((known.fixed, known.per_kind))
    assert found[3, (True, False, False)] == pytest.approx((0.55, 0.9))
    assert found[3, (True, False, False)].per_kind < found[3, (True, False, True)].per_kind < known.per_kind


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small world of a tiny encoder, and its settings."""
    folder = tmp_path_factory.mktemp("tiny")
    own = synthetic(
        states="encoder",
        max_calls=2,
        encoder={"source": str(make_encoder(folder / "encoder")), "buckets": [512], "cache_mb": 64},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRINITY_CACHE", str(folder / "cache"))
        yield own, on_ground(build_ground(own, 2), POOL)


def test_without_scales_the_encoder_in_the_loop_is_the_jitted_world(small, smoke):
    own, world = small
    learning = LearningSettings(population=4, questions=3, generations=3, sigma0=2.0)
    encoded = scales.Encoded(world, own, "none", ScalesSettings(), 4)
    ours = scales.evolve(encoded, learning, jax.random.key(3), 0)
    centred = views(world, smoke)["centred"]
    parts = coordinator(config.HeadSettings(), ReadoutSettings(kind="raw"), 16, 2)
    _, course = evolve(Strategy(learning, 80), centred, Rules(2, 2, 3), parts.logits, 3, jax.random.key(3))
    assert (ours.n, ours.scales, ours.blocks) == (80, 0, 0)
    assert ours.drawn == pytest.approx(float(course.sampled[-1]), abs=1e-4)
    assert 3 * 4 * 1 <= ours.pairs * 3 <= 3 * 4 * 3 * 2


@pytest.mark.parametrize(("preset", "blocks"), [("layer", 1), ("released", 3)])
def test_scales_are_evolved_with_the_head(small, preset, blocks):
    own, world = small
    encoded = scales.Encoded(world, own, preset, ScalesSettings(), 4)
    learning = LearningSettings(population=4, questions=2, generations=1, sigma0=2.0)
    ours = scales.evolve(encoded, learning, jax.random.key(0), 0)
    assert ours.n == 80 + ours.scales > 80
    assert ours.blocks == blocks
    assert 0 < ours.drawn < 1
    zeros = np.zeros((1, ours.n))
    wanted = np.zeros((1, 10, table(world).shape[1]), bool)
    wanted[0, 2, 1] = True
    zeros[0, -80:] = np.arange(80)
    encoded.adapt(zeros)
    weights, centre = np.arange(80).reshape(5, 16), table(world)[:6, 0].mean(0)
    np.testing.assert_allclose(
        encoded.logits(zeros, wanted)[0], weights @ (table(world)[2, 1] - centre), rtol=1e-3, atol=0.1
    )


def made_up(arm: Arm, n: int, better: float) -> Measured:
    def runs(count):
        drawn = [0.6 + better + 0.01 * seed for seed in range(count)]
        return tuple(Outcome(one, one, one, one, 2.5, 1000) for one in drawn)

    return Measured(n, arm.sigma0 or 1.0, runs(4), {})


def test_a_study_writes_what_its_numbers_say(tmp_path, monkeypatch, smoke):
    def measured(arm, world, settings):
        better = 0.1 * (arm.coordinates == "centred") - 0.2 * (arm.roles == (True, False, True))
        return made_up(arm, 7, better)

    monkeypatch.setattr(study, "measure", measured)
    with Results.begin(tmp_path / "run", smoke) as results:
        study.run(smoke, results, entry.Console(quiet=True))
        results.check()
    text = (tmp_path / "run" / "results.md").read_text()
    assert "worse: no Thinker" in text
    assert "A rotation hurts k = 10 of 10" in text
    assert "helps 4 of 4 heads" in text
    assert "| no Thinker | 1 | 0.515 [0.494, 0.536] | -0.200 [-0.200, -0.200] |" in text
    assert "Not run with these settings: read positions, singular-value scales." in text
    lines = (tmp_path / "run" / "results.csv").read_text().splitlines()
    assert len(lines) == 1 + 4 * len(distinct(plan(smoke)))
    names = {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    assert names == {f"{name}.{kind}" for name in ("heads", "blocks", "sweeps", "parts") for kind in ("png", "svg")}


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("blocks=[1, 11]", ["blocks, raw, 11", "D = 16", "L + 3 = 10", "expected 1 to 10", "got 11"]),
        ("rank=17", ["heads, centred, low-rank", "expected 1 to 16", "got 17"]),
        ("pool.simulated=[{name: a, worker: {default: 0.5}}]", ["block-diagonal-10", "L + 3 = 4", "expected 1 to 4"]),
        ("pool.simulated=[{name: a, worker: {chain_sum: 0.5}}]", ["no skill for 'spell_backward'"]),
        ("learning.learner=reinforce", ["learning.learner", "sep_cma_es", "reinforce"]),
        ("learning.population=null", ["learning.population"]),
        ("learning.common_random_numbers=false", ["learning.common_random_numbers: does not count"]),
        ("replications=[16]", ["replications: 16", "12 training questions"]),
        ("calls=[4]", ["calls: 4", "world.max_calls: 3"]),
        ("heads=[sparse]", ["heads", "linear"]),
        ("heads=[lineer]", ["heads.0", "'linear'", "lineer"]),
    ],
)
def test_what_cannot_be_done_is_told_before_the_work_begins(monkeypatch, tmp_path, capsys, override, parts):
    monkeypatch.setattr(study, "build_ground", lambda *_: pytest.fail("the work began"))
    heads = () if "heads" in override else ("--set", "heads=[linear, low-rank, 'block-diagonal-10, softmax']")
    arguments = ["--config", CONFIG, "--set", "study.preset=smoke", "--set", override, *heads]
    code = entry.main([*arguments, "--run-dir", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert code == 2
    assert said.count("\n") == 1
    for part in parts:
        assert part in said
    assert not (tmp_path / "run").exists()
