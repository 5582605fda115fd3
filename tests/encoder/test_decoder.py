"""The decoder against what transformers computed, and against itself."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from trinity_jax.encoder import decoder as dec
from trinity_jax.encoder.checkpoint import load_folder
from trinity_jax.encoder.decoder import Decoder, DecoderConfig
from trinity_jax.errors import UserError

FIXTURES = Path(__file__).parent.parent / "fixtures" / "encoder"
CASES = sorted(folder.name for folder in FIXTURES.iterdir())

QWEN3_06B = {
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "attention_bias": False,
    "max_position_embeddings": 40_960,
    "max_window_layers": 28,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 1_000_000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}

hidden = jax.jit(jax.vmap(dec.hidden, (None, 0)))


def block_row(model, x, row):
    return dec.block_at(model, 1).row(x, dec.rope(model.config, x.shape[0], x.dtype), row)


@jax.jit
def block_all(model, x):
    return dec.block_at(model, 1)(x, dec.rope(model.config, x.shape[0], x.dtype))


@pytest.fixture(scope="module")
def model() -> Decoder:
    return load_folder(FIXTURES / "qwen3_grouped", "float32")[0]


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    return load_file(FIXTURES / "qwen3_grouped" / "reference.safetensors")["tokens"][0]


@pytest.mark.parametrize("case", CASES)
def test_parity_with_transformers_in_float32(case):
    model, _ = load_folder(FIXTURES / case, "float32")
    reference = load_file(FIXTURES / case / "reference.safetensors")
    h = hidden(model, reference["tokens"])
    np.testing.assert_allclose(h, reference["hidden"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(dec.logits(model, h), reference["logits"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", ["qwen3_grouped", "qwen2", "llama3"])
def test_bfloat16_points_the_same_way(case):
    model, _ = load_folder(FIXTURES / case, "bfloat16")
    reference = load_file(FIXTURES / case / "reference.safetensors")
    h = hidden(model, reference["tokens"])
    assert h.dtype == jnp.bfloat16
    h, expected = np.asarray(h, np.float32), reference["hidden"]
    cosine = (h * expected).sum(-1) / np.linalg.norm(h, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert cosine.min() >= 0.999


@pytest.mark.parametrize(
    "change",
    [
        {"rope_theta": 10_000.0},
        {"rms_norm_eps": 1e-2},
        {"qk_norm": False},
    ],
)
def test_fixtures_notice_a_wrong_configuration(model, tokens, change):
    config = replace(model.config, **change)
    arrays = {name: array for name, array in model.blocks.arrays().items() if name in dec.block_shapes(config)}
    lm_head = model.lm_head[...] if model.lm_head is not None else None
    wrong = Decoder(config, model.embed[...], dec.Block(config, arrays), model.norm[...], lm_head)
    expected = load_file(FIXTURES / "qwen3_grouped" / "reference.safetensors")["hidden"][0]
    assert np.abs(hidden(wrong, tokens[None])[0] - expected).max() > 1e-3


@pytest.mark.parametrize("family", ["qwen3", "qwen2", "llama"])
def test_live_against_transformers(family, tmp_path):
    torch = pytest.importorskip("torch", reason="the live reference needs torch; the stored one ran above")
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {
        "vocab_size": 211,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
    } | ({"head_dim": 16} if family == "qwen3" else {})
    reference = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes), dtype=torch.float32).eval()
    reference.save_pretrained(tmp_path)
    tokens = np.random.default_rng(0).integers(sizes["vocab_size"], size=(2, 150))
    with torch.no_grad():
        output = reference(torch.from_numpy(tokens), output_hidden_states=True)
    h = hidden(load_folder(tmp_path, "float32")[0], tokens)
    np.testing.assert_allclose(h, output.hidden_states[-1].numpy(), rtol=0, atol=1e-5)


def test_padding_has_exactly_no_effect_at_equal_shapes(model, tokens):
    length = 31
    other = tokens.copy()
    other[length:] = 0
    assert (other != tokens).any()
    a, b = hidden(model, np.stack([tokens, other]))
    assert float(jnp.abs(a[:length] - b[:length]).max()) == 0.0
    assert float(jnp.abs(a[length:] - b[length:]).max()) > 0.0


@pytest.mark.parametrize("case", ["qwen3_full", "qwen3_grouped", "qwen3_single", "qwen2"])
def test_row_is_the_row_of_the_whole_block(case):
    model, _ = load_folder(FIXTURES / case, "float32")
    x = jax.random.normal(jax.random.key(0), (48, model.config.hidden_size))
    rows = jax.jit(jax.vmap(block_row, (None, None, 0)))(model, x, jnp.arange(48))
    np.testing.assert_allclose(rows, block_all(model, x), rtol=0, atol=2e-6)


def test_row_reads_nothing_that_comes_later(model):
    x = jax.random.normal(jax.random.key(0), (48, model.config.hidden_size))
    one = jax.jit(block_row)
    assert jnp.array_equal(one(model, x, jnp.asarray(9)), one(model, x.at[10:].set(7.0), jnp.asarray(9)))
    assert not jnp.array_equal(one(model, x, jnp.asarray(9)), one(model, x.at[9:].set(7.0), jnp.asarray(9)))


def test_every_projection_passes_the_hook(model):
    x = jax.random.normal(jax.random.key(0), (48, model.config.hidden_size))
    seen = []

    def project(name, x, kernel, bias):
        seen.append((name, x.shape, kernel.shape))
        return dec.plain_projection(name, x, 2.0 * kernel, bias)

    @jax.jit
    def hooked(model, x):
        return dec.block_at(model, 1)(x, dec.rope(model.config, 48, x.dtype), project)

    @jax.jit
    def hooked_row(model, x):
        return dec.block_at(model, 1).row(x, dec.rope(model.config, 48, x.dtype), 3, project)

    arrays = model.blocks.arrays()
    blocks = model.blocks.replace(**{name: 2.0 * arrays[name] for name in dec.PROJECTIONS})
    doubled = Decoder(model.config, model.embed[...], blocks, model.norm[...], model.lm_head[...])
    expected = block_all(doubled, x)
    np.testing.assert_allclose(hooked(model, x), expected, rtol=0, atol=1e-5)
    assert sorted(name for name, _, _ in seen) == sorted(dec.PROJECTIONS)
    seen.clear()
    np.testing.assert_allclose(hooked_row(model, x), expected[3], rtol=0, atol=1e-5)
    assert {name for name, shape, _ in seen if shape[0] == 48} == {"k", "v"}
    assert all(shape == dec.block_shapes(model.config)[name] for name, _, shape in seen)


def test_replace_names_what_it_does_not_know(model):
    with pytest.raises(ValueError, match=r"no \['q_bias'\]"):
        dec.block_at(model, 0).replace(q_bias=jnp.zeros(3))


def test_run_in_pieces_is_run_in_one(model, tokens):
    @jax.jit
    def pieces(model, tokens):
        x = dec.embed(model, tokens)
        first = dec.run(model, x, 0, 1)
        two = dec.run(model, first, 1, 2)
        last = dec.block_at(model, -1)(two, dec.rope(model.config, len(tokens), x.dtype))
        return dec.run(model, x, 0, 3), dec.run(model, first, 1, 3), last, dec.run(model, two, 2, 2), two

    whole, tail, last, nothing, two = pieces(model, tokens)
    np.testing.assert_allclose(tail, whole, rtol=0, atol=1e-5)
    np.testing.assert_allclose(last, whole, rtol=0, atol=1e-5)
    assert jnp.array_equal(nothing, two)


def test_cut_keeps_the_first_blocks(model, tokens):
    short = dec.cut(model, 2)
    assert short.config.num_layers == short.blocks.config.num_layers == 2
    expected = jax.jit(lambda m, t: dec.final_norm(m, dec.run(m, dec.embed(m, t), 0, 2)))(model, tokens)
    np.testing.assert_allclose(hidden(short, tokens[None])[0], expected, rtol=0, atol=1e-5)
    for layers in (0, 4):
        with pytest.raises(UserError, match=f"3 layers, expected 1 to 3, got {layers}"):
            dec.cut(model, layers)


def test_a_decoder_is_a_plain_pytree(model, tokens):
    """A population of decoders: stack the leaves, vmap over the stack."""
    sharper = jax.tree.map(lambda leaf: 1.5 * leaf, model)
    assert isinstance(sharper, Decoder)
    both = jax.tree.map(lambda a, b: np.stack([a, b]), model, sharper)
    states = jax.jit(jax.vmap(dec.hidden, (0, None)))(both, tokens)
    np.testing.assert_allclose(states[1], hidden(sharper, tokens[None])[0], rtol=0, atol=2e-5)


def test_the_real_qwen3_has_its_published_size():
    config = DecoderConfig.from_hf(QWEN3_06B, "config.json")
    shape = jax.eval_shape(lambda: Decoder.random(config, 0, jnp.bfloat16))
    leaves = jax.tree.leaves(shape)
    assert sum(leaf.size for leaf in leaves) == 596_049_920
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype("bfloat16")}
    h = jax.eval_shape(dec.hidden, shape, jax.ShapeDtypeStruct((64,), jnp.int32))
    assert (h.shape, h.dtype) == ((64, 1024), jnp.bfloat16)
    assert jax.eval_shape(dec.logits, shape, h).shape == (64, 151_936)
    assert jax.eval_shape(lambda model: dec.cut(model, 9), shape).blocks.q.shape == (9, 1024, 2048)


def test_random_is_reproducible_and_finite():
    config = DecoderConfig(50, 16, 24, 2, 4, 2, 4, qkv_bias=True)
    random = jax.jit(Decoder.random, static_argnums=0)
    one, two, other = (random(config, seed) for seed in (1, 1, 2))
    assert jnp.array_equal(one.blocks.q[...], two.blocks.q[...])
    assert not jnp.array_equal(one.blocks.q[...], other.blocks.q[...])
    assert jnp.isfinite(hidden(one, jnp.arange(12)[None])).all()


def test_llama3_rope_matches_the_published_rule():
    """Wavelengths short, between and long, each against the rule written out for one frequency at a time."""
    scaling = dec.RopeScaling(8.0, 1.0, 4.0, 64)
    config = DecoderConfig(10, 32, 8, 1, 1, 1, 32, rope_theta=500.0, rope_scaling=scaling)
    expected = []
    for i in range(16):
        frequency = 500.0 ** (-2 * i / 32)
        wavelength = 2 * np.pi / frequency
        smooth = (64 / wavelength - 1.0) / (4.0 - 1.0)
        if wavelength > 64 / 1.0:
            frequency /= 8.0
        elif wavelength > 64 / 4.0:
            frequency = (1 - smooth) * frequency / 8.0 + smooth * frequency
        expected.append(frequency)
    np.testing.assert_allclose(dec.rope(config, 2, jnp.float32).sin[1], np.sin(expected), rtol=1e-5)


def test_config_reads_both_forms_of_rope_theta():
    nested = {key: value for key, value in QWEN3_06B.items() if key not in ("rope_theta", "rope_scaling")}
    nested["rope_parameters"] = {"rope_type": "default", "rope_theta": 1_000_000}
    assert DecoderConfig.from_hf(nested, "x") == DecoderConfig.from_hf(QWEN3_06B, "x")
    assert DecoderConfig.from_hf(QWEN3_06B, "x").rope_theta == 1e6


def test_config_fills_in_what_llama_leaves_out():
    llama = {"model_type": "llama", "vocab_size": 9, "hidden_size": 32, "intermediate_size": 8}
    config = DecoderConfig.from_hf(llama | {"num_hidden_layers": 1, "num_attention_heads": 4}, "x")
    assert (config.head_dim, config.num_kv_heads, config.qk_norm, config.qkv_bias) == (8, 4, False, False)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model_type": "gemma3"}, "model_type: expected one of qwen3, qwen2, llama, got 'gemma3'"),
        ({"model_type": None}, "model_type: expected one of"),
        ({"hidden_size": "wide"}, "hidden_size: expected a positive integer, got 'wide'"),
        ({"hidden_size": True}, "hidden_size: expected a positive integer, got True"),
        ({"vocab_size": None}, "vocab_size: expected a positive integer, got None"),
        ({"num_attention_heads": 0}, "num_attention_heads: expected a positive integer, got 0"),
        ({"num_key_value_heads": 3}, "num_attention_heads 16 is no multiple of num_key_value_heads 3"),
        ({"head_dim": None, "hidden_size": 1000}, "hidden_size 1000 is no multiple of num_attention_heads 16"),
        ({"head_dim": 7}, "head_dim: rotary positions need an even number, got 7"),
        ({"hidden_act": "gelu"}, "hidden_act: only silu is supported, got 'gelu'"),
        ({"attention_bias": True}, "attention_bias: only false is supported"),
        ({"mlp_bias": True}, "mlp_bias: only false is supported"),
        ({"use_sliding_window": True, "sliding_window": 4096}, "use_sliding_window: only attention over all tokens"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "only attention over all tokens"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            "rope_type: only default or llama3 is supported, got 'yarn'",
        ),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 4.0}},
            "low_freq_factor: expected a positive number, got None",
        ),
        ({"rope_scaling": [4.0]}, "rope_parameters or rope_scaling: expected a mapping, got [4.0]"),
        ({"rope_theta": "far"}, "rope_theta: expected a positive number, got 'far'"),
        ({"rms_norm_eps": -1}, "rms_norm_eps: expected a positive number, got -1"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: only 1.0 is supported, got 0.5"),
    ],
)
def test_config_refuses(change, message):
    with pytest.raises(UserError, match=r"^somewhere/config\.json: ") as caught:
        DecoderConfig.from_hf(json.loads(json.dumps(QWEN3_06B | change)), "somewhere/config.json")
    assert message in str(caught.value)
