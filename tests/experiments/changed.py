"""A study's file with one setting changed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from trinity_jax import config


def changed(source: Path, path: Sequence[str], value: Any, folder: Path) -> Path:
    """A file in ``folder`` with the smoke preset's settings of ``source``, ``value`` standing at ``path``."""
    data = config.read(source, ("study.preset=smoke",)) | {"study": {}}
    node = data
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    file = folder / "bad.yaml"
    file.write_text(yaml.safe_dump(data))
    return file
