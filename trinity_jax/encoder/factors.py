"""A kernel's singular value decomposition, kept in the user's cache folder: it depends on nothing but the kernel."""

import hashlib
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trinity_jax.encoder import cache

KEPT_FROM = 2**16
"""Entries of the smallest kernel that is worth a file: a smaller one is decomposed in less time than it is read."""

_METHOD = 1  # counts up when the same kernel would get other numbers
_CHUNK = 16_384


class Factors(NamedTuple):
    """A kernel's thin decomposition u diag(s) v^T, singular values descending."""

    u: Float[Array, "in r"]
    s: Float[Array, " r"]
    v: Float[Array, "out r"]


def decompose(kernel: Float[Array, "in out"]) -> Factors:
    """Thin SVD by `eigh` of the shorter side's Gram matrix, in float64 on the host.

    Directions below 1e-7 of the largest singular value, which a float32 kernel does not resolve, get a zero vector on
    the long side. Vectors are stored in the kernel's dtype, s in float32.
    """
    matrix = np.asarray(kernel)
    wide = matrix.shape[0] < matrix.shape[1]
    tall = matrix.T if wide else matrix
    gram = np.zeros((tall.shape[1], tall.shape[1]))
    for start in range(0, len(tall), _CHUNK):
        part = tall[start : start + _CHUNK].astype(np.float64)
        gram += part.T @ part  # the same array twice: BLAS computes one triangle only
    squares, vectors = np.linalg.eigh(gram)
    s = np.sqrt(np.maximum(squares[::-1], 0.0))
    short = np.ascontiguousarray(vectors[:, ::-1])
    onto = short * np.divide(1.0, s, out=np.zeros_like(s), where=s > 1e-7 * s[0])
    long = np.empty_like(tall)
    for start in range(0, len(tall), _CHUNK):
        long[start : start + _CHUNK] = tall[start : start + _CHUNK].astype(np.float64) @ onto
    u, v = (short, long) if wide else (long, short)
    # Cast by numpy: these arrays and those read from disk reach the device by the same compiled program.
    return Factors(
        *(jnp.asarray(array) for array in (u.astype(matrix.dtype), s.astype(np.float32), v.astype(matrix.dtype)))
    )


def kept(kernel: Float[Array, "in out"]) -> tuple[Factors, bool]:
    """What `decompose` gives, bit for bit, from the cache folder where it was computed before.

    Returns:
        The factors, and whether they were read from disk. Kernels below `KEPT_FROM` never are.
    """
    if kernel.size < KEPT_FROM:
        return decompose(kernel), False
    matrix = np.asarray(kernel)
    file, rank = _file(matrix), min(matrix.shape)
    shapes = {"u": (matrix.shape[0], rank), "s": (rank,), "v": (matrix.shape[1], rank)}
    found = cache.load(file, lambda arrays: {name: array.shape for name, array in arrays.items()} == shapes)
    if found is not None:
        # numpy's files know no bfloat16 and give plain bytes back.
        u, v = (jnp.asarray(found[side].view(matrix.dtype)) for side in ("u", "v"))
        return Factors(u, jnp.asarray(found["s"]), v), True
    factors = decompose(kernel)
    cache.store(file, **{name: np.asarray(array) for name, array in factors._asdict().items()})
    return factors, False


def _file(matrix: np.ndarray) -> Path:
    """Named by a hash of the method, the dtype, the shape and every byte of the kernel."""
    digest = hashlib.sha256(f"{_METHOD} {matrix.dtype} {matrix.shape}".encode())
    digest.update(np.ascontiguousarray(matrix).view(np.uint8).data)
    return cache.cache_folder() / "svf" / f"{digest.hexdigest()}.npz"
