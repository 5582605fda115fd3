"""``journal show``, ``explain``, ``export``, ``import``: what was called, why a call missed, and moving it."""

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Say what it takes."""
    journal = commands.add_parser("journal", help="look into a journal of calls, or move one between machines")
    actions = journal.add_subparsers(dest="action", required=True)
    show = actions.add_parser("show", help="calls by model, role and outcome")
    explain = actions.add_parser("explain", help="why a call is (not) answered from a journal, field by field")
    explain.add_argument("--call", required=True, metavar="KEY_OR_JSON", help="the call's key, or its JSON")
    explain.add_argument(
        "--of", type=Path, metavar="JOURNAL", help="where the call of that key is recorded, if elsewhere"
    )
    export = actions.add_parser("export", help="write a journal as JSON lines (gzipped: a name in .gz)")
    take = actions.add_parser("import", help="add exported lines to a journal, which is made if it is not there")
    for action in (show, explain, export, take):
        action.add_argument("journal", type=Path, help="such as RUN/journal.sqlite")
    export.add_argument("file", type=Path)
    take.add_argument("file", type=Path)
    journal.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    print(_text(options))
    return 0


def _text(options: argparse.Namespace) -> str:
    from trinity_jax.pool import explain, transfer
    from trinity_jax.pool.records import Records

    if options.action == "export":
        moved = transfer.export_journal(options.journal, options.file)
        return f"{options.file}: {moved.calls} calls, {moved.decisions} decisions, {moved.grades} grades"
    if options.action == "import":
        moved = transfer.import_journal(options.journal, options.file)
        new = f"{moved.new} of {moved.calls} calls are new"
        return f"{options.journal}: {new}, {moved.decisions} decisions, {moved.grades} grades"
    with Records.read(options.journal) as records:
        if options.action == "show":
            return explain.summary(records)
        call = options.call.strip()
        if call.startswith("{"):
            return explain.explain(records, call)
        with Records.read(options.of or options.journal) as source:
            return explain.explain(records, explain.find(source, call))
