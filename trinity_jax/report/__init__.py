"""One self-contained page about a run, made from its folder only."""

from trinity_jax.report.page import write_report

__all__ = ["write_report"]
