"""A coordinator of a few kilobytes with drawn weights, and a server in front of simulated endpoints."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from aiohttp import ClientSession, web

from tests.tiny import make_encoder
from trinity_jax.config import (
    BudgetSettings,
    EncoderSettings,
    EpisodeSettings,
    Group,
    HeadSettings,
    ModelSettings,
    PolicySettings,
    PoolFile,
    PoolSettings,
    PriceSettings,
    ReadoutSettings,
    ServingSettings,
    SvfSettings,
)
from trinity_jax.coordinator import layout as layouts
from trinity_jax.coordinator.export import assemble, load_coordinator, write_coordinator
from trinity_jax.coordinator.familiar import Familiar
from trinity_jax.coordinator.readout import Readout
from trinity_jax.coordinator.ready import Ready, make_ready
from trinity_jax.encoder.checkpoint import load_checkpoint
from trinity_jax.pool.pool import build_pool
from trinity_jax.pool.unrecorded import Unrecorded
from trinity_jax.serving.chooser import Chooser
from trinity_jax.serving.keys import Keys
from trinity_jax.serving.server import Server
from trinity_jax.serving.service import Service, fitted
from trinity_jax.serving.session import Engine

NAMES = ("ada", "bo")


def write_tiny(
    folder: Path,
    names: Sequence[str] = NAMES,
    max_calls: int = 3,
    familiar: Familiar | None = None,
    fallback: str | None = None,
    buckets: tuple[int, ...] = (512,),
) -> Path:
    """A coordinator folder with its encoder beside it; the numbers are drawn, so all choices can come."""
    encoder = folder / "encoder"
    if not encoder.exists():
        make_encoder(encoder, layers=2)
    _, checkpoint = load_checkpoint(str(encoder), dtype=jnp.float32)
    settings: dict[str, Group] = {
        "head": HeadSettings(),
        "readout": ReadoutSettings(kind="raw"),
        "svf": SvfSettings(),
        "encoder": EncoderSettings(source=str(encoder), buckets=buckets, cache_mb=8),
        "policy": PolicySettings(),
        "episode": EpisodeSettings(max_calls=max_calls),
    }
    head, layout = layouts.plan({}, 1.0, HeadSettings(), ReadoutSettings(kind="raw"), 16, tuple(names))
    vector = np.random.default_rng(0).normal(0.0, 0.3, layout.size)
    coordinator = assemble(settings, checkpoint, layout, head, Readout(), vector, familiar, fallback)
    write_coordinator(folder / "coordinator", coordinator)
    return folder / "coordinator"


def pool_file(urls: Sequence[str], serving: dict[str, Any] | None = None, **model: Any) -> PoolFile:
    """Models at these addresses, in the order of the coordinator's names."""
    usual = {"temperature": 0.1, "price": PriceSettings(input=1.0, output=1.0), "attempts": 1, "connect_seconds": 2.0}
    models = [
        ModelSettings(**{"name": name, "model": f"m-{name}", "base_url": url, **usual, **model})
        for name, url in zip(NAMES, urls, strict=False)
    ]
    budget = BudgetSettings()
    given = ServingSettings(**{"patience_seconds": 0.0, "cache_mb": 8, **(serving or {})})
    return PoolFile(pool=PoolSettings(kind="endpoints", models=tuple(models)), budget=budget, serving=given)


@cache
def ready(folder: Path) -> Ready:
    """One for all tests: compiling takes longer than any of them."""
    return make_ready(load_coordinator(folder))


def chooser(folder: Path, familiar: Familiar | None = None) -> Chooser:
    """A chooser on the shared programs; one at a time may decide."""
    shared = ready(folder)
    return Chooser(replace(shared, coordinator=replace(shared.coordinator, familiar=familiar)), ServingSettings())


@asynccontextmanager
async def service(
    folder: Path, file: PoolFile, fallback: str | None = None, familiar: Familiar | None = None
) -> AsyncIterator[Service]:
    """A service on the shared programs."""
    shared = chooser(folder, familiar)
    pool = await build_pool(fitted(file, shared.names), Unrecorded(), file.budget, need_all=False)
    number = None if fallback is None else shared.names.index(fallback)
    made = Service(Engine(shared, pool, file.serving, number))
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def serving(service: Service, keys: Keys | None = None) -> AsyncIterator[tuple[str, Server, ClientSession]]:
    """The address, the server and a session for a client that speaks HTTP."""
    server = Server(service, keys)
    runner = web.AppRunner(server.app(), handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with ClientSession() as session:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}", server, session
    finally:
        await runner.cleanup()


async def met(condition: Callable[[], Any]) -> None:
    """Wait until something is so; fails after a minute (compiling takes seconds on a busy machine)."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.01)
