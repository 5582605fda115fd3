"""Causal grouped-query attention: a plain form in bounded memory, and a fused kernel where there is one.

Letters: T tokens, Q queries, N query heads, K key/value heads, H head width.
"""

import itertools
import logging
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Kind = Literal["plain", "fused"]

PRECISION = jax.lax.Precision.HIGHEST
"""float32 products stay float32 on accelerators (no TF32, no bfloat16 passes); bfloat16 inputs are not affected."""

_BANDS = 4
_WHOLE = 256
_CHUNKS = {"cpu": 128}
_CHUNK = 1024
_SCORES = 2**25

_log = logging.getLogger(__name__)


def attend(
    q: Float[Array, "Q N H"], k: Float[Array, "T K H"], v: Float[Array, "T K H"], positions: Int[Array, " Q"]
) -> Float[Array, "Q N*H"]:
    """Queries at some positions over keys and values of 0..T-1; scores and softmax in float32."""
    Q, N, H = q.shape
    T, K, _ = k.shape
    grouped = q.reshape(Q, K, N // K, H)
    scores = jnp.einsum("qkgh,tkh->kgqt", grouped, k, precision=PRECISION, preferred_element_type=jnp.float32)
    seen = jnp.arange(T)[None, :] <= positions[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores * H**-0.5, -jnp.inf), axis=-1).astype(v.dtype)
    return jnp.einsum("kgqt,tkh->qkgh", weights, v, precision=PRECISION).reshape(Q, N * H)


def causal(
    q: Float[Array, "T N H"], k: Float[Array, "T K H"], v: Float[Array, "T K H"], kind: Kind = "plain"
) -> Float[Array, "T N*H"]:
    """All positions 0..T-1.

    The plain form takes the queries of a long transcript a chunk at a time: never more than 2^25 scores at once where
    one query allows it. Those of each quarter see the keys up to its end, which saves three eighths of the products
    (on a CPU 9 % of the whole forward pass at 512 tokens).
    """
    T = q.shape[0]
    if kind == "fused":
        return _fused(q, k, v).reshape(T, -1)
    step = chunk(T, q.shape[1])
    if step == T:
        return attend(q, k, v, jnp.arange(T))
    ends = [T * i // _BANDS for i in range(_BANDS + 1)]
    return jnp.concatenate(
        [_in_chunks(q[start:end], k[:end], v[:end], start, step) for start, end in itertools.pairwise(ends)]
    )


def _in_chunks(
    q: Float[Array, "Q N H"], k: Float[Array, "T K H"], v: Float[Array, "T K H"], start: int, step: int
) -> Float[Array, "Q N*H"]:
    """Queries at ``start`` and after, ``step`` at a time."""
    Q, N, H = q.shape
    count = -(-Q // step)
    chunks = jnp.pad(q, ((0, count * step - Q), (0, 0), (0, 0))).reshape(count, step, N, H)
    positions = start + jnp.arange(count * step).reshape(count, step)
    return jax.lax.map(lambda part: attend(part[0], k, v, part[1]), (chunks, positions)).reshape(-1, N * H)[:Q]


def chunk(T: int, heads: int) -> int:
    """Queries that the plain form takes at once in a transcript of ``T`` tokens."""
    if T <= _WHOLE:
        return T
    return min(T, _CHUNKS.get(jax.default_backend(), _CHUNK), max(_SCORES // (heads * T), 1))


def choose(dtype: Any, heads: int, kv_heads: int, head_dim: int, backend: str | None = None) -> Kind:
    """``fused`` for bfloat16 on a GPU whose fused kernel compiles for these heads, else ``plain``; says which."""
    backend = backend or jax.default_backend()
    if backend != "gpu" or jnp.dtype(dtype) != jnp.bfloat16:
        _log.info("attention: plain (%s on %s)", jnp.dtype(dtype).name, backend)
        return "plain"
    q, k = (jax.ShapeDtypeStruct((2, 128, count, head_dim), dtype) for count in (heads, kv_heads))
    try:
        jax.jit(jax.vmap(_fused)).lower(q, k, k).compile()
    except Exception as error:
        _log.warning("attention: plain; the fused kernel does not compile here (%s)", _first_line(error))
        return "plain"
    _log.info("attention: fused (cuDNN)")
    return "fused"


def _fused(q: Float[Array, "T N H"], k: Float[Array, "T K H"], v: Float[Array, "T K H"]) -> Float[Array, "T N H"]:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
