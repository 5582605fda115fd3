"""``python -m trinity_jax``: look at what a run has left behind."""

import argparse
import sys
from pathlib import Path

from trinity_jax.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line on what is wrong with the input."""
    parser = argparse.ArgumentParser(prog="trinity_jax", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    inspect = commands.add_parser("inspect", help="print a coordinator's pool, head, SVF, vector length and hash")
    inspect.add_argument("coordinator", type=Path, help="the folder coordinator/ of a run")
    report = commands.add_parser("report", help="write report.html of a run folder again")
    report.add_argument("run", type=Path)
    options = parser.parse_args(arguments)
    try:
        if options.command == "inspect":
            from trinity_jax.coordinator.export import describe, load_coordinator

            print(describe(load_coordinator(options.coordinator)))
        else:
            from trinity_jax.report import write_report

            print(write_report(options.run))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
