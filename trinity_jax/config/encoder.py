"""The coordinator: its encoder, what of it is evolved, and how logits become a choice."""

from typing import Literal

from pydantic import Field, model_validator

from trinity_jax.config.base import Group, Positive


class EncoderSettings(Group):
    """The small language model that reads the conversation."""

    source: str = Field(
        default="embedded", description="`embedded` (SmolLM2-135M from a wheel), a folder, a .gguf file or a hub id"
    )
    revision: str | None = Field(default=None, description="hub revision to pin")
    layers: Positive | None = Field(default=None, description="cut the encoder after this many blocks; null keeps all")
    read_position: int = Field(
        default=-2, le=-1, description="which token's state is h; the paper's is the penultimate"
    )
    input_format: Literal["chat", "plain"] = "chat"
    dtype: Literal["float32", "bfloat16"] = "float32"
    buckets: tuple[Positive, ...] = Field(
        default=(128, 256, 512, 1024), min_length=1, description="padded lengths; one compilation each"
    )
    page: Positive | None = Field(
        default=None,
        description="transcripts that begin alike share their beginning in pages of this many tokens; null: no sharing",
    )
    micro_batch: Positive | None = Field(
        default=None,
        description="transcripts (or pages) per device step; null: 32, on a CPU 1 (or 8 pages)",
    )
    cache_mb: Positive = Field(default=512, description="memory for transcripts already encoded")
    work_mb: Positive = Field(
        default=2048, description="memory of one device step; long transcripts go fewer at a time"
    )
    devices: Positive | None = Field(default=None, description="local devices that share the work; null: all there are")

    @model_validator(mode="after")
    def _buckets_ascend(self) -> "EncoderSettings":
        if list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"buckets must ascend, got {list(self.buckets)}")
        if self.page and any(size % self.page for size in self.buckets):
            raise ValueError(f"buckets must be multiples of page: {self.page}, got {list(self.buckets)}")
        return self


class SvfSettings(Group):
    """Which matrices get singular-value scales (arXiv 2512.04695, section 3.2)."""

    preset: Literal["none", "layer", "released", "custom"] = "none"
    layer: int = Field(default=-2, description="block of the `layer` and `released` presets, counted as in Python")
    matrices: tuple[str, ...] = Field(
        default=(), description="for `custom`: names such as `layers.26.q`, `embed`, `lm_head`"
    )
    tied: Literal["last_write", "sequential"] = "last_write"
    scale: float = Field(default=1.0, gt=0, description="a coordinate of 1 means a relative change of this size")

    @model_validator(mode="after")
    def _custom_has_names(self) -> "SvfSettings":
        if (self.preset == "custom") != bool(self.matrices):
            raise ValueError("svf.matrices goes with svf.preset: custom, and only with it")
        return self


class HeadSettings(Group):
    """The map from h to L model logits and 3 role logits (arXiv 2512.04695, section 3.2, and its table of heads)."""

    kind: Literal["linear", "block_diagonal", "low_rank", "sparse", "profile"] = "linear"
    blocks: Positive = Field(default=2, description="for block_diagonal: how many blocks")
    rank: Positive = Field(default=20, description="for low_rank: how many numbers stand between h and the logits")
    profiles: tuple[tuple[float, ...], ...] = Field(
        default=(), description="for profile: one row of numbers a model, such as its answers to anchor questions"
    )


class ReadoutSettings(Group):
    """Coordinates in which the head is evolved (raw is the paper's)."""

    kind: Literal["raw", "centred", "whitened"] = "whitened"
    k: Positive = Field(default=8, description="for whitened: how many principal directions")
    bias: bool = Field(default=True, description="evolve a constant per output too (never with raw)")
    source: Literal["questions", "episodes", "script"] = Field(
        default="questions",
        description="states of the training questions, or those met in one episode each (costs calls): with uniform "
        "choices, or by a script of roles (Worker or Thinker, Verifier, Worker after a rejection) with random models",
    )


class PolicySettings(Group):
    """How logits become a choice."""

    train: Literal["sample", "argmax"] = "sample"
    evaluate: Literal["sample", "argmax"] = "sample"
