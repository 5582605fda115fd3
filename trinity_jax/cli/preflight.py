"""``preflight``: before a run, models and roles, what they know, what it will cost."""

import argparse
import sys
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Say what it takes."""
    look = commands.add_parser("preflight", help="before a run: models and roles, what they know, calls, money, hours")
    look.add_argument("--config", required=True, help="the run's YAML file")
    look.add_argument("--set", action="append", default=[], metavar="K=V")
    look.add_argument(
        "--run-dir", type=Path, help="where its calls are kept, for the run; default: runs/<config>-preflight"
    )
    look.add_argument("--yes", action="store_true", help="do not ask")
    look.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from trinity_jax import config

    settings = config.load(options.config, tuple(options.set))
    folder = options.run_dir or Path("runs") / f"{Path(options.config).stem}-preflight"
    from rich.console import Console

    from trinity_jax.training import preflight

    preflight.alone(settings, folder, Console(width=None if sys.stdout.isatty() else 132), options.yes)
    return 0
