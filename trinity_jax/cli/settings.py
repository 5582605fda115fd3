"""``settings``: every key of a run's YAML file."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Say what it takes."""
    settings = commands.add_parser(
        "settings", help="print every key of a run's YAML file, with its default, as Markdown"
    )
    settings.set_defaults(run=_run)


def _run(_: argparse.Namespace) -> int:
    from trinity_jax.config.reference import reference

    print(reference())
    return 0
