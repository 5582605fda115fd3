"""``serve`` a trained coordinator as an OpenAI-compatible server; ``serve-key`` makes a client's key."""

import argparse
import logging
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Say what both take."""
    serve = commands.add_parser("serve", help="a trained coordinator as an OpenAI-compatible server")
    serve.add_argument("coordinator", type=Path, help="the folder coordinator/ of a run")
    serve.add_argument("--pool", required=True, type=Path, help="a YAML file with the groups pool, budget and serving")
    serve.add_argument("--host", default="127.0.0.1", help="anything but this machine's own needs --keys")
    serve.add_argument("--port", type=int, default=8080, help="0 takes a free one")
    serve.add_argument("--keys", type=Path, help="clients' keys, hashed; serve-key makes them")
    serve.add_argument("--journal", type=Path, help="keep every call here; caps then hold over restarts")
    serve.add_argument(
        "--runs", type=Path, action="append", default=[], help="a run folder, or one of several, for /dashboard"
    )
    serve.set_defaults(run=_serve)
    key = commands.add_parser("serve-key", help="make a client's key; printed once, its hash goes into the file")
    key.add_argument("keys", type=Path, metavar="FILE")
    key.add_argument("name", help="whose key it is")
    key.add_argument("--admin", action="store_true", help="may also reload, and see all traces, runs, metrics")
    key.set_defaults(run=_key)


def _key(options: argparse.Namespace) -> int:
    from trinity_jax.serving.keys import new_key

    print(new_key(options.keys, options.name, options.admin))
    return 0


def _serve(options: argparse.Namespace) -> int:
    import asyncio

    from trinity_jax.serving.keys import Keys
    from trinity_jax.serving.server import Server, check_bind, run
    from trinity_jax.serving.service import Service

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # It tells of every platform that this machine has not.
    logging.getLogger("jax").setLevel(logging.WARNING)
    keys = Keys.read(options.keys) if options.keys else None
    check_bind(options.host, keys)

    async def serve() -> None:
        service = await Service.open(options.coordinator, options.pool, options.journal)
        try:
            server = Server(service, keys, options.keys, options.runs)
            await run(server, options.host, options.port, lambda url: print(f"serving at {url}/v1", flush=True))
        finally:
            await service.close()

    asyncio.run(serve())
    return 0
