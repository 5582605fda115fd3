"""Any number of rows through programs of fixed shapes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

CALL_ROWS, CALL_TOKENS = 128, 16_384
"""About how many rows, and of how many tokens in all, one call takes; more are more calls of the same program."""


class Call(NamedTuple):
    """Rows of one call as arrays.

    Attributes:
        columns: one array [C, ...] for each element of a row; C is the capacity times the number of shares.
        counts: rows in each share.
        where: places of the rows among C, in their order.
    """

    columns: tuple[np.ndarray, ...]
    counts: Int[np.ndarray, " shares"]
    where: Int[np.ndarray, " rows"]


def call_rows(size: int, tokens: int = 1) -> int:
    """Rows of one call, C: a multiple of ``size`` near `CALL_ROWS` or `CALL_TOKENS`, for rows of so many tokens."""
    return max(-(-min(CALL_ROWS, CALL_TOKENS // tokens) // size), 1) * size


def calls(rows: Sequence[tuple[Any, ...]], empty: tuple[Any, ...], capacity: int, shares: int = 1) -> Iterator[Call]:
    """Cut rows into calls, and each call into even shares that ``empty`` rows fill up.

    Args:
        rows: tuples of arrays or numbers, of one shape each.
        empty: what stands where no row does.
        capacity: rows of one share.
        shares: how many devices share a call.
    """
    for start in range(0, len(rows), capacity * shares):
        part = rows[start : start + capacity * shares]
        counts = np.array([len(part) // shares + (i < len(part) % shares) for i in range(shares)], np.int32)
        where = np.concatenate([i * capacity + np.arange(count) for i, count in enumerate(counts)])
        columns = []
        for values, filler in zip(zip(*part, strict=True), empty, strict=True):
            column = np.repeat(np.asarray(filler)[None], capacity * shares, axis=0)
            column[where] = values
            columns.append(column)
        yield Call(tuple(columns), counts, where)


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


def put_rows(into: Any, start: Array, results: Any) -> Any:
    """Results written at rows ``start`` and after."""
    return jax.tree.map(lambda a, b: jax.lax.dynamic_update_slice_in_dim(a, b, start, 0), into, results)


def each(body: Callable[[Any], Any]) -> Callable[[Any, Array, Any], Any]:
    """A ``step`` for `grouped`: ``body`` of each row under `vmap`, written to the row's place."""
    return lambda into, start, part: put_rows(into, start, jax.vmap(body)(part))
