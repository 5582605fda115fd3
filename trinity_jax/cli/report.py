"""``report``: the page of a run folder."""

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Say what it takes."""
    report = commands.add_parser("report", help="write report.html of a run folder again")
    report.add_argument("run_folder", metavar="RUN", type=Path)
    report.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from trinity_jax.report import write_report

    print(write_report(options.run_folder))
    return 0
