"""Cached hidden states against the encoder that runs use, and a cache that may be damaged, lost or read-only."""

import logging

import numpy as np
import pytest

from tests.tiny import make_encoder
from trinity_jax.config import EncoderSettings, SvfSettings
from trinity_jax.coordinator.transcripts import TranscriptEncoder
from trinity_jax.encoder import states
from trinity_jax.encoder.checkpoint import load_checkpoint
from trinity_jax.encoder.decoder import Decoder, cut
from trinity_jax.encoder.states import cache_folder, hidden_states, read, states_of
from trinity_jax.errors import UserError

RNG = np.random.default_rng(0)
TEXTS = ["".join(RNG.choice(list("abc xyz.\n"), length)) for length in (1, 5, 40, 41, 300, 7)]
TEXTS += TEXTS[:1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture
def settings(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("TRINITY_CACHE", str(tmp_path / "cache"))
    states._decoder.cache_clear()
    return EncoderSettings(source=str(folder), buckets=(448,), cache_mb=8)


def counted(monkeypatch):
    """Counts the passes through the decoder."""
    calls = []

    def counting(*args):
        calls.append(args)
        return states_of(*args)

    monkeypatch.setattr(states, "states_of", counting)
    return calls


def test_the_same_as_an_encoder_cut_and_read_there(settings):
    layers, positions = (3, 1), (-2, -1)
    found = hidden_states(settings, TEXTS, 3, layers, positions)
    assert found.shape == (len(TEXTS), 2, 2, 16)
    assert found.dtype == np.float32
    decoder, _ = load_checkpoint(settings.source, dtype="float32")
    ids = read(settings, TEXTS, 3).ids
    for i, j in ((0, 0), (1, 1)):
        there = settings.model_copy(update={"read_position": positions[j]})
        encoder = TranscriptEncoder(cut(decoder, layers[i]), SvfSettings(), there, 1)
        np.testing.assert_allclose(found[:, i, j], encoder.states(ids), atol=1e-5)


def test_batches_do_not_show(settings):
    """One text at a time and all at once, every text in its place."""
    decoder, _ = load_checkpoint(settings.source, dtype="float32")
    ids = read(settings, TEXTS, 3).ids
    heard = []
    together = states_of(decoder, ids, (2,), (-2,), lambda done, total: heard.append((done, total)))
    alone = np.concatenate([states_of(decoder, [one], (2,), (-2,)) for one in ids])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert [total for _, total in heard] == [len(ids)] * len(heard)
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert heard[-1] == (len(ids), len(ids))


def test_settings_serve_where_nothing_is_given(settings):
    cut_there = settings.model_copy(update={"layers": 2, "read_position": -3})
    np.testing.assert_array_equal(hidden_states(cut_there, TEXTS, 3), hidden_states(settings, TEXTS, 3, (2,), (-3,)))
    np.testing.assert_array_equal(hidden_states(settings, TEXTS, 3), hidden_states(settings, TEXTS, 3, (3,), (-2,)))


def test_the_second_time_comes_from_disk(settings, monkeypatch):
    def unwanted(done, total):
        raise AssertionError("computed again")

    calls = counted(monkeypatch)
    first = hidden_states(settings, TEXTS, 3, (1, 2))
    np.testing.assert_array_equal(hidden_states(settings, TEXTS, 3, (1, 2), progress=unwanted), first)
    np.testing.assert_array_equal(hidden_states(settings, TEXTS[::-1], 3, (1, 2)), first[::-1])
    assert len(calls) == 2  # another order is another file
    for changed in (
        lambda: hidden_states(settings, TEXTS, 4, (1, 2)),
        lambda: hidden_states(settings, TEXTS[1:], 3, (1, 2)),
        lambda: hidden_states(settings, TEXTS, 3, (2, 1)),
        lambda: hidden_states(settings, TEXTS, 3, (1, 2), (-1,)),
        lambda: hidden_states(settings.model_copy(update={"dtype": "bfloat16"}), TEXTS, 3, (1, 2)),
        lambda: hidden_states(settings.model_copy(update={"input_format": "plain"}), TEXTS, 3, (1, 2)),
        lambda: hidden_states(settings.model_copy(update={"buckets": (256,)}), TEXTS, 3, (1, 2)),
    ):
        before = len(calls)
        changed()
        assert len(calls) == before + 1


def test_other_weights_are_another_file(settings, tmp_path, monkeypatch):
    calls = counted(monkeypatch)
    hidden_states(settings, TEXTS, 3)
    hidden_states(settings.model_copy(update={"source": str(make_encoder(tmp_path / "same"))}), TEXTS, 3)
    assert len(calls) == 1
    hidden_states(settings.model_copy(update={"source": str(make_encoder(tmp_path / "deeper", 4))}), TEXTS, 3)
    assert len(calls) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign"])
def test_a_damaged_file_is_computed_again(settings, caplog, damage):
    first = hidden_states(settings, TEXTS, 3)
    (file,) = cache_folder().rglob("*.npz")
    content = file.read_bytes()
    middle = len(content) // 2
    if damage == "foreign":
        np.savez(file, states=first[:2])
    else:
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        file.write_bytes({"cut": content[:middle], "flipped": flipped, "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(hidden_states(settings, TEXTS, 3), first)
    assert "is damaged" in caplog.text
    assert str(file) in caplog.text
    caplog.clear()
    np.testing.assert_array_equal(hidden_states(settings, TEXTS, 3), first)
    assert not caplog.records
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_that_cannot_be_written_costs_time_only(settings, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TRINITY_CACHE", str(tmp_path / "file" / "below"))
    assert hidden_states(settings, TEXTS, 3).shape == (len(TEXTS), 1, 1, 16)
    assert "could not be kept" in caplog.text


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.delenv("TRINITY_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "trinity_jax"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "trinity_jax"


def test_long_texts_are_cut_and_counted(settings):
    long = ["q" * 1000, "r" * 1000, "short", "q" * 1000]
    got = read(settings, long, 3)
    assert got.cuts == 2
    assert [len(one) for one in got.ids][:2] == [448, 448]
    assert got.ids[0] == got.ids[3]
    assert read(settings, TEXTS[:3], 3).cuts == 0


def test_what_the_encoder_does_not_have(settings):
    with pytest.raises(UserError, match="this encoder has 3 layers, expected 1 to 3, got 4"):
        hidden_states(settings, TEXTS, 3, (1, 4))
    with pytest.raises(UserError, match=r"positions: the shortest text has \d+ tokens, .* got -1000"):
        hidden_states(settings, TEXTS, 3, (1,), (-1000,))
    with pytest.raises(UserError, match="expected `embedded`, a"):
        hidden_states(settings.model_copy(update={"source": "no such thing"}), TEXTS, 3)


def test_random_weights_need_no_cache(settings, tmp_path):
    decoder, _ = load_checkpoint(settings.source, dtype="float32")
    random = Decoder.random(decoder.config, 0)
    found = states_of(random, read(settings, TEXTS, 3).ids, (1, 2), (-2,))
    assert np.isfinite(found).all()
    assert not (tmp_path / "cache").exists()
