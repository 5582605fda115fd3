"""The frozen layers below the tip, shared by all candidates: what they computed lies in a slab of pages on the device.

Two ways to fill it. `WholeTrunk` runs once over each distinct transcript, `PagedTrunk` once over each distinct page, so
that transcripts that begin alike share their beginning.
"""

import functools
import hashlib
import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trinity_jax.config import EncoderSettings
from trinity_jax.coordinator.devices import AXIS, SAME, SPREAD, Devices
from trinity_jax.coordinator.groups import call_rows, calls, grouped, put_rows
from trinity_jax.encoder.decoder import Decoder, Rope, block_at, embed, rope
from trinity_jax.encoder.text import bucket, pad
from trinity_jax.errors import UserError

Tokens = tuple[int, ...]
Program = Callable[..., Any]
Missing = tuple[int, tuple[Any, ...], list[tuple[Any, ...]]]
"""A bucket, a row that stands for none, and rows."""


class Slots:
    """Which page lies where: a table of at most ``count`` keys, the least recently used forgotten first."""

    def __init__(self, count: int):
        self.count = count
        self._table: OrderedDict[bytes, int] = OrderedDict()

    def reserve(self, chains: Sequence[Sequence[bytes]]) -> tuple[list[list[int]], set[bytes]]:
        """A slot for every key, and the keys that are new; together the chains have at most ``count`` keys.

        A chain's keys are used last to first, so that a page outlives those that need it.
        """
        # What is wanted and known moves away from the end that is forgotten before anything is.
        for key in (key for chain in chains for key in chain):
            if key in self._table:
                self._table.move_to_end(key)
        new: set[bytes] = set()
        for key in (key for chain in chains for key in reversed(chain)):
            if key in self._table:
                self._table.move_to_end(key)
            else:
                full = len(self._table) == self.count
                self._table[key] = self._table.popitem(last=False)[1] if full else len(self._table)
                new.add(key)
        return [[self._table[key] for key in chain] for chain in chains], new

    def clear(self) -> None:
        """Forget everything."""
        self._table.clear()


class Slab(NamedTuple):
    """Pages on the device: the trunk's output and, for what follows a page, its layers' keys and values (n layers)."""

    x: Float[Array, "slots page D"]
    k: Float[Array, "n slots page K H"]
    v: Float[Array, "n slots page K H"]


class Trunk(ABC):
    """Places of transcripts in the slab; runs the first ``layers`` blocks over what is not there.

    Args:
        decoder: at least those blocks.
        layers: how many.
        settings: buckets, memory.
        size: rows per device step, by bucket.
        devices: who share the rows.
        counted: wraps a program so that its compilations are counted.

    Attributes:
        transcripts: how many of the longest bucket fit.

    Raises:
        UserError: ``cache_mb`` too small for one transcript.
    """

    keeps = False
    """Whether a page's keys and values are kept."""
    spreads = True
    """Whether devices share the rows; else each computes all of them."""

    def __init__(
        self,
        decoder: Decoder,
        layers: int,
        settings: EncoderSettings,
        size: Callable[[int], int],
        devices: Devices,
        counted: Callable[[Program], Program],
    ):
        config, dtype = decoder.config, decoder.embed[...].dtype
        D, K, H, kept = config.hidden_size, config.num_kv_heads, config.head_dim, layers if self.keeps else 0
        self._decoder, self._layers, self._buckets, self._size = decoder, layers, settings.buckets, size
        self._page = settings.page or math.gcd(*settings.buckets)
        longest = settings.buckets[-1] // self._page
        per_page = self._page * (D + 2 * kept * K * H) * dtype.itemsize
        slots = settings.cache_mb * 2**20 // per_page
        if slots < longest:
            raise UserError(
                f"encoder.cache_mb: one transcript of {settings.buckets[-1]} tokens needs "
                f"{-(-longest * per_page // 2**20)}, got {settings.cache_mb}"
            )
        self.transcripts = slots // longest
        self._slots = Slots(slots)
        state, heads = (slots, self._page, D), (kept, slots, self._page, K, H)
        self._empty = lambda: devices.put(Slab(*(jnp.zeros(shape, dtype) for shape in (state, heads, heads))))
        self._slab: Slab | None = None
        self._shares = devices.shares if self.spreads else 1
        rows = SPREAD if self.spreads else SAME
        self._run = devices.jit(counted(self._program), (SAME, SAME, rows, rows), SAME, donate_argnums=0)

    @property
    def slab(self) -> Slab:
        """The device arrays; allocated at first use."""
        slab = self._slab or self._empty()
        self._slab = slab
        return slab

    def places(self, tokens: Sequence[Tokens]) -> list[Int[np.ndarray, " k"]]:
        """Where the pages of each transcript lie, up to its bucket; a place beyond the slab stands for zeros.

        Args:
            tokens: at most ``transcripts`` different ones.
        """
        sizes = [bucket(len(one), self._buckets) for one in tokens]
        chains = [self._keys(one) for one in tokens]
        slots, new = self._slots.reserve(chains)
        places = [self._place(T, chain) for T, chain in zip(sizes, slots, strict=True)]
        try:
            for T, empty, rows in self._missing(tokens, chains, places, new):
                for call in calls(rows, empty, call_rows(self._size(T), T), self._shares):
                    self._slab = self._run(self.slab, self._decoder, call.columns, call.counts)
        except BaseException:
            # Pages that were reserved and not written, in a slab that was perhaps given away.
            self._slots.clear()
            self._slab = None
            raise
        return places

    def _place(self, T: int, slots: Sequence[int]) -> Int[np.ndarray, " k"]:
        return np.array([*slots, *[self._slots.count] * (T // self._page - len(slots))], np.int32)

    @abstractmethod
    def _keys(self, tokens: Tokens) -> list[bytes]:
        """What each page of a transcript is known by."""

    @abstractmethod
    def _missing(self, tokens: Any, chains: Any, places: Any, new: set[bytes]) -> Iterator[Missing]:
        """Rows for `_program` in an order that respects what they read, by bucket."""

    @abstractmethod
    def _program(self, slab: Slab, decoder: Decoder, rows: Any, counts: Int[Array, " 1"]) -> Slab:
        """The slab with the first rows of this share computed and written; jitted, the slab donated."""


class WholeTrunk(Trunk):
    """Each distinct transcript at once, padded to its bucket."""

    def _keys(self, tokens: Tokens) -> list[bytes]:
        one = digest(tokens)
        return [one + bytes([i // 256, i % 256]) for i in range(bucket(len(tokens), self._buckets) // self._page)]

    def _missing(self, tokens: Any, chains: Any, places: Any, new: set[bytes]) -> Iterator[Missing]:
        by_bucket: dict[int, list[Any]] = {}
        for one, chain, where in zip(tokens, chains, places, strict=True):
            if not new.isdisjoint(chain):
                T = len(where) * self._page
                by_bucket.setdefault(T, []).append((pad(one, T), where))
        for T, rows in by_bucket.items():
            yield T, (pad((), T), self._place(T, ())), rows

    def _program(self, slab: Slab, decoder: Decoder, rows: Any, counts: Int[Array, " 1"]) -> Slab:
        tokens, places = rows
        size = self._size(tokens.shape[1])
        table = rope(decoder.config, tokens.shape[1], slab.x.dtype)

        def at_rows(
            x: Float[Array, "C T D"], body: Callable[[Any], Array], source: Any = None
        ) -> Float[Array, "C T D"]:
            """Rows of ``x`` made from their own values or from ``source``, in place."""

            def step(x: Array, start: Array, part: Any) -> Array:
                part = jax.lax.dynamic_slice_in_dim(x, start, size) if source is None else part
                return put_rows(x, start, jax.vmap(body)(part))

            return grouped(tokens if source is None else source, counts[0], size, x, step)

        # Layers outside, rows inside: a layer's weights are taken out of the stack once for all rows.
        def layer(x: Float[Array, "C T D"], i: Int[Array, ""]) -> tuple[Float[Array, "C T D"], None]:
            block = block_at(decoder, i)
            return at_rows(x, lambda row: block(row, table)), None

        x = jnp.zeros((*tokens.shape, slab.x.shape[-1]), slab.x.dtype)
        x = at_rows(x, lambda ids: embed(decoder, ids), tokens)
        x, _ = jax.lax.scan(layer, x, jnp.arange(self._layers))
        x = x.reshape(*places.shape, *slab.x.shape[1:])
        if self._shares > 1:
            places, x = (jax.lax.all_gather(one, AXIS, tiled=True) for one in (places, x))
        return slab._replace(x=slab.x.at[places].set(x, mode="drop"))


class PagedTrunk(Trunk):
    """Each distinct page once: transcripts that begin alike share their beginning.

    A page is ``settings.page`` tokens together with all tokens before them; it is always computed by one program from
    the keys and values of the pages before it, whether or not they were there already, so its bits depend on its tokens
    alone. The last page of a transcript may be partial; what pads it is invisible to it.
    """

    keeps = True
    spreads = False

    def _keys(self, tokens: Tokens) -> list[bytes]:
        return [digest(tokens[:end]) for end in self._ends(len(tokens))]

    def _ends(self, length: int) -> list[int]:
        return [min(start + self._page, length) for start in range(0, length, self._page)]

    def _missing(self, tokens: Any, chains: Any, places: Any, new: set[bytes]) -> Iterator[Missing]:
        # Pages of one wave do not need each other, those of the next may; a shorter bucket goes before a longer one.
        waves: dict[int, dict[int, list[Any]]] = {T: {} for T in self._buckets}
        wave_of: dict[bytes, tuple[int, int]] = {}
        for one, chain, where in zip(tokens, chains, places, strict=True):
            before = (0, -1)
            for i, key in enumerate(chain):
                T = bucket((i + 1) * self._page, self._buckets)
                if key in new and key not in wave_of:
                    wave_of[key] = (T, before[1] + 1 if before[0] == T else 0)
                    ids = pad(one[i * self._page : (i + 1) * self._page], self._page)
                    row = (ids, i, self._place(T, where[:i]), where[i])
                    waves[T].setdefault(wave_of[key][1], []).append(row)
                before = wave_of.get(key, (0, -1))
        for T, by_wave in waves.items():
            empty = (pad((), self._page), 0, self._place(T, ()), self._slots.count)
            size = self._size(T)
            # A wave begins with a group of its own.
            groups = [[*by_wave[i], *[empty] * (-len(by_wave[i]) % size)] for i in sorted(by_wave)]
            yield T, empty, [row for group in groups for row in group]

    def _program(self, slab: Slab, decoder: Decoder, rows: Any, counts: Int[Array, " 1"]) -> Slab:
        def step(slab: Slab, _start: Array, part: Any) -> Slab:
            *row, slot = part
            x, k, v = jax.vmap(functools.partial(self._one, slab, decoder))(*row)
            return Slab(
                slab.x.at[slot].set(x, mode="drop"),
                slab.k.at[:, slot].set(jnp.swapaxes(k, 0, 1), mode="drop"),
                slab.v.at[:, slot].set(jnp.swapaxes(v, 0, 1), mode="drop"),
            )

        return grouped(rows, counts[0], self._size(rows[2].shape[1] * self._page), slab, step)

    def _one(
        self, slab: Slab, decoder: Decoder, ids: Int[Array, " page"], i: Int[Array, ""], before: Int[Array, " k"]
    ) -> tuple[Float[Array, "page D"], Float[Array, "n page K H"], Float[Array, "n page K H"]]:
        """Page ``i`` of a transcript whose earlier pages lie at ``before``: its output, keys and values."""
        start = i * self._page
        x = embed(decoder, ids)
        table = rope(decoder.config, len(before) * self._page, x.dtype)
        here = Rope(*(jax.lax.dynamic_slice_in_dim(angles, start, self._page) for angles in table))

        def layer(x: Array, n: Array) -> tuple[Array, tuple[Array, Array]]:
            block = block_at(decoder, n)
            own = block.keys_values(x, here)
            k, v = (
                jax.lax.dynamic_update_slice_in_dim(pages_at(earlier, (n, before)), mine, start, 0)
                for earlier, mine in zip(slab[1:], own, strict=True)
            )
            return block.attend(x, start + jnp.arange(self._page), here, k, v), own

        x, (k, v) = jax.lax.scan(layer, x, jnp.arange(self._layers))
        return x, k, v


def pages_at(slab: Array, places: Any) -> Array:
    """[slots, page, ...] to [T, ...]: pages one behind the other; zeros for places beyond the slab."""
    pages = slab.at[places].get(mode="fill", fill_value=0)
    return pages.reshape(-1, *pages.shape[2:])


def digest(tokens: Tokens) -> bytes:
    """Sixteen bytes that stand for a token tuple."""
    return hashlib.blake2b(np.asarray(tokens, np.int32).tobytes(), digest_size=16).digest()
