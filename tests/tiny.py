"""A tiny coordinator model for tests of whole runs: a random Qwen3 of a few kilobytes with a byte-level tokenizer."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from trinity_jax.coordinator.export import load_coordinator
from trinity_jax.encoder.checkpoint import tensor_shapes
from trinity_jax.encoder.decoder import DecoderConfig

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_encoder(folder: Path, layers: int = 3) -> Path:
    """Write a checkpoint folder as Hugging Face has them."""
    folder.mkdir(parents=True)
    config = {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": 260,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "rope_theta": 10_000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "max_position_embeddings": 2048,
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config))
    generator = np.random.default_rng(0)
    shapes = tensor_shapes(DecoderConfig.from_hf(config, "tiny"))
    tensors = {
        name: np.ones(shape, np.float32) if "norm" in name else generator.normal(0, 0.3, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors")
    vocabulary = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    fast = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, chat_template=TEMPLATE)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.save_pretrained(folder)
    return folder


def tiny_run(folder: Path, **changes) -> dict:
    """Settings of a run of seconds: a tiny encoder, three kinds of question, a simulated pool of two."""
    settings = {
        "kind": "train",
        "seed": 7,
        "encoder": {"source": str(folder), "buckets": [512, 1024], "cache_mb": 8},
        "svf": {"preset": "layer", "scale": 0.03},
        "readout": {"kind": "whitened", "k": 4},
        "episode": {"max_calls": 3},
        "pool": {
            "simulated": [
                {"name": "ada", "worker": {"chain_sum": 0.9, "default": 0.3}},
                {"name": "bo", "worker": {"spell_backward": 0.9, "default": 0.3}},
            ]
        },
        "tasks": {
            "mix": [{"kind": "chain_sum"}, {"kind": "spell_backward"}, {"kind": "leg_counting"}],
            "train": 9,
            "validation": 6,
            "test": 6,
        },
        "learning": {"generations": 3, "population": 4, "questions": 3, "sigma0": 1.0},
        "training": {"validate_every": 2},
        "evaluation": {"bootstrap": 200},
    }
    for dotted, value in changes.items():
        group, _, key = dotted.partition("__")
        if key:
            settings[group] = {**settings.get(group, {}), key: value}
        else:
            settings[group] = value
    return settings


def vector(folder: Path) -> np.ndarray:
    """What a run has learned."""
    return load_coordinator(folder / "coordinator").vector


def paid(folder: Path) -> tuple[int, int]:
    """Calls in a run's journal, and how many of them differ."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as connection:
        return connection.execute("SELECT COUNT(*), COUNT(DISTINCT key) FROM calls").fetchone()
