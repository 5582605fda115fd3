"""Pools, recipes and budget of the sample-efficiency study."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from experiments.study_settings import StudySettings, WorldSettings, check_read
from trinity_jax.config import Group, LearningSettings, PoolSettings, ReadoutSettings


class Recipe(Group):
    """One way to learn a coordinator."""

    learning: LearningSettings
    readout: ReadoutSettings = ReadoutSettings(kind="raw")
    reuse: Literal["generation", "run"] = "generation"
    price: Literal["made", "asked"] = Field(
        default="made", description="what counts: calls that had to be made, or every call as if none were shared"
    )
    evaluate: Literal["sample", "argmax"] = "argmax"
    note: str = ""

    @model_validator(mode="after")
    def _start_is_whole(self) -> "Recipe":
        start = self.learning.warm_start
        check_read(self.learning, LearningSettings.model_fields.keys() - {"fitness"}, "learning")
        if start.kind != "none" and (
            start.kind != "ridge" or start.roles != "script" or start.questions or self.readout.kind == "raw"
        ):
            raise ValueError("warm_start here: expected kind: ridge, roles: script, questions: null and no raw readout")
        if len({self.readout.source == "script", start.kind != "none", start.roles == "script"}) > 1:
            raise ValueError("readout.source: script goes with a learning.warm_start of roles: script")
        return self


class Settings(StudySettings):
    """Everything the study depends on."""

    kind: Literal["sample_efficiency"] = "sample_efficiency"
    world: WorldSettings = WorldSettings()
    pools: dict[str, PoolSettings] = Field(min_length=1, description="simulated pools of any number of models")
    recipes: dict[str, Recipe] = Field(min_length=2)
    compare: tuple[str, ...] | None = Field(default=None, description="names of recipes to run; null: all")
    reference: str = Field(default="reference", description="the recipe whose calls are the yardstick")
    ours: str = Field(default="ours", description="the recipe that is judged")
    seeds: Annotated[int, Field(ge=2)] = 20
    least_gain: float = Field(default=0.03, description="pools with less to gain are only checked for harm")

    @model_validator(mode="after")
    def _names(self) -> "Settings":
        for name in self.compare or ():
            if name not in self.recipes:
                raise ValueError(f"compare: expected names of recipes ({', '.join(self.recipes)}), got {name!r}")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"compare: expected each recipe once, got {', '.join(self.names)}")
        if self.reference == self.ours:
            raise ValueError(f"ours: expected another recipe than reference, got {self.ours!r} for both")
        for role in ("reference", "ours"):
            if getattr(self, role) not in self.names:
                raise ValueError(f"{role}: expected one of {', '.join(self.names)}, got {getattr(self, role)!r}")
        for name in self.names:
            asked, have = self.recipes[name].learning.questions, self.world.train
            if asked > have:
                raise ValueError(f"recipes.{name}: learning.questions {asked} is more than world.train {have}")
        for name, pool in self.pools.items():
            if pool.kind != "simulated" or pool.shuffle_skills:
                raise ValueError(f"pools.{name}: expected kind: simulated without shuffle_skills")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Recipes to run, in order."""
        return self.compare or tuple(self.recipes)
