"""Read-out coordinates: their statistics, and that a folded head gives the same logits."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity_jax.coordinator.readout import Readout, coordinates, fit, fold
from trinity_jax.errors import UserError


def states(B=40, D=12, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(B, D)) * np.linspace(3, 0.2, D) + 10 * rng.normal(size=D)).astype(np.float32)


def test_raw_is_h_itself():
    h = states()
    assert fit("raw", 3, h) == Readout()
    np.testing.assert_array_equal(coordinates(Readout(), jnp.asarray(h)), h)


def test_centred_has_mean_zero_and_keeps_the_axes():
    h = states()
    np.testing.assert_allclose(coordinates(fit("centred", 3, h), jnp.asarray(h)), h - h.mean(0), atol=1e-5)


def test_whitened_is_white_and_spans_the_principal_directions():
    h = states()
    readout = fit("whitened", 4, h)
    z = np.asarray(coordinates(readout, jnp.asarray(h)))
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(z.T @ z / len(h), np.eye(4), atol=1e-4)
    values, vectors = np.linalg.eigh(np.cov(h.astype(np.float64).T, bias=True))
    expected = (h - h.mean(0)) @ vectors[:, ::-1][:, :4] / np.sqrt(values[::-1][:4])
    np.testing.assert_allclose(np.abs(z), np.abs(expected), atol=1e-3)


def test_fit_does_not_depend_on_the_order_of_texts():
    h = states()
    one, other = (coordinates(fit("whitened", 4, order), jnp.asarray(h)) for order in (h, h[::-1]))
    np.testing.assert_allclose(one, other, atol=1e-5)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(["raw", "centred", "whitened"]), st.booleans(), st.integers(0, 1000))
def test_folding_keeps_the_logits(kind, with_bias, seed):
    h, rng = states(seed=seed), np.random.default_rng(seed)
    readout = fit(kind, 4, h)
    weights = rng.normal(size=(6, readout.width(12))).astype(np.float32)
    bias = rng.normal(size=6).astype(np.float32) if with_bias else None
    w, b = fold(readout, weights, bias)
    assert w.shape == (6, 12)
    assert (b is None) == (kind == "raw" and not with_bias)
    expected = np.asarray(coordinates(readout, jnp.asarray(h))) @ weights.T + (0 if bias is None else bias)
    np.testing.assert_allclose(h @ w.T + (0 if b is None else b), expected, atol=1e-3)


@pytest.mark.parametrize("h, possible", [(states(B=4), 3), (np.repeat(states(B=3), 5, axis=0), 2), (states(D=5), 5)])
def test_more_directions_than_the_states_have(h, possible):
    assert fit("whitened", possible, h).width(12) == possible
    with pytest.raises(UserError, match=f"at most {possible}"):
        fit("whitened", possible + 1, h)


def test_states_that_are_not_finite_are_refused():
    states = np.zeros((10, 4))
    states[3, 1] = np.nan
    with pytest.raises(UserError, match="not finite"):
        fit("whitened", 2, states)
