"""Decompositions kept on disk: the same bits the second time, and a cache that may be damaged, lost or read-only."""

import logging

import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.config import SvfSettings
from trinity_jax.encoder import factors, svf
from trinity_jax.encoder.cache import cache_folder
from trinity_jax.encoder.decoder import Decoder, DecoderConfig
from trinity_jax.encoder.factors import kept

TINY = DecoderConfig(40, 16, 24, 3, 4, 2, 4, tie_embeddings=True)
KERNEL = np.random.default_rng(0).normal(size=(30, 12)).astype(np.float32)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRINITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(factors, "KEPT_FROM", 1)


def files():
    return sorted(path.name for path in cache_folder().rglob("*") if path.is_file())


def same(one, other):
    for a, b in zip(one, other, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("kernel", [KERNEL, KERNEL.T], ids=["tall", "wide"])
def test_the_second_time_comes_from_disk_bit_for_bit(kernel, dtype, monkeypatch):
    first, read = kept(jnp.asarray(kernel, dtype))
    assert not read
    same(first, factors.decompose(jnp.asarray(kernel, dtype)))
    monkeypatch.delattr(factors, "decompose")
    again, read = kept(jnp.asarray(kernel, dtype))
    assert read
    same(again, first)


def test_another_kernel_dtype_shape_or_method_is_another_file(monkeypatch):
    changed = KERNEL.copy()
    changed[-1, -1] = np.nextafter(changed[-1, -1], 9)
    kernels = [jnp.asarray(k) for k in (KERNEL, changed, KERNEL.reshape(12, 30), KERNEL.T)]
    for kernel in (*kernels, jnp.asarray(KERNEL, jnp.bfloat16)):
        assert not kept(kernel)[1]
    assert len(files()) == 5
    monkeypatch.setattr(factors, "_METHOD", -1)
    assert not kept(kernels[0])[1]
    assert len(files()) == 6


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign", "an array"])
def test_a_damaged_file_is_computed_again(damage, caplog):
    first, _ = kept(jnp.asarray(KERNEL))
    (file,) = cache_folder().rglob("*.npz")
    content = file.read_bytes()
    middle = len(content) // 2
    if damage == "foreign":
        np.savez(file, u=KERNEL[:5], s=KERNEL[0], v=KERNEL)
    elif damage == "an array":
        with file.open("wb") as stream:
            np.save(stream, KERNEL)
    else:
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        file.write_bytes({"cut": content[:middle], "flipped": flipped, "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        again, read = kept(jnp.asarray(KERNEL))
    assert not read
    same(again, first)
    assert "is damaged" in caplog.text
    assert str(file) in caplog.text
    assert kept(jnp.asarray(KERNEL))[1]
    assert files() == [file.name]


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TRINITY_CACHE", str(tmp_path / "file" / "below"))
    same(kept(jnp.asarray(KERNEL))[0], factors.decompose(jnp.asarray(KERNEL)))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "could not be kept" in caplog.text


def test_small_kernels_are_not_worth_a_file(monkeypatch):
    monkeypatch.setattr(factors, "KEPT_FROM", KERNEL.size + 1)
    kept(jnp.asarray(KERNEL))
    assert not cache_folder().exists()


def test_an_adaptation_says_what_it_cost_and_reads_it_the_next_time(caplog):
    decoder, settings = Decoder.random(TINY, 0), SvfSettings(preset="released")
    with caplog.at_level(logging.INFO):
        first = svf.Adaptation(decoder, settings)
        again = svf.Adaptation(decoder, settings)
    assert (first.read, again.read) == (0, 8)
    assert first.seconds > 0
    assert again.factors.keys() == first.factors.keys()
    for name, one in first.factors.items():
        same(again.factors[name], one)
    said = [record.getMessage() for record in caplog.records if record.name == svf.__name__]
    assert [line.split(" s, ")[1] for line in said] == [f"{count} of them from the cache folder" for count in (0, 8)]
