"""One tiny coordinator for all tests of the room, and one server in a thread for clients that block."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.served import pool_file, serving, write_tiny
from trinity_jax.pool.simulated_server import SimulatedServer
from trinity_jax.serving.service import Service


@pytest.fixture(scope="session")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A coordinator folder."""
    return write_tiny(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def address(coordinator: Path) -> Iterator[str]:
    """Where a server listens, in a thread of its own, before endpoints that echo the last number they read."""
    ready, ended, found = threading.Event(), asyncio.Event(), []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with SimulatedServer(accepts=1.0) as endpoint:
            service = await Service.open(coordinator, pool_file([endpoint.url] * 2))
            async with serving(service) as (url, _, _):
                found.append(url)
                ready.set()
                await ended.wait()
            await service.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(60)
    yield found[0]
    loop.call_soon_threadsafe(ended.set)
    thread.join()
    loop.close()
