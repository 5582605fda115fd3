"""The dashboard in Chromium, before a server that is made of two JSON documents."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote

import pytest

from trinity_jax.report import dashboard_page, find_runs, run_page, runs_data

EVIL = "</script><img src=x onerror=\"document.title='owned'\"><b>\u202e'"
COSTS = {"outcome": "ok", "input_tokens": 100, "output_tokens": 20, "cost": 0.001, "call_ms": 250.0, "decide_ms": 1.25}


def trace(n: int, end: str | None = "accepted") -> dict[str, Any]:
    """As `serving.trace.Trace.to_json` writes it."""
    turns = [
        {"turn": 1, "model": "small", "role": "thinker", "model_probability": 0.6, "role_probability": 0.5, **COSTS},
        {"turn": 2, "model": "large", "role": "worker", "model_probability": 0.8, "forced": True, **COSTS},
        {"turn": 3, "model": "large", "role": "verifier", "verdict": True, "substitute": "circuit_open", **COSTS},
    ]
    return {"id": f"trace_{n}", "created": 1_700_000_000 + n, "turns": turns, "ms": 790.5} | (
        {"end": end} if end else {}
    )


class Server(BaseHTTPRequestHandler):
    traces: ClassVar[list[dict[str, Any]]] = []
    folders: ClassVar[list[Any]] = []
    key: ClassVar[str | None] = None

    def do_GET(self):
        path = unquote(self.path.split("?")[0])
        allowed = self.key is None or self.headers["Authorization"] == f"Bearer {self.key}"
        if path == "/dashboard":
            self.answer(200, "text/html", dashboard_page())
        elif not allowed:
            self.answer(401, "application/json", "{}")
        elif path == "/v1/traces":
            self.answer(200, "application/json", json.dumps({"data": self.traces}))
        elif path == "/dashboard/runs.json":
            self.answer(200, "application/json", json.dumps(runs_data(self.folders)))
        elif path.startswith("/dashboard/runs/"):
            self.answer(200, "text/html", run_page(self.folders, path.removeprefix("/dashboard/runs/")))
        else:
            self.answer(404, "text/plain", "")

    def answer(self, status: int, kind: str, text: str):
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any):
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.traces, Server.folders, Server.key = [], [], None
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/dashboard"
        running.shutdown()


def until(tab, condition: str) -> None:
    end = time.monotonic() + 10
    while not holds(tab, condition):
        assert time.monotonic() < end, condition
        time.sleep(0.02)


def holds(tab, condition: str) -> bool:
    try:
        return tab.run(condition)
    except RuntimeError as error:
        if "navigated" in str(error):  # the page changed while it was asked
            return False
        raise


ITEMS = "document.querySelectorAll('#conversation-list > li').length"


@pytest.mark.parametrize("dark", [False, True])
def test_requests_and_runs_are_shown_and_renewed(make_run, server, open_page, dark):
    Server.traces, Server.folders = [trace(2), trace(1, "failed")], [make_run(3)]
    tab = open_page(server, dark=dark)
    until(tab, f"{ITEMS} === 2")
    until(tab, "document.querySelectorAll('#run-rows a').length === 1")
    shown = tab.run("document.getElementById('main').innerText")
    chain = "small thinker → large worker → large verifier"
    for part in (
        "✓ accepted",
        "✗ failed",
        chain,
        "791 ms",
        "2 of 2 shown",
        "my run",
        "finished",
        "50.0",
        "On 64 held-out",
    ):
        assert part in shown, part
    assert tab.run("document.querySelector('#choices tr:first-child').innerText").split("\t")[:4] == [
        "large",
        "2",
        "0",
        "2",
    ]
    # What is open and in focus stays so when more comes.
    tab.run("list.children[0].querySelector('summary').focus()")
    tab.press("Enter")
    Server.traces = [trace(3, None), *Server.traces]
    tab.run("refresh('traces')")
    until(tab, f"{ITEMS} === 3")
    assert tab.run("document.activeElement === list.children[1].querySelector('summary')")
    body = tab.run("list.children[1].querySelector('.body').innerText")
    for part in (
        "probability 0.60; role with 0.50",
        "role asked for by the Thinker",
        "circuit open",
        "✓ accepts",
        "trace_2",
    ):
        assert part in body, part
    assert tab.run("list.children[1].querySelector('details').open")
    assert "· running" in tab.run("list.children[0].innerText")
    Server.traces = [trace(3), *Server.traces[1:]]
    tab.run("refresh('traces')")
    until(tab, "list.children[0].innerText.includes('✓ accepted')")
    assert tab.complaints() == []
    assert all(url.startswith(server.removesuffix("/dashboard")) for url in tab.requests())


def test_filters_work_on_live_requests(server, open_page):
    Server.traces = [trace(2), trace(1, "failed")]
    tab = open_page(server)
    until(tab, f"{ITEMS} === 2")
    tab.run("document.querySelector('select[name=outcome]').focus()")
    tab.press("f")
    assert tab.run("document.querySelector('output').textContent") == "1 of 2 shown"


def test_hostile_text_stays_text(server, open_page):
    turn = dict.fromkeys(("model", "role", "substitute", "outcome", "detail", "cost"), EVIL)
    fallback = {"model": EVIL, "reason": EVIL}
    Server.traces = [{"id": EVIL, "end": EVIL, "error": EVIL, "fallback": fallback, "turns": [turn]}, trace(0)]
    tab = open_page(server)
    until(tab, f"{ITEMS} === 2")
    tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.run("document.querySelectorAll('img, b').length") == 0
    assert tab.run("document.title").startswith("Dashboard")
    assert "<img src=x" in tab.run("list.innerText")


def test_a_key_is_asked_for_and_opens_runs(make_run, server, open_page):
    Server.traces, Server.folders, Server.key = [trace(1)], [make_run(3)], "sesame"
    tab = open_page(server)
    until(tab, "!document.getElementById('key').hidden")
    assert tab.run("document.getElementById('status').textContent") == "The server wants a key."
    tab.run("document.querySelector('input[name=key]').focus()")
    tab.press(*"sesame", "Enter")
    until(tab, f"{ITEMS} === 1 && document.querySelectorAll('#run-rows a').length === 1")
    assert tab.run("document.getElementById('key').hidden")
    # Opened from memory, since a link carries no key; its filters work under the dashboard's policy.
    tab.run("window.open = () => window")
    tab.run("document.querySelector('#run-rows a').click()")
    until(tab, "location.protocol === 'blob:' && document.querySelector('output')?.textContent === '40 of 40 shown'")


def test_a_report_that_cannot_be_had_is_said(make_run, server, open_page):
    Server.traces, Server.folders = [trace(1)], [make_run(3)]
    tab = open_page(server)
    until(tab, "document.querySelectorAll('#run-rows a').length === 1")
    tab.run("sessionStorage.setItem('key', 'x'); paused = true; window.closed_ = 0")
    tab.run("window.open = () => ({ close: () => window.closed_++ })")
    tab.run("fetch = () => Promise.reject(new TypeError('gone'))")
    tab.run("document.querySelector('#run-rows a').click()")
    until(tab, "document.getElementById('status').textContent.startsWith('The server cannot be reached')")
    assert tab.run("window.closed_") == 1


def test_a_server_that_is_gone_is_said(server, open_page):
    tab = open_page(server)
    until(tab, "document.getElementById('status').textContent === 'The server is answering.'")
    tab.run("fetch = () => Promise.reject(new TypeError('gone'))")
    tab.run("refresh('traces')")
    until(tab, "document.getElementById('status').textContent.includes('cannot be reached')")


def test_runs_have_names_of_their_own(tmp_path):
    for folder in ("a/one", "b/one", "b/two"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.yaml").write_text("seed: 1\n")
    (tmp_path / "b" / "none").mkdir()
    runs = find_runs([tmp_path / "a" / "one", tmp_path / "b", tmp_path / "absent"])
    assert runs == {"one": tmp_path / "a/one", "one (2)": tmp_path / "b/one", "two": tmp_path / "b/two"}
    with pytest.raises(KeyError):
        run_page([tmp_path / "b"], "../a/one")


def test_a_glance_at_runs(make_run, tmp_path):
    run = make_run(6)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.yaml").write_text("[")
    data = {glance["name"]: glance for glance in runs_data([tmp_path])["runs"]}
    assert "not valid YAML" in data["broken"]["problem"]
    glance = data["my run"]
    assert glance.pop("changed") == pytest.approx(max(p.stat().st_mtime for p in run.iterdir()), abs=1)
    assert glance == {
        "name": "my run",
        "finished": True,
        "generations": 6,
        "of": None,
        "validation": [(1.0, 0.5), (3.0, 0.5), (5.0, 0.5)],
        "calls": 600,
        "cost": 3.0,
        "failed_share": 0.0,
        "alarms": 1,
        "verdict": "On 64 held-out questions the coordinator answered 71.9 % right.",
    }
