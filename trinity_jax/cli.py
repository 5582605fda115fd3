"""``python -m trinity_jax``: look at what a run has left behind; import the published vector."""

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
    released = commands.add_parser("import-released", help="the authors' published vector -> a coordinator folder")
    released.add_argument("vector", type=Path, help="a .npy file of 19,456 numbers")
    released.add_argument("--out", type=Path, required=True, help="the folder to write")
    released.add_argument("--pool", help="names of the seven models, a,b,c,...; default: the authors'")
    released.add_argument("--source", default="Qwen/Qwen3-0.6B", help="hub id or folder of the encoder")
    released.add_argument("--input-format", choices=("chat", "plain"), default="chat")
    released.add_argument("--tied", choices=("last_write", "sequential"), default="last_write")
    options = parser.parse_args(arguments)
    try:
        if options.command == "inspect":
            from trinity_jax.coordinator.export import describe, load_coordinator

            print(describe(load_coordinator(options.coordinator)))
        elif options.command == "import-released":
            from trinity_jax.coordinator.export import describe, write_coordinator
            from trinity_jax.coordinator.released import POOL, import_released

            pool = POOL if options.pool is None else [name.strip() for name in options.pool.split(",")]
            chosen = {"source": options.source, "input_format": options.input_format, "tied": options.tied}
            coordinator = import_released(options.vector, pool, **chosen)
            write_coordinator(options.out, coordinator)
            print(describe(coordinator))
        else:
            from trinity_jax.report import write_report

            print(write_report(options.run))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
