"""``pool add``, ``drop``, ``check``: a trained coordinator follows its pool without being trained again."""

import argparse
import sys
from pathlib import Path
from typing import Any

from trinity_jax.errors import UserError


def add(commands: Any) -> None:
    """Say what it takes."""
    pool = commands.add_parser(
        "pool", help="a model joins or leaves a trained coordinator's pool, or is looked at again"
    )
    actions = pool.add_subparsers(dest="action", required=True)
    joins = actions.add_parser("add", help="a row for the one model of the pool file that the coordinator lacks")
    joins.add_argument(
        "--renew", metavar="NAME", help="fit this model's row anew instead: it was swapped, or has moved"
    )
    leaves = actions.add_parser("drop", help="a coordinator without some models; no calls")
    look = actions.add_parser("check", help="ask the anchor questions again: has a model moved? exit code 1 if so")
    for action in (joins, leaves, look):
        action.add_argument("coordinator", type=Path, help="a coordinator folder")
    leaves.add_argument("names", nargs="*", metavar="NAME", help="who leaves; default: who is not in the pool file")
    for action in (joins, leaves, look):
        action.add_argument("--out", type=Path, help="the new coordinator folder")
        action.add_argument(
            "--pool", type=Path, required=action is not leaves, help="YAML with the groups pool, budget"
        )
    for action in (joins, look):
        action.add_argument("--config", required=True, help="the run's YAML file, or one with the group tasks")
        action.add_argument("--set", action="append", default=[], metavar="K=V", help="such as change.samples=2")
        action.add_argument(
            "--calls", type=Path, help="where calls are kept; default: beside the coordinator, NAME-calls"
        )
        action.add_argument("--yes", action="store_true", help="do not ask")
    pool.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from trinity_jax.coordinator.export import load_coordinator

    if options.out is None and options.action != "check":
        raise UserError(f"pool {options.action}: --out: name the folder of the new coordinator")
    if options.out is not None and options.out.exists():
        raise UserError(f"{options.out}: is there already; name another --out")
    if options.out is not None:
        # Before anything is paid for what could not be written.
        try:
            options.out.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{options.out}: no folder can be made there ({error.strerror})") from error
    coordinator = load_coordinator(options.coordinator)
    return {"add": _add, "drop": _drop, "check": _check}[options.action](options, coordinator)


def _drop(options: argparse.Namespace, coordinator: Any) -> int:
    from trinity_jax.coordinator import pool_change

    names = options.names
    if options.pool is not None:
        from trinity_jax.training.pool_change import read_pool

        left = read_pool(options.pool).pool.names
        pool_change.known(coordinator, left, str(options.pool))
        names = names or [name for name in coordinator.description.pool if name not in left]
    if not names:
        raise UserError("pool drop: nobody to drop: give a NAME, or a --pool file without the models that leave")
    pool_change.known(coordinator, names, "pool drop")
    for name in dict.fromkeys(names):
        coordinator = pool_change.drop(coordinator, name)
    return _write(options.out, coordinator)


def _add(options: argparse.Namespace, coordinator: Any) -> int:
    from trinity_jax.coordinator import pool_change
    from trinity_jax.training import pool_change as training

    pool, where = training.read_pool(options.pool), str(options.pool)
    if options.renew:
        pool_change.known(coordinator, [options.renew], "pool add --renew")
        pool_change.known(coordinator, pool.pool.names, where)
        coordinator = pool_change.drop(coordinator, options.renew)
        if options.renew not in pool.pool.names:
            raise UserError(f"{where}: expected the model to renew, {options.renew}, in the pool")
        name, action = options.renew, "renew"
    else:
        name, action = training.newcomer(coordinator, pool, where), "add"
    pool = training.in_order(pool, (*coordinator.description.pool, name), where)
    job = training.Job(coordinator, pool, training.read(options.config, tuple(options.set)), _calls(options))
    return _write(options.out, training.add(job, name, action, _console(), options.yes))


def _check(options: argparse.Namespace, coordinator: Any) -> int:
    from trinity_jax.coordinator import pool_change
    from trinity_jax.training import pool_change as training

    pool, names = training.read_pool(options.pool), coordinator.description.pool
    pool_change.known(coordinator, pool.pool.names, str(options.pool))
    pool = training.in_order(pool, names, str(options.pool))
    if coordinator.description.profile is not None and options.out is not None:
        raise UserError("pool check: --out: the coordinator has a profile already; checking it makes no new one")
    if coordinator.description.profile is None and options.out is None:
        raise UserError("pool check: the coordinator has no profile to compare with: name an --out for one with it")
    job = training.Job(coordinator, pool, training.read(options.config, tuple(options.set)), _calls(options))
    profiled, looks = training.check(job, _console(), options.yes)
    if profiled is not None and options.out is not None:
        print("a first profile: nothing to compare with yet")
        return _write(options.out, profiled)
    for look in looks:
        found = look.found
        said = "MOVED" if look.alarm else "as before"
        detail = f"{found.before:.0%} then, {found.after:.0%} now, p {found.p:.2g}"
        print(f"{look.model}: {said} ({detail}; most in {found.kind}: {found.change:+.0%})")
    moved = [look.model for look in looks if look.alarm]
    for name in moved:
        print(f"its row can be fitted anew: python -m trinity_jax pool add --renew {name} ... {options.coordinator}")
    print(f"any false alarm among {len(looks)} models: at most {job.change.level:.0%} of such checks")
    return 1 if moved else 0


def _calls(options: argparse.Namespace) -> Path:
    beside = options.out or options.coordinator
    return options.calls or beside.with_name(f"{beside.name}-calls")


def _write(folder: Path, coordinator: Any) -> int:
    from trinity_jax.coordinator.export import describe, write_coordinator

    write_coordinator(folder, coordinator)
    print(describe(coordinator))
    return 0


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 132)
