"""The dashboard's routes, asked over HTTP."""

import asyncio
import json

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from trinity_jax.report import dashboard_page, runs
from trinity_jax.serving import dashboard
from trinity_jax.serving.refused import Refused


@web.middleware
async def refusals(request, handler):
    try:
        return await handler(request)
    except Refused as refused:
        return web.json_response(refused.body(), status=refused.status)


def answers(folder, *paths):
    """(status, text) of each path, from a server that knows the folder."""

    async def ask():
        app = web.Application(middlewares=[refusals])
        app.add_routes(dashboard.routes([folder]))
        async with TestClient(TestServer(app)) as client:
            found = [await client.get(path) for path in paths]
            return [(response.status, await response.text()) for response in found]

    return asyncio.run(ask())


def test_the_page_the_runs_and_one_run(tmp_path):
    (tmp_path / "my run").mkdir()
    (tmp_path / "my run" / "config.yaml").write_text("seed: 1\nlearning: {generations: 4}\n")
    (tmp_path / "my run" / "metrics.jsonl").write_text('{"generation": 0, "validation_accuracy": 0.5}\n')
    page, data, run = answers(tmp_path, "/dashboard", "/dashboard/runs.json", "/dashboard/runs/my%20run")
    assert page == (200, dashboard_page())
    (glance,) = json.loads(data[1])["runs"]
    assert (glance["name"], glance["generations"], glance["of"]) == ("my run", 1, 4)
    assert run[0] == 200
    assert "This run has completed 1 generation and" in run[1]


def test_a_run_is_read_again_only_where_it_has_changed(tmp_path, monkeypatch):
    """Every open page asks every ten seconds, and a run's metrics may be long."""
    made, read = [], runs.read
    monkeypatch.setattr(runs, "read", lambda path, transcripts: made.append(path) or read(path, transcripts))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("seed: 1\n")
    first = answers(tmp_path, *["/dashboard/runs.json"] * 3)
    assert len(made) == 2
    (tmp_path / "two" / "metrics.jsonl").write_text('{"generation": 0}\n')
    (then,) = answers(tmp_path, "/dashboard/runs.json")
    assert made[2:] == [tmp_path / "two"]
    generations = [
        {run["name"]: run["generations"] for run in json.loads(data[1])["runs"]} for data in (first[2], then)
    ]
    assert generations == [{"one": 0, "two": 0}, {"one": 0, "two": 1}]


def test_what_is_not_there_or_not_readable_is_told(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.yaml").write_text("[")
    (tmp_path.parent / "config.yaml").write_text("seed: 1\n")
    absent, above, broken = answers(
        tmp_path, "/dashboard/runs/absent", "/dashboard/runs/..%2F..", "/dashboard/runs/broken"
    )
    assert absent[0] == above[0] == 404
    assert json.loads(absent[1])["error"]["message"] == "no run of the name absent"
    assert broken[0] == 409
    assert "not valid YAML" in json.loads(broken[1])["error"]["message"]
