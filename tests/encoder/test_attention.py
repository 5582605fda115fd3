"""Chunks against the whole, the fused path against the plain, and which is chosen."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.encoder import attention
from trinity_jax.encoder.attention import attend, causal, choose, chunk


def heads(T, dtype=jnp.float32) -> tuple[jax.Array, jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (jax.random.normal(key, (T, n, 8), dtype) for key, n in zip(keys, (4, 2, 2), strict=True))
    return q, k, v


def reference(q, k, v):
    """Head by head in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    T, N, H = q.shape
    out = np.zeros((T, N, H))
    for n in range(N):
        scores = q[:, n] @ k[:, n // 2].T / np.sqrt(H)
        scores[np.triu_indices(T, 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, n] = weights / weights.sum(axis=1, keepdims=True) @ v[:, n // 2]
    return out.reshape(T, -1)


@pytest.mark.parametrize("T", [1, 7, 64])
def test_causal_is_attention_head_by_head(T):
    np.testing.assert_allclose(causal(*heads(T)), reference(*heads(T)), atol=1e-6)


@pytest.mark.parametrize("step", [7, 16, 64])
def test_chunks_change_nothing(monkeypatch, step):
    monkeypatch.setattr(attention, "_CHUNKS", {"cpu": step})
    monkeypatch.setattr(attention, "_WHOLE", 1)
    np.testing.assert_allclose(causal(*heads(64)), reference(*heads(64)), atol=1e-6)


def test_some_rows_are_those_of_all():
    q, k, v = heads(64)
    rows = jnp.array([0, 5, 63])
    np.testing.assert_allclose(attend(q[rows], k, v, rows), reference(q, k, v)[rows], atol=1e-6)


def test_scores_stay_bounded():
    for T in (128, 512, 2048, 8192, 40_960):
        assert 16 * chunk(T, 16) * T <= 2**25
    assert chunk(256, 16) == 256
    assert chunk(10**9, 16) == 1


def test_the_fused_call_computes_the_same(monkeypatch):
    """The kernel itself needs a GPU; its call is checked with JAX's own implementation."""
    whole = jax.nn.dot_product_attention
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda *given, implementation, **more: whole(*given, **more))
    np.testing.assert_allclose(causal(*heads(64), "fused"), reference(*heads(64)), atol=1e-5)


@pytest.mark.parametrize(("dtype", "backend"), [("float32", "gpu"), ("bfloat16", "cpu"), ("bfloat16", "tpu")])
def test_plain_where_nothing_is_fused(dtype, backend):
    assert choose(dtype, 4, 2, 8, backend) == "plain"


def test_a_kernel_that_does_not_compile_is_told_and_replaced(caplog):
    with caplog.at_level(logging.INFO):
        assert choose("bfloat16", 4, 2, 8, "gpu") == "plain"
    assert "the fused kernel does not compile here" in caplog.text
