"""Singular-value fine-tuning: scale the singular values of frozen kernels, keep their sum (paper section 3.2).

Targets are named ``embed``, ``layers.<i>.q|k|v|o|gate|up|down`` and ``lm_head``. Kernels are [in, out]; their singular
values are those of the transposed Hugging Face weight.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trinity_jax.config import SvfSettings
from trinity_jax.encoder.decoder import PROJECTIONS, Decoder, DecoderConfig, Project, block_shapes, plain_projection
from trinity_jax.errors import UserError

_CHUNK = 16_384


class Factors(NamedTuple):
    """A kernel's thin decomposition u diag(s) v^T, singular values descending."""

    u: Float[Array, "in r"]
    s: Float[Array, " r"]
    v: Float[Array, "out r"]


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


def decompose(kernel: Float[Array, "in out"]) -> Factors:
    """Thin SVD by `eigh` of the shorter side's Gram matrix, in float64 on the host.

    Directions below 1e-7 of the largest singular value, which a float32 kernel does not resolve, get a zero vector on
    the long side. Vectors are stored in the kernel's dtype, s in float32.
    """
    matrix = np.asarray(kernel)
    wide = matrix.shape[0] < matrix.shape[1]
    tall = matrix.T if wide else matrix
    parts = [slice(i, i + _CHUNK) for i in range(0, len(tall), _CHUNK)]
    gram = sum(np.asarray(tall[part], np.float64).T @ np.asarray(tall[part], np.float64) for part in parts)
    squares, vectors = np.linalg.eigh(gram)
    s = np.sqrt(np.maximum(squares[::-1], 0.0))
    short = np.ascontiguousarray(vectors[:, ::-1])
    inverse = np.divide(1.0, s, out=np.zeros_like(s), where=s > 1e-7 * s[0])
    long = np.concatenate(
        [((np.asarray(tall[part], np.float64) @ short) * inverse).astype(matrix.dtype) for part in parts]
    )
    u, v = (short, long) if wide else (long, short)
    return Factors(jnp.asarray(u, matrix.dtype), jnp.asarray(s, jnp.float32), jnp.asarray(v, matrix.dtype))


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
    change = (factors.u * (factors.s * scale.delta).astype(factors.u.dtype)) @ factors.v.T
    return (scale.c * (kernel + change)).astype(kernel.dtype)


def projected(x: Float[Array, "T in"], factors: Factors, scale: Scale) -> Float[Array, "T out"]:
    r"""$x W' = c\,((x U)\, s (1 + \delta)) V^\top$: no kernel per candidate; W at delta = 0 up to rounding."""
    precision = jax.lax.Precision.HIGHEST
    values = (scale.c * factors.s * (1.0 + scale.delta)).astype(x.dtype)
    return jnp.matmul(jnp.matmul(x, factors.u, precision=precision) * values, factors.v.T, precision=precision)


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
    """

    def __init__(self, decoder: Decoder, settings: SvfSettings):
        config = decoder.config
        self.names = targets(settings, config)
        self.sizes = {name: rank(name, config) for name in self.names}
        self._sequential = settings.tied == "sequential"
        self._writers = tuple(n for n in self.names if n == "embed" or (n == "lm_head" and config.tie_embeddings))
        self.factors: dict[str, Factors] = {}
        if self._writers:
            self.factors["embed"] = decompose(decoder.embed[...])
        for name in self.names:
            if name.startswith("layers."):
                _, layer, matrix = name.split(".")
                self.factors[name] = decompose(getattr(decoder.blocks, matrix)[...][int(layer)])

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


def projection(layer: int, factors: Mapping[str, Factors], scales: Mapping[str, Scale]) -> Project:
    """The ``project`` hook of one block: scaled where its matrix is a target, plain elsewhere."""

    def project(name: str, x: Array, kernel: Array, bias: Array | None) -> Array:
        key = f"layers.{layer}.{name}"
        if key not in factors:
            return plain_projection(name, x, kernel, bias)
        y = projected(x, factors[key], scales[key])
        return y if bias is None else y + bias

    return project


def embedded(factors: Factors, scale: Scale, tokens: Int[Array, " T"]) -> Float[Array, "T D"]:
    """Rows of the scaled embedding [V, D]."""
    values = (scale.c * factors.s * (1.0 + scale.delta)).astype(factors.u.dtype)
    return jnp.matmul(factors.u[tokens] * values, factors.v.T, precision=jax.lax.Precision.HIGHEST)


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
