"""Hidden states of many texts at several layers and positions in one pass, kept in the user's cache folder.

For studies that read a fixed set of texts; a run's transcripts go through ``coordinator.transcripts``, which gives the
same numbers for an encoder cut at the same layer.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trinity_jax.config import EncoderSettings
from trinity_jax.encoder.cache import cache_folder, load, store
from trinity_jax.encoder.checkpoint import checkpoint_folder, load_checkpoint
from trinity_jax.encoder.decoder import Decoder, block_at, embed, final_norm, rope
from trinity_jax.encoder.gguf import embedded_path
from trinity_jax.encoder.text import Router, pad, read_row
from trinity_jax.encoder.tokenizer import Tokenizer, load_tokenizer
from trinity_jax.errors import UserError

Progress = Callable[[int, int], None]
"""Called with texts done and texts in all."""

BATCH_TOKENS = 4096
"""Padded tokens of one batch: large enough for full speed on a CPU, small enough for the scores of long texts."""

_FORMAT = 1  # of a cache file


class Read(NamedTuple):
    """Texts as the encoder reads them: token ids within the router prompt, and how many distinct texts were cut."""

    ids: tuple[tuple[int, ...], ...]
    cuts: int


def read(settings: EncoderSettings, texts: Sequence[str], pool_size: int) -> Read:
    """Token ids of texts; one that is longer than the largest bucket loses its middle and counts as cut.

    Args:
        settings: source, input format, buckets.
        texts: what an episode would show the coordinator.
        pool_size: L, named in the router prompt.

    Raises:
        UserError: no usable tokenizer, or a frame that leaves no room for text.
    """
    router = Router(_tokenizer(settings.source, settings.revision), settings, pool_size)
    ids = {text: router.ids(text) for text in dict.fromkeys(texts)}
    return Read(tuple(ids[text] for text in texts), router.cuts)


def hidden_states(
    settings: EncoderSettings,
    texts: Sequence[str],
    pool_size: int,
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Float[np.ndarray, "B layers positions D"]:
    """Hidden vectors of texts, from the cache folder where they were computed before.

    Each is what `TranscriptEncoder.states` gives for an encoder cut after that layer and read at that position: the
    block's output after the final norm, in float32.

    Args:
        settings: the encoder. Its ``layers`` and ``read_position`` serve where none are given below.
        texts: B texts; equal ones are computed once.
        pool_size: L, named in the router prompt.
        layers: after how many blocks to read, each 1 to the encoder's depth.
        positions: from the end, -1 is the last token.
        progress: hears of every batch; not called where the cache answers.

    Raises:
        UserError: no such encoder, a layer that it does not have, or a position before some text's first token.
    """
    ids = read(settings, texts, pool_size).ids
    positions = (settings.read_position,) if positions is None else tuple(positions)
    wanted = tuple(layers) if layers is not None else (settings.layers,) if settings.layers else None

    def compute(distinct: Sequence[tuple[int, ...]]) -> Float[np.ndarray, "B layers positions D"]:
        decoder = decoder_of(settings)
        return states_of(decoder, distinct, wanted or (decoder.config.num_layers,), positions, progress)

    return cached(settings, ids, wanted, positions, compute)


def cached(
    settings: EncoderSettings,
    ids: Sequence[tuple[int, ...]],
    layers: Sequence[int] | None,
    positions: Sequence[int],
    compute: Callable[[Sequence[tuple[int, ...]]], Float[np.ndarray, "B layers positions D"]],
) -> Float[np.ndarray, "B layers positions D"]:
    """What ``compute`` gives for the distinct token tuples, from the cache folder where it was computed before."""
    distinct = tuple(dict.fromkeys(ids))
    file = _cache_file(settings, distinct, layers, positions)
    kept = load(file, lambda arrays: _fits(arrays, len(distinct), len(positions)))
    if kept is not None:
        states = kept["states"]
    else:
        states = compute(distinct)
        store(file, states=states)
    place = {one: i for i, one in enumerate(distinct)}
    return states[[place[one] for one in ids]]


def states_of(
    decoder: Decoder,
    ids: Sequence[tuple[int, ...]],
    layers: Sequence[int],
    positions: Sequence[int],
    progress: Progress | None = None,
) -> Float[np.ndarray, "B layers positions D"]:
    """Hidden vectors of token tuples, not cached: one pass through the blocks gives all layers.

    Raises:
        UserError: a layer that the decoder does not have, or a position before some text's first token.
    """
    depth = decoder.config.num_layers
    if bad := [layer for layer in layers if not 1 <= layer <= depth]:
        raise UserError(f"layers: this encoder has {depth} layers, expected 1 to {depth}, got {bad[0]}")
    shortest = min(map(len, ids), default=0)
    if bad := [position for position in positions if not -shortest <= position <= -1]:
        raise UserError(f"positions: the shortest text has {shortest} tokens, expected -{shortest} to -1, got {bad[0]}")
    states = np.empty((len(ids), len(layers), len(positions), decoder.config.hidden_size), np.float32)
    done = 0
    for places, T, B in _batches([len(one) for one in ids]):
        filled = places + places[:1] * (B - len(places))
        tokens = np.stack([pad(ids[i], T) for i in filled])
        rows = np.array([[read_row(len(ids[i]), position) for position in positions] for i in filled])
        every = np.asarray(_rows(decoder, tokens, rows, max(layers)))
        states[places] = every[np.array(layers) - 1, : len(places)].swapaxes(0, 1)
        done += len(places)
        if progress:
            progress(done, len(ids))
    return states


def decoder_of(settings: EncoderSettings) -> Decoder:
    """The whole decoder of these settings; the last one stays in memory.

    Raises:
        UserError: see `load_checkpoint`.
    """
    return _decoder(settings.source, settings.revision, settings.dtype)


@functools.lru_cache(maxsize=1)
def _decoder(source: str, revision: str | None, dtype: str) -> Decoder:
    return load_checkpoint(source, dtype=dtype, revision=revision)[0]


@functools.lru_cache(maxsize=1)
def _tokenizer(source: str, revision: str | None) -> Tokenizer:
    return load_tokenizer(source, revision)


def _batches(lengths: Sequence[int]) -> Iterator[tuple[list[int], int, int]]:
    """Places of texts of like length, longest first, with the batch's padded length T and rows B.

    T is a multiple of 32, from 256 on of an eighth of the power of two below: few shapes, little padding.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    while order:
        longest = lengths[order[0]]
        step = max(32, 2 ** (longest - 1).bit_length() // 8)
        T = -(-longest // step) * step
        B = max(1, BATCH_TOKENS // T)
        yield order[:B], T, B
        order = order[B:]


@functools.partial(jax.jit, static_argnums=3)
def _rows(
    decoder: Decoder, tokens: Int[Array, "B T"], rows: Int[Array, "B R"], layers: int
) -> Float[Array, "layers B R D"]:
    """Normed states at some rows after every one of the first ``layers`` blocks."""
    x = embed(decoder, tokens)
    table = rope(decoder.config, tokens.shape[1], x.dtype)

    def step(x: Array, i: Array) -> tuple[Array, Array]:
        x = jax.vmap(block_at(decoder, i), in_axes=(0, None))(x, table)
        kept = jnp.take_along_axis(x, rows[:, :, None], axis=1)
        return x, final_norm(decoder, kept).astype(jnp.float32)

    return jax.lax.scan(step, x, jnp.arange(layers))[1]


def _cache_file(
    settings: EncoderSettings,
    ids: Sequence[tuple[int, ...]],
    layers: Sequence[int] | None,
    positions: Sequence[int],
) -> Path:
    """The file of exactly these states: its name is a hash of weights, dtype, token ids, layers and positions.

    Tokenizer, router prompt, input format and the largest bucket show in the token ids.
    """
    depends = {
        "format": _FORMAT,
        "weights": _weights_digest(settings.source, settings.revision),
        "dtype": settings.dtype,
        "page": settings.page,
        "ids": ids,
        "layers": layers and list(layers),
        "positions": positions,
    }
    name = hashlib.sha256(json.dumps(depends).encode()).hexdigest()
    return cache_folder() / "states" / f"{name}.npz"


def _weights_digest(source: str, revision: str | None) -> str:
    """A hash of the checkpoint's files, without loading them."""
    if source == "embedded" or source.endswith(".gguf"):
        files = [embedded_path() if source == "embedded" else Path(source)]
    else:
        folder = checkpoint_folder(source, revision)
        files = [folder / "config.json", *sorted(folder.glob("*.safetensors"))]
    digest = hashlib.sha256()
    for file in files:
        try:
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror})") from error
    return digest.hexdigest()


def _fits(arrays: dict[str, np.ndarray], texts: int, positions: int) -> bool:
    states = arrays.get("states", np.empty(0))
    return states.ndim == 4 and states.dtype == np.float32 and (states.shape[0], states.shape[2]) == (texts, positions)
