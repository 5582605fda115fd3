"""Who can be called, and what it may cost."""

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from trinity_jax.config.base import SECRET, Group, Name, Positive, Share


class PriceSettings(Group):
    """Money per million tokens."""

    input: float = Field(default=0.0, ge=0)
    output: float = Field(default=0.0, ge=0)


class ModelSettings(Group):
    """One model of the pool behind an OpenAI-compatible address."""

    name: Name
    model: str
    base_url: str
    api_key_env: str | None = Field(
        default=None, description="environment variable that holds the key; never the key itself"
    )
    max_tokens: Positive = 4096
    temperature: float | None = 0.1
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    extra_body: dict[str, Any] = Field(default_factory=dict)
    price: PriceSettings = PriceSettings()
    concurrency: Positive = 64
    attempts: Positive = 5
    connect_seconds: float = Field(default=10.0, gt=0)
    total_seconds: float = Field(default=300.0, gt=0)

    @field_validator("api_key_env")
    @classmethod
    def _names_a_variable(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            raise PydanticCustomError(
                SECRET,
                "expected the name of an environment variable, such as OPENROUTER_API_KEY; never the key itself",
            )
        return name


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

    kind: Literal["simulated", "endpoints"] = "simulated"
    models: tuple[ModelSettings, ...] = ()
    simulated: tuple[SimulatedModelSettings, ...] = ()
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
        have, other = (self.simulated, self.models) if self.kind == "simulated" else (self.models, self.simulated)
        field = "simulated" if self.kind == "simulated" else "models"
        if not have or other:
            raise ValueError(
                f"pool.kind: {self.kind} needs at least one entry in pool.{field} and none in the other list"
            )
        names = [model.name for model in have]
        if len(set(names)) != len(names):
            raise ValueError(f"pool model names must differ, got {names}")
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
