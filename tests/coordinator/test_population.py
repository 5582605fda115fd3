"""The population's shared computation against plain per-candidate decoders with written-out kernels."""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.config import EncoderSettings, HeadSettings, ReadoutSettings, SvfSettings
from trinity_jax.coordinator import layout as layouts
from trinity_jax.coordinator.policy import choose, decision_key
from trinity_jax.coordinator.population import PopulationEncoder, Row, h_hash
from trinity_jax.coordinator.readout import coordinates, fit
from trinity_jax.coordinator.transcripts import TranscriptEncoder
from trinity_jax.encoder import svf
from trinity_jax.encoder.decoder import Decoder, DecoderConfig, hidden
from trinity_jax.encoder.text import pad
from trinity_jax.errors import UserError

LINEAR = HeadSettings()
P, D, UNIT, POOL = 5, 32, 0.3, ("a", "b", "c")
TIED = DecoderConfig(97, D, 48, 4, 4, 2, 8, qk_norm=True, tie_embeddings=True)
UNTIED = DecoderConfig(97, D, 48, 3, 4, 2, 8, qkv_bias=True)
RNG = np.random.default_rng(0)
TEXTS = [tuple(RNG.integers(0, 97, length).tolist()) for length in (2, 5, 9, 12, 16, 17, 30)]
ROWS = [
    Row(candidate, text, (1, 0, question, 0, 2), (True, True, question % 2 == 0))
    for candidate in range(P)
    for question, text in enumerate(TEXTS)
]


@functools.cache
def decoder_of(config):
    """Kernels large enough that scales and depth matter."""
    decoder = Decoder.random(config, 0)
    return jax.tree.map(lambda leaf: leaf * 5 if leaf.ndim == 3 else leaf, decoder)


def population(
    config=TIED,
    *,
    micro_batch=1,
    cache_mb=1,
    buckets=(32,),
    head=LINEAR,
    readout: Literal["raw", "centred", "whitened"] = "whitened",
    tokens=0.0,
    work_mb=64,
    **chosen,
):
    encoder_settings = EncoderSettings(buckets=buckets, micro_batch=micro_batch, cache_mb=cache_mb, work_mb=work_mb)
    encoder = TranscriptEncoder(decoder_of(config), SvfSettings(**chosen), encoder_settings, P, tokens)
    readout_settings = ReadoutSettings(kind=readout, k=4)
    fitted = fit(readout, 4, encoder.states(TEXTS))
    built, layout = layouts.plan(encoder.adaptation.sizes, UNIT, head, readout_settings, D, POOL)
    return PopulationEncoder(encoder, layout, built, fitted, seed=3)


compiled = functools.cache(population)
"""For tests that may find transcripts already encoded."""


def vectors(layout, seed=1):
    return np.random.default_rng(seed).normal(size=(P, layout.size))


@jax.jit
def states_of(decoder, tokens, rows):
    return jax.vmap(lambda ids, row: hidden(decoder, ids)[row])(tokens, rows)


@jax.jit
def choose_all(logits, keys, roles):
    root = jax.random.key(3)
    return jax.vmap(lambda z, key, mask: choose(z, decision_key(root, *key), True, mask))(logits, keys, roles)


def reference(decoder):
    """Hidden vectors of all texts by the plain decoder."""
    tokens = np.stack([pad(text, 32) for text in TEXTS])
    return np.asarray(states_of(decoder, tokens, np.array([len(text) - 2 for text in TEXTS])))


CASES = {
    "none": {},
    "layer": {"preset": "layer"},
    "last layer": {"preset": "layer", "layer": -1},
    "written out": {"preset": "layer", "tokens": 1e6},
    "keys and values written out": {"preset": "layer", "layer": -1, "tokens": 1e6},
    "no room to write out": {"preset": "layer", "tokens": 1e6, "work_mb": 1, "micro_batch": 3},
    "released": {"preset": "released"},
    "released in sequence": {"preset": "released", "tied": "sequential"},
    "untied": {"config": UNTIED, "preset": "released"},
    "custom": {
        "config": UNTIED,
        "buckets": (16, 32),
        "preset": "custom",
        "matrices": ("layers.2.v", "layers.1.down", "lm_head"),
    },
}


@pytest.mark.parametrize("case", CASES)
def test_population_is_the_per_candidate_computation(case):
    settings = dict(CASES[case])
    config = settings.pop("config", TIED)
    whole = compiled(config, **{"micro_batch": 1} | settings)
    loaded = vectors(whole.layout)
    whole.load(loaded)
    choices = whole.decide(ROWS)

    decoder, adaptation = decoder_of(config), whole.encoder.adaptation
    plain, moved = reference(decoder), 0.0
    for candidate in range(P):
        parts = whole.layout.split(loaded[candidate])
        deltas = jnp.asarray(UNIT * loaded[candidate, : adaptation.size], jnp.float32)
        states = reference(svf.rebuilt(decoder, adaptation, deltas))
        moved = max(moved, float(np.abs(states - plain).max()))
        of_candidate = slice(candidate * len(TEXTS), (candidate + 1) * len(TEXTS))
        rows, chosen = ROWS[of_candidate], choices[of_candidate]
        np.testing.assert_allclose(whole.encoder.encode([(candidate, text) for text in TEXTS]), states, atol=1e-5)
        logits = coordinates(whole.readout, jnp.asarray(states)) @ parts["head"].T + parts["bias"]
        keys, roles = jnp.array([row.key for row in rows]), jnp.array([row.roles for row in rows])
        expected = choose_all(jnp.asarray(logits, jnp.float32), keys, roles)
        np.testing.assert_allclose([c.model_probs for c in chosen], expected.model_probs, atol=1e-5)
        np.testing.assert_allclose([c.role_probs for c in chosen], expected.role_probs, atol=1e-5)
        assert [c.model for c in chosen] == expected.model.tolist()
        assert [c.role for c in chosen] == expected.role.tolist()
    assert (moved > 0.01) == bool(adaptation.factors)


HEADS = {
    "linear": {"readout": "raw"},
    "block-diagonal": {"head": HeadSettings(kind="block_diagonal", blocks=4), "readout": "centred"},
    "low-rank": {"head": HeadSettings(kind="low_rank", rank=3)},
    "sparse": {"head": HeadSettings(kind="sparse")},
    "sparse, raw": {"head": HeadSettings(kind="sparse"), "readout": "raw"},
}


def check_choices(whole, loaded, choices, rows, keys):
    """Against the head's own logits, candidate by candidate; ``keys`` of the noise."""
    for candidate, key in zip(range(P), keys, strict=True):
        of_candidate = [i for i, row in enumerate(rows) if row.candidate == candidate]
        texts, chosen = [rows[i].tokens for i in of_candidate], [choices[i] for i in of_candidate]
        parts = whole.layout.split(loaded[candidate])
        z = coordinates(whole.readout, jnp.asarray(np.stack(whole.encoder.encode([(candidate, t) for t in texts]))))
        logits = whole.head.logits(jnp.asarray(parts["head"].reshape(-1), jnp.float32), z, key)
        logits = np.asarray(logits) + parts.get("bias", 0.0)
        expected = choose_all(
            jnp.asarray(logits, jnp.float32),
            jnp.array([rows[i].key for i in of_candidate]),
            jnp.array([rows[i].roles for i in of_candidate]),
        )
        np.testing.assert_allclose([c.model_probs for c in chosen], expected.model_probs, atol=1e-5)
        np.testing.assert_allclose([c.role_probs for c in chosen], expected.role_probs, atol=1e-5)
        assert [c.model for c in chosen] == expected.model.tolist()
        assert [c.role for c in chosen] == expected.role.tolist()


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_decides_by_its_own_logits(kind):
    whole = compiled(**HEADS[kind])
    loaded = vectors(whole.layout)
    whole.load(loaded)
    check_choices(whole, loaded, whole.decide(ROWS), ROWS, [None] * P)


def test_noise_is_drawn_once_per_load_and_shared_or_not():
    whole, key = compiled(**HEADS["sparse, raw"]), jax.random.key(9)
    loaded = vectors(whole.layout)
    own = [jax.random.fold_in(key, candidate) for candidate in range(P)]
    for shared, keys in ((True, own[:1] * P), (False, own)):
        whole.load(loaded, key, shared)
        check_choices(whole, loaded, whole.decide(ROWS), ROWS, keys)
    whole.load(np.repeat(loaded[:1], P, axis=0), key)
    rows = [Row(candidate, TEXTS[0], (0, 0, 0, 0, 0)) for candidate in range(P)]
    assert len({choice.model_probs for choice in whole.decide(rows)}) == 1
    whole.load(np.repeat(loaded[:1], P, axis=0), key, shared=False)
    assert len({choice.model_probs for choice in whole.decide(rows)}) == P


@pytest.mark.parametrize(
    "case, micro_batch", [("none", 1), ("layer", 1), ("layer", 4), ("released", 4), ("low-rank", 4)]
)
def test_a_row_does_not_depend_on_its_place_or_company(case, micro_batch):
    chosen = (CASES | HEADS)[case]
    one = compiled(TIED, micro_batch=micro_batch, **chosen)
    one.load(vectors(one.layout))
    together = one.decide(ROWS)
    other = population(micro_batch=micro_batch, **chosen)
    other.load(vectors(other.layout))
    order = np.random.default_rng(2).permutation(len(ROWS)).tolist()
    apart: dict[int, object] = {}
    for start, stop in ((0, 1), (1, 4), (4, 20), (20, len(ROWS))):
        part = order[start:stop]
        apart.update(zip(part, other.decide([ROWS[i] for i in part]), strict=True))
    assert [apart[i] for i in range(len(ROWS))] == together


def test_few_compilations_and_each_transcript_once():
    whole = population(preset="layer", buckets=(16, 32))
    for seed in range(3):
        whole.load(vectors(whole.layout, seed))
        whole.decide(ROWS)
        whole.load(vectors(whole.layout, seed)[:1])
        whole.decide(ROWS[: len(TEXTS)], "argmax")
    assert whole.compilations == 2 * 2 + 1
    assert whole.distinct_transcripts == len(TEXTS)
    assert whole.seconds > 0


def test_hashes_tell_states_apart():
    whole = compiled(TIED, micro_batch=1, preset="layer")
    whole.load(vectors(whole.layout))
    hashes = [choice.h_hash for choice in whole.decide(ROWS)]
    assert len(set(hashes)) == len(ROWS)
    assert hashes[0] == h_hash(whole.encoder.encode([(0, TEXTS[0])])[0])


def test_sampling_keys_are_shared_unless_the_candidate_is_in_them():
    whole = compiled(TIED, micro_batch=1)
    whole.load(np.repeat(vectors(whole.layout)[:1] * 0.1, P, axis=0))
    same = whole.decide([Row(c, TEXTS[0], (0, 0, q, 0, 0)) for q in range(20) for c in range(P)])
    assert all(len({(one.model, one.role) for one in same[i : i + P]}) == 1 for i in range(0, len(same), P))
    own = whole.decide([Row(c, TEXTS[0], (0, c, q, 0, 0)) for q in range(20) for c in range(P)])
    assert any(len({(one.model, one.role) for one in own[i : i + P]}) > 1 for i in range(0, len(own), P))


def test_a_full_memory_forgets_the_oldest_and_stays_right():
    """One megabyte holds 128 transcripts of 64 tokens at D = 32."""
    rng = np.random.default_rng(5)
    texts = [tuple(rng.integers(0, 97, n).tolist()) for n in rng.integers(3, 65, 300)]
    small = population(preset="layer", buckets=(64, 128))
    roomy = population(preset="layer", buckets=(64, 128), cache_mb=16)
    for one in (small, roomy):
        one.load(vectors(one.layout))
    for rows in (texts, texts[::7], texts[::-1]):
        pairs = [(i % P, text) for i, text in enumerate(rows)]
        for left, right in zip(small.encoder.encode(pairs), roomy.encoder.encode(pairs), strict=True):
            np.testing.assert_array_equal(left, right)


def test_memory_for_less_than_one_transcript():
    config = DecoderConfig(97, D, 48, 2, 4, 2, 8, tie_embeddings=True)
    with pytest.raises(UserError, match=r"cache_mb: one transcript of 16384 tokens needs 2, got 1"):
        TranscriptEncoder(
            Decoder.random(config, 0),
            SvfSettings(preset="layer"),
            EncoderSettings(buckets=(16_384,), cache_mb=1),
            P,
        )


def test_wrong_use_is_refused():
    whole = population()
    with pytest.raises(ValueError, match="no candidates"):
        whole.decide(ROWS[:1])
    with pytest.raises(UserError, match=f"expected {whole.layout.size} numbers for the pool a, b, c"):
        whole.load(np.zeros((P, 3)))
    with pytest.raises(ValueError, match="made for 5"):
        whole.load(np.zeros((P + 1, whole.layout.size)))
    whole.load(vectors(whole.layout)[:2])
    with pytest.raises(ValueError, match="2 candidates are loaded"):
        whole.decide(ROWS)
    with pytest.raises(ValueError, match="sample or argmax"):
        whole.decide(ROWS[:1], "greedy")


def test_nothing_is_shared_where_the_embedding_is_scaled_and_the_log_says_so(caplog):
    encoder_settings = EncoderSettings(buckets=(32,), cache_mb=1)
    for preset in ("layer", "released"):
        TranscriptEncoder(decoder_of(TIED), SvfSettings(preset=preset), encoder_settings, P)
    assert [record.message for record in caplog.records] == [
        "svf scales the embedding: every candidate runs the whole encoder, nothing can be shared"
    ]


def test_bfloat16_weights_follow_float32():
    chosen = SvfSettings(preset="layer"), EncoderSettings(buckets=(32,), cache_mb=1), P
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), decoder_of(TIED))
    pair = [TranscriptEncoder(one, *chosen) for one in (decoder_of(TIED), narrow)]
    deltas = 0.3 * np.random.default_rng(0).normal(size=(P, pair[0].adaptation.size))
    for encoder in pair:
        encoder.adapt(deltas)
    wide, low = (np.stack(e.encode([(c, text) for c in range(P) for text in TEXTS])) for e in pair)
    cosine = (wide * low).sum(1) / np.linalg.norm(wide, axis=1) / np.linalg.norm(low, axis=1)
    assert low.dtype == np.float32
    assert cosine.min() > 0.999
