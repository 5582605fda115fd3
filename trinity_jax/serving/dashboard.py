"""``/dashboard``: the report's pages over HTTP. The page holds no data; what it asks for needs a key as all does."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from aiohttp import web

from trinity_jax.errors import UserError
from trinity_jax.report import dashboard_page, run_page, runs_data
from trinity_jax.serving.refused import Refused

PATH = "/dashboard"
"""To be had without a key: it asks its reader for one."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def routes(runs: Sequence[Path], restricted: Callable[[Handler], Handler] = lambda handler: handler):
    """What the dashboard needs beside ``/v1/traces``.

    Args:
        runs: run folders, and folders of them, to show.
        restricted: lays a check of who asks around the handlers that give data.
    """

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=dashboard_page(), content_type="text/html")

    async def data(_: web.Request) -> web.Response:
        # In a thread, so that nobody's answer waits for a disk.
        found = await asyncio.to_thread(runs_data, runs)
        return web.Response(text=json.dumps(found), content_type="application/json")

    async def run(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        try:
            html = await asyncio.to_thread(run_page, runs, name)
        except KeyError:
            raise Refused(404, f"no run of the name {name}", code="not_found") from None
        except UserError as error:
            raise Refused(409, str(error), code="unreadable_run") from error
        return web.Response(body=html.encode("utf-8", "replace"), content_type="text/html", charset="utf-8")

    return [
        web.get(PATH, page),
        web.get(f"{PATH}/runs.json", restricted(data)),
        web.get(f"{PATH}/runs/{{name}}", restricted(run)),
    ]
