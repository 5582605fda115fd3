"""``tasks audit`` and ``tasks sandbox``: are the graders to be believed."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Say what it takes."""
    tasks = commands.add_parser("tasks", help="are the graders to be believed")
    actions = tasks.add_subparsers(dest="action", required=True)
    sandbox = actions.add_parser("sandbox", help="which isolation programs run under here; starts one to be sure")
    sandbox.set_defaults(run=_sandbox)
    audit = actions.add_parser(
        "audit", help="grade gold answers and corrupted ones; exit code 1 where one is misjudged"
    )
    which = audit.add_mutually_exclusive_group(required=True)
    which.add_argument("--task", action="append", metavar="NAME", help="a task that needs no network, or a JSONL file")
    which.add_argument("--all-offline", action="store_true", help="every task that needs no network")
    audit.add_argument("--json", action="store_true", help="JSON lines; the last one is about all tasks")
    audit.set_defaults(run=_audit)


def _sandbox(_: argparse.Namespace) -> int:
    from trinity_jax.tasks.sandbox import report

    print(report())
    return 0


def _audit(options: argparse.Namespace) -> int:
    from trinity_jax.tasks.audit import audit, known, report
    from trinity_jax.tasks.offline import offline_tasks

    tasks = offline_tasks()
    audits = [audit(name, known(name, tasks)) for name in (tasks if options.all_offline else options.task)]
    for line in report(audits, options.json):
        print(line)
    return 0 if all(one.believable for one in audits) else 1
