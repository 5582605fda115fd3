"""A trained coordinator in use: what one request may take, and what happens where it cannot be answered as asked."""

from typing import Literal

from pydantic import Field, model_validator

from trinity_jax.config.base import Group, Name, Positive


class ServingSettings(Group):
    """How requests are answered."""

    name: Name = Field(default="trinity", description="the model's name for clients")
    fallback: str | None = Field(
        default=None,
        description="the pool model that answers where another cannot be reached, or where the question is unlike "
        "those of the training; null: the coordinator's own best single model",
    )
    unfamiliar: Literal["fallback", "coordinate"] = Field(
        default="fallback", description="who answers a question unlike those of the training"
    )
    policy: Literal["sample", "argmax"] | None = Field(default=None, description="null: the coordinator's own")
    max_calls: Positive | None = Field(
        default=None, description="per request, those in place of a failed one included; null: the coordinator's turns"
    )
    max_cost: float | None = Field(default=None, gt=0, description="per request, in the prices' currency")
    max_seconds: float = Field(default=600.0, gt=0, description="per request, from its arrival to its answer")
    max_in_flight: Positive = Field(default=256, description="requests at once; more get 429")
    max_body_mb: float = Field(default=20.0, gt=0, description="images come in the body")
    max_in_flight_mb: float = Field(default=512.0, gt=0, description="bodies of all requests at once; more get 429")
    patience_seconds: float = Field(
        default=5.0,
        ge=0,
        description="of waiting for an endpoint that is down or pushes back, then another model answers",
    )
    traces: Positive = Field(default=1000, description="how many finished requests' traces are kept in memory")
    drain_seconds: float = Field(default=30.0, ge=0, description="at the end: for requests that are being answered")
    micro_batch: Positive | None = Field(
        default=1,
        description="transcripts (or pages) per device step, whatever training had: on a CPU 1 answers a lone question "
        "three times sooner than 8, and a crowd later; null: as in training",
    )
    cache_mb: Positive = Field(default=64, description="memory for transcripts already encoded")

    @model_validator(mode="after")
    def _one_body_fits(self) -> "ServingSettings":
        if self.max_in_flight_mb < self.max_body_mb:
            raise ValueError("max_in_flight_mb: expected at least max_body_mb")
        return self
