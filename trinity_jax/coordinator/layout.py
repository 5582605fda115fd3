"""The evolved vector as named blocks: singular-value scales first, then the head's parameters, then the bias."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from trinity_jax.config import HeadSettings, ReadoutSettings
from trinity_jax.coordinator.heads import ROLE_ROWS, Head, make
from trinity_jax.errors import UserError

HEAD, BIAS = "head", "bias"


class Block(NamedTuple):
    """One named stretch of the vector; parameter = unit * coordinate."""

    name: str
    offset: int
    shape: tuple[int, ...]
    unit: float

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """Where each parameter stands in the flat vector.

    For Qwen3-0.6B, seven models, raw coordinates and the released scales this is the published layout of 19,456
    numbers: nine blocks of 1,024, then the head at offset 9,216.

    Attributes:
        blocks: in vector order, without gaps.
        rows: the head's rows, models in pool order and then the roles.
    """

    blocks: tuple[Block, ...]
    rows: tuple[str, ...]

    @property
    def size(self) -> int:
        """Length n of the vector."""
        return sum(block.size for block in self.blocks)

    @property
    def names(self) -> tuple[str, ...]:
        """Block names in order."""
        return tuple(block.name for block in self.blocks)

    @property
    def svf(self) -> tuple[Block, ...]:
        """The blocks of singular-value scales."""
        return tuple(block for block in self.blocks if block.name not in (HEAD, BIAS))

    def places(self, rows: Sequence[int]) -> Int[np.ndarray, " m"]:
        """Where the numbers of some of the head's rows stand in the vector, biases included.

        Args:
            rows: numbers of rows, as in ``rows``.

        Raises:
            UserError: a head whose numbers are not one row an output.
        """
        found = []
        for block in self.blocks:
            if block.name in (HEAD, BIAS):
                if block.shape[0] != len(self.rows) or (block.name == HEAD and len(block.shape) != 2):
                    raise UserError("rows can be told apart in a head of kind: linear, and in no other")
                each = np.arange(block.size).reshape(len(self.rows), -1)
                found.append(block.offset + each[list(rows)].ravel())
        return np.concatenate(found)

    def split(self, vector: Float[Array, "*P n"] | Float[np.ndarray, "*P n"]) -> dict[str, Any]:
        """Parameters by block name, each of its block's shape behind the vector's leading axes."""
        return {
            name: (vector[..., offset : offset + math.prod(shape)] * unit).reshape(*vector.shape[:-1], *shape)
            for name, offset, shape, unit in self.blocks
        }

    def checked(self, vectors: Float[np.ndarray, "*P n"], where: str = "vector") -> Float[np.ndarray, "*P n"]:
        """The vectors themselves, if their length fits.

        Raises:
            UserError: another length, as of another pool, head or SVF setting, or a number that is not finite.
        """
        if vectors.ndim == 0 or vectors.shape[-1] != self.size:
            parts = ", ".join(f"{block.name} {block.size}" for block in self.blocks)
            raise UserError(
                f"{where}: expected {self.size} numbers for the pool {', '.join(self.rows[:-3])} ({parts}), "
                f"got {vectors.shape[-1] if vectors.ndim else 1}"
            )
        if not np.isfinite(vectors).all():
            raise UserError(f"{where}: expected finite numbers, got NaN or infinity")
        return vectors


def build(svf_sizes: dict[str, int], svf_unit: float, head: Head, pool: tuple[str, ...], bias: bool) -> Layout:
    """Lay out the scales of each SVF target (in its order), the head and, where asked, one bias per row."""
    rows = (*pool, *ROLE_ROWS)
    if head.outputs != len(rows):
        raise ValueError(f"a pool of {len(pool)} models needs {len(rows)} head outputs, got {head.outputs}")
    parts = [(name, (size,), svf_unit) for name, size in svf_sizes.items()]
    parts += [(HEAD, head.shape, 1.0)] + ([(BIAS, (head.biases,), 1.0)] if bias else [])
    blocks: list[Block] = []
    offset = 0
    for name, block_shape, unit in parts:
        blocks.append(Block(name, offset, block_shape, unit))
        offset += math.prod(block_shape)
    return Layout(tuple(blocks), rows)


def plan(
    svf_sizes: dict[str, int],
    svf_unit: float,
    head: HeadSettings,
    readout: ReadoutSettings,
    width: int,
    pool: tuple[str, ...],
) -> tuple[Head, Layout]:
    """Head and layout as the settings ask: a whitened head reads k coordinates, any other D; raw has no bias.

    Args:
        svf_sizes: singular values of each SVF target, in order.
        svf_unit: relative change of a singular value that a coordinate of 1 means.
        head: which head.
        readout: coordinates of the head.
        width: D.
        pool: model names in head order.

    Raises:
        UserError: a head that does not fit its inputs or outputs.
    """
    inputs = readout.k if readout.kind == "whitened" else width
    built = make(head, len(pool) + 3, inputs)
    return built, build(svf_sizes, svf_unit, built, pool, readout.bias and readout.kind != "raw")
