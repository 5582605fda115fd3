"""Event files, read with the protocol's own messages and checksums."""

import struct
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c

from trinity_jax.errors import UserError
from trinity_jax.training import tensorboard


def read(folder: Path) -> list[Any]:
    """Every record of the folder's files: length, its checksum, an event, its checksum (TFRecord)."""
    found = []
    for file in sorted(folder.iterdir()):
        data, at = file.read_bytes(), 0
        while at < len(data):
            head = data[at : at + 8]
            (length,) = struct.unpack("<Q", head)
            body = data[at + 12 : at + 12 + length]
            sums = struct.unpack("<I", data[at + 8 : at + 12]) + struct.unpack("<I", data[at + 12 + length :][:4])
            assert sums == (masked_crc32c(head), masked_crc32c(body))
            found.append(event_pb2.Event.FromString(body))  # pyright: ignore[reportAttributeAccessIssue] (made when imported)
            at += length + 16
    return found


def numbers(folder: Path) -> dict[tuple[str, int], float]:
    """Of event files, by name and generation."""
    return {(v.tag, e.step): v.simple_value for e in read(folder) for v in e.summary.value}


def test_a_resumed_run_takes_back_what_comes_again(tmp_path):
    with tensorboard.events(tmp_path, 0) as record:
        for generation in range(3):
            record({"generation": generation, "sigma": 1.0})
    with tensorboard.events(tmp_path, 2) as record:
        record({"generation": 2, "sigma": 0.5})
    starts = [e.step for e in read(tmp_path) if e.HasField("session_log")]
    assert starts == [2]
    assert numbers(tmp_path)["sigma", 2] == 0.5


def test_only_numbers_are_written():
    line = {"generation": 3, "a": 1, "b": None, "c": {"d": 0.5, "e": ["x"]}, "f": True, "g": {}}
    assert dict(tensorboard.scalars(line)) == {"a": 1.0, "c/d": 0.5}


def test_without_the_package_it_says_so(monkeypatch):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="tensorboardX, found none"):
        tensorboard.check()
