"""Settings from and to YAML files: overrides, presets, messages that name the key."""

from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from trinity_jax.config.base import SECRET, Group
from trinity_jax.config.run import Settings
from trinity_jax.errors import UserError

AnySettings = TypeVar("AnySettings", bound=Group)


def load(path: str | Path, overrides: tuple[str, ...] = ()) -> Settings:
    """Read, override and validate the settings of a training run; see `read` and `parse`."""
    return parse(read(path, overrides), str(path))


def read(path: str | Path, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a YAML file and apply ``a.b=value`` overrides (values are YAML); nothing is validated yet.

    A file may hold ``presets``, named groups of settings: ``study.preset=NAME`` lays that one over the file's own
    settings. Overrides count last.

    Raises:
        UserError: naming the file and what is wrong with it.
    """
    try:
        data = _yaml(Path(path).read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a mapping of settings, got {type(data).__name__}")
    override(data, overrides)
    chosen = _preset(data.pop("presets", {}), data, str(path))
    if chosen:
        data = _merged(data, chosen)
        override(data, overrides)
    return data


def override(data: dict[str, Any], overrides: tuple[str, ...]) -> None:
    """Apply ``a.b=value`` to a mapping, in place.

    Raises:
        UserError: naming the override and what is wrong with it.
    """
    for one in overrides:
        _override(data, one)


def parse(data: dict[str, Any], where: str, model: type[AnySettings] = Settings) -> AnySettings:
    """Validate a mapping; ``where`` names its origin in messages.

    Raises:
        UserError: naming the key, what is allowed and what came.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UserError("; ".join(_explain(item, where, model) for item in error.errors())) from error


def dump(settings: Group, path: Path) -> None:
    """Write the resolved settings, every default filled in."""
    path.write_text(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False), encoding="utf-8")


class _Loader(yaml.SafeLoader):
    """Plain YAML in which a key may stand once: of two groups of one name, the first would be lost unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice} stands there twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: such as a date that there is not
        raise UserError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from error


def _override(data: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {override}: expected KEY=VALUE, such as learning.generations=5")
    *parents, last = key.split(".")
    node: Any = data
    parsed = _yaml(value, f"--set {override}")
    for parent in parents:
        node = node[_index(node, parent, override)] if isinstance(node, list) else node.setdefault(parent, {})
        if not isinstance(node, dict | list):
            raise UserError(f"--set {override}: {parent} is not a group of settings")
    if isinstance(node, list):
        node[_index(node, last, override)] = parsed
    else:
        node[last] = parsed


def _preset(presets: Any, data: dict[str, Any], where: str) -> dict[str, Any]:
    study = data.get("study")
    name = study.get("preset", "full") if isinstance(study, dict) else "full"
    known = ["full", *presets] if isinstance(presets, dict) else ["full"]
    named = isinstance(presets, dict) and isinstance(name, str)
    chosen = presets.get(name, {} if name == "full" else None) if named else None
    if not isinstance(chosen, dict):
        raise UserError(f"{where}: study.preset: expected one of {', '.join(known)}, got {name!r}")
    return chosen


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Groups are merged, anything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _index(items: list[Any], part: str, override: str) -> int:
    if not part.isdecimal() or int(part) >= len(items):
        raise UserError(f"--set {override}: expected a position below {len(items)}, got {part}")
    return int(part)


def _explain(item: Any, where: str, model: type[Group]) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "settings"
    if item["type"] == "extra_forbidden":
        group: Any = model
        for part in item["loc"][:-1]:
            # A number is a position in a tuple[X, ...]: its settings are X's.
            field = getattr(group, "model_fields", {}).get(part)
            group = get_args(group)[0] if isinstance(part, int) else field.annotation if field else None
        known = sorted(getattr(group, "model_fields", {}))
        return f"{where}: {key}: unknown key" + (f" (known here: {', '.join(known)})" if known else "")
    hidden = item["type"] == SECRET or isinstance(item.get("input"), dict | BaseModel)
    came = "" if hidden else f" (got {item.get('input')!r})"
    return f"{where}: {key}: {item['msg']}{came}"
