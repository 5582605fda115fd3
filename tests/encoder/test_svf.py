"""Singular-value scales against numpy's SVD of the real matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.config import SvfSettings
from trinity_jax.encoder import factors, svf
from trinity_jax.encoder.decoder import PROJECTIONS, Decoder, DecoderConfig, block_at, block_shapes, rope
from trinity_jax.encoder.factors import decompose
from trinity_jax.errors import UserError

TINY = DecoderConfig(40, 16, 24, 3, 4, 2, 4, tie_embeddings=True)
QWEN3 = DecoderConfig(151_936, 1024, 3072, 28, 16, 8, 128, qk_norm=True, tie_embeddings=True)


def matrix(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def by_svd(kernel, delta):
    """Decompose, scale, keep the sum: the definition, in float64."""
    u, s, vt = np.linalg.svd(np.asarray(kernel, np.float64), full_matrices=False)
    values = s * (1 + delta)
    return (u * (values * s.sum() / values.sum())) @ vt


@pytest.mark.parametrize("shape", [(30, 12), (12, 30), (16, 16), (1, 5)])
def test_decomposition_is_the_svd(shape):
    kernel = matrix(shape)
    u, s, v = decompose(jnp.asarray(kernel))
    np.testing.assert_allclose(s, np.linalg.svd(kernel, compute_uv=False), rtol=1e-5)
    np.testing.assert_allclose((u * s) @ v.T, kernel, atol=1e-5)
    for side in (u, v):
        np.testing.assert_allclose(side.T @ side, np.eye(min(shape)), atol=1e-5)


def test_long_matrices_are_decomposed_in_pieces(monkeypatch):
    kernel = jnp.asarray(matrix((50, 7)))
    whole = decompose(kernel)
    monkeypatch.setattr(factors, "_CHUNK", 8)
    for one, other in zip(whole, decompose(kernel), strict=True):
        np.testing.assert_allclose(np.abs(one), np.abs(other), atol=1e-5)


def test_rank_deficient_matrices_stay_finite():
    kernel = matrix((20, 3)) @ matrix((3, 10), 1)
    factors = decompose(jnp.asarray(kernel))
    assert np.isfinite(np.concatenate([np.ravel(part) for part in factors])).all()
    delta = np.r_[0.5, -0.2, 0.1, np.zeros(7)]
    new = svf.scaled(jnp.asarray(kernel), factors, svf.scale(factors.s, jnp.asarray(delta, jnp.float32)))
    np.testing.assert_allclose(new, by_svd(kernel, delta), atol=1e-4)


@pytest.mark.parametrize("shape", [(30, 12), (12, 30)])
def test_scaling_is_the_definition_and_keeps_the_sum(shape):
    kernel, x = matrix(shape), matrix((5, shape[0]), 2)
    delta = 0.3 * np.random.default_rng(1).normal(size=12)
    factors = decompose(jnp.asarray(kernel))
    scale = svf.scale(factors.s, jnp.asarray(delta, jnp.float32))
    expected = by_svd(kernel, delta)
    np.testing.assert_allclose(svf.scaled(jnp.asarray(kernel), factors, scale), expected, atol=1e-5)
    np.testing.assert_allclose(svf.projected(jnp.asarray(x), factors, scale), x @ expected, atol=1e-4)
    np.testing.assert_allclose(scale.c * (factors.s * (1 + scale.delta)).sum(), factors.s.sum(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_zero_deltas_leave_the_kernel_bit_for_bit(dtype):
    kernel = jnp.asarray(matrix((37, 19)), dtype)
    factors = decompose(kernel)
    rebuild = jax.jit(lambda delta: svf.scaled(kernel, factors, svf.scale(factors.s, delta)))
    assert (rebuild(jnp.zeros(19)) == kernel).all()
    assert not (rebuild(jnp.linspace(0, 1, 19)) == kernel).all()


@pytest.mark.parametrize("spread", [0.1, 0.6, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_two_scalings_in_sequence_are_two_real_decompositions(seed, spread):
    """A spread of 1.5 re-orders the values and makes some negative."""
    rng = np.random.default_rng(seed)
    kernel = matrix((14, 6), seed)
    first, second = spread * rng.normal(size=6), 0.3 * rng.normal(size=6)
    factors = decompose(jnp.asarray(kernel))
    scale = svf.in_sequence(factors.s, *(jnp.asarray(d, jnp.float32) for d in (first, second)))
    expected = by_svd(by_svd(kernel, first), second)
    np.testing.assert_allclose(svf.scaled(jnp.asarray(kernel), factors, scale), expected, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("tied", ["last_write", "sequential"])
def test_tied_embedding_of_the_released_layout(tied):
    decoder = Decoder.random(TINY, 0)
    adaptation = svf.Adaptation(decoder, SvfSettings(preset="released", tied=tied))
    deltas = 0.4 * np.random.default_rng(0).normal(size=adaptation.size)
    once, last = deltas[:16], deltas[-16:]
    new = svf.rebuilt(decoder, adaptation, jnp.asarray(deltas, jnp.float32))
    original = decoder.embed[...]
    expected = by_svd(original, last) if tied == "last_write" else by_svd(by_svd(original, once), last)
    np.testing.assert_allclose(new.embed[...], expected, atol=1e-6)
    tokens = jnp.array([3, 1, 39, 3])
    scale = adaptation.scales(adaptation.factors, jnp.asarray(deltas, jnp.float32))["embed"]
    np.testing.assert_allclose(svf.embedded(adaptation.factors["embed"], scale, tokens), expected[tokens], atol=1e-6)


@pytest.mark.parametrize("negative", ["first", "second", "both"])
@pytest.mark.parametrize("tied", ["last_write", "sequential"])
def test_tied_embedding_with_negative_scales(tied, negative):
    """Against numpy's SVD of the matrix, and in sequence a second one of what the first scaling left."""
    decoder = Decoder.random(TINY, 1)
    adaptation = svf.Adaptation(decoder, SvfSettings(preset="released", tied=tied))
    rng = np.random.default_rng(3)
    blocks = {name: 0.3 * rng.normal(size=16) for name in ("embed", "lm_head")}
    for name, place in (("embed", "first"), ("lm_head", "second")):
        if negative in (place, "both"):
            blocks[name][[0, 5, 15]] = [-1.3, -2.5, -1.8]
    middle = 0.1 * rng.normal(size=adaptation.size - 32)
    deltas = jnp.asarray(np.concatenate([blocks["embed"], middle, blocks["lm_head"]]), jnp.float32)
    original = decoder.embed[...]
    once = by_svd(original, blocks["embed"]) if tied == "sequential" else original
    expected = by_svd(once, blocks["lm_head"])
    new = svf.rebuilt(decoder, adaptation, deltas)
    np.testing.assert_allclose(new.embed[...], expected, rtol=1e-3, atol=2e-6)
    found = np.linalg.svd(np.asarray(new.embed[...], np.float64), compute_uv=False)
    signed = np.linalg.svd(np.asarray(once, np.float64), compute_uv=False) * (1 + blocks["lm_head"])
    total = np.linalg.svd(np.asarray(original, np.float64), compute_uv=False).sum()
    if tied == "last_write":  # the signed sum is what is kept
        np.testing.assert_allclose(np.sort(found), np.sort(np.abs(signed * total / signed.sum())), rtol=1e-4)
    tokens = jnp.array([0, 39, 7])
    scale = adaptation.scales(adaptation.factors, deltas)["embed"]
    rows = svf.embedded(adaptation.factors["embed"], scale, tokens)
    np.testing.assert_allclose(rows, expected[np.asarray(tokens)], rtol=1e-3, atol=2e-6)


def test_the_embed_block_is_inert_with_last_write_only():
    decoder = Decoder.random(TINY, 0)
    for tied in ("last_write", "sequential"):
        adaptation = svf.Adaptation(decoder, SvfSettings(preset="released", tied=tied))
        deltas = jnp.asarray(0.2 * np.random.default_rng(0).normal(size=adaptation.size), jnp.float32)
        other = deltas.at[:16].multiply(-2.0)
        one, two = (svf.rebuilt(decoder, adaptation, d).embed[...] for d in (deltas, other))
        assert bool((one == two).all()) == (tied == "last_write")


def operations(shape, tokens):
    """Multiplications of (factored, rebuilt), product by product."""
    rows, columns = shape
    r = min(shape)
    return tokens * rows * r + tokens * r * columns, rows * r * columns + tokens * rows * columns


@pytest.mark.parametrize(
    "shapes", [[(8, 8)], [(8, 20)], [(20, 8)], [(8, 16), (8, 8), (8, 8), (16, 8), (8, 24), (8, 24), (24, 8)]]
)
def test_crossover_is_where_the_operations_are_equal(shapes):
    at = svf.crossover(shapes)
    counts = {t: np.sum([operations(shape, t) for shape in shapes], axis=0) for t in (at, at - 1, at + 1)}
    np.testing.assert_allclose(*counts[at])
    assert counts[at - 1][0] < counts[at - 1][1]
    assert counts[at + 1][0] > counts[at + 1][1]


def test_crossover_of_qwen3():
    shapes = block_shapes(QWEN3)
    block = {name: shapes[name] for name in PROJECTIONS}
    assert svf.crossover([shapes["gate"]]) == 3072
    assert svf.crossover([shapes["k"], shapes["v"]]) == 1024
    assert round(svf.crossover(block.values())) == 2194
    assert svf.crossover([]) == float("inf")


def test_a_rebuilt_block_is_the_factored_one():
    decoder = Decoder.random(TINY, 0)
    adaptation = svf.Adaptation(
        decoder, SvfSettings(preset="custom", matrices=("layers.1.v", "layers.1.down", "embed"))
    )
    deltas = jnp.asarray(0.3 * np.random.default_rng(0).normal(size=adaptation.size), jnp.float32)
    x, block = jnp.asarray(matrix((7, 16))), block_at(decoder, 1)
    table = rope(TINY, 7, x.dtype)

    @jax.jit
    def both(deltas):
        scales = adaptation.scales(adaptation.factors, deltas)
        new = svf.rebuilt_block(block, 1, adaptation.factors, scales)
        return new, new(x, table), block(x, table, svf.projection(1, adaptation.factors, scales))

    new, plain, factored = both(deltas)
    np.testing.assert_allclose(plain, factored, atol=1e-5)
    assert not np.allclose(plain, block(x, table), atol=1e-4)
    for name, array in new.arrays().items():
        expected = block.arrays()[name]
        if name in ("v", "down"):
            expected = by_svd(expected, deltas[:8] if name == "v" else deltas[8:24])
        np.testing.assert_allclose(array, expected, atol=1e-6, err_msg=name)
    zero, _, _ = both(jnp.zeros_like(deltas))
    assert all((zero.arrays()[name] == array).all() for name, array in block.arrays().items())
    # Not its neighbour: nothing of block 0 is scaled.
    scales = adaptation.scales(adaptation.factors, deltas)
    other = svf.rebuilt_block(block_at(decoder, 0), 0, adaptation.factors, scales).arrays()
    assert all((other[name] == array).all() for name, array in block_at(decoder, 0).arrays().items())


def test_an_untied_head_never_touches_the_hidden_state():
    config = DecoderConfig(40, 16, 24, 3, 4, 2, 4)
    decoder = Decoder.random(config, 0)
    adaptation = svf.Adaptation(decoder, SvfSettings(preset="custom", matrices=("lm_head",)))
    assert adaptation.size == 16
    assert not adaptation.factors
    assert not adaptation.embeds


def test_rebuilding_a_decoder_scales_the_named_kernels_only():
    decoder = Decoder.random(TINY, 0)
    adaptation = svf.Adaptation(decoder, SvfSettings(preset="custom", matrices=("layers.1.v", "layers.0.down")))
    deltas = np.random.default_rng(0).normal(size=adaptation.size) * 0.2
    assert adaptation.sizes == {"layers.1.v": 8, "layers.0.down": 16}
    new = svf.rebuilt(decoder, adaptation, jnp.asarray(deltas, jnp.float32)).blocks.arrays()
    for name, array in decoder.blocks.arrays().items():
        for layer in range(3):
            expected = array[layer]
            if (layer, name) == (1, "v"):
                expected = by_svd(expected, deltas[:8])
            elif (layer, name) == (0, "down"):
                expected = by_svd(expected, deltas[8:])
            np.testing.assert_allclose(new[name][layer], expected, atol=1e-6, err_msg=f"{layer} {name}")


def test_released_targets_of_qwen3():
    names = svf.targets(SvfSettings(preset="released"), QWEN3)
    layer = [f"layers.26.{name}" for name in ("q", "k", "v", "o", "gate", "up", "down")]
    assert list(names) == ["embed", *layer, "lm_head"]
    assert [svf.rank(name, QWEN3) for name in names] == [1024] * 9
    assert svf.targets(SvfSettings(preset="layer"), QWEN3) == tuple(layer)
    assert svf.targets(SvfSettings(), QWEN3) == ()


@pytest.mark.parametrize(
    "settings, message",
    [
        (SvfSettings(preset="custom", matrices=("layers.3.q",)), "layers.3.q"),
        (SvfSettings(preset="custom", matrices=("layers.0.qq",)), "layers.0.qq"),
        (SvfSettings(preset="custom", matrices=("embed", "embed")), "named twice"),
        (SvfSettings(preset="layer", layer=3), "expected -3 to 2"),
        (SvfSettings(preset="layer", layer=-4), "got -4"),
    ],
)
def test_wrong_targets_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        svf.targets(settings, TINY)
