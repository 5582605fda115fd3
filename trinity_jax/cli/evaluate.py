"""``evaluate``: a trained coordinator against everything else that could be done with its pool."""

import argparse
import sys
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Say what it takes."""
    look = commands.add_parser(
        "evaluate", help="a coordinator against single models, routers and other rivals, each at stated calls"
    )
    look.add_argument(
        "coordinators",
        nargs="+",
        type=Path,
        metavar="RUN_OR_COORDINATOR",
        help="run folders, or coordinator folders with --pool and --task or --config; the table is about the first, "
        "further ones are compared by kind of question",
    )
    look.add_argument("--config", help="a run's YAML file: pool, questions, settings; default: the run's own")
    look.add_argument(
        "--task", action="append", default=[], metavar="FILE_OR_NAME", help="JSONL file or offline task to test on"
    )
    look.add_argument("--pool", help="YAML file with `pool` and maybe `budget`, in the order the coordinator knows")
    look.add_argument("--set", action="append", default=[], metavar="K=V", help="such as evaluation.repeats=4")
    look.add_argument("--out", type=Path, help="default: RUN/evaluation, else runs/<name>-evaluation")
    look.add_argument("--yes", action="store_true", help="do not ask")
    look.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from trinity_jax.encoder.compiled import keep_compiled

    keep_compiled()
    from trinity_jax.training.evaluate import evaluate
    from trinity_jax.training.trial import plan

    trial = plan(options.coordinators, options.config, options.task, options.pool, options.set)
    first = trial.coordinators[0]
    beside = first.run.path / "evaluation" if first.run else Path("runs") / f"{first.name}-evaluation"
    console = Console(width=None if sys.stdout.isatty() else 180)
    evaluate(trial, options.out or beside, console, options.yes)
    return 0
