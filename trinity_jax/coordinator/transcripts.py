"""Token tuples to hidden vectors h: the trunk once per distinct transcript, the tip per (candidate, transcript).

Three cases, by the lowest scaled matrix: none (h depends on the transcript alone), one of a layer (layers below it are
the trunk), the embedding (nothing can be shared).
"""

import functools
import hashlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trinity_jax.config import EncoderSettings, SvfSettings
from trinity_jax.encoder import svf
from trinity_jax.encoder.decoder import Block, Decoder, block_at, cut, embed, final_norm, rope, run
from trinity_jax.encoder.text import bucket, pad, read_row
from trinity_jax.errors import UserError

Tokens = tuple[int, ...]
_CALL_ROWS = 128
_log = logging.getLogger(__name__)


class Parts(NamedTuple):
    """A decoder split at the lowest scaled layer; ``tip`` blocks stand apart so that no call copies their weights."""

    trunk: Decoder
    tip: tuple[Block, ...]


def grouped(
    rows: Any, count: Int[Array, ""], size: int, into: Any, body: Callable[[Any], Any], store: Callable[..., Any]
) -> Any:
    """Apply ``body`` to the first ``count`` of C rows, ``size`` at a time under `vmap`; store each group's result.

    The trip count is dynamic and the group's shape fixed: one program for any count, padding beyond the last group is
    not computed, and a row's result does not depend on its place or company.

    Args:
        rows: pytree of arrays [C, ...], C a multiple of ``size``.
        count: rows that are wanted.
        size: rows per group.
        into: what ``store`` writes to.
        body: one row to its result.
        store: ``store(into, start, group of rows, group of results) -> into``.
    """

    def group(i: Int[Array, ""], into: Any) -> Any:
        part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, i * size, size), rows)
        return store(into, i * size, part, jax.vmap(body)(part))

    return jax.lax.fori_loop(0, (count + size - 1) // size, group, into)


def write_rows(into: Any, start: Int[Array, ""], _part: Any, results: Any) -> Any:
    """A ``store`` for `grouped`: each result goes to its row's place."""
    return jax.tree.map(lambda whole, part: jax.lax.dynamic_update_slice_in_dim(whole, part, start, 0), into, results)


class TranscriptEncoder:
    """Hidden vectors of transcripts for up to P candidates that differ in their singular-value scales.

    Args:
        decoder: the frozen decoder, already cut.
        svf_settings: which matrices are scaled.
        settings: buckets, read position, memory, rows per step.
        population: P, the most candidates at once.

    Attributes:
        adaptation: the scaled matrices; ``adaptation.sizes`` goes into the layout.
        width: D.
        compilations: programs traced so far, at most one per function and bucket.
        seconds: spent in `encode` so far.

    Raises:
        UserError: an unknown target, or ``cache_mb`` too small for one transcript.
    """

    def __init__(self, decoder: Decoder, svf_settings: SvfSettings, settings: EncoderSettings, population: int):
        config = decoder.config
        self.adaptation = svf.Adaptation(decoder, svf_settings)
        self.width = config.hidden_size
        self.population = population
        self.compilations = 0
        self.seconds = 0.0
        self._settings = settings
        self._dtype = decoder.embed[...].dtype
        first = self.adaptation.first_layer
        self._first = config.num_layers - 1 if first is None else first
        self._splits = first is not None and not self.adaptation.embeds
        if self.adaptation.embeds:
            _log.warning("svf scales the embedding: every candidate runs the whole encoder, nothing can be shared")
        self._parts = Parts(
            cut(decoder, max(self._first, 1)),
            tuple(block_at(decoder, i) for i in range(self._first, config.num_layers)),
        )
        self._page = math.gcd(*settings.buckets)
        self._memory = settings.cache_mb * 2**20
        self._pages = self._memory // (self._page * self.width * self._dtype.itemsize)
        longest = settings.buckets[-1] // self._page
        if self._splits and self._pages < longest:
            raise UserError(
                f"encoder.cache_mb: one transcript of {settings.buckets[-1]} tokens needs "
                f"{-(-settings.buckets[-1] * self.width * self._dtype.itemsize // 2**20)}, got {settings.cache_mb}"
            )
        wanted = settings.micro_batch or (1 if jax.default_backend() == "cpu" else 32)
        self.micro_batch = min(wanted, self._pages // longest) if self._splits else wanted
        self._slab: Array | None = None
        self._resident: OrderedDict[Tokens, np.ndarray] = OrderedDict()
        self._free = list(range(self._pages))
        self._states: OrderedDict[tuple[int, Tokens], np.ndarray] = OrderedDict()
        self._seen: set[bytes] = set()
        self._deltas = jnp.zeros((population + 1, self.adaptation.size), jnp.float32)
        self._trunk = jax.jit(self._counted(self._trunk_program), donate_argnums=0)
        self._tip = jax.jit(self._counted(self._tip_program))
        self._whole = jax.jit(self._counted(self._whole_program))

    @property
    def distinct_transcripts(self) -> int:
        """How many different token tuples have been encoded in all."""
        return len(self._seen)

    def adapt(self, deltas: Float[np.ndarray, "P S"]) -> None:
        """Set the candidates' singular-value deltas, all targets side by side in order; fewer than P are filled up."""
        if self.adaptation.size:
            table = np.zeros(self._deltas.shape, np.float32)
            table[: len(deltas)] = deltas
            self._deltas = jnp.asarray(table)
            self._states.clear()

    def states(self, tokens: Sequence[Tokens]) -> Float[np.ndarray, "B D"]:
        """Hidden vectors of the un-adapted encoder."""
        return np.stack(self.encode([(self.population, one) for one in tokens]))

    def encode(self, pairs: Sequence[tuple[int, Tokens]]) -> list[Float[np.ndarray, " D"]]:
        """Hidden vectors of (candidate, token ids), float32; equal pairs are computed once.

        Raises:
            ValueError: more tokens than the largest bucket, or none at the read position.
        """
        started = time.perf_counter()
        pairs = [(candidate if self.adaptation.factors else self.population, tokens) for candidate, tokens in pairs]
        found: dict[tuple[int, Tokens], np.ndarray] = {}
        missing: dict[int, dict[Tokens, list[tuple[int, Tokens]]]] = {}
        for pair in dict.fromkeys(pairs):
            if (state := self._states.get(pair)) is not None:
                self._states.move_to_end(pair)
                found[pair] = state
            else:
                group = missing.setdefault(bucket(len(pair[1]), self._settings.buckets), {})
                group.setdefault(pair[1], []).append(pair)
        for T, by_transcript in missing.items():
            waiting = [pair for same in by_transcript.values() for pair in same]
            step = self._call_rows(T)
            for start in range(0, len(waiting), step):
                chunk = waiting[start : start + step]
                found.update(zip(chunk, self._call(T, step, chunk), strict=True))
        self._remember(found)
        self.seconds += time.perf_counter() - started
        return [found[pair] for pair in pairs]

    def _call_rows(self, T: int) -> int:
        fitting = self._pages // (T // self._page) if self._splits else _CALL_ROWS
        return max(min(_CALL_ROWS, fitting) // self.micro_batch, 1) * self.micro_batch

    def _call(self, T: int, capacity: int, pairs: list[tuple[int, Tokens]]) -> Float[np.ndarray, "B D"]:
        """At most ``capacity`` pairs of one bucket: one call of the tip, one of the trunk if a transcript is new."""
        read = self._settings.read_position
        self._seen.update(_digest(tokens) for _, tokens in pairs)
        candidates = _filled(capacity, [candidate for candidate, _ in pairs])
        rows = _filled(capacity, [read_row(len(tokens), read) for _, tokens in pairs])
        factors = self.adaptation.factors
        if self._splits:
            pages = _filled(capacity, self._pages_of(T, capacity, [tokens for _, tokens in pairs]))
            h = self._tip(self._parts, factors, self._deltas, self._slab, pages, candidates, rows, len(pairs))
        else:
            tokens = _filled(capacity, [pad(tokens, T) for _, tokens in pairs])
            h = self._whole(self._parts, factors, self._deltas, tokens, candidates, rows, len(pairs))
        return np.asarray(h)[: len(pairs)]

    def _pages_of(self, T: int, capacity: int, tokens: list[Tokens]) -> list[np.ndarray]:
        """Where each transcript's trunk output lies in the slab; runs the trunk for those that are new."""
        if self._slab is None:
            self._slab = jnp.zeros((self._pages, self._page, self.width), self._dtype)
        distinct = list(dict.fromkeys(tokens))
        new = [one for one in distinct if one not in self._resident]
        for one in distinct:
            if one in self._resident:
                self._resident.move_to_end(one)
        if new:
            each = T // self._page
            while len(self._free) < each * len(new):
                self._free.extend(self._resident.popitem(last=False)[1].tolist())
            places = np.array([[self._free.pop() for _ in range(each)] for _ in new], np.int32)
            padded = _filled(capacity, [pad(one, T) for one in new])
            # Pages beyond the slab: what the last group computes for padding is dropped.
            pages = _filled(capacity, list(places), fill=self._pages)
            self._slab = self._trunk(self._slab, self._parts, padded, pages, len(new))
            self._resident.update(zip(new, places, strict=True))
        return [self._resident[one] for one in tokens]

    def _remember(self, found: dict[tuple[int, Tokens], np.ndarray]) -> None:
        self._states.update(found)
        while len(self._states) * self.width * 4 > self._memory:
            self._states.popitem(last=False)

    def _counted(self, program: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(program)
        def traced(*args: Any) -> Any:
            self.compilations += 1
            return program(*args)

        return traced

    def _trunk_program(
        self,
        slab: Float[Array, "pages page D"],
        parts: Parts,
        tokens: Int[Array, "C T"],
        pages: Int[Array, "C k"],
        count: Int[Array, ""],
    ) -> Float[Array, "pages page D"]:
        def store(slab: Array, _start: Array, part: Any, x: Array) -> Array:
            return slab.at[part[1]].set(x.reshape(*part[1].shape, self._page, self.width), mode="drop")

        def below(row: Any) -> Array:
            return self._below(parts, embed(parts.trunk, row[0]))

        return grouped((tokens, pages), count, self.micro_batch, slab, below, store)

    def _tip_program(
        self,
        parts: Parts,
        factors: dict[str, svf.Factors],
        deltas: Float[Array, "P+1 S"],
        slab: Float[Array, "pages page D"],
        pages: Int[Array, "C k"],
        candidates: Int[Array, " C"],
        rows: Int[Array, " C"],
        count: Int[Array, ""],
    ) -> Float[Array, "C D"]:
        def one(row: Any) -> Array:
            where, candidate, position = row
            scales = self.adaptation.scales(factors, deltas[candidate])
            return self._above(parts, factors, scales, slab[where].reshape(-1, self.width), position)

        into = jnp.zeros((len(rows), self.width), jnp.float32)
        return grouped((pages, candidates, rows), count, self.micro_batch, into, one, write_rows)

    def _whole_program(
        self,
        parts: Parts,
        factors: dict[str, svf.Factors],
        deltas: Float[Array, "P+1 S"],
        tokens: Int[Array, "C T"],
        candidates: Int[Array, " C"],
        rows: Int[Array, " C"],
        count: Int[Array, ""],
    ) -> Float[Array, "C D"]:
        def one(row: Any) -> Array:
            ids, candidate, position = row
            scales = self.adaptation.scales(factors, deltas[candidate])
            if self.adaptation.embeds:
                x = svf.embedded(factors["embed"], scales["embed"], ids)
            else:
                x = embed(parts.trunk, ids)
            return self._above(parts, factors, scales, self._below(parts, x), position)

        into = jnp.zeros((len(rows), self.width), jnp.float32)
        return grouped((tokens, candidates, rows), count, self.micro_batch, into, one, write_rows)

    def _below(self, parts: Parts, x: Float[Array, "T D"]) -> Float[Array, "T D"]:
        return run(parts.trunk, x, 0, self._first) if self._first else x

    def _above(
        self, parts: Parts, factors: Any, scales: Any, x: Float[Array, "T D"], row: Int[Array, ""]
    ) -> Float[Array, " D"]:
        """The tip; its last block computes keys and values for all tokens and the rest for the row that is read."""
        table = rope(parts.trunk.config, x.shape[0], x.dtype)
        hooks = [svf.projection(self._first + i, factors, scales) for i in range(len(parts.tip))]
        for block, project in zip(parts.tip[:-1], hooks, strict=False):
            x = block(x, table, project)
        h = parts.tip[-1].row(x, table, row, hooks[-1])
        return final_norm(parts.trunk, h).astype(jnp.float32)


def _filled(capacity: int, rows: Sequence[Any], fill: int = 0) -> Int[np.ndarray, "C ..."]:
    array = np.full((capacity, *np.shape(rows[0])), fill, np.int32)
    array[: len(rows)] = rows
    return array


def _digest(tokens: Tokens) -> bytes:
    return hashlib.blake2b(np.asarray(tokens, np.int32).tobytes(), digest_size=16).digest()
