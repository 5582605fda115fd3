"""The forecast against episodes that are enumerated, drawn, and really played."""

import random

import pytest

from tests.tiny import make_encoder, tiny_run
from trinity_jax import config
from trinity_jax.evaluation.forecast import distinct, fixed_policies, forecast, reach


def draw(rng: random.Random, calls: int, accept: float, needs_response: bool) -> int:
    """Calls of one episode with uniform roles, by the rules as a person would play them."""
    made, responded, forced = 0, False, False
    while made < calls:
        roles = ["W"] if forced else ["W", "T", "V"] if responded or not needs_response else ["W", "T"]
        role = rng.choice(roles)
        if role == "V" and not responded:
            return made
        made += 1
        if role == "V" and rng.random() < accept:
            return made
        responded, forced = responded or role == "W", role == "T"
    return made


@pytest.mark.parametrize("needs_response", [False, True])
def test_calls_of_an_episode_against_draws(needs_response):
    rng, n = random.Random(0), 40_000
    lengths = [draw(rng, 4, 0.6, needs_response) for _ in range(n)]
    for depth, share in enumerate(reach(4, 0.6, needs_response), 1):
        assert share == pytest.approx(sum(length >= depth for length in lengths) / n, abs=0.01)


def test_different_calls_against_draws():
    rng, models, n = random.Random(1), 2, 30
    found = [len({rng.randrange(2 * models) for _ in range(n)}) for _ in range(4000)]
    assert distinct(n, models, [1.0]) == pytest.approx(sum(found) / 4000, rel=0.02)
    assert distinct(1, models, [1.0, 0.5]) == pytest.approx(1.5, rel=0.05)
    assert distinct(10**9, models, [1.0, 1.0]) == pytest.approx(4 + 24)


def test_fixed_policies_by_hand():
    # Two models, three calls, nothing accepted: W V W and T W V over all choices.
    assert fixed_policies(3, 2, 0.0) == (2 + 4 + 4) + (2 + 4 + 8)
    assert fixed_policies(1, 3, 0.5) == 3 + 3


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"journal": {"reuse": "run"}},
        {"learning__common_random_numbers": False},
        {"evaluation__fixed_policy": False, "readout__source": "script"},
    ],
    ids=["shared", "reused", "own", "script"],
)
def test_about_is_below_most_and_a_part_is_never_negative(tmp_path, changes):
    settings = config.parse(tiny_run(tmp_path, **changes), "test")
    parts = forecast(settings, 4, 0.5)
    assert all(0 <= part.about <= part.most for part in parts), parts
    training = next(part for part in parts if part.name == "training")
    assert training.most == 3 * 4 * 3 * 3


def test_a_real_run_stays_below_most(tmp_path):
    from rich.console import Console

    from trinity_jax.training.train import train

    settings = config.parse(tiny_run(make_encoder(tmp_path / "encoder"), learning__generations=2), "test")
    made = train(settings, tmp_path / "run", resume=False, console=Console(quiet=True))
    parts = forecast(settings, 4, 0.5)
    assert made["calls"] <= made["calls_without_sharing"] <= sum(part.most for part in parts)
    about = sum(part.about for part in parts)
    assert about / 3 <= made["calls"] <= 3 * about
