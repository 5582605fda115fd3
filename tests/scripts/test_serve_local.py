"""A real model on this machine: served, asked by a whole run, and gone with whoever asked it, however that one ends."""

import importlib.util
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.tiny import make_encoder, tiny_run
from trinity_jax.encoder.gguf import embedded_path
from trinity_jax.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "serve_local.py"


def _script():
    spec = importlib.util.spec_from_file_location("serve_local", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


serve_local = _script()


def _why_not() -> str:
    """What is missing here to serve a model; empty where nothing is."""
    if importlib.util.find_spec("xllamacpp") is None:
        return "the wheel xllamacpp is not installed (extra `local`)"
    if missing := serve_local.NEEDED - serve_local.cpu_flags():
        return f"this CPU lacks {', '.join(sorted(missing))}"
    try:
        embedded_path()
    except UserError as error:
        return str(error)
    return ""


served = pytest.mark.skipif(bool(_why_not()), reason=f"no local server: {_why_not()}")


def start(*command, options=()):
    line = [sys.executable, str(SCRIPT), "--port", "0", "--slots", "2", *options, "--", *command]
    return subprocess.Popen(
        line, cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def answers(url):
    try:
        with urllib.request.urlopen(f"{url}/models", timeout=5) as response:
            return response.status == 200
    except urllib.error.URLError:
        return False


@served
@pytest.mark.timeout(240)  # 15 s on two free cores
def test_one_generation_on_real_replies(tmp_path):
    sampling = {"steady": {"temperature": 0.1, "max_tokens": 16}, "bold": {"temperature": 1.0, "max_tokens": 24}}
    models = [
        {"name": name, "model": "any", "base_url": "http://127.0.0.1:1/v1", "concurrency": 2, **settings}
        for name, settings in sampling.items()
    ]
    settings = tiny_run(
        make_encoder(tmp_path / "encoder"),
        pool={"kind": "endpoints", "models": models},
        episode__max_calls=2,
        tasks__train=3,
        tasks__validation=3,
        tasks__test=3,
        readout__k=2,
        learning__generations=1,
        learning__questions=3,
        evaluation__fixed_policy=False,
        # Of three short replies of so small a model it may well be that none can be read, which would end the run.
        preflight__run="never",
    )
    config, run = tmp_path / "run.yaml", tmp_path / "run"
    config.write_text(yaml.safe_dump(settings))
    where = [part for i in range(2) for part in ("--set", f"pool.models.{i}.base_url={{url}}")]
    with start(sys.executable, "experiments/run.py", "--config", str(config), "--run-dir", str(run), *where) as process:
        output, _ = process.communicate(timeout=220)
    assert process.returncode == 0, output

    used = yaml.safe_load((run / "config.yaml").read_text())["pool"]["models"][0]["base_url"]
    assert not answers(used)
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 1
    with closing(sqlite3.connect(run / "journal.sqlite")) as journal:
        rows = journal.execute("SELECT outcome, text, input_tokens, output_tokens FROM calls").fetchall()
    assert len(rows) >= 10
    assert {outcome for outcome, *_ in rows} <= {"ok", "truncated", "empty"}
    texts = {text for _, text, *_ in rows if text}
    # Words, and not the same ones again and again.
    assert len(texts) > len(rows) / 3
    assert sum(len(text.split()) for text in texts) > 3 * len(texts)
    assert all(sent > 50 and 0 < received <= 24 for _, _, sent, received in rows)


@served
def test_no_orphan_when_the_command_is_killed():
    with start("sh", "-c", "echo {url}; exec sleep 60") as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        there = answers(url)
        process.kill()
        assert there, url
        # The server holds this pipe too: it ends with the last of both.
        assert process.stdout.read() == ""
    assert not answers(url)


@served
def test_the_exit_code_is_the_commands_and_ctrl_c_is_its_own():
    # All of a terminal's processes get Ctrl-C. The server must outlast a command that goes on.
    ask = "import urllib.request as r; print(r.urlopen('{url}/models').status)"
    process = start("bash", "-c", f'trap : INT; kill -INT 0; {sys.executable} -c "{ask}"; exit 7')
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (7, "200\n")


@pytest.mark.parametrize("options", [(), ("--", "true")], ids=["alone", "command"])
@served
def test_a_port_in_use_is_one_clear_line(options):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = [sys.executable, str(SCRIPT), "--port", port, *options]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"port {port} cannot be had" in done.stderr
    assert "--port" in done.stderr


def test_what_is_missing_is_said(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert serve_local.main(["--port", "0"]) == 2
    assert "setup.sh local" in capsys.readouterr().err
    monkeypatch.setattr(serve_local, "cpu_flags", lambda: frozenset({"avx", "fma", "f16c"}))
    assert serve_local.main(["--port", "0"]) == 2
    assert "lacks avx2, bmi2" in capsys.readouterr().err


def test_cpu_flags_are_read(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nflags\t\t: fpu avx avx2 fma\nvmx flags\t: x\n\nflags\t\t: other\n")
    assert serve_local.cpu_flags(info) == {"fpu", "avx", "avx2", "fma"}
    info.write_text("processor : 0\nFeatures : fp asimd\n")
    assert serve_local.cpu_flags(info) == serve_local.NEEDED
    assert serve_local.cpu_flags(tmp_path / "none") == serve_local.NEEDED
