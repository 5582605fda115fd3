"""Parameter counts of trinity.md section 5 and the block structure."""

import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.coordinator.heads import Head
from trinity_jax.errors import UserError


@pytest.mark.parametrize("blocks, size", [(1, 10_240), (2, 5_120), (10, 1_024)])
def test_published_parameter_counts(blocks, size):
    assert Head(10, 1024, blocks).size == size


def test_ten_blocks_cover_1024_inputs():
    assert Head(10, 1024, 10).block_shapes == ((1, 103),) * 4 + ((1, 102),) * 6


@pytest.mark.parametrize("outputs, inputs, blocks", [(6, 8, 1), (7, 11, 3), (5, 9, 5), (6, 6, 4)])
def test_blocks_lie_on_the_diagonal_and_cover_everything(outputs, inputs, blocks):
    head = Head(outputs, inputs, blocks)
    parameters = np.arange(1, head.size + 1, dtype=np.float32)
    expected = np.zeros((outputs, inputs), np.float32)
    parts = zip(np.array_split(np.arange(outputs), blocks), np.array_split(np.arange(inputs), blocks), strict=True)
    offset = 0
    for rows, columns in parts:
        size = len(rows) * len(columns)
        expected[np.ix_(rows, columns)] = parameters[offset : offset + size].reshape(len(rows), len(columns))
        offset += size
    assert offset == head.size
    np.testing.assert_array_equal(head.dense(jnp.asarray(parameters)), expected)
    assert (expected != 0).any(axis=0).all()
    assert (expected != 0).any(axis=1).all()


@pytest.mark.parametrize("blocks", [0, 7])
def test_impossible_block_counts(blocks):
    with pytest.raises(UserError, match=f"expected 1 to 6 .* got {blocks}"):
        Head(6, 8, blocks)
