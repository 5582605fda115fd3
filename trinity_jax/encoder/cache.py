"""Arrays in the user's cache folder: written whole or not at all; damage or a read-only folder costs time only."""

import logging
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]
_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """$TRINITY_CACHE, else trinity_jax in $XDG_CACHE_HOME, else ~/.cache/trinity_jax."""
    if own := os.environ.get("TRINITY_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trinity_jax"


def load(file: Path, fits: Callable[[Arrays], bool]) -> Arrays | None:
    """The arrays in a cache file; None where there is none, or one that is damaged or does not fit.

    Every array has a check sum in the file, so a flipped bit is damage.
    """
    try:
        with file.open("rb") as stream, np.load(stream) as archive:
            arrays = {name: archive[name] for name in archive.files}
        if not fits(arrays):
            raise ValueError(", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    # RuntimeError: a flipped bit may say that the archive is encrypted, or packed in an unknown way.
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, TypeError) as error:
        _log.warning("%s is damaged (%s); it is computed again", file, error)
        return None
    return arrays


def store(file: Path, **arrays: np.ndarray) -> None:
    """Write a cache file whole or not at all; where it cannot be written, say so and go on."""
    partial = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".partial", delete=False) as stream:
            partial = Path(stream.name)
            np.savez(stream, **arrays)  # pyright: ignore[reportArgumentType]
        partial.replace(file)
    except OSError as error:
        if partial:
            partial.unlink(missing_ok=True)
        _log.warning("%s could not be kept (%s); set TRINITY_CACHE", file, error.strerror)
