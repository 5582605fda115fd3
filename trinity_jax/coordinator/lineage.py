"""What has been done to a coordinator since its training, step by step."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Step(BaseModel):
    """One change of the pool, as the coordinator's lineage keeps it.

    Attributes:
        action: ``drop`` took a row away, ``add`` put one in, ``renew`` fitted one anew, ``profile`` changed no number.
        models: whom it was about.
        parent: SHA-256 of the tensor file of the coordinator it was made from.
        calls: paid for it.
        cost: their cost.
        probes: single calls among those asked for.
        generations: of the evolution after it.
        episodes: of each candidate in a generation.
        population: candidates of a generation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: Literal["drop", "add", "renew", "profile"]
    models: tuple[str, ...]
    parent: str
    calls: int = 0
    cost: float = 0.0
    probes: int = 0
    generations: int = 0
    episodes: int = 0
    population: int = 0
