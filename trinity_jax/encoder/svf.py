"""Singular-value fine-tuning: scale the singular values of frozen kernels, keep their sum (paper section 3.2).

Targets are named ``embed``, ``layers.<i>.q|k|v|o|gate|up|down`` and ``lm_head``. Kernels are [in, out]; their singular
values are those of the transposed Hugging Face weight.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trinity_jax.config import SvfSettings
from trinity_jax.encoder.decoder import (
    PROJECTIONS,
    Block,
    Decoder,
    DecoderConfig,
    Project,
    block_shapes,
    plain_projection,
)
from trinity_jax.encoder.factors import Factors, kept
from trinity_jax.errors import UserError

_PRECISION = jax.lax.Precision.HIGHEST
_log = logging.getLogger(__name__)


class Scale(NamedTuple):
    r"""$W' = c\, U \mathrm{diag}(s (1 + \delta)) V^\top$: relative changes and the factor that keeps the sum of s."""

    delta: Float[Array, " r"]
    c: Float[Array, ""]


def targets(settings: SvfSettings, config: DecoderConfig) -> tuple[str, ...]:
    """Names of the scaled matrices, in the order of their blocks in the evolved vector.

    ``released`` is the published vector's order: embed, one layer's q, k, v, o, gate, up, down, lm_head.

    Raises:
        UserError: a layer that the decoder does not have, an unknown or repeated name.
    """
    if settings.preset == "none":
        return ()
    if settings.preset == "custom":
        return _checked(settings.matrices, config)
    layers = config.num_layers
    if not -layers <= settings.layer < layers:
        raise UserError(
            f"svf.layer: expected {-layers} to {layers - 1} for an encoder of {layers} layers, got {settings.layer}"
        )
    layer = tuple(f"layers.{settings.layer % layers}.{name}" for name in PROJECTIONS)
    return ("embed", *layer, "lm_head") if settings.preset == "released" else layer


def rank(name: str, config: DecoderConfig) -> int:
    """Number of singular values of a target: the shorter side of its kernel."""
    if name in ("embed", "lm_head"):
        return min(config.vocab_size, config.hidden_size)
    return min(block_shapes(config)[name.rpartition(".")[2]])


def scale(s: Float[Array, " r"], delta: Float[Array, " r"]) -> Scale:
    r"""$c = \sum s / \sum s (1 + \delta)$, written so that it is exactly 1 at delta = 0."""
    return Scale(delta, 1.0 / (1.0 + jnp.sum(s * delta) / jnp.sum(s)))


def in_sequence(s: Float[Array, " r"], first: Float[Array, " r"], second: Float[Array, " r"]) -> Scale:
    r"""Two scalings of one matrix, the second on the decomposition of the first's result.

    The first leaves $s' = c\, s (1 + \delta_1)$. Decomposed anew, its j-th singular value is the j-th largest $|s'|$ (a
    negative sign moves into the singular vector), so the second vector acts on the order argsort(-|s'|).
    """
    once = scale(s, first)
    magnitudes = jnp.abs(once.c * s * (1.0 + first))
    order = jnp.argsort(-magnitudes, stable=True)
    sorted_second = jnp.zeros_like(second).at[order].set(second)
    twice = scale(magnitudes, sorted_second)
    return Scale((1.0 + first) * (1.0 + sorted_second) - 1.0, once.c * twice.c)


def scaled(kernel: Float[Array, "in out"], factors: Factors, scale: Scale) -> Float[Array, "in out"]:
    r"""$W' = c (W + (U (s \delta)) V^\top)$, bit for bit W at delta = 0."""
    left = factors.u * (factors.s * scale.delta).astype(factors.u.dtype)
    change = jnp.matmul(left, factors.v.T, precision=_PRECISION)
    return (scale.c * (kernel + change)).astype(kernel.dtype)


def projected(x: Float[Array, "T in"], factors: Factors, scale: Scale) -> Float[Array, "T out"]:
    r"""$x W' = c\,((x U)\, s (1 + \delta)) V^\top$: no kernel per candidate; W at delta = 0 up to rounding."""
    values = (scale.c * factors.s * (1.0 + scale.delta)).astype(x.dtype)
    return jnp.matmul(jnp.matmul(x, factors.u, precision=_PRECISION) * values, factors.v.T, precision=_PRECISION)


def crossover(shapes: Iterable[tuple[int, ...]]) -> float:
    r"""Tokens from which it pays to write the scaled kernels of one candidate out, instead of using their factors.

    Counted in multiplications for kernels [in, out] of rank r = min(in, out) and t tokens that the candidate reads in
    all until its scales change:

    - factored (`projected`): $t \, r (\text{in} + \text{out})$;
    - rebuilt (`scaled`, then a plain product): $\text{in} \cdot \text{out} \cdot r + t \, \text{in} \cdot \text{out}$.

    The difference per token is $r (\text{in} + \text{out}) - \text{in} \cdot \text{out} = r^2$, so they are equal at
    $t = \sum \text{in} \cdot \text{out} \cdot r / \sum r^2$: for one kernel the longer side, for a whole block of
    Qwen3-0.6B 2,194 tokens.

    Args:
        shapes: of the kernels that see these tokens; in a last block, of which one row is read, that is k and v only.

    Returns:
        Tokens; infinity where there are no kernels.
    """
    sides = [(min(shape), max(shape)) for shape in shapes]
    saved = sum(short * short for short, _ in sides)
    return sum(short * short * long for short, long in sides) / saved if saved else float("inf")


def to_write_out(names: Iterable[str], config: DecoderConfig, tokens: float) -> tuple[str, ...]:
    """Which targets to write out once per candidate, and which to leave in factors.

    Of a last block only keys and values see every token; of the other matrices one row is read, so writing them out
    never pays.

    Args:
        names: targets.
        config: of the decoder, cut.
        tokens: that a candidate reads until its scales change.
    """
    last = config.num_layers - 1
    seen: dict[str, list[str]] = {}
    for name in names:
        if name.startswith("layers."):
            _, layer, matrix = name.split(".")
            if int(layer) != last or matrix in ("k", "v"):
                seen.setdefault(layer, []).append(name)
    shapes = block_shapes(config)
    return tuple(
        name
        for block in seen.values()
        if tokens > crossover(shapes[name.rpartition(".")[2]] for name in block)
        for name in block
    )


class Adaptation:
    """Which kernels of one decoder are scaled, their factors, and how a vector of deltas acts on them.

    Args:
        decoder: the frozen decoder (already cut).
        settings: which targets; how two blocks of a tied embedding combine.

    Attributes:
        names: targets in vector order.
        sizes: singular values of each.
        factors: by the name of the decoder's own matrix; a pytree to be passed into jitted functions. A tied
            ``lm_head`` is ``embed``; an untied one never touches h and has none.
        seconds: that the decompositions took.
        read: how many of them came from the cache folder.
    """

    def __init__(self, decoder: Decoder, settings: SvfSettings):
        config = decoder.config
        self.names = targets(settings, config)
        self.sizes = {name: rank(name, config) for name in self.names}
        self._sequential = settings.tied == "sequential"
        self._writers = tuple(n for n in self.names if n == "embed" or (n == "lm_head" and config.tie_embeddings))
        self.factors: dict[str, Factors] = {}
        self.read = 0
        started = time.perf_counter()
        if self._writers:
            self._decompose("embed", decoder.embed[...])
        for name in self.names:
            if name.startswith("layers."):
                _, layer, matrix = name.split(".")
                self._decompose(name, getattr(decoder.blocks, matrix)[...][int(layer)])
        self.seconds = time.perf_counter() - started
        if self.factors:
            came = len(self.factors), self.seconds, self.read
            _log.info("svf: singular values of %d matrices in %.2f s, %d of them from the cache folder", *came)

    def _decompose(self, name: str, kernel: Float[Array, "in out"]) -> None:
        self.factors[name], read = kept(kernel)
        self.read += read

    @property
    def embeds(self) -> bool:
        """Whether the embedding itself is scaled, so nothing can be shared between candidates."""
        return bool(self._writers)

    @property
    def first_layer(self) -> int | None:
        """The lowest layer with a scaled matrix, None where there is none."""
        return min((int(name.split(".")[1]) for name in self.names if name.startswith("layers.")), default=None)

    @property
    def size(self) -> int:
        """Length of the vector of all deltas."""
        return sum(self.sizes.values())

    def scales(self, factors: Mapping[str, Factors], deltas: Float[Array, " S"]) -> dict[str, Scale]:
        """Cut the vector of all deltas into one `Scale` per decoder matrix."""
        blocks: dict[str, Array] = {}
        offset = 0
        for name, size in self.sizes.items():
            blocks[name] = deltas[offset : offset + size]
            offset += size
        result = {name: scale(factors[name].s, blocks[name]) for name in factors if name != "embed"}
        if self._writers:
            s = factors["embed"].s
            both = self._sequential and len(self._writers) == 2
            written = [blocks[name] for name in self._writers]
            result["embed"] = in_sequence(s, *written) if both else scale(s, written[-1])
        return result


def projection(
    layer: int, factors: Mapping[str, Factors], scales: Mapping[str, Scale], written: Mapping[str, Array] | None = None
) -> Project:
    """The ``project`` hook of one block: scaled where its matrix is a target, plain elsewhere.

    ``written`` holds the scaled kernels that are written out.
    """

    def project(name: str, x: Array, kernel: Array, bias: Array | None) -> Array:
        key = f"layers.{layer}.{name}"
        if written and key in written:
            return plain_projection(name, x, written[key], bias)
        if key not in factors:
            return plain_projection(name, x, kernel, bias)
        y = projected(x, factors[key], scales[key])
        return y if bias is None else y + bias

    return project


def embedded(factors: Factors, scale: Scale, tokens: Int[Array, " T"]) -> Float[Array, "T D"]:
    """Rows of the scaled embedding [V, D]."""
    values = (scale.c * factors.s * (1.0 + scale.delta)).astype(factors.u.dtype)
    return jnp.matmul(factors.u[tokens] * values, factors.v.T, precision=_PRECISION)


def rebuilt_block(block: Block, layer: int, factors: Mapping[str, Factors], scales: Mapping[str, Scale]) -> Block:
    """One block with the scaled kernels of one candidate written out; the other kernels are the same arrays.

    Run it as it is, without the ``project`` hook of `projection`.

    Args:
        block: without a layer axis.
        layer: its number in the decoder.
        factors: `Adaptation.factors`.
        scales: of the candidate, `Adaptation.scales`.
    """
    where = {name: key for name in PROJECTIONS if (key := f"layers.{layer}.{name}") in factors}
    return block.replace(
        **{name: scaled(getattr(block, name)[...], factors[key], scales[key]) for name, key in where.items()}
    )


def rebuilt(decoder: Decoder, adaptation: Adaptation, deltas: Float[Array, " S"]) -> Decoder:
    """A plain decoder with every scaled kernel written out; bit for bit the original at delta = 0."""
    scales = adaptation.scales(adaptation.factors, deltas)
    embed: Any = decoder.embed[...]
    arrays = decoder.blocks.arrays()
    for name, factors in adaptation.factors.items():
        if name == "embed":
            embed = scaled(embed, factors, scales[name])
        else:
            _, layer, matrix = name.split(".")
            i = int(layer)
            arrays[matrix] = arrays[matrix].at[i].set(scaled(arrays[matrix][i], factors, scales[name]))
    lm_head = None if decoder.lm_head is None else decoder.lm_head[...]
    return Decoder(decoder.config, embed, type(decoder.blocks)(decoder.config, arrays), decoder.norm[...], lm_head)


def _checked(names: Sequence[str], config: DecoderConfig) -> tuple[str, ...]:
    known = {"embed", "lm_head"} | {f"layers.{i}.{name}" for i in range(config.num_layers) for name in PROJECTIONS}
    for i, name in enumerate(names):
        if name not in known:
            raise UserError(
                f"svf.matrices: expected embed, lm_head or layers.<0..{config.num_layers - 1}>."
                f"<{'|'.join(PROJECTIONS)}>, got {name!r}"
            )
        if name in names[:i]:
            raise UserError(f"svf.matrices: {name} is named twice")
    return tuple(names)
