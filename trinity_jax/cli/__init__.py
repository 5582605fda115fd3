"""``python -m trinity_jax``: look before a run, and at what one has left behind; use what it has trained.

One file a command: ``add`` says what it takes, ``run`` does it. Both import what they need when they are called, so
that ``--help`` waits for nothing.
"""

import argparse
import sys

from trinity_jax.cli import coordinator, evaluate, journal, pool, preflight, report, serve, settings, tasks
from trinity_jax.errors import UserError

_COMMANDS = (coordinator, evaluate, settings, preflight, report, serve, tasks, journal, pool)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, 1 for a check that finds something, or 2 with one line on what is wrong with the input."""
    parser = argparse.ArgumentParser(prog="trinity_jax", description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in _COMMANDS:
        command.add(commands)
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
