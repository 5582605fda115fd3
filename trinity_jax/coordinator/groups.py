"""Any number of rows through programs of fixed shapes."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int

CALL_ROWS = 128
"""About how many rows one call takes; more rows are more calls of the same program."""


def call_rows(size: int) -> int:
    """Rows of one call, C: a multiple of ``size`` near `CALL_ROWS`."""
    return -(-CALL_ROWS // size) * size


def filled(capacity: int, rows: Sequence[Any], dtype: Any = np.int32, fill: int = 0) -> np.ndarray:
    """Rows as one array [capacity, ...]; ``fill`` where there are none."""
    array = np.full((capacity, *np.shape(rows[0])), fill, dtype)
    array[: len(rows)] = rows
    return array


def grouped(rows: Any, count: Int[Array, ""], size: int, into: Any, step: Callable[[Any, Array, Any], Any]) -> Any:
    """Take the first ``count`` of C rows, ``size`` at a time, into a result.

    The trip count is dynamic and the group's shape fixed: one program for any count, and padding beyond the last group
    is not computed.

    Args:
        rows: pytree of arrays [C, ...], C a multiple of ``size``.
        count: rows that are wanted.
        size: rows per group.
        into: what the first step starts from.
        step: ``step(into, start, group of rows) -> into``.
    """

    def group(i: Int[Array, ""], into: Any) -> Any:
        part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, i * size, size), rows)
        return step(into, i * size, part)

    return jax.lax.fori_loop(0, (count + size - 1) // size, group, into)


def each(body: Callable[[Any], Any]) -> Callable[[Any, Array, Any], Any]:
    """A ``step`` for `grouped`: ``body`` of each row under `vmap`, written to the row's place."""

    def step(into: Any, start: Array, part: Any) -> Any:
        results = jax.vmap(body)(part)
        return jax.tree.map(lambda a, b: jax.lax.dynamic_update_slice_in_dim(a, b, start, 0), into, results)

    return step
