import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binomtest

from trinity_jax.evaluation.intervals import FEWEST_QUESTIONS, mean_interval, paired_difference


def test_against_the_normal_approximation():
    values = np.random.default_rng(0).binomial(1, 0.6, 400).astype(float)
    estimate = mean_interval(values, 4000, seed=1)
    half = 1.96 * values.std(ddof=1) / np.sqrt(400)
    assert estimate.mean == values.mean()
    assert_allclose(estimate[1:], (values.mean() - half, values.mean() + half), atol=0.006)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(2)
    inside = 0
    for trial in range(150):
        values = generator.binomial(2, 0.7, 50) / 2
        _, low, high = mean_interval(values, 300, seed=trial)
        inside += low <= 0.7 <= high
    assert 0.88 <= inside / 150 <= 0.995


def test_repeats_of_a_question_stay_together():
    """Averaging 8 identical repeats must not narrow the interval as 8 times as many questions would."""
    values = np.random.default_rng(3).binomial(1, 0.5, 40).astype(float)
    together = mean_interval(values, 2000, seed=0)
    apart = mean_interval(np.repeat(values, 8), 2000, seed=0)
    assert (together.high - together.low) > 2 * (apart.high - apart.low)


def test_pairing_removes_what_questions_share():
    generator = np.random.default_rng(4)
    hard = generator.uniform(0, 1, 200)
    ours, theirs = hard + 0.1, hard + generator.normal(0, 0.01, 200)
    paired = paired_difference(ours, theirs, 1000, seed=0)
    alone = mean_interval(ours, 1000, seed=0)
    assert_allclose(paired.mean, (ours - theirs).mean())
    assert 0.09 < paired.low < paired.high < 0.11
    assert paired.high - paired.low < (alone.high - alone.low) / 10


@pytest.mark.parametrize(("right", "n"), [(20, 20), (0, 35)])
def test_all_right_or_all_wrong_has_the_interval_of_wilson(right, n):
    expected = binomtest(right, n).proportion_ci(method="wilson")
    found = mean_interval(np.full(n, float(right > 0)), 100, seed=0)
    assert_allclose(found, (right / n, expected.low, expected.high), atol=1e-12)


@pytest.mark.parametrize("constant", [-1.0, 0.0, 0.5, 1.0])
def test_an_equal_difference_everywhere_is_not_beyond_doubt(constant):
    """Up to Wilson's share of questions may differ otherwise, by anything from -1 to 1."""
    ours = np.full(30, max(constant, 0.0))
    found = paired_difference(ours, ours - constant, 100, seed=0)
    other = binomtest(0, 30).proportion_ci(method="wilson").high
    expected = [(1 - other) * constant + other * end for end in (-1, 1)]
    assert_allclose(found, (constant, *expected), atol=1e-12)
    assert found.low < found.high


@pytest.mark.parametrize("known", [1, FEWEST_QUESTIONS - 1, FEWEST_QUESTIONS])
@pytest.mark.parametrize("equal", [True, False])
def test_few_questions_have_a_mean_and_no_interval(known, equal):
    values = np.where(np.arange(known) % 3 == 0, 1.0, float(equal))
    found = mean_interval(np.append(values, [np.nan] * 30), 100, seed=0)
    assert found.mean == values.mean()
    assert np.isnan([found.low, found.high]).tolist() == [known < FEWEST_QUESTIONS] * 2


def test_nothing_known():
    assert np.isnan(mean_interval(np.array([np.nan, np.nan]), 100, seed=0)).all()
    assert np.isnan(mean_interval(np.array([]), 100, seed=0)).all()


def test_missing_questions_are_left_out_of_both_sides():
    ours, theirs = np.array([1.0, np.nan, 1.0, 0.0]), np.array([0.0, 1.0, np.nan, 1.0])
    assert paired_difference(ours, theirs, 200, seed=0).mean == 0.0


def test_seeded():
    values = np.random.default_rng(5).binomial(1, 0.5, 30).astype(float)
    assert mean_interval(values, 500, seed=0) == mean_interval(values, 500, seed=0)
    assert mean_interval(values, 500, seed=0) != mean_interval(values, 500, seed=1)


def test_other_questions_are_refused():
    with pytest.raises(ValueError, match="same questions"):
        paired_difference(np.zeros(3), np.zeros(1), 100, seed=0)
