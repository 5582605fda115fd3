"""Every command in README and docs runs as it stands there, in a folder where presets and pools are tiny ones.

What cannot run here (an installer, another host) is named below with the test that runs it; a command that is
neither is a failure.
"""

import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from experiments import run as experiments_run
from tests.tiny import make_encoder, tiny_run
from trinity_jax import cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

ELSEWHERE = {
    "bash scripts/quickstart.sh": "scripts/quickstart.sh",
    "bash scripts/test.sh": ".ci/run",
    "bash scripts/setup.sh local && source .venv/bin/activate": ".ci/run",
    "source .venv/bin/activate": ".ci/run",
    "apt-get install bubblewrap": ".ci/run",
    "pip install -e .[data]": "pyproject.toml",
    "pip install -e .[cuda12]": "pyproject.toml",
    "python scripts/bench_population.py --json": "scripts/bench_population.py",
    "python scripts/bench_serving.py --json": "scripts/bench_serving.py",
    "python scripts/bench_hosts.py": "tests/training/test_hosts.py",
    "python experiments/run.py --config FILE --run-dir DIR": "tests/training/test_hosts.py",
    "python experiments/run.py --config experiments/configs/sample_efficiency.yaml": (
        "tests/experiments/test_sample_efficiency.py"
    ),
    "python experiments/run.py --config experiments/configs/pool_change.yaml": "tests/experiments/test_pool_change.py",
    "python scripts/serve_local.py -- python experiments/run.py": "tests/scripts/test_serve_local.py",
    "python -m trinity_jax import-released": "tests/coordinator/test_released.py",
    "python scripts/replay_decisions.py": "tests/scripts/test_replay_decisions.py",
    "python -m trinity_jax tasks audit --all-offline": "tests/tasks/test_audit.py",
    "python -m trinity_jax tasks audit --task my.jsonl": "tests/tasks/test_audit.py",
    "python -m trinity_jax tasks sandbox": "tests/tasks/test_sandbox.py",
}
"""Beginnings of commands, and where each is run or what it installs."""

SERVERS = ("python -m trinity_jax serve ", "python -m trinity_jax.pool.simulated_server")
"""Commands that go on until they are stopped."""


def commands(page: Path) -> list[str]:
    """Lines of bash blocks, a here-document with its text; then commands in running text."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        document = re.compile(r"^(.*<<'EOF'\n.*?^EOF)$", re.MULTILINE | re.DOTALL)
        for part in document.split(block):
            found += [part] if "<<'EOF'" in part else [line for line in part.splitlines() if line.strip()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`((?:python|bash|pip|apt-get) [^`]+)`", prose)
    return found + [" ".join(one.split()) for one in inline]


def elsewhere(command: str) -> str | None:
    return next((where for start, where in ELSEWHERE.items() if command.startswith(start)), None)


@pytest.fixture(scope="module")
def endpoint():
    """A simulated server in a process of its own."""
    command = [sys.executable, "-m", "trinity_jax.pool.simulated_server", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield re.search(r"http://\S+", process.stdout.readline()).group()  # pyright: ignore[reportOptionalMemberAccess]
        process.terminate()


@pytest.fixture(scope="module")
def home(tmp_path_factory, endpoint):
    """A folder in which a reader of the documentation could stand, with tiny things under the names it uses."""
    folder = tmp_path_factory.mktemp("home")
    encoder = make_encoder(folder / "encoder")
    quick = {"learning__generations": 1, "evaluation": {"bootstrap": 100, "fixed_policy": False}}
    configs = folder / "experiments" / "configs"
    configs.mkdir(parents=True)
    models = [
        {"name": name, "model": name, "base_url": endpoint, "api_key_env": "MY_KEY", "price": {"input": 1, "output": 1}}
        for name in ("big", "small")
    ]
    pool = {"kind": "endpoints", "models": models}
    tasks = {"mix": [{"kind": "chain_sum"}], "train": 9, "validation": 6, "test": 6}
    over_http = tiny_run(encoder, **quick, pool=pool, tasks=tasks)
    (configs / "quickstart.yaml").write_text(yaml.safe_dump(over_http))
    (folder / "my.yaml").write_text(yaml.safe_dump(over_http))
    (folder / "pool.yaml").write_text(yaml.safe_dump({"pool": pool}))
    (folder / "trinity_jax").symlink_to(ROOT / "trinity_jax")
    return folder


@pytest.fixture
def there(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.setenv("MY_KEY", "a-key-for-the-tests")
    if not (home / "runs" / "first").exists():
        line = "python experiments/run.py --config experiments/configs/quickstart.yaml --run-dir runs/first"
        execute(line)
    return home


def execute(command: str) -> None:
    """Run one command here, in this process where that can be."""
    if "<<'EOF'" in command:
        subprocess.run(["bash", "-c", command.replace("python -", f"{sys.executable} -", 1)], check=True)
        return
    words = shlex.split(command, comments=True)
    if words[:2] == ["python", "experiments/run.py"]:
        run = Path(words[words.index("--run-dir") + 1]) if "--run-dir" in words else None
        if run and "--resume" not in words and (run / "config.yaml").exists():
            shutil.rmtree(run)
        assert experiments_run.main(words[2:]) == 0, command
    elif words[:3] == ["python", "-m", "trinity_jax"] and len(words) == 4:
        # A command's bare name in running text.
        with pytest.raises(SystemExit, match="0"):
            cli.main([words[3], "--help"])
    elif words[:3] == ["python", "-m", "trinity_jax"]:
        assert cli.main(words[3:]) == 0, command
    else:
        subprocess.run([sys.executable if word == "python" else word for word in words], check=True)


def serve(command: str) -> None:
    """Start a server, ask whether it is there, and stop it."""
    words = shlex.split(command, comments=True)
    if "--port" in words:
        words[words.index("--port") + 1] = "0"
    with subprocess.Popen([sys.executable, *words[1:]], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        said = process.stdout.readline()
        url = re.search(r"http://\S+", said)
        assert url, said
        request = urllib.request.Request(url.group().removesuffix("/v1") + "/health")
        if "serve " in command:
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert answer.status == 200
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_runs(page, there, capsys):
    for command in commands(page):
        where = elsewhere(command)
        if where is not None:
            assert (ROOT / where).exists(), (command, where)
        elif command.startswith(SERVERS):
            serve(command)
        else:
            execute(command)
    capsys.readouterr()


def test_every_entry_of_the_list_is_a_command_of_some_page():
    known = [command for page in PAGES for command in commands(page)]
    for start in ELSEWHERE:
        assert any(command.startswith(start) for command in known), start


@pytest.mark.timeout(120)
def test_the_python_of_the_readme_runs(there, endpoint, capsys):
    """The five lines, as they stand."""
    block = re.search(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert block
    exec(block.group(1), {})
    assert "turns" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
