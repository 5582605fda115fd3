"""Processes killed at many moments: the same vector in the end, and nothing paid twice that was not in flight."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from tests.tiny import make_encoder, tiny_run
from trinity_jax.coordinator.export import load_coordinator

ROOT = Path(__file__).parent.parent.parent
CONCURRENCY, MODELS = 2, 2
KEY = "sk-secret-7f3b9c51d0"


class Endpoint:
    """An OpenAI-compatible server in a thread: answers follow from the request alone; every request is counted."""

    def __init__(self):
        self.requests = 0
        self.reached = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self.port = 0
        started = threading.Event()
        threading.Thread(target=self._run, args=(started,), daemon=True).start()
        assert started.wait(10)

    def _run(self, started):
        asyncio.set_event_loop(self._loop)
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        runner = web.AppRunner(app)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        assert site._server is not None
        self.port = runner.addresses[0][1]
        started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _models(self, request):
        return web.json_response({"data": []})

    async def _chat(self, request):
        body = await request.json()
        with self.reached:
            self.requests += 1
            self.reached.notify_all()
        await asyncio.sleep(0.01)
        draw = hashlib.sha256(repr((body["model"], body["messages"])).encode()).digest()
        system = body["messages"][0]["content"]
        if "VERDICT" in system:
            text = f"VERDICT: {'ACCEPT' if draw[0] < 100 else 'REJECT'}"
        elif "<suggested_role>" in system:
            text = "<suggestion>look again</suggestion><suggested_role>worker</suggested_role>"
        else:
            text = f"<idea>approach {draw[1] % 3}</idea><answer>{draw[2] % 12}</answer>"
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": usage})

    def wait_for(self, requests, process):
        with self.reached:
            while self.requests < requests and process.poll() is None:
                self.reached.wait(0.2)


def start(config, folder, *more):
    command = [sys.executable, "experiments/run.py", "--config", str(config), "--run-dir", str(folder), *more]
    environment = os.environ | {"TRINITY_TEST_KEY": KEY}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process):
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 0, output.decode()


@pytest.fixture
def endpoint():
    server = Endpoint()
    yield server
    server.close()


@pytest.mark.timeout(300)
def test_killed_and_resumed_is_the_same_run(endpoint, tmp_path):
    models = [
        {
            "name": name,
            "model": name,
            "base_url": f"http://127.0.0.1:{endpoint.port}/v1",
            "api_key_env": "TRINITY_TEST_KEY",
            "concurrency": CONCURRENCY,
        }
        for name in ("ada", "bo")
    ]
    settings = tiny_run(
        make_encoder(tmp_path / "encoder"),
        pool={"kind": "endpoints", "models": models},
        readout__source="episodes",
        evaluation__fixed_policy=False,
    )
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(settings))

    finish(start(config, tmp_path / "whole"))
    whole = endpoint.requests
    vector = load_coordinator(tmp_path / "whole" / "coordinator").vector

    # Before the run begins or in the warm-up, twice in generations, in the final evaluation, and by the clock anywhere.
    kills = 0
    resume: list[str] = []
    base = endpoint.requests
    for share in (0.05, 0.3, 0.55, 0.9):
        process = start(config, tmp_path / "killed", *resume)
        endpoint.wait_for(base + int(share * whole), process)
        time.sleep(0.013 * kills)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        resume = ["--resume"]
    finish(start(config, tmp_path / "killed", *resume))

    assert kills >= 3
    assert (load_coordinator(tmp_path / "killed" / "coordinator").vector == vector).all()
    # What was in flight when the process died has to be asked again; nothing else may be.
    assert endpoint.requests - base <= whole + kills * CONCURRENCY * MODELS
    lines = (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == settings["learning"]["generations"]

    for path in (tmp_path / "killed").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
