"""The bench's JSON line on a small layer, and how a crossing is read off."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_svf.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_svf", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_last_line_is_one_json_object():
    small = "--tokens 8,32 --rounds 2 --shape 16,32,16,48 --json"
    done = subprocess.run([sys.executable, SCRIPT, *small.split()], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["crossover_by_operations"] == 34
    assert found["factored_over_rebuilt_wall"].keys() == {"8", "32"}
    assert all(low <= high for low, high in found["ratio_range"].values())
    assert found["dtype"] == "float32"


def test_both_sides_multiply_by_every_kernel(bench):
    shapes = bench.kernels(8, 16, 8, 24)
    assert shapes == [(8, 16), (8, 8), (8, 8), (16, 8), (8, 24), (8, 24), (24, 8)]
    sides = bench.programs(shapes, "float32")
    xs = [jax.random.normal(jax.random.key(i), (5, rows)) for i, (rows, _) in enumerate(shapes)]
    for side in sides.values():
        got = side(xs)
        assert [y.shape for y in got] == [(5, columns) for _, columns in shapes]
        doubled = side([2 * x for x in xs])
        for one, two in zip(got, doubled, strict=True):
            np.testing.assert_allclose(2 * one, two, rtol=1e-5)
            assert jnp.abs(one).max() > 0


def test_crossing(bench):
    assert bench.crossing({256: 0.5, 1024: 2.0}) == pytest.approx(512)
    assert bench.crossing({4096: 1.4, 256: 0.7, 1024: 1.0}) == pytest.approx(1024)
    assert bench.crossing({256: 1.1, 1024: 1.3}) is None
    assert bench.crossing({256: 0.5, 1024: 0.9}) is None
