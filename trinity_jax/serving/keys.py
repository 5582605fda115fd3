"""Clients' keys: one JSON object a line with a name and the SHA-256 of a key; the keys themselves are nowhere.

A key has 256 random bits, so a plain hash gives nothing away that could be guessed.
"""

import hashlib
import json
import os
import re
import secrets
from pathlib import Path
from typing import NamedTuple

from trinity_jax.errors import UserError

_MARK = "trinity-"
_SHA256 = re.compile("[0-9a-fA-F]{64}")


class Client(NamedTuple):
    """Whose key it is; ``admin``: may load everything anew, and read everybody's traces, the runs and the metrics."""

    name: str
    admin: bool


class Keys:
    """The clients that may ask; none at all means that everybody may.

    Args:
        clients: by the SHA-256 of their keys.
    """

    def __init__(self, clients: dict[str, Client]):
        self._clients = clients

    def __bool__(self) -> bool:
        return bool(self._clients)

    @classmethod
    def read(cls, path: Path) -> "Keys":
        """Read a file of keys.

        Raises:
            UserError: it cannot be read, has no keys, or a line is none.
        """
        clients = _clients(path, _text(path))
        if not clients:
            raise UserError(f"{path}: has no keys; `python -m trinity_jax serve-key {path} NAME` makes one")
        return cls(clients)

    def client(self, authorization: str) -> Client | None:
        """Who a header ``Authorization: Bearer KEY`` belongs to."""
        kind, _, key = authorization.partition(" ")
        if kind.lower() != "bearer":
            return None
        return self._clients.get(_digest(key.strip()))


def new_key(path: Path, name: str, admin: bool) -> str:
    """Make a key, add its hash to the file (made for its owner alone) and return it: it cannot be read again.

    Raises:
        UserError: the name is there already, or the file cannot be written.
    """
    before = _text(path) if path.exists() else ""
    if name in [client.name for client in _clients(path, before).values()]:
        raise UserError(f"{path}: {name} has a key already; take its line out to give another")
    if not name:
        raise UserError("expected a name, got an empty one")
    key = _MARK + secrets.token_urlsafe(32)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        # The last line may have been edited and left without its end.
        start = "\n" if before and not before.endswith("\n") else ""
        with open(descriptor, "a", encoding="utf-8") as file:
            file.write(start + json.dumps({"name": name, "admin": admin, "sha256": _digest(key)}) + "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
    return key


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a file of keys ({error})") from error


def _clients(path: Path, text: str) -> dict[str, Client]:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return dict(_line(line, f"{path}, line {number}") for number, line in lines)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def _line(line: str, where: str) -> tuple[str, Client]:
    try:
        found = json.loads(line)
        digest, client = found["sha256"], Client(found["name"], found.get("admin", False))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UserError(f'{where}: expected {{"name": ..., "sha256": ...}}') from None
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise UserError(f"{where}: sha256: expected the SHA-256 of a key in 64 hexadecimal digits")
    if not isinstance(client.name, str) or not client.name:
        raise UserError(f"{where}: name: expected a text, got {client.name!r}")
    if not isinstance(client.admin, bool):
        raise UserError(f"{where}: admin: expected true or false, got {client.admin!r}")
    return digest.lower(), client
