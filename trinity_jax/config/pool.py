"""Who can be called, and what it may cost."""

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from trinity_jax.config.base import SECRET, Group, Name, Positive, Share

_NOT_IN = {"chat": (), "responses": ("top_k", "presence_penalty"), "anthropic": ("presence_penalty",), "gemini": ()}


class PriceSettings(Group):
    """Money per million tokens."""

    input: float = Field(default=0.0, ge=0)
    output: float = Field(default=0.0, ge=0)


class ModelSettings(Group):
    """One model of the pool behind an HTTP address."""

    name: Name
    model: str
    base_url: str
    format: Literal["chat", "responses", "anthropic", "gemini"] = Field(
        default="chat",
        description="chat: OpenAI-compatible chat completions; responses: OpenAI Responses; anthropic: Messages; "
        "gemini: generateContent",
    )
    api_key_env: str | None = Field(
        default=None, description="environment variable that holds the key; never the key itself"
    )
    max_tokens: Positive = 4096
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="how a chat server calls it; OpenAI's reasoning models want the second"
    )
    context: Positive | None = Field(
        default=None,
        description="the model's context in tokens: max_tokens is clipped to what a prompt of one token a byte leaves",
    )
    temperature: float | None = 0.1
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    extra_body: dict[str, Any] = Field(default_factory=dict)
    images: bool = Field(default=False, description="serving: whether the model takes images (format: chat)")
    price: PriceSettings = PriceSettings()
    concurrency: Positive = Field(default=64, description="most calls in flight; fewer while the endpoint pushes back")
    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0, description="in and out")
    attempts: Positive = Field(default=5, description="most requests of a call that the server may have worked on")
    patience_seconds: float = Field(
        default=300.0,
        ge=0,
        description="of waiting before new attempts: back-off, Retry-After, an endpoint that is down",
    )
    connect_seconds: float = Field(default=10.0, gt=0)
    first_byte_seconds: float = Field(default=300.0, gt=0, description="servers answer when all tokens are there")
    idle_seconds: float = Field(default=60.0, gt=0, description="between two parts of a reply")
    total_seconds: float = Field(default=300.0, gt=0, description="of one attempt, once it is sent")

    @field_validator("api_key_env")
    @classmethod
    def _names_a_variable(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            raise PydanticCustomError(
                SECRET,
                "expected the name of an environment variable, such as OPENROUTER_API_KEY; never the key itself",
            )
        return name

    @model_validator(mode="after")
    def _format_has_it(self) -> "ModelSettings":
        missing = [field for field in _NOT_IN[self.format] if getattr(self, field) is not None]
        if self.format != "chat" and self.max_tokens_field != "max_tokens":
            missing.append("max_tokens_field")
        if missing:
            raise ValueError(f"format {self.format} has no {', '.join(missing)}: leave it out")
        return self


class SimulatedModelSettings(Group):
    """A simulated model: chance of a right answer by task kind and role; `default` covers the rest."""

    name: Name
    worker: dict[str, Share]
    thinker: dict[str, Share] = Field(default_factory=lambda: {"default": 0.5})
    accepts_right: Share = Field(default=0.9, description="as Verifier: chance to accept a right response")
    accepts_wrong: Share = Field(default=0.25, description="as Verifier: chance to accept a wrong response")
    price: PriceSettings = PriceSettings()
    latency_seconds: float = Field(default=0.0, ge=0)


class PoolSettings(Group):
    """Who can be called."""

    kind: Literal["simulated", "endpoints", "recorded"] = Field(
        default="simulated", description="recorded: what the models listed here said to a journal; nothing is sent"
    )
    models: tuple[ModelSettings, ...] = ()
    simulated: tuple[SimulatedModelSettings, ...] = ()
    journal: Path | None = Field(default=None, description="recorded: the journal, such as RUN/journal.sqlite")
    prices: Path | None = Field(default=None, description="a dated price file; an entry's own price counts first")
    unknown_price: Literal["refuse", "free"] = Field(
        default="refuse", description="what a model without a price is, unless its address is local (which is free)"
    )
    judge: str | None = Field(
        default=None, description="the model of this pool that grades what only a reader can (grader: judge)"
    )
    wrong_concentration: Share = Field(
        default=0.5, description="simulated: 1 puts every wrong reply on one wrong answer, 0 spreads them evenly"
    )
    thinker_boost: Share = Field(
        default=0.15, description="simulated: a good suggestion adds this to the Worker's chance"
    )
    shuffle_skills: bool = Field(
        default=False, description="simulated: permute the models' skills per question (a control)"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> "PoolSettings":
        if (self.kind == "recorded") != (self.journal is not None):
            raise ValueError("pool.journal: the journal to answer from, for pool.kind: recorded and for no other")
        if self.kind == "recorded":
            if bool(self.simulated) == bool(self.models):
                raise ValueError("pool.kind: recorded needs the list that was recorded: pool.simulated or pool.models")
        else:
            field, other = ("simulated", "models") if self.kind == "simulated" else ("models", "simulated")
            if not getattr(self, field) or getattr(self, other):
                raise ValueError(
                    f"pool.kind: {self.kind} needs at least one entry in pool.{field} and none in the other list"
                )
        if self.prices and not self.models:
            raise ValueError("pool.prices: for pool.models; simulated ones have a price of their own")
        have = self.simulated or self.models
        names = [model.name for model in have]
        if len(set(names)) != len(names):
            raise ValueError(f"pool model names must differ, got {names}")
        if self.judge is not None and self.judge not in names:
            raise ValueError(f"pool.judge: expected one of {', '.join(names)}, got {self.judge!r}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names in head order."""
        return tuple(m.name for m in (self.simulated or self.models))


class JournalSettings(Group):
    """What counts as the same call."""

    reuse: Literal["generation", "run"] = "generation"


class BudgetSettings(Group):
    """Hard caps of a run; null means none."""

    calls: Positive | None = None
    cost: float | None = Field(default=None, gt=0)
    tokens: Positive | None = Field(default=None, description="in and out, as replies report them")
