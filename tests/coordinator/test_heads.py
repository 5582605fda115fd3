"""Heads against the paper's table: sizes, formulas written in numpy, and what masks and factors promise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity_jax.config import HeadSettings
from trinity_jax.coordinator.heads import BlockDiagonal, Factors, Linear, LowRank, Sparse, make, respond
from trinity_jax.errors import UserError

KEY = jax.random.key(5)
HEADS = [
    Linear(6, 8),
    BlockDiagonal(7, 11, 3),
    BlockDiagonal(5, 9, 5),
    LowRank(6, 8, 4),
    LowRank(4, 8, 8),
    Sparse(6, 9),
]
SPARSE = Sparse(4, 9)
RNG = np.random.default_rng(0)


def normal(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def sparse_parameters(scores, log_temperature=0.0, sparsity=0.0, w=None):
    w = np.ones((SPARSE.outputs, SPARSE.inputs)) if w is None else w
    return jnp.asarray(np.concatenate([np.ravel(w), scores, [log_temperature, sparsity]]), jnp.float32)


def kept_by_numpy(sparsity, inputs):
    return int(np.clip(np.round(inputs / (1 + np.exp(-np.float64(sparsity)))), 1, inputs - 1))


@pytest.mark.parametrize(
    "chosen, size",
    [
        ({"kind": "linear"}, 10_240),
        ({"kind": "low_rank"}, 20_680),
        ({"kind": "sparse"}, 11_266),
        ({"kind": "block_diagonal"}, 5_120),
        ({"kind": "block_diagonal", "blocks": 10}, 1_024),
    ],
)
def test_published_parameter_counts(chosen, size):
    assert make(HeadSettings(**chosen), 10, 1024).size == size


def test_ten_blocks_cover_1024_inputs():
    assert BlockDiagonal(10, 1024, 10).block_shapes == ((1, 103),) * 4 + ((1, 102),) * 6


@pytest.mark.parametrize("outputs, inputs, blocks", [(6, 8, 1), (7, 11, 3), (5, 9, 5), (6, 6, 4)])
def test_blocks_lie_on_the_diagonal_and_cover_everything(outputs, inputs, blocks):
    head = BlockDiagonal(outputs, inputs, blocks)
    parameters = np.arange(1, head.size + 1, dtype=np.float32)
    expected = np.zeros((outputs, inputs), np.float32)
    parts = zip(np.array_split(np.arange(outputs), blocks), np.array_split(np.arange(inputs), blocks), strict=True)
    offset = 0
    for rows, columns in parts:
        size = len(rows) * len(columns)
        expected[np.ix_(rows, columns)] = parameters[offset : offset + size].reshape(len(rows), len(columns))
        offset += size
    assert offset == head.size
    np.testing.assert_array_equal(head.weights(jnp.asarray(parameters)), expected)
    assert (expected != 0).any(axis=0).all()
    assert (expected != 0).any(axis=1).all()


def test_one_block_is_the_linear_head():
    parameters = normal(48)
    np.testing.assert_array_equal(BlockDiagonal(6, 8, 1).weights(parameters), Linear(6, 8).weights(parameters))


@pytest.mark.parametrize("mean", [False, True])
def test_low_rank_is_its_formula(mean):
    head, z = LowRank(6, 8, 4), normal(3, 5, 8)
    parameters = normal(head.size)
    u, v = np.split(np.asarray(parameters, np.float64), [4 * 8])
    inner = np.asarray(z, np.float64) @ u.reshape(4, 8).T
    c = np.array([0.5, -1, 2, 0]) if mean else np.zeros(4)
    inner += c
    assert (inner < 0).any()
    expected = 3 * np.where(inner > 0, inner, 0.1 * np.expm1(inner)) @ v.reshape(6, 4).T
    weights = head.weights(parameters)
    assert isinstance(weights, Factors)
    weights = weights._replace(c=jnp.asarray(c, jnp.float32)) if mean else weights
    np.testing.assert_allclose(respond(weights, z), expected, rtol=1e-4, atol=1e-4)


def test_low_rank_at_zero_moves_by_pairs_of_coordinates_only():
    head, z = LowRank(6, 8, 4), normal(8)
    zero = jnp.zeros(head.size)
    assert not np.any(jax.jit(jax.jacobian(head.logits))(zero, z))
    logits = jax.jit(jax.vmap(head.logits, (0, None)))
    assert not np.any(logits(jnp.eye(head.size), z))
    assert np.any(logits(zero.at[jnp.array([0, 32])].set(1.0)[None], z))


@given(st.sampled_from(HEADS), st.integers(0, 2**31 - 1))
@settings(max_examples=20, deadline=None)
def test_logits_are_the_weights_on_any_batch(head, seed):
    """Where the weights are a matrix it is the whole map; z may have any leading axes."""
    rng = np.random.default_rng(seed)
    parameters = jnp.asarray(rng.normal(size=head.size), jnp.float32)
    z = jnp.asarray(rng.normal(size=(2, 3, head.inputs)), jnp.float32)
    logits, weights = head.logits(parameters, z), head.weights(parameters)
    assert logits.shape == (2, 3, head.outputs)
    np.testing.assert_allclose(head.logits(parameters, z[1, 2]), logits[1, 2], rtol=1e-5, atol=1e-5)
    if not isinstance(weights, Factors):
        assert weights.shape == (head.outputs, head.inputs)
        expected = np.asarray(z, np.float64) @ np.asarray(weights, np.float64).T
        np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("head", HEADS, ids=repr)
def test_zeros_give_zero_logits_with_and_without_noise(head):
    for key in (None, KEY):
        np.testing.assert_array_equal(head.logits(jnp.zeros(head.size), normal(head.inputs), key), 0)


@pytest.mark.parametrize("head", HEADS, ids=repr)
def test_only_a_noisy_head_hears_the_key(head):
    parameters, z = normal(head.size), normal(head.inputs)
    quiet = head.logits(parameters, z)
    np.testing.assert_array_equal(quiet, head.logits(parameters, z))
    assert np.array_equal(quiet, head.logits(parameters, z, KEY)) is not head.noisy


scores_with_ties = st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.25, 3.0]), min_size=9, max_size=9)


@given(scores_with_ties, st.integers(-40, 40).map(lambda quarters: quarters / 4))
@settings(max_examples=60, deadline=None)
def test_the_hard_mask_keeps_exactly_k_of_the_largest(scores, sparsity):
    parameters = sparse_parameters(scores, 2.0, sparsity)
    mask, k = np.asarray(SPARSE.mask(parameters)), kept_by_numpy(sparsity, 9)
    first = sorted(range(9), key=lambda i: (-scores[i], i))[:k]
    np.testing.assert_array_equal(mask, np.isin(np.arange(9), first))
    assert int(SPARSE.kept(parameters)) == k


def test_half_the_inputs_are_kept_at_zero():
    head = Sparse(10, 1024)
    mask = np.asarray(head.mask(jnp.zeros(head.size)))
    assert mask.sum() == 512
    assert set(mask.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("log_temperature, sparsity", [(0.0, 0.0), (-1.5, 1.0), (2.0, -2.0), (0.3, 9.0), (0.3, -9.0)])
def test_the_soft_mask_is_its_formula(log_temperature, sparsity):
    w, scores, z = RNG.normal(size=(4, 9)), RNG.normal(size=9), RNG.normal(size=9)
    parameters = sparse_parameters(scores, log_temperature, sparsity, w)
    noisy = scores + np.asarray(jax.random.gumbel(KEY, (9,)), np.float64)
    k, largest = kept_by_numpy(sparsity, 9), np.sort(noisy)[::-1]
    mask = 1 / (1 + np.exp(-(noisy - (largest[k - 1] + largest[k]) / 2) / np.exp(log_temperature)))
    np.testing.assert_allclose(SPARSE.mask(parameters, KEY), mask, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(SPARSE.logits(parameters, jnp.asarray(z), KEY), w @ (z * mask), rtol=1e-4, atol=1e-4)


def test_the_soft_mask_becomes_hard_as_the_temperature_goes_to_zero():
    scores = RNG.normal(size=9)
    noisy = scores + np.asarray(jax.random.gumbel(KEY, (9,)))
    hard = np.asarray(SPARSE.mask(sparse_parameters(noisy)))
    away = [
        np.abs(np.asarray(SPARSE.mask(sparse_parameters(scores, log_temperature), KEY)) - hard).max()
        for log_temperature in (1.0, 0.0, -2.0, -4.0, -8.0)
    ]
    assert away == sorted(away, reverse=True)
    assert away[0] > 0.1
    assert away[-1] < 1e-6


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=9, max_size=9), st.floats(-1e4, 1e4), st.floats(-1e4, 1e4))
@settings(max_examples=60, deadline=None)
def test_the_mask_is_finite_and_between_0_and_1_whatever_evolves(scores, log_temperature, sparsity):
    for key in (None, KEY):
        mask = np.asarray(SPARSE.mask(sparse_parameters(scores, log_temperature, sparsity), key))
        assert ((mask >= 0) & (mask <= 1)).all()


def test_one_key_gives_all_candidates_the_same_noise_and_another_key_another():
    parameters = jnp.stack([sparse_parameters(np.arange(9) * s) for s in (0.0, 0.0, 5.0)])
    masks = np.asarray(jax.vmap(SPARSE.mask, (0, None))(parameters, KEY))
    np.testing.assert_array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[0], SPARSE.mask(parameters[0], jax.random.key(6)))
    assert masks[2].argmax() == 8  # scores that outweigh the noise


@pytest.mark.parametrize(
    "chosen, outputs, inputs, message",
    [
        ({"kind": "block_diagonal", "blocks": 7}, 6, 8, r"head.blocks: expected 1 to 6 \(6 outputs, 8 inputs\), got 7"),
        ({"kind": "block_diagonal", "blocks": 5}, 6, 4, "head.blocks: expected 1 to 4 .* got 5"),
        ({"kind": "low_rank"}, 10, 8, r"head.rank: expected 1 to 8 \(10 outputs, 8 inputs\), got 20"),
        ({"kind": "sparse"}, 6, 1, "head.kind: sparse needs at least 2 inputs"),
    ],
)
def test_a_head_that_does_not_fit(chosen, outputs, inputs, message):
    with pytest.raises(UserError, match=message):
        make(HeadSettings(**chosen), outputs, inputs)


def test_impossible_block_count():
    with pytest.raises(UserError, match=r"expected 1 to 6 .* got 0"):
        BlockDiagonal(6, 8, 0)
