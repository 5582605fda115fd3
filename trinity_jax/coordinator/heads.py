"""Heads: bias-free linear maps from read-out coordinates to L model logits and 3 role logits (paper section 3.2)."""

from dataclasses import dataclass
from itertools import accumulate

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trinity_jax.errors import UserError

ROLE_ROWS = ("Worker", "Thinker", "Verifier")


@dataclass(frozen=True)
class Head:
    """A block-diagonal matrix of ``outputs`` x ``inputs`` in ``blocks`` blocks; one block is the full linear head.

    Block sizes differ by at most one, larger ones first, so all inputs and outputs are covered (1,024 inputs in
    10 blocks: four of 103, six of 102). Parameters are the blocks' entries in row-major order.

    Raises:
        UserError: more blocks than inputs or outputs.
    """

    outputs: int
    inputs: int
    blocks: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.blocks <= min(self.outputs, self.inputs):
            raise UserError(
                f"head.blocks: expected 1 to {min(self.outputs, self.inputs)} "
                f"({self.outputs} outputs, {self.inputs} inputs), got {self.blocks}"
            )

    @property
    def block_shapes(self) -> tuple[tuple[int, int], ...]:
        """(outputs, inputs) of each block."""
        return tuple(zip(_shares(self.outputs, self.blocks), _shares(self.inputs, self.blocks), strict=True))

    @property
    def size(self) -> int:
        """How many parameters are evolved."""
        return sum(rows * columns for rows, columns in self.block_shapes)

    def dense(self, parameters: Float[Array, " size"]) -> Float[Array, "outputs inputs"]:
        """The whole matrix, zero outside the blocks."""
        if self.blocks == 1:
            return parameters.reshape(self.outputs, self.inputs)
        ends = list(accumulate(rows * columns for rows, columns in self.block_shapes))
        parts = jnp.split(parameters, ends[:-1])
        return jax.scipy.linalg.block_diag(*(p.reshape(s) for p, s in zip(parts, self.block_shapes, strict=True)))


def _shares(total: int, parts: int) -> tuple[int, ...]:
    small, larger = divmod(total, parts)
    return (small + 1,) * larger + (small,) * (parts - larger)
