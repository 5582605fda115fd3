"""A second process compiles nothing that the first one kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
from trinity_jax.encoder.compiled import compiled, keep_compiled
assert compiled() is None
keep_compiled()
keep_compiled()
from trinity_jax.config import SvfSettings
from trinity_jax.encoder.decoder import Decoder, DecoderConfig
from trinity_jax.encoder.svf import Adaptation
decoder = Decoder.random(DecoderConfig(97, 256, 384, 2, 4, 2, 64, tie_embeddings=True), 0)
print(Adaptation(decoder, SvfSettings(preset="layer")).read)
jax.block_until_ready(jax.jit(lambda x: jnp.sin(x).sum())(np.arange(7.0)))
print(compiled())
"""


def start(cache: Path, **environment: str) -> list[int]:
    command = [sys.executable, "-c", SCRIPT]
    theirs = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION_CACHE")}
    given = theirs | {"TRINITY_CACHE": str(cache)} | environment
    done = subprocess.run(command, env=given, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def test_the_second_start_compiles_nothing(tmp_path):
    read, compiled = start(tmp_path)
    assert read == 0
    assert compiled > 1
    # Decompositions come from the same folder, and reach the device by the same programs.
    read, compiled = start(tmp_path)
    assert read > 0
    assert compiled == 0


@pytest.mark.parametrize("variable", ["JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"])
def test_jax_own_variables_rule(tmp_path, variable):
    value = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "own"), "JAX_ENABLE_COMPILATION_CACHE": "false"}[variable]
    start(tmp_path / "cache", **{variable: value})
    assert not (tmp_path / "cache" / "xla").exists()
    assert (tmp_path / "own").exists() == (variable == "JAX_COMPILATION_CACHE_DIR")
