import numpy as np
import pytest

from tests.serving.served import write_tiny
from trinity_jax.coordinator import familiar
from trinity_jax.coordinator.export import describe, load_coordinator
from trinity_jax.errors import UserError

STATES = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)


def test_the_threshold_is_by_the_nearest_other_state():
    gaps = np.linalg.norm(STATES[:, None] - STATES[None], axis=-1)
    np.fill_diagonal(gaps, np.inf)
    found = familiar.fit(STATES)
    assert found is not None
    assert found.threshold == pytest.approx(1.5 * np.quantile(gaps.min(axis=1), 0.95), rel=1e-5)
    new = np.random.default_rng(1).normal(size=(200, 8)).astype(np.float32)
    inside = [familiar.distance(found.states, h) <= found.threshold for h in new]
    outside = [familiar.distance(found.states, h) <= found.threshold for h in new + 5]
    assert np.mean(inside) > 0.97
    assert not any(outside)


def test_repeated_states_count_once_and_one_alone_tells_nothing():
    twice = familiar.fit(np.concatenate([STATES, STATES]))
    once = familiar.fit(STATES)
    assert twice is not None
    assert once is not None
    assert (len(twice.states), twice.threshold) == (len(once.states), once.threshold)
    assert familiar.fit(STATES[:1].repeat(5, axis=0)) is None
    assert familiar.fit(STATES[:0]) is None


def test_many_states_are_thinned_out():
    many = familiar.fit(np.random.default_rng(2).normal(size=(2100, 3)))
    assert many is not None
    assert len(many.states) == 2048


@pytest.mark.parametrize("states", [STATES[:, :3], STATES[0], np.full((2, 8), np.nan, np.float32)])
def test_damaged_states_are_told(states):
    with pytest.raises(UserError, match="damaged"):
        familiar.checked(states, np.array(1.0, np.float32), 8, "file")


def test_a_coordinator_keeps_them_and_one_without_them_is_as_good(tmp_path):
    known = familiar.Familiar(np.ones((2, 16), np.float32), 0.5)
    loaded = load_coordinator(write_tiny(tmp_path, familiar=known, fallback="bo"))
    assert loaded.familiar is not None
    np.testing.assert_array_equal(loaded.familiar.states, known.states)
    assert (loaded.familiar.threshold, loaded.description.fallback) == (0.5, "bo")
    assert "best model bo" in describe(loaded)
    without = load_coordinator(write_tiny(tmp_path))
    assert (without.familiar, without.description.fallback) == (None, None)
