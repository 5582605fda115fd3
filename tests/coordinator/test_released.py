"""The published vector's place in our layout, on synthetic vectors."""

import io
import json
import pickle
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import trinity_jax
from trinity_jax.cli import main
from trinity_jax.coordinator.export import load_coordinator
from trinity_jax.coordinator.heads import respond
from trinity_jax.coordinator.released import POOL, import_released
from trinity_jax.encoder import svf
from trinity_jax.errors import UserError

NAMES = ("embed", *(f"layers.26.{n}" for n in ("q", "k", "v", "o", "gate", "up", "down")), "lm_head")
SEVEN = tuple("abcdefg")


@pytest.fixture
def vector():
    return np.random.default_rng(0).normal(0, 0.097, 19_456)


@pytest.fixture
def file(tmp_path, vector):
    np.save(tmp_path / "vector.npy", vector)
    return tmp_path / "vector.npy"


def test_every_number_stands_where_the_authors_have_it(file, vector):
    coordinator = import_released(file, SEVEN)
    np.testing.assert_array_equal(coordinator.vector, vector)
    assert tuple(coordinator.deltas) == NAMES
    for i, name in enumerate(NAMES):
        np.testing.assert_array_equal(coordinator.deltas[name], vector[1024 * i : 1024 * (i + 1)].astype(np.float32))
    h = np.random.default_rng(1).normal(size=(3, 1024)).astype(np.float32)
    rows = vector[9216:].reshape(10, 1024)  # row-major: seven models, Worker, Thinker, Verifier
    np.testing.assert_allclose(respond(coordinator.weights, jnp.asarray(h)), h @ rows.T, atol=1e-4)
    assert coordinator.bias is None
    assert coordinator.layout.rows == (*SEVEN, "Worker", "Thinker", "Verifier")


def test_settings_are_those_of_the_released_code(file):
    described = import_released(file, tied="sequential", input_format="plain", source="some/folder").description
    assert described.pool == POOL
    assert (described.svf.preset, described.svf.layer, described.svf.scale) == ("released", -2, 1.0)
    assert described.svf.tied == "sequential"
    assert (described.readout.kind, described.head.kind) == ("raw", "linear")
    assert (described.encoder.source, described.encoder.input_format) == ("some/folder", "plain")
    assert described.encoder.read_position == -2
    assert (described.policy.evaluate, described.episode.max_calls) == ("sample", 5)
    assert described.episode.transcript == "worker_thoughts"
    assert described.checkpoint == "unknown"
    assert described.evolved_n == described.folded_n == 19_456
    chosen = import_released(file).description
    assert (chosen.svf.tied, chosen.encoder.input_format) == ("last_write", "chat")
    assert chosen.encoder.source == "Qwen/Qwen3-0.6B"


@pytest.mark.parametrize("tied", ["last_write", "sequential"])
def test_scales_keep_the_sum_and_the_tied_case_is_what_it_says(file, vector, tied):
    coordinator = import_released(file, tied=tied)
    s = np.linspace(3.0, 0.5, 1024)
    first, last = coordinator.deltas["embed"], coordinator.deltas["lm_head"]
    both = (
        svf.in_sequence if coordinator.description.svf.tied == "sequential" else lambda s, _, last: svf.scale(s, last)
    )
    scale = both(jnp.asarray(s, jnp.float32), jnp.asarray(first), jnp.asarray(last))
    found = np.asarray(scale.c * s * (1 + scale.delta))
    np.testing.assert_allclose(found.sum(), s.sum(), rtol=1e-5)
    expected = s * (1 + vector[8192:9216])
    if tied == "sequential":
        once = s * (1 + vector[:1024])
        once = np.sort(np.abs(once * s.sum() / once.sum()))[::-1]
        expected = once * (1 + vector[8192:9216])
    expected = expected * s.sum() / expected.sum()
    np.testing.assert_allclose(np.sort(found), np.sort(expected), rtol=1e-4)


def test_float32_is_taken_too(tmp_path, vector):
    np.save(tmp_path / "v.npy", vector.astype(np.float32))
    np.testing.assert_array_equal(import_released(tmp_path / "v.npy").vector, vector.astype(np.float32))


def test_lazily_from_the_package(file):
    assert trinity_jax.import_released is import_released
    with pytest.raises(AttributeError, match="no attribute 'import_everything'"):
        trinity_jax.import_everything  # noqa: B018
    code = "import sys, trinity_jax; assert 'jax' not in sys.modules; trinity_jax.import_released"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def save(array):
    return lambda path: np.save(path, array)


class Dangerous:
    def __reduce__(self):
        return (print, ("code ran",))


BAD = {
    "short": (save(np.zeros(18_432)), r"expected 19456 numbers for the pool gpt-5, .* got 18432"),
    "NaN": (save(np.full(19_456, np.nan)), "expected finite numbers"),
    "integers": (save(np.zeros(19_456, int)), r"expected float64 \[19456\], got int64"),
    "half": (save(np.zeros(19_456, np.float16)), "got float16"),
    "a matrix": (save(np.zeros((10, 1024))), r"got float64 \[10, 1024\]"),
    "far out": (save(np.full(19_456, -11.0)), "within 10 of 0 .* got 11"),
    "objects": (lambda path: np.save(path, np.array([Dangerous()]), allow_pickle=True), "of plain numbers"),
    "a pickle": (lambda path: path.write_bytes(pickle.dumps(Dangerous())), "of plain numbers"),
    "text": (lambda path: path.write_text("0.1 0.2"), "of plain numbers"),
    "empty": (lambda path: path.write_bytes(b""), "of plain numbers"),
    "half a file": (lambda path: (np.save(path, np.ones(19_456)), path.write_bytes(path.read_bytes()[:-9])), "plain"),
    "an archive": (lambda path: path.write_bytes(archive()), "got an .npz archive"),
    "nothing": (lambda path: None, r"v\.npy: cannot be read"),
}


def archive():
    stream = io.BytesIO()
    np.savez(stream, v=np.zeros(19_456))
    return stream.getvalue()


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_such_vector(tmp_path, bad, capsys):
    make, message = BAD[bad]
    make(tmp_path / "v.npy")
    with pytest.raises(UserError, match=message):
        import_released(tmp_path / "v.npy")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("pool", [SEVEN[:6], (*SEVEN[:6], "a"), (*SEVEN[:6], "")])
def test_the_pool_has_seven_names(file, pool):
    with pytest.raises(UserError, match="pool: expected 7 different names"):
        import_released(file, pool)


def test_from_the_command_line(file, tmp_path, capsys, vector):
    arguments = ["import-released", str(file), "--out", str(tmp_path / "out")]
    assert main([*arguments, "--pool", "a, b,c,d,e,f,g", "--tied", "sequential"]) == 0
    said = capsys.readouterr().out
    for part in ("a, b, c, d, e, f, g", "linear, evolved in raw", "released: embed, layers.26.q", "n = 19456 evolved"):
        assert part in said
    assert main(["inspect", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == said
    coordinator = load_coordinator(tmp_path / "out")
    np.testing.assert_array_equal(coordinator.vector, vector)
    assert coordinator.description == import_released(file, SEVEN, tied="sequential").description
    assert json.loads((tmp_path / "out" / "coordinator.json").read_text())["svf"]["tied"] == "sequential"
    assert main(["import-released", str(file), "--out", str(tmp_path / "no" / "folder")]) == 2
    assert main(["import-released", str(file), "--out", str(tmp_path / "o"), "--pool", "a,b"]) == 2
    said = capsys.readouterr().err
    assert [line.split(":")[0] for line in said.splitlines()] == ["error", "error"]
    assert not (tmp_path / "o").exists()
