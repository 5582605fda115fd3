"""Reading the corpora of awkward answers next to this file."""

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "corpora"


def load(name: str) -> list[dict[str, Any]]:
    """The entries of ``corpora/<name>.yaml``."""
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
