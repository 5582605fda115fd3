"""No import runs upward: each room may stand only on the rooms named here."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "trinity_jax"

BASE = {"config", "errors", "reasoning"}
STANDS_ON = {
    "config": {"errors"},
    "errors": set(),
    "reasoning": set(),
    "encoder": BASE,
    "episode": BASE,
    "pool": BASE,
    "tasks": BASE,
    "learning": BASE,
    "coordinator": BASE | {"encoder"},
    "world": BASE | {"coordinator", "learning"},
    "rollout": BASE | {"encoder", "coordinator", "episode", "pool", "tasks"},
    "evaluation": BASE | {"coordinator", "episode", "pool", "tasks", "rollout"},
    "training": BASE
    | {"encoder", "coordinator", "episode", "pool", "tasks", "rollout", "learning", "evaluation", "report"},
    "report": {"errors"},
    "serving": BASE | {"encoder", "coordinator", "episode", "pool", "rollout", "report"},
}
TOP = {"cli", "__init__", "__main__"}


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("trinity_jax"):
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names} - {"__version__"}
        if isinstance(node, ast.ImportFrom) and node.level:
            rooms.add("a relative import (name the package in full)")
        if isinstance(node, ast.Import):
            rooms |= {a.name.split(".")[1] for a in node.names if a.name.startswith("trinity_jax.")}
    return rooms


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_downward(path: Path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room in TOP:
        return
    upward = imported_rooms(path) - STANDS_ON[room] - {room}
    assert not upward, f"{room} may stand on {sorted(STANDS_ON[room])}, but imports {sorted(upward)}"


def test_every_room_has_a_floor():
    rooms = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert rooms - TOP == set(STANDS_ON)
