"""Safetensors of a Hugging Face folder or hub id -> :class:`.decoder.Decoder`; strict, without torch."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open

from trinity_jax.encoder.attention import choose
from trinity_jax.encoder.decoder import Block, Decoder, DecoderConfig, block_shapes
from trinity_jax.errors import UserError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PATTERNS = ("*.safetensors", INDEX, "config.json", "*token*", "merges.txt", "vocab.json", "chat_template*")

# Ours -> Hugging Face's, behind "model.layers.{i}." and before ".weight" or ".bias".
_LAYER_NAMES = {
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_EMBED, _NORM, _LM_HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


def load_checkpoint(source: str, *, dtype: Any, revision: str | None = None) -> tuple[Decoder, str]:
    """Load an encoder by name.

    Args:
        source: ``embedded``, a ``.gguf`` file, a folder with config.json and safetensors, or a Hugging Face hub id.
        dtype: Of the weights and so of the activations, such as ``"float32"``.
        revision: Of the hub id.

    Returns:
        The decoder and the SHA-256 of the weight file; of a sharded checkpoint, of its index followed by its shards.

    Raises:
        UserError: nothing there, a broken file, another architecture, tensors missing, unexpected or of a wrong shape.
    """
    if source == "embedded" or source.endswith(".gguf"):
        from trinity_jax.encoder import gguf

        return gguf.load_gguf(gguf.embedded_path() if source == "embedded" else Path(source), dtype)
    return load_folder(checkpoint_folder(source, revision), dtype)


def checkpoint_folder(source: str, revision: str | None = None) -> Path:
    """The local folder of a checkpoint; a hub id is downloaded, or found in the hub's cache.

    Raises:
        UserError: neither a folder nor a hub id that can be reached.
    """
    if source and Path(source).is_dir():
        return Path(source)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", source):
        raise UserError(f"encoder.source: expected `embedded`, a .gguf file, a folder or a hub id, got {source!r}")
    from huggingface_hub import snapshot_download

    # Comes from requests, httpx or httpx2, by version of the hub's client.
    from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]

    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=list(PATTERNS)))
    except (OSError, HTTPError, ValueError) as error:
        pinned = f" --revision {revision}" if revision else ""
        raise UserError(
            f"encoder.source: {source!r} is no folder here, and the Hugging Face hub did not give it "
            f"({type(error).__name__}). Where the hub can be reached, run `hf download {source}{pinned}`, or copy its "
            "config.json, *.safetensors and tokenizer files into a folder and name that folder"
        ) from error


def load_folder(folder: Path, dtype: Any) -> tuple[Decoder, str]:
    """Load a folder with config.json and model.safetensors, or an index and its shards.

    Raises:
        UserError: as :func:`load_checkpoint`.
    """
    where = folder / "config.json"
    config = DecoderConfig.from_hf(_read_json(where), str(where))
    files, digest = _weight_files(folder)
    with ExitStack() as stack:
        owner: dict[str, Any] = {}
        for file in files:
            try:
                handle = stack.enter_context(safe_open(file, "numpy"))
            except (SafetensorError, OSError) as error:
                raise UserError(f"{file}: not a whole safetensors file ({error}); download it again") from error
            owner |= dict.fromkeys(handle.keys(), handle)
        if config.num_layers > len(owner):  # before anything is listed per layer
            raise UserError(f"{where}: num_hidden_layers is {config.num_layers}, but there are {len(owner)} tensors")
        check_names(config, owner, str(folder))
        decoder = from_tensors(config, lambda name: owner[name].get_tensor(name), dtype, str(folder))
    for file in files:
        with file.open("rb") as stream:
            while piece := stream.read(1 << 24):
                digest.update(piece)
    return decoder, digest.hexdigest()


def tensor_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Hugging Face's name and shape of every tensor of a decoder; kernels are [out, in] there."""
    shapes: dict[str, tuple[int, ...]] = {_EMBED: (config.vocab_size, config.hidden_size), _NORM: (config.hidden_size,)}
    if not config.tie_embeddings:
        shapes[_LM_HEAD] = (config.vocab_size, config.hidden_size)
    for name, shape in block_shapes(config).items():
        shapes |= {_layer_tensor(name, layer): shape[::-1] for layer in range(config.num_layers)}
    return shapes


def check_names(config: DecoderConfig, names: Iterable[str], where: str) -> None:
    """Refuse a checkpoint that lacks a tensor or has one too many.

    A tied ``lm_head.weight`` and the ``inv_freq`` buffers of old files are let pass: both repeat what is known.

    Raises:
        UserError: naming up to five of the tensors.
    """
    expected, have = set(tensor_shapes(config)), set(names)
    passed = {name for name in have if name.endswith("rotary_emb.inv_freq")} | {_LM_HEAD}
    for problem, tensors in (("missing", expected - have), ("unexpected", have - expected - passed)):
        if tensors:
            some = ", ".join(sorted(tensors)[:5]) + (", ..." if len(tensors) > 5 else "")
            raise UserError(f"{where}: {len(tensors)} {problem} tensors for this config.json: {some}")


def from_tensors(
    config: DecoderConfig, get: Callable[[str], np.ndarray], dtype: Any, where: str = "checkpoint"
) -> Decoder:
    """Build a decoder from tensors under Hugging Face's names, one at a time, with the attention that fits here.

    Args:
        config: Of the decoder.
        get: Name -> array; called once for every name of :func:`tensor_shapes`.
        dtype: Of the decoder.
        where: Names the origin in messages.

    Raises:
        UserError: a tensor of a wrong shape.
    """
    dtype, shapes = jnp.dtype(dtype), tensor_shapes(config)
    config = replace(config, attention=choose(dtype, config.num_heads, config.num_kv_heads, config.head_dim))

    def fetch(name: str) -> np.ndarray:
        array = get(name)
        if array.shape != shapes[name]:
            raise UserError(f"{where}: {name}: expected shape {shapes[name]}, got {array.shape}")
        if not np.isfinite(array).all():
            raise UserError(f"{where}: {name}: holds NaN or infinity; the file is damaged")
        return array.astype(dtype, copy=False)

    arrays = {}
    for name, shape in block_shapes(config).items():
        stacked = np.empty((config.num_layers, *shape), dtype)
        for layer in range(config.num_layers):
            stacked[layer] = fetch(_layer_tensor(name, layer)).T
        arrays[name] = jnp.asarray(stacked)
    lm_head = None if config.tie_embeddings else jnp.asarray(np.ascontiguousarray(fetch(_LM_HEAD).T))
    return Decoder(config, jnp.asarray(fetch(_EMBED)), Block(config, arrays), jnp.asarray(fetch(_NORM)), lm_head)


def _layer_tensor(name: str, layer: int) -> str:
    module, suffix = (name[: -len("_bias")], "bias") if name.endswith("_bias") else (name, "weight")
    return f"model.layers.{layer}.{_LAYER_NAMES[module]}.{suffix}"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def _weight_files(folder: Path) -> tuple[list[Path], Any]:
    """The safetensors files in a fixed order, and a hash that has seen the index where there is one."""
    digest = hashlib.sha256()
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS], digest
    index = folder / INDEX
    if not index.is_file():
        raise UserError(f"{folder}: expected {WEIGHTS} or {INDEX}, found neither")
    names = _read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(n, str) and Path(n).name == n for n in names.values()):
        raise UserError(f"{index}: expected weight_map, a mapping from tensors to file names in the same folder")
    files = [folder / name for name in sorted(set(names.values()))]
    if lost := [file.name for file in files if not file.is_file()]:
        raise UserError(f"{folder}: {INDEX} names shards that are not there: {', '.join(lost)}")
    digest.update(index.read_bytes())
    return files, digest
