"""Eight devices decide what one decides; devices that there are not are told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trinity_jax.coordinator.devices import Devices
from trinity_jax.errors import UserError

SCRIPT = """
import json, sys
import numpy as np
from trinity_jax.config import EncoderSettings, SvfSettings
from trinity_jax.coordinator.transcripts import TranscriptEncoder
from trinity_jax.encoder.decoder import Decoder, DecoderConfig

decoder = Decoder.random(DecoderConfig(97, 32, 48, 3, 4, 2, 8, qk_norm=True, tie_embeddings=True), 0)
found = {}
for name, (devices, page, tokens, preset) in json.loads(sys.argv[1]).items():
    settings = EncoderSettings(buckets=(32, 64), page=page, micro_batch=2, cache_mb=1, devices=devices)
    encoder = TranscriptEncoder(decoder, SvfSettings(preset=preset), settings, 5, tokens)
    rng = np.random.default_rng(0)
    encoder.adapt(0.3 * rng.normal(size=(5, encoder.adaptation.size)))
    texts = [tuple(rng.integers(0, 97, length).tolist()) for length in (3, 17, 30, 33, 40, 41, 57, 60, 61, 64, 12)]
    pairs = [(i % 5, text) for i in range(5) for text in texts[: 4 + i]] + [(i, texts[0]) for i in range(5)]
    found[name] = [h.tolist() for h in encoder.encode(pairs)]
print(json.dumps(found))
"""
CASES = {
    "one": (1, None, 0.0, "layer"),
    "three": (3, None, 0.0, "layer"),  # 35 rows are no multiple of three, nor of eight
    "eight": (8, None, 0.0, "layer"),
    "one, pages": (1, 16, 0.0, "layer"),
    "eight, pages": (8, 16, 0.0, "layer"),
    "eight, written out": (8, None, 1e6, "layer"),
    "one, released": (1, None, 0.0, "released"),
    "eight, released": (8, None, 0.0, "released"),
}


def test_eight_devices_and_three_are_one():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(CASES)],
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    found = {name: np.array(states) for name, states in json.loads(done.stdout.splitlines()[-1]).items()}
    assert found["one"].std() > 0.1
    assert found["one"].shape == (35, 32)
    for name in ("three", "eight", "one, pages", "eight, pages", "eight, written out"):
        np.testing.assert_allclose(found[name], found["one"], atol=1e-6, err_msg=name)
    np.testing.assert_allclose(found["eight, released"], found["one, released"], atol=1e-6)


def test_devices_that_there_are_not_are_told():
    with pytest.raises(UserError, match=r"encoder.devices: expected at most 1 \(here: cpu\), got 2"):
        Devices(2)
