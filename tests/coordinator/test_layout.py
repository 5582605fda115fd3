"""The flat vector: the released layout's offsets, units, and vectors that do not fit."""

import numpy as np
import pytest

from trinity_jax.config import HeadSettings, ReadoutSettings, SvfSettings
from trinity_jax.coordinator.heads import Linear
from trinity_jax.coordinator.layout import build, plan
from trinity_jax.encoder import svf
from trinity_jax.encoder.decoder import DecoderConfig
from trinity_jax.errors import UserError

QWEN3 = DecoderConfig(151_936, 1024, 3072, 28, 16, 8, 128, qk_norm=True, tie_embeddings=True)
POOL = tuple("abcdefg")


def released():
    sizes = {name: svf.rank(name, QWEN3) for name in svf.targets(SvfSettings(preset="released"), QWEN3)}
    return plan(sizes, 1.0, HeadSettings(), ReadoutSettings(kind="raw"), 1024, POOL)[1]


def test_released_layout():
    layout = released()
    assert layout.size == 19_456
    offsets = {block.name: block.offset for block in layout.blocks}
    layer = {f"layers.26.{name}": 1024 * i for i, name in enumerate(("q", "k", "v", "o", "gate", "up", "down"), 1)}
    assert offsets == {"embed": 0, **layer, "lm_head": 8192, "head": 9216}
    assert layout.rows == (*POOL, "Worker", "Thinker", "Verifier")
    vector = np.arange(19_456)
    head = layout.split(vector)["head"]
    assert head.shape == (10, 1024)
    assert head[0, 0] == 9216
    assert head[1, 0] == 9216 + 1024
    assert head[9, 1023] == 19_455


def test_split_scales_by_unit_and_keeps_leading_axes():
    layout = build({"layers.0.q": 3, "embed": 2}, 0.1, Linear(4, 5), ("solo",), bias=True)
    assert layout.names == ("layers.0.q", "embed", "head", "bias")
    assert layout.size == 3 + 2 + 20 + 4
    vectors = np.random.default_rng(0).normal(size=(6, layout.size))
    parts = layout.split(vectors)
    np.testing.assert_allclose(parts["layers.0.q"], 0.1 * vectors[:, :3])
    np.testing.assert_allclose(parts["embed"], 0.1 * vectors[:, 3:5])
    np.testing.assert_array_equal(parts["head"].reshape(6, 20), vectors[:, 5:25])
    np.testing.assert_array_equal(parts["bias"], vectors[:, 25:])
    assert [block.name for block in layout.svf] == ["layers.0.q", "embed"]


@pytest.mark.parametrize(
    "head, readout, size",
    [
        (HeadSettings(), ReadoutSettings(kind="whitened", k=8), 6 * 8 + 6),
        (HeadSettings(), ReadoutSettings(kind="whitened", k=8, bias=False), 6 * 8),
        (HeadSettings(), ReadoutSettings(kind="raw"), 6 * 32),
        (HeadSettings(kind="block_diagonal", blocks=3), ReadoutSettings(kind="centred"), 6 * 32 // 3 + 6),
        (HeadSettings(kind="low_rank", rank=4), ReadoutSettings(kind="whitened", k=8), 4 * (8 + 6) + 6),
        (HeadSettings(kind="sparse"), ReadoutSettings(kind="raw"), 7 * 32 + 2),
    ],
)
def test_plan_follows_the_settings(head, readout, size):
    assert plan({}, 1.0, head, readout, 32, ("a", "b", "c"))[1].size == size


def test_a_vector_of_another_pool():
    with pytest.raises(UserError, match=r"weights: expected 19456 .* a, b, c, d, e, f, g .* got 18432"):
        released().checked(np.zeros(18_432), "weights")


def test_a_vector_with_nan():
    with pytest.raises(UserError, match="finite"):
        released().checked(np.full(19_456, np.nan))
