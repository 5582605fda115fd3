"""How much one device step takes and may hold."""

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


def rows_wanted() -> int:
    """Transcripts that go together into a step where no setting says so: 32, on a CPU one.

    On a CPU a lone transcript would pay for its empty places.
    """
    return 1 if jax.default_backend() == "cpu" else 32


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
