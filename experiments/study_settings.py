"""What all studies' settings have in common."""

from pydantic import Field

from trinity_jax.config import Group


class StudyGroup(Group):
    """Which of the file's presets is laid over its settings."""

    preset: str = "full"


class StudySettings(Group):
    """Settings of a study; a study adds its own and narrows ``kind``."""

    kind: str
    seed: int = Field(default=42, ge=0, lt=2**32)
    study: StudyGroup = StudyGroup()
