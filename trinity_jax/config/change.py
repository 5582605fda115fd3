"""How a trained coordinator follows a change of its pool."""

from pydantic import Field

from trinity_jax.config.base import Group, Positive, Share
from trinity_jax.config.tasks import TaskSettings


class ChangeSettings(Group):
    """A row for a model that joins: single calls, a look at its own episodes, a short evolution of few numbers."""

    questions: Positive | None = Field(default=None, description="training questions to ask; null: all")
    samples: Positive = Field(default=8, description="answers of a model to each of them")
    looks: int = Field(default=2, ge=0, description="episodes a question, for the states that the row meets")
    generations: int = Field(default=4, ge=0, description="of evolution of the row and the role rows")
    population: int = Field(default=12, ge=4)
    sigma0: float = Field(default=0.7, gt=0)
    level: float = Field(default=0.05, gt=0, lt=1, description="chance that a check raises any false alarm")
    max_failed_share: Share = 0.2


class ChangeFile(Group):
    """What of a run's file counts when its pool changes; any other group is passed over."""

    seed: int = Field(default=42, ge=0, lt=2**32)
    tasks: TaskSettings
    change: ChangeSettings = ChangeSettings()
