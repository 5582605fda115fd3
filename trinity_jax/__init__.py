"""TRINITY in JAX: an evolved coordinator for a pool of language models (arXiv 2512.04695)."""

__version__ = "0.1.0"
