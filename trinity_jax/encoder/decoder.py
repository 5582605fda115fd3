"""Qwen3 and its relatives (Qwen2, Llama) as one Flax NNX decoder; semantics are Hugging Face's.

Modules are plain pytrees (NNX tree mode): ``jax.jit``, ``jax.vmap`` and ``jax.lax.scan`` take them as they are. Nothing
here has a batch axis: ``vmap`` at the call site. Padding goes to the right and needs no mask, because a causal position
never sees a later one.

Letters: T tokens, D model width, N query heads, K key/value heads, H head width, F feed forward, V vocabulary.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from trinity_jax.encoder.attention import PRECISION, Kind, attend, causal
from trinity_jax.errors import UserError

MODEL_TYPES = ("qwen3", "qwen2", "llama")

Project = Callable[[str, Array, Array, Array | None], Array]
"""``project(name, x [T, in], kernel [in, out], bias [out] or None) -> [T, out]``; name: one of ``PROJECTIONS``."""

PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")


class RopeScaling(NamedTuple):
    """Llama 3's stretching of long wavelengths (``rope_type: llama3``)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: float


@dataclass(frozen=True)
class DecoderConfig:
    """Everything about a decoder that is not a weight; hashable, so it may be static under ``jax.jit``."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6
    qk_norm: bool = False
    qkv_bias: bool = False
    tie_embeddings: bool = False
    max_positions: int = 32_768
    rope_scaling: RopeScaling | None = None
    attention: Kind = "plain"

    @staticmethod
    def from_hf(config: Mapping[str, Any], where: str) -> "DecoderConfig":
        """Read a Hugging Face ``config.json``; ``where`` names it in messages.

        Raises:
            UserError: another architecture, a missing or impossible value, or a feature that changes the computation
                and is not implemented (sliding windows, other RoPE types, biases elsewhere, other activations).
        """
        return _from_hf(config, where)


def block_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every parameter of one block; kernels are [in, out]."""
    D, F, H = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_heads * H, config.num_kv_heads * H
    shapes: dict[str, tuple[int, ...]] = {
        "attention_norm": (D,),
        "q": (D, queries),
        "k": (D, keys),
        "v": (D, keys),
        "o": (queries, D),
        "mlp_norm": (D,),
        "gate": (D, F),
        "up": (D, F),
        "down": (F, D),
    }
    if config.qk_norm:
        shapes |= {"q_norm": (H,), "k_norm": (H,)}
    if config.qkv_bias:
        shapes |= {"q_bias": (queries,), "k_bias": (keys,), "v_bias": (keys,)}
    return shapes


class Rope(NamedTuple):
    """Cosines and sines of the first T positions' angles."""

    cos: Float[Array, "T H/2"]
    sin: Float[Array, "T H/2"]


def rope(config: DecoderConfig, T: int, dtype: Any) -> Rope:
    """Rotary tables of positions 0..T-1: angles in float32, then cast to ``dtype``."""
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    frequencies = (1.0 / np.float32(config.rope_theta) ** exponents).astype(np.float32)
    if config.rope_scaling is not None:
        frequencies = _stretch(frequencies, config.rope_scaling)
    # An elementwise outer product: as a matmul it would lose digits where matmuls are approximate.
    angles = jnp.arange(T, dtype=jnp.float32)[:, None] * frequencies[None, :]
    return Rope(jnp.cos(angles).astype(dtype), jnp.sin(angles).astype(dtype))


def plain_projection(name: str, x: Array, kernel: Array, bias: Array | None) -> Array:
    """``x @ kernel + bias``, the default of every ``project`` argument."""
    y = jnp.matmul(x, kernel, precision=PRECISION)
    return y if bias is None else y + bias


def rms_norm(x: Float[Array, "*T D"], weight: Float[Array, " D"], eps: float) -> Float[Array, "*T D"]:
    """Root-mean-square norm in float32; cast back before the weight is applied, as the reference does."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return weight * wide.astype(x.dtype)


class Block(nnx.Module):
    """One layer: attention and gated MLP, each behind a norm and a residual.

    A :class:`Decoder` keeps all its layers in one ``Block`` whose arrays carry a leading layer axis; the methods are
    for a block without that axis (:func:`block_at`).

    Args:
        config: The decoder's.
        arrays: By name, one array for each entry of :func:`block_shapes`.
    """

    attention_norm: nnx.Param
    mlp_norm: nnx.Param
    q: nnx.Param
    k: nnx.Param
    v: nnx.Param
    o: nnx.Param
    gate: nnx.Param
    up: nnx.Param
    down: nnx.Param
    q_norm: nnx.Param
    k_norm: nnx.Param

    def __init__(self, config: DecoderConfig, arrays: Mapping[str, Array]):
        self.config = config
        for name in block_shapes(config):
            setattr(self, name, nnx.Param(arrays[name]))

    def arrays(self) -> dict[str, Array]:
        """Every parameter by name."""
        return {name: getattr(self, name)[...] for name in block_shapes(self.config)}

    def replace(self, **arrays: Array) -> "Block":
        """The same block with some parameters exchanged."""
        if unknown := arrays.keys() - block_shapes(self.config).keys():
            raise ValueError(
                f"a block of this decoder has no {sorted(unknown)}, only {list(block_shapes(self.config))}"
            )
        return Block(self.config, self.arrays() | arrays)

    def __call__(self, x: Float[Array, "T D"], rope: Rope, project: Project = plain_projection) -> Float[Array, "T D"]:
        """The block's output at every position."""
        q, (k, v) = self._queries(x, rope, project), self.keys_values(x, rope, project)
        return self._finish(x, causal(q, k, v, self.config.attention), project)

    def row(
        self, x: Float[Array, "T D"], rope: Rope, row: Int[Array, ""] | int, project: Project = plain_projection
    ) -> Float[Array, " D"]:
        """The block's output at position ``row`` only: keys and values for all tokens, the rest for one."""
        index = jnp.asarray(row)[None]
        here = Rope(rope.cos[index], rope.sin[index])
        return self.attend(x[index], index, here, *self.keys_values(x, rope, project), project)[0]

    def keys_values(
        self, x: Float[Array, "T D"], rope: Rope, project: Project = plain_projection
    ) -> tuple[Float[Array, "T K H"], Float[Array, "T K H"]]:
        """What later positions read of these: rotated keys, and values; ``rope`` is of the same positions."""
        normed = rms_norm(x, self.attention_norm[...], self.config.rms_norm_eps)
        k = self._heads("k", normed, project)
        if self.config.qk_norm:
            k = rms_norm(k, self.k_norm[...], self.config.rms_norm_eps)
        return _rotate(k, rope), self._heads("v", normed, project)

    def attend(
        self,
        x: Float[Array, "Q D"],
        positions: Int[Array, " Q"],
        rope: Rope,
        k: Float[Array, "T K H"],
        v: Float[Array, "T K H"],
        project: Project = plain_projection,
    ) -> Float[Array, "Q D"]:
        """The block's output at some positions, their inputs and ``rope`` given, over keys and values of 0..T-1.

        Keys beyond a position have no effect on it.
        """
        return self._finish(x, attend(self._queries(x, rope, project), k, v, positions), project)

    def _queries(self, x: Float[Array, "Q D"], rope: Rope, project: Project) -> Float[Array, "Q N H"]:
        eps = self.config.rms_norm_eps
        q = self._heads("q", rms_norm(x, self.attention_norm[...], eps), project)
        return _rotate(rms_norm(q, self.q_norm[...], eps) if self.config.qk_norm else q, rope)

    def _finish(self, x: Float[Array, "Q D"], attended: Float[Array, "Q N*H"], project: Project) -> Float[Array, "Q D"]:
        x = x + self._linear("o", attended, project)
        normed = rms_norm(x, self.mlp_norm[...], self.config.rms_norm_eps)
        gated = jax.nn.silu(self._linear("gate", normed, project)) * self._linear("up", normed, project)
        return x + self._linear("down", gated, project)

    def _linear(self, name: str, x: Array, project: Project) -> Array:
        bias = getattr(self, f"{name}_bias", None)
        return project(name, x, getattr(self, name)[...], None if bias is None else bias[...])

    def _heads(self, name: str, x: Array, project: Project) -> Array:
        return self._linear(name, x, project).reshape(x.shape[0], -1, self.config.head_dim)


class Decoder(nnx.Module):
    """Embedding, a stack of blocks, a final norm and, where it is not tied, a language-model head.

    Attributes:
        config: What is not a weight.
        embed: [V, D].
        blocks: One :class:`Block` with a leading layer axis.
        norm: [D].
        lm_head: [D, V], or ``None`` where the embedding serves.
    """

    def __init__(self, config: DecoderConfig, embed: Array, blocks: Block, norm: Array, lm_head: Array | None = None):
        if (lm_head is None) != config.tie_embeddings:
            raise ValueError(f"tie_embeddings is {config.tie_embeddings}, yet lm_head is {type(lm_head).__name__}")
        self.config = config
        self.embed = nnx.Param(embed)
        self.blocks = blocks
        self.norm = nnx.Param(norm)
        self.lm_head = None if lm_head is None else nnx.Param(lm_head)

    @staticmethod
    def random(config: DecoderConfig, seed: int, dtype: Any = jnp.float32) -> "Decoder":
        """Gaussian kernels of standard deviation 0.02, norms 1, biases 0: for shapes and timings."""
        root = jax.random.key(seed)
        V, D, L = config.vocab_size, config.hidden_size, config.num_layers

        def normal(index: int, shape: tuple[int, ...]) -> Array:
            return 0.02 * jax.random.normal(jax.random.fold_in(root, index), shape, dtype)

        arrays = {}
        for index, (name, shape) in enumerate(block_shapes(config).items()):
            constant = jnp.ones if name.endswith("norm") else jnp.zeros
            arrays[name] = normal(index + 2, (L, *shape)) if name in PROJECTIONS else constant((L, *shape), dtype)
        lm_head = None if config.tie_embeddings else normal(1, (D, V))
        return Decoder(config, normal(0, (V, D)), Block(config, arrays), jnp.ones(D, dtype), lm_head)


def embed(decoder: Decoder, tokens: Int[Array, " T"]) -> Float[Array, "T D"]:
    """Rows of the embedding."""
    return decoder.embed[...][tokens]


def run(decoder: Decoder, x: Float[Array, "T D"], first: int, last: int) -> Float[Array, "T D"]:
    """Blocks ``first`` up to, not including, ``last``: ``lax.scan`` over the stacked layers."""
    table = rope(decoder.config, x.shape[0], x.dtype)

    # Scanning over indices rather than over blocks[first:last], which XLA would copy before it starts.
    def step(x: Array, i: Array) -> tuple[Array, None]:
        return block_at(decoder, i)(x, table), None

    return jax.lax.scan(step, x, jnp.arange(first, last))[0]


def block_at(decoder: Decoder, i: int | Int[Array, ""]) -> Block:
    """Block ``i``, counted as in Python, without the layer axis."""
    return jax.tree.map(lambda leaf: leaf[i], decoder.blocks)


def final_norm(decoder: Decoder, x: Float[Array, "*T D"]) -> Float[Array, "*T D"]:
    """The norm after the last block."""
    return rms_norm(x, decoder.norm[...], decoder.config.rms_norm_eps)


def hidden(decoder: Decoder, tokens: Int[Array, " T"]) -> Float[Array, "T D"]:
    """State of the last layer after the final norm, at every position."""
    return final_norm(decoder, run(decoder, embed(decoder, tokens), 0, decoder.config.num_layers))


def logits(decoder: Decoder, h: Float[Array, "*T D"]) -> Float[Array, "*T V"]:
    """Next-token scores."""
    kernel = decoder.embed[...].T if decoder.lm_head is None else decoder.lm_head[...]
    return jnp.matmul(h, kernel, precision=PRECISION)


def cut(decoder: Decoder, layers: int) -> Decoder:
    """Keep the first ``layers`` blocks; the final norm and the head stay.

    Raises:
        UserError: ``layers`` is not in 1..num_layers.
    """
    have = decoder.config.num_layers
    if not 1 <= layers <= have:
        raise UserError(f"encoder.layers: this encoder has {have} layers, expected 1 to {have}, got {layers}")
    config = replace(decoder.config, num_layers=layers)
    blocks = Block(config, {name: array[:layers] for name, array in decoder.blocks.arrays().items()})
    lm_head = None if decoder.lm_head is None else decoder.lm_head[...]
    return Decoder(config, decoder.embed[...], blocks, decoder.norm[...], lm_head)


def _rotate(x: Float[Array, "T N H"], rope: Rope) -> Float[Array, "T N H"]:
    """Rotate the pairs (i, i + H/2)."""
    first, second = jnp.split(x, 2, axis=-1)
    cos, sin = rope.cos[:, None], rope.sin[:, None]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _stretch(frequencies: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    """Long waves are slowed by ``factor``, short ones kept, those between interpolated."""
    turns = scaling.original_max_positions * frequencies / np.float32(2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    kept = np.clip((turns - scaling.low_freq_factor) / span, 0.0, 1.0)
    return ((1 - kept) * frequencies / scaling.factor + kept * frequencies).astype(np.float32)


def _from_hf(config: Mapping[str, Any], where: str) -> DecoderConfig:
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise UserError(f"{where}: model_type: expected one of {', '.join(MODEL_TYPES)}, got {kind!r}")

    def whole(key: str, default: int | None = None) -> int:
        value = config.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"{where}: {key}: expected a positive integer, got {value!r}")
        return value

    def number(values: Mapping[str, Any], key: str, default: float | None = None) -> float:
        value = values.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise UserError(f"{where}: {key}: expected a positive number, got {value!r}")
        return float(value)

    def refuse(key: str, came: Any, supported: str) -> None:
        raise UserError(f"{where}: {key}: only {supported} is supported, got {came!r}")

    if (activation := config.get("hidden_act", "silu")) != "silu":
        refuse("hidden_act", activation, "silu")
    for key in ("attention_bias", "mlp_bias"):
        if config.get(key):
            refuse(key, config[key], "false")
    if config.get("use_sliding_window") or "sliding_attention" in (config.get("layer_types") or ()):
        refuse("use_sliding_window", True, "attention over all tokens (false)")

    heads, hidden_size = whole("num_attention_heads"), whole("hidden_size")
    kv_heads = whole("num_key_value_heads", heads)
    if heads % kv_heads:
        raise UserError(f"{where}: num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}")
    if config.get("head_dim") is None and hidden_size % heads:
        raise UserError(f"{where}: hidden_size {hidden_size} is no multiple of num_attention_heads {heads}")
    head_dim = whole("head_dim", hidden_size // heads)
    if head_dim % 2:
        raise UserError(f"{where}: head_dim: rotary positions need an even number, got {head_dim}")

    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(parameters, Mapping):
        raise UserError(f"{where}: rope_parameters or rope_scaling: expected a mapping, got {parameters!r}")
    given = {**config, **parameters}
    if (share := given.get("partial_rotary_factor", 1.0)) != 1.0:
        refuse("partial_rotary_factor", share, "1.0")
    scaling, kind_of_rope = None, parameters.get("rope_type", parameters.get("type", "default"))
    if kind_of_rope not in ("default", "llama3"):
        refuse("rope_type", kind_of_rope, "default or llama3")
    if kind_of_rope == "llama3":
        keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        scaling = RopeScaling(*(number(parameters, key) for key in keys))
    return DecoderConfig(
        vocab_size=whole("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=whole("intermediate_size"),
        num_layers=whole("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rope_theta=number(given, "rope_theta", 10_000.0),
        rms_norm_eps=number(config, "rms_norm_eps", 1e-6),
        qk_norm=kind == "qwen3",
        qkv_bias=kind == "qwen2",
        tie_embeddings=bool(config.get("tie_word_embeddings", False)),
        max_positions=whole("max_position_embeddings", 32_768),
        rope_scaling=scaling,
    )
