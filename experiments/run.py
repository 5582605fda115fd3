"""One YAML file = one run: ``python experiments/run.py --config FILE [--set K=V ...] [--run-dir DIR] [--resume]``."""

import argparse
import sys
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from trinity_jax import config
from trinity_jax.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 for what the user can mend, or 130 for Ctrl-C; a stopped run goes on with ``--resume``."""
    parser = argparse.ArgumentParser(prog="experiments/run.py", description=__doc__)
    parser.add_argument("--config", required=True, help="YAML file, such as experiments/configs/quickstart.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="such as learning.generations=5")
    parser.add_argument("--run-dir", type=Path, help="where results go; default: runs/<config>-<time>")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --run-dir")
    options = parser.parse_args(arguments)
    # A table needs room; where nobody looks through a window, give it some.
    console = Console(width=None if sys.stdout.isatty() else 132)
    try:
        if options.resume and options.run_dir is None:
            raise UserError("--resume needs --run-dir: the run to go on with")
        settings = config.load(options.config, tuple(options.set))
        stamp = f"{Path(options.config).stem}-{datetime.now():%Y%m%d-%H%M%S}"
        # Imported late: a bad config is told before the seconds that JAX and transformers take to load.
        from trinity_jax.training.train import train

        train(settings, options.run_dir or Path("runs") / stamp, resume=options.resume, console=console)
    except UserError as error:
        Console(stderr=True).print(f"[bold red]error:[/bold red] {escape(str(error))}", soft_wrap=True, highlight=False)
        return 2
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; what was paid for is kept: go on with --resume")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
