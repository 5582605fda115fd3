"""The bench's JSON line, and that the two sides it compares play the same game."""

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from trinity_jax.world.evolve import worth

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_evolution.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_evolution", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_numpy_episodes_are_worth_what_the_world_says(bench):
    options = argparse.Namespace(width=16, generations=1)
    setting = bench.Setting(options)
    world, twin = setting.world, bench.Episodes(setting.world)
    random = np.random.default_rng(0)
    X = random.normal(size=(6, setting.n)) * np.array([0.0, 0.1, 0.3, 0.3, 1.0, 1.0])[:, None]
    exact = jax.jit(jax.vmap(lambda vector: worth(world, setting.rules, setting.logits, vector, world.train)))(X)
    draws = [twin.play(X, twin.draw(random, 64), random) for _ in range(200)]
    for found, expected in zip(np.mean(draws, axis=(0, 3)), (exact.reward, exact.calls), strict=True):
        # 12,800 episodes a candidate, of five calls at most.
        np.testing.assert_allclose(found, np.asarray(expected).mean(axis=1), atol=0.04 * np.max(expected))


def test_the_last_line_is_one_json_object():
    small = "--seeds 2 --pycma-seeds 1 --generations 3 --width 16 --rounds 1 --devices 1 --json"
    done = subprocess.run([sys.executable, SCRIPT, *small.split()], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["compilations"] == 1
    assert 0 < found["peak_rss_gb"] < 6
    assert found["speedup_vs_pycma_loop"] > 0
    assert 0 < found["jax_success"][0] < 1


def test_seeds_have_to_divide_among_the_devices():
    done = subprocess.run(
        [sys.executable, SCRIPT, "--seeds", "5", "--devices", "2"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "expected a divisor of the 5 seeds, got 2" in done.stderr
