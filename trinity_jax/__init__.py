"""TRINITY in JAX: an evolved coordinator for a pool of language models (arXiv 2512.04695)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trinity_jax.coordinator.released import import_released
    from trinity_jax.serving.api import open

__version__ = "0.1.0"
__all__ = ["import_released", "open"]


def __getattr__(name: str) -> Any:
    # On first use: JAX takes a second to import, which `--help` and the settings need not wait for.
    if name == "import_released":
        from trinity_jax.coordinator.released import import_released

        return import_released
    if name == "open":
        from trinity_jax.serving.api import open

        return open
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
