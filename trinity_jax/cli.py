"""``python -m trinity_jax``: look before a run, and at what one has left behind; import the published vector."""

import argparse
import sys
from pathlib import Path

from trinity_jax.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, 1 for an audit that finds something, or 2 with one line on what is wrong with the input."""
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
    look = commands.add_parser("preflight", help="before a run: models and roles, what they know, calls, money, hours")
    look.add_argument("--config", required=True, help="the run's YAML file")
    look.add_argument("--set", action="append", default=[], metavar="K=V")
    look.add_argument(
        "--run-dir", type=Path, help="where its calls are kept, for the run; default: runs/<config>-preflight"
    )
    look.add_argument("--yes", action="store_true", help="do not ask")
    _tasks_commands(commands.add_parser("tasks", help="are the graders to be believed"))
    _journal_commands(commands.add_parser("journal", help="look into a journal of calls, or move one between machines"))
    options = parser.parse_args(arguments)
    try:
        if options.command == "journal":
            print(_journal(options))
        elif options.command == "tasks":
            return _sandbox() if options.action == "sandbox" else _audit(options)
        elif options.command == "preflight":
            _preflight(options)
        elif options.command == "inspect":
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


def _preflight(options: argparse.Namespace) -> None:
    from trinity_jax import config

    settings = config.load(options.config, tuple(options.set))
    folder = options.run_dir or Path("runs") / f"{Path(options.config).stem}-preflight"
    from rich.console import Console

    from trinity_jax.training import preflight

    preflight.alone(settings, folder, Console(width=None if sys.stdout.isatty() else 132), options.yes)


def _tasks_commands(tasks: argparse.ArgumentParser) -> None:
    actions = tasks.add_subparsers(dest="action", required=True)
    actions.add_parser("sandbox", help="which isolation programs run under here; starts one to be sure")
    audit = actions.add_parser(
        "audit", help="grade gold answers and corrupted ones; exit code 1 where one is misjudged"
    )
    which = audit.add_mutually_exclusive_group(required=True)
    which.add_argument("--task", action="append", metavar="NAME", help="a task that needs no network, or a JSONL file")
    which.add_argument("--all-offline", action="store_true", help="every task that needs no network")
    audit.add_argument("--json", action="store_true", help="JSON lines; the last one is about all tasks")


def _sandbox() -> int:
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


def _journal_commands(journal: argparse.ArgumentParser) -> None:
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


def _journal(options: argparse.Namespace) -> str:
    from trinity_jax.pool import explain, transfer
    from trinity_jax.pool.records import Records

    if options.action == "export":
        moved = transfer.export_journal(options.journal, options.file)
        return f"{options.file}: {moved.calls} calls, {moved.decisions} decisions"
    if options.action == "import":
        moved = transfer.import_journal(options.journal, options.file)
        return f"{options.journal}: {moved.new} of {moved.calls} calls are new, {moved.decisions} decisions"
    with Records.read(options.journal) as records:
        if options.action == "show":
            return explain.summary(records)
        call = options.call.strip()
        if call.startswith("{"):
            return explain.explain(records, call)
        with Records.read(options.of or options.journal) as source:
            return explain.explain(records, explain.find(source, call))
