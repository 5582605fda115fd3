"""Sharing by pages against whole transcripts, and that nothing but its tokens decides a transcript's bits."""

import functools
import itertools
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity_jax import config as configs
from trinity_jax.config import EncoderSettings, SvfSettings
from trinity_jax.coordinator.transcripts import TranscriptEncoder
from trinity_jax.coordinator.trunk import Slots
from trinity_jax.encoder.decoder import Decoder, DecoderConfig
from trinity_jax.errors import UserError

P, D = 3, 32
TIED = DecoderConfig(97, D, 48, 4, 4, 2, 8, qk_norm=True, tie_embeddings=True)
UNTIED = DecoderConfig(97, D, 48, 3, 4, 2, 8, qkv_bias=True)
LAYER = {"preset": "layer", "layer": -1}
RNG = np.random.default_rng(0)


def random_tokens(length):
    return tuple(RNG.integers(0, 97, length).tolist())


FRAME, TAIL = random_tokens(70), random_tokens(6)
"""As a chat template has it: the same beginning and end around what grows."""


def grown(turns):
    """Transcripts of one episode: each extends the one before it, but for the tail."""
    view = FRAME + random_tokens(20)
    for _ in range(turns):
        yield view + TAIL
        view += random_tokens(int(RNG.integers(10, 40)))


TEXTS = [text for _ in range(6) for text in grown(4)] + [FRAME[:64], FRAME[:65], FRAME[:2], random_tokens(256)]
PAIRS = [(i % P, text) for i, text in enumerate(TEXTS)]


@functools.cache
def decoder_of(config):
    return jax.tree.map(lambda leaf: leaf * 5 if leaf.ndim == 3 else leaf, Decoder.random(config, 0))


def encoder_of(config=TIED, *, page: int | None = 32, buckets=(128, 256), cache_mb=1, micro_batch=4, **chosen):
    encoder_settings = EncoderSettings(buckets=buckets, page=page, micro_batch=micro_batch, cache_mb=cache_mb)
    return TranscriptEncoder(decoder_of(config), SvfSettings(**chosen), encoder_settings, P)


def encode(encoder, pairs):
    """With the tip run anew, whatever was asked before."""
    deltas = np.random.default_rng(1).normal(size=(P, encoder.adaptation.size))
    encoder.adapt(0.3 * deltas)
    return np.stack(encoder.encode(pairs))


@functools.cache
def tight():
    """Sixteen pages of 128 tokens: eight transcripts, no more."""
    return encoder_of(page=128, **LAYER)


@functools.cache
def alone():
    """Each text when nothing of it is in memory."""
    result, flush = [], [(0, random_tokens(256)) for _ in range(8)]
    for pair in PAIRS:
        encode(tight(), flush)
        result.append(encode(tight(), [pair])[0])
    return np.stack(result)


@pytest.mark.parametrize(
    "chosen",
    [
        {"buckets": (256,)},
        LAYER,
        {"preset": "layer", "layer": 0, "buckets": (256,)},
        {"config": UNTIED, "preset": "custom", "matrices": ("layers.1.down", "layers.2.q")},
    ],
)
def test_pages_are_the_whole_computation(chosen):
    whole, paged = (encode(encoder_of(page=page, **chosen), PAIRS) for page in (None, 32))
    np.testing.assert_allclose(paged, whole, rtol=0, atol=1e-5)
    assert np.abs(whole).max() > 1


def test_neither_order_nor_company_nor_memory_matters():
    roomy = encoder_of(page=128, cache_mb=16, **LAYER)
    order = np.random.default_rng(2).permutation(len(PAIRS))
    np.testing.assert_array_equal(encode(tight(), PAIRS), alone())
    for part in np.split(order, [1, 4, 10]):
        np.testing.assert_array_equal(encode(roomy, [PAIRS[i] for i in part]), alone()[part])
    np.testing.assert_array_equal(encode(roomy, PAIRS[::-1]), alone()[::-1])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, len(PAIRS) - 1), min_size=1, max_size=12), max_size=6))
def test_what_was_forgotten_never_shows(batches):
    for batch in batches:
        np.testing.assert_array_equal(encode(tight(), [PAIRS[i] for i in batch]), alone()[batch])


def test_each_page_is_computed_once_by_few_programs(monkeypatch):
    encoder = encoder_of(micro_batch=1, **LAYER)
    counts = []
    trunk: Any = encoder._trunk
    run = trunk._run
    monkeypatch.setattr(trunk, "_run", lambda *args: counts.append(args[-1]) or run(*args))
    for pair in PAIRS * 2:
        encode(encoder, [pair])
    pages = {text[: start + 32] for text in TEXTS for start in range(0, len(text), 32)}
    assert sum(counts) == len(pages)
    assert encoder.compilations == 2 * 2
    assert encoder.distinct_transcripts == len(TEXTS)


def test_an_interrupted_computation_leaves_nothing_half_done(monkeypatch):
    encoder = tight()
    trunk: Any = encoder._trunk
    run, calls = trunk._run, itertools.count()

    def interrupted(*args):
        if next(calls) == 1:
            raise KeyboardInterrupt
        return run(*args)

    with monkeypatch.context() as patched:
        patched.setattr(trunk, "_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            encode(encoder, [(0, random_tokens(256))])
    np.testing.assert_array_equal(encode(encoder, PAIRS), alone())


@given(
    st.integers(8, 12), st.lists(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=1), max_size=30)
)
def test_slots_are_a_table_in_which_a_page_outlives_those_that_need_it(count, batches):
    slots, where = Slots(count), {}
    for batch in batches:
        chains = [[text[:end].encode() for end in range(1, len(text) + 1)] for text in batch]
        found, new = slots.reserve(chains)
        placed = {
            key: place
            for chain, slot in zip(chains, found, strict=True)
            for key, place in zip(chain, slot, strict=True)
        }
        assert all(where[key] == place for key, place in placed.items() if key not in new)
        where = {key: place for key, place in where.items() if place not in placed.values()} | placed
        assert len(set(where.values())) == len(where) <= count
        assert set(where.values()) <= set(range(count))
        assert all(key[:-1] in where for key in where if len(key) > 1)
        assert slots.reserve(chains) == (found, set())


def test_settings_that_cannot_work():
    with pytest.raises(UserError, match="cache_mb: one transcript of 4096 tokens needs 2, got 1"):
        encoder_of(buckets=(4096,), **LAYER)
    encoder_of(page=None, buckets=(4096,), **LAYER)
    with pytest.raises(ValueError, match=r"multiples of page: 48, got \[64, 96\]"):
        configs.EncoderSettings(buckets=(64, 96), page=48)
