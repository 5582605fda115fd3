"""``inspect`` a trained coordinator; ``import-released`` makes one of the authors' vector."""

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Say what both take."""
    inspect = commands.add_parser("inspect", help="print a coordinator's pool, head, SVF, vector length and hash")
    inspect.add_argument("coordinator", type=Path, help="the folder coordinator/ of a run")
    inspect.set_defaults(run=_inspect)
    released = commands.add_parser("import-released", help="the authors' published vector -> a coordinator folder")
    released.add_argument("vector", type=Path, help="a .npy file of 19,456 numbers")
    released.add_argument("--out", type=Path, required=True, help="the folder to write")
    released.add_argument("--pool", help="names of the seven models, a,b,c,...; default: the authors'")
    released.add_argument("--source", default="Qwen/Qwen3-0.6B", help="hub id or folder of the encoder")
    released.add_argument("--input-format", choices=("chat", "plain"), default="chat")
    released.add_argument("--tied", choices=("last_write", "sequential"), default="last_write")
    released.set_defaults(run=_import_released)


def _inspect(options: argparse.Namespace) -> int:
    from trinity_jax.coordinator.export import describe, load_coordinator

    print(describe(load_coordinator(options.coordinator)))
    return 0


def _import_released(options: argparse.Namespace) -> int:
    from trinity_jax.coordinator.export import describe, write_coordinator
    from trinity_jax.coordinator.released import POOL, import_released

    pool = POOL if options.pool is None else [name.strip() for name in options.pool.split(",")]
    chosen = {"source": options.source, "input_format": options.input_format, "tied": options.tied}
    coordinator = import_released(options.vector, pool, **chosen)
    write_coordinator(options.out, coordinator)
    print(describe(coordinator))
    return 0
