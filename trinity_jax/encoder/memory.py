"""How much one device step takes and may hold."""

import math

import jax

from trinity_jax.encoder.attention import chunk
from trinity_jax.encoder.decoder import DecoderConfig
from trinity_jax.errors import UserError


def row_bytes(config: DecoderConfig, T: int, itemsize: int) -> int:
    """Bytes that one transcript of ``T`` tokens needs at most inside a block.

    Residual and norm, queries and what attention makes of them, keys and values, three of the feed forward's width,
    and a chunk of float32 scores on its way through the softmax.
    """
    D, F, N, K, H = (
        config.hidden_size,
        config.intermediate_size,
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
    )
    per_token = 2 * D + 2 * N * H + 2 * K * H + 3 * F
    scores = 3 * 4 * N * chunk(T, N) * T
    return per_token * T * itemsize + scores


def rows_wanted(T: int) -> int:
    """Transcripts of ``T`` tokens that go together into a step where no setting says so.

    On an accelerator 32. On a CPU a power of two near 640 tokens, and one from 512 tokens on: at Qwen3-0.6B's shape two
    of 256 tokens take 14 % less time each than one, four of 128 a third less. A lone one pays for its empty places.
    """
    if jax.default_backend() != "cpu":
        return 32
    return 1 if T >= 512 else 2 ** round(math.log2(640 / T))


def rows_per_step(config: DecoderConfig, T: int, itemsize: int, wanted: int, work_mb: int) -> int:
    """``wanted`` rows, or as many as fit into the budget.

    Raises:
        UserError: not even one fits.
    """
    need = row_bytes(config, T, itemsize)
    if need > work_mb * 2**20:
        raise UserError(
            f"encoder.work_mb: one transcript of {T} tokens needs {-(-need // 2**20)}, got {work_mb}; raise it or "
            "leave out the longest of encoder.buckets"
        )
    return min(wanted, work_mb * 2**20 // need)
