"""The settings as a page: every group with its keys, types and defaults, out of the models themselves."""

import json
import types
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trinity_jax.config.base import Group
from trinity_jax.config.run import PoolFile, Settings

_HEAD = """# Configuration reference

Every key of a run's YAML file, out of the settings' own docstrings: `python -m trinity_jax settings` prints this page
for the version that is installed. `--set a.b=value` overrides one key; values are YAML. An unknown key or an impossible
value stops a run before any work.
"""


def reference() -> str:
    """Markdown: tables of a run and of a pool's file, below each those of the groups that it holds, each once."""
    seen: set[type] = set()
    roots: tuple[tuple[str, type[Group]], ...] = (("A run", Settings), ("A pool's file", PoolFile))
    return "\n".join((_HEAD, *(line for title, root in roots for line in _sections("", title, root, seen))))


def _sections(path: str, title: str, model: type[BaseModel], seen: set[type]) -> Iterator[str]:
    seen.add(model)
    purpose = " ".join((model.__doc__ or "").split())
    yield f"## {title}\n\n{purpose}\n"
    yield "| key | what it takes | default | |\n|---|---|---|---|"
    for name, field in model.model_fields.items():
        takes, about = _cell(_type(field.annotation, field.metadata)), _cell(field.description or "")
        yield f"| `{name}` | {takes} | {_default(field)} | {about} |"
    yield ""
    for name, field in model.model_fields.items():
        for group in _groups(field.annotation):
            many = get_origin(field.annotation) is tuple
            if group not in seen:
                inner = f"{path + '.' if path else ''}{name}{'[]' if many else ''}"
                yield from _sections(inner, f"`{inner}`", group, seen)


def _groups(kind: Any) -> list[type[BaseModel]]:
    """The groups that a type holds, in order."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [group for part in get_args(kind) for group in _groups(part)]


def _type(kind: Any, bounds: Any = ()) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(parts[0], [bound for one in parts[1:] for bound in getattr(one, "metadata", [one])])
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(part, () if part is type(None) else bounds) for part in parts)
    if origin is tuple:
        return f"list of {_type(parts[0])}"
    if origin is dict:
        return f"mapping to {_type(parts[1])}"
    if kind is type(None):
        return "null"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "group"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    named = {str: "text", int: "integer", float: "number", bool: "true, false", Any: "anything"}
    return " ".join([named.get(kind, "path"), *_bounds(bounds)])


def _bounds(bounds: Any) -> list[str]:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return [f"{sign} {getattr(one, name):g}" for one in bounds for name, sign in signs.items() if hasattr(one, name)]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return ""
    plain = json.dumps(value, default=lambda other: list(other) if isinstance(other, tuple) else str(other))
    return f"`{plain}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
