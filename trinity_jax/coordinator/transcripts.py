"""Token tuples to hidden vectors h: the trunk once per transcript or page, the tip per (candidate, transcript).

The tip begins at the lowest layer with a scaled matrix, or at the last one where there is none. Where the embedding is
scaled, nothing can be shared: there is no trunk, and every pair goes through all layers.
"""

import functools
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trinity_jax.config import EncoderSettings, SvfSettings
from trinity_jax.coordinator.devices import SAME, SPREAD, Devices
from trinity_jax.coordinator.groups import call_rows, calls, each, grouped
from trinity_jax.coordinator.trunk import PagedTrunk, Tokens, WholeTrunk, digest, pages_at
from trinity_jax.encoder import svf
from trinity_jax.encoder.decoder import Block, Decoder, DecoderConfig, block_at, final_norm, rope, run
from trinity_jax.encoder.memory import rows_per_step, rows_wanted
from trinity_jax.encoder.text import bucket, pad, read_row

PAGES = 8
"""Pages per step on a CPU, where the step reads every weight once; measured best among 1, 2, 4, 8 for pages of 16."""

Pair = tuple[int, Tokens]
_BYTES_PER_ID = 8  # in a tuple; the numbers themselves are few and shared, or freed with their text
_log = logging.getLogger(__name__)


class Parts(NamedTuple):
    """A decoder, and the blocks from the lowest scaled layer on apart, so that no call copies their weights."""

    decoder: Decoder
    tip: tuple[Block, ...]


class TranscriptEncoder:
    """Hidden vectors of transcripts for up to P candidates that differ in their singular-value scales.

    Args:
        decoder: the frozen decoder, already cut.
        svf_settings: which matrices are scaled.
        settings: buckets, read position, memory, rows per step.
        population: P, the most candidates at once.
        tokens: about how many a candidate reads until its scales change; decides which scaled kernels are written out.

    Attributes:
        adaptation: the scaled matrices; ``adaptation.sizes`` goes into the layout.
        width: D.
        compilations: programs traced so far, at most two per bucket.

    Raises:
        UserError: an unknown target, devices that there are not, or ``cache_mb`` or ``work_mb`` too small for one
            transcript.
    """

    def __init__(
        self,
        decoder: Decoder,
        svf_settings: SvfSettings,
        settings: EncoderSettings,
        population: int,
        tokens: float = 0.0,
    ):
        config, cpu = decoder.config, jax.default_backend() == "cpu"
        self.adaptation = svf.Adaptation(decoder, svf_settings)
        self.width = config.hidden_size
        self.population = population
        self.compilations = 0
        self._settings = settings
        first = self.adaptation.first_layer
        self._first = config.num_layers - 1 if first is None else first
        self._devices = Devices(settings.devices)
        decoder = self._devices.put(decoder)
        self._parts = Parts(decoder, tuple(block_at(decoder, i) for i in range(self._first, config.num_layers)))
        self._factors = self._devices.put(self.adaptation.factors)
        self._rows_per_step(settings.buckets[-1])  # complains now rather than in the middle of a run
        self._trunk: WholeTrunk | PagedTrunk | None = None
        if self.adaptation.embeds:
            _log.warning("svf scales the embedding: every candidate runs the whole encoder, nothing can be shared")
        else:
            paged = settings.page and self._first
            size = (lambda T: settings.micro_batch or (PAGES if cpu else 32)) if paged else self._rows_per_step
            kind = PagedTrunk if paged else WholeTrunk
            self._trunk = kind(decoder, self._first, settings, size, self._devices, self._counted)
        self._states: OrderedDict[Pair, np.ndarray] = OrderedDict()
        self._held = 0
        self._seen: set[bytes] = set()
        self._counting = True
        self._deltas = self._devices.put(jnp.zeros((population + 1, self.adaptation.size), jnp.float32))
        self._written = self._to_write_out(decoder.config, tokens)
        self._write = jax.jit(self._write_program)
        self._kernels = self._written_out()
        takes = (SAME, SAME, SAME, SAME, SAME, SPREAD, SPREAD)
        self._tip = self._devices.jit(self._counted(self._tip_program), takes, SPREAD)

    @property
    def distinct_transcripts(self) -> int:
        """How many different token tuples have been encoded in all."""
        return len(self._seen)

    def count_no_more(self) -> None:
        """Forget which transcripts were encoded and count no further ones, for a process that goes on without end."""
        self._counting = False
        self._seen.clear()

    def adapt(self, deltas: Float[np.ndarray, "P S"]) -> None:
        """Set the candidates' singular-value deltas, all targets side by side in order; fewer than P are filled up."""
        if self.adaptation.size:
            table = np.zeros(self._deltas.shape, np.float32)
            table[: len(deltas)] = deltas
            self._deltas = self._devices.put(jnp.asarray(table))
            self._kernels = self._written_out()
            self._states.clear()
            self._held = 0

    def states(self, tokens: Sequence[Tokens]) -> Float[np.ndarray, "B D"]:
        """Hidden vectors of the un-adapted encoder."""
        return np.stack(self.encode([(self.population, one) for one in tokens]))

    def encode(self, pairs: Sequence[tuple[int, Tokens]]) -> list[Float[np.ndarray, " D"]]:
        """Hidden vectors of (candidate, token ids), float32; equal pairs are computed once.

        Raises:
            ValueError: more tokens than the largest bucket, or none at the read position.
        """
        pairs = [(candidate if self.adaptation.factors else self.population, tokens) for candidate, tokens in pairs]
        found: dict[Pair, np.ndarray] = {}
        missing: dict[Tokens, list[Pair]] = {}
        for pair in dict.fromkeys(pairs):
            if (state := self._states.get(pair)) is not None:
                self._states.move_to_end(pair)
                found[pair] = state
            else:
                missing.setdefault(pair[1], []).append(pair)
        if self._counting:
            self._seen.update(map(digest, missing))
        waiting = list(missing)
        at_once = self._trunk.transcripts if self._trunk else max(len(waiting), 1)
        for start in range(0, len(waiting), at_once):
            transcripts = waiting[start : start + at_once]
            for rows in self._rows(transcripts, missing):
                found.update(self._call(rows))
        self._remember(found)
        return [found[pair] for pair in pairs]

    def _rows(
        self, transcripts: list[Tokens], missing: dict[Tokens, list[Pair]]
    ) -> Iterable[list[tuple[Pair, np.ndarray]]]:
        """Per bucket: pairs, and what the tip starts from (places of the trunk's output, or tokens without a trunk)."""
        sizes = [bucket(len(tokens), self._settings.buckets) for tokens in transcripts]
        if self._trunk:
            starts = self._trunk.places(transcripts)
        else:
            starts = [pad(tokens, T) for tokens, T in zip(transcripts, sizes, strict=True)]
        rows: dict[int, list[tuple[Pair, np.ndarray]]] = {}
        for T, tokens, start in zip(sizes, transcripts, starts, strict=True):
            rows.setdefault(T, []).extend((pair, start) for pair in missing[tokens])
        return rows.values()

    def _call(self, rows: list[tuple[Pair, np.ndarray]]) -> dict[Pair, Float[np.ndarray, " D"]]:
        """The tip over rows of one bucket."""
        found: dict[Pair, np.ndarray] = {}
        read = self._settings.read_position
        slab = self._trunk.slab.x if self._trunk else None
        wanted = [
            (start, np.int32(candidate), np.int32(read_row(len(tokens), read))) for (candidate, tokens), start in rows
        ]
        T = bucket(len(rows[0][0][1]), self._settings.buckets)
        pairs = iter(pair for pair, _ in rows)
        for call in calls(wanted, wanted[0], call_rows(self._rows_per_step(T)), self._devices.shares):
            candidates = (self._parts, self._factors, self._deltas, self._kernels)
            h = np.asarray(self._tip(*candidates, slab, call.columns, call.counts))
            found |= {pair: state for state, pair in zip(h[call.where], pairs, strict=False)}
        return found

    def _to_write_out(self, config: DecoderConfig, tokens: float) -> tuple[str, ...]:
        """Targets whose scaled kernels are written out for each candidate; none where they do not fit into a step."""
        names = svf.to_write_out(self.adaptation.names, config, tokens)
        factors = self.adaptation.factors
        size = sum(len(factors[name].u) * len(factors[name].v) * factors[name].u.dtype.itemsize for name in names)
        fits = size * (self.population + 1) <= self._settings.work_mb * 2**20
        if names:
            form = "written out" if fits else "factored, since written out they exceed encoder.work_mb"
            _log.info("svf: %d matrices of %d candidates %s", len(names), self.population, form)
        return names if fits else ()

    def _written_out(self) -> dict[str, Float[Array, "P+1 r m"]]:
        """The scaled kernels of every candidate that are written out; nothing runs where there are none."""
        if not self._written:
            return {}
        return self._devices.put(self._write(self._parts, self._factors, self._deltas))

    def _write_program(
        self, parts: Parts, factors: dict[str, svf.Factors], deltas: Float[Array, "P+1 S"]
    ) -> dict[str, Float[Array, "P+1 r m"]]:
        def one(candidate: Float[Array, " S"]) -> dict[str, Array]:
            scales = self.adaptation.scales(factors, candidate)
            kernels = {}
            for name in self._written:
                _, layer, matrix = name.split(".")
                kernel = getattr(parts.tip[int(layer) - self._first], matrix)[...]
                kernels[name] = svf.scaled(kernel, factors[name], scales[name])
            return kernels

        return jax.lax.map(one, deltas)

    def _rows_per_step(self, T: int) -> int:
        config, itemsize = self._parts.decoder.config, self._parts.decoder.embed[...].dtype.itemsize
        wanted = self._settings.micro_batch or rows_wanted()
        return rows_per_step(config, T, itemsize, wanted, self._settings.work_mb)

    def _remember(self, found: dict[Pair, np.ndarray]) -> None:
        for pair, state in found.items():
            if pair not in self._states:
                self._states[pair] = state
                self._held += self._size(pair)
        while self._held > self._settings.cache_mb * 2**20:
            pair, _ = self._states.popitem(last=False)
            self._held -= self._size(pair)

    def _size(self, pair: Pair) -> int:
        """Bytes of a state and of the token ids it is found by."""
        return 4 * self.width + _BYTES_PER_ID * len(pair[1])

    def _counted(self, program: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(program)
        def traced(*args: Any) -> Any:
            self.compilations += 1
            return program(*args)

        return traced

    def _tip_program(
        self,
        parts: Parts,
        factors: dict[str, svf.Factors],
        deltas: Float[Array, "P+1 S"],
        kernels: dict[str, Float[Array, "P+1 r m"]],
        slab: Float[Array, "slots page D"] | None,
        rows: tuple[Int[Array, "C k"], Int[Array, " C"], Int[Array, " C"]],
        counts: Int[Array, " 1"],
    ) -> Float[Array, "C D"]:
        """Rows are what to start from, the candidate, and the row that is read."""

        def one(row: Any) -> Array:
            start, candidate, read = row
            scales = self.adaptation.scales(factors, deltas[candidate])
            if slab is None:
                x = svf.embedded(factors["embed"], scales["embed"], start)
                x = run(parts.decoder, x, 0, self._first) if self._first else x
            else:
                x = pages_at(slab, start)
            written = {name: kernel[candidate] for name, kernel in kernels.items()}
            return self._above(parts, factors, scales, written, x, read)

        T = rows[0].shape[1] * (1 if slab is None else slab.shape[1])
        into = jnp.zeros((len(rows[1]), self.width), jnp.float32)
        return grouped(rows, counts[0], self._rows_per_step(T), into, each(one))

    def _above(
        self, parts: Parts, factors: Any, scales: Any, written: Any, x: Float[Array, "T D"], row: Int[Array, ""]
    ) -> Float[Array, " D"]:
        """The tip; its last block computes keys and values for all tokens and the rest for the row that is read."""
        table = rope(parts.decoder.config, x.shape[0], x.dtype)
        hooks = [svf.projection(self._first + i, factors, scales, written) for i in range(len(parts.tip))]
        for block, project in zip(parts.tip[:-1], hooks, strict=False):
            x = block(x, table, project)
        h = parts.tip[-1].row(x, table, row, hooks[-1])
        return final_norm(parts.decoder, h).astype(jnp.float32)
