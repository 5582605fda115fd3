"""The authors' published vector as one of our coordinators (arXiv 2512.04695, its released supplement)."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from trinity_jax.config import (
    EncoderSettings,
    EpisodeSettings,
    HeadSettings,
    PolicySettings,
    ReadoutSettings,
    SvfSettings,
)
from trinity_jax.coordinator import layout as layouts
from trinity_jax.coordinator.export import UNKNOWN, Coordinator, assemble
from trinity_jax.coordinator.readout import Readout
from trinity_jax.encoder import svf
from trinity_jax.encoder.decoder import DecoderConfig
from trinity_jax.errors import UserError

QWEN3 = DecoderConfig(151_936, 1024, 3072, 28, 16, 8, 128, 1e6, qk_norm=True, tie_embeddings=True)
"""Qwen3-0.6B, which the vector is for."""

POOL = (
    "gpt-5",
    "claude-sonnet-4",
    "gemini-2.5-pro",
    "deepseek-r1-distill-qwen-32b",
    "gemma-3-27b-it",
    "qwen3-32b-reasoning",
    "qwen3-32b-direct",
)
"""The authors' seven models in the order of the head's rows."""

LARGEST = 10.0
"""The published numbers have a standard deviation of 0.097: one beyond this is no scale and no weight."""


def import_released(
    path: str | Path,
    pool: Sequence[str] = POOL,
    *,
    source: str = "Qwen/Qwen3-0.6B",
    input_format: Literal["chat", "plain"] = "chat",
    tied: Literal["last_write", "sequential"] = "last_write",
) -> Coordinator:
    """Read the 19,456 published numbers.

    Their order is that of our layout (`svf.preset: released`, raw states, linear head), so they become the vector as
    they are: nine blocks of 1,024 relative changes of singular values, of which each matrix keeps its sum, then the
    head row by row, models, Worker, Thinker, Verifier. The encoder's weights are not needed here; which file of them
    the authors had is not published, so the coordinator's ``checkpoint`` is `UNKNOWN`.

        coordinator = trinity_jax.import_released("vector.npy")
        write_coordinator(Path("released"), coordinator)

    Args:
        path: a ``.npy`` file, float64 or float32 [19456].
        pool: names of the seven models in the order of the authors' pool, which is the default.
        source: where Qwen3-0.6B is when the coordinator decides: hub id, folder or GGUF file.
        input_format: ``chat`` is the authors' code; a third-party fixture was made with ``plain``.
        tied: Qwen3 ties lm_head to the embedding, and both have a block. ``last_write``: lm_head's counts and the
            first 1,024 numbers have no effect; ``sequential``: one after the other.

    Raises:
        UserError: no such file, not plain numbers, another length or dtype, NaN, numbers beyond `LARGEST`, or a pool
            that does not have seven different names.
    """
    names = tuple(pool)
    if len(names) != len(POOL) or len(set(names)) != len(names) or not all(names):
        raise UserError(f"pool: expected {len(POOL)} different names in the authors' order, got {', '.join(names)}")
    scales = SvfSettings(preset="released", tied=tied)
    head_settings, readout = HeadSettings(), ReadoutSettings(kind="raw")
    sizes = {name: svf.rank(name, QWEN3) for name in svf.targets(scales, QWEN3)}
    head, layout = layouts.plan(sizes, scales.scale, head_settings, readout, QWEN3.hidden_size, names)
    settings = {
        "head": head_settings,
        "readout": readout,
        "svf": scales,
        "encoder": EncoderSettings(source=source, input_format=input_format, buckets=(512, 1024, 2048, 4096)),
        "policy": PolicySettings(),
        "episode": EpisodeSettings(),
    }
    return assemble(settings, UNKNOWN, layout, head, Readout(), _read(Path(path), layout))


def _read(path: Path, layout: layouts.Layout) -> Float[np.ndarray, " n"]:
    try:
        with path.open("rb") as stream:
            vector = np.load(stream, allow_pickle=False)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile) as error:  # also a pickle, which could run code
        raise UserError(f"{path}: expected a .npy file of plain numbers ({error})") from error
    if not isinstance(vector, np.ndarray):
        raise UserError(f"{path}: expected one array in a .npy file, got an .npz archive")
    if vector.dtype not in (np.float64, np.float32) or vector.ndim != 1:
        raise UserError(f"{path}: expected float64 [{layout.size}], got {vector.dtype} {list(vector.shape)}")
    layout.checked(vector, str(path))
    if (largest := float(np.abs(vector).max())) > LARGEST:
        raise UserError(f"{path}: expected numbers within {LARGEST:g} of 0 (published: 0.097 rms), got {largest:g}")
    return vector.astype(np.float64)
