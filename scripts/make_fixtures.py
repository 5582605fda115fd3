"""Write tests/fixtures/encoder: tiny random checkpoints and what transformers computes from them (needs torch).

python scripts/make_fixtures.py
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "encoder"
SIZES: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
# Qwen3's head_dim is not hidden_size / num_attention_heads, as in the real 0.6B.
CASES: dict[str, PreTrainedConfig] = {
    "qwen3_full": Qwen3Config(**SIZES, num_key_value_heads=4, head_dim=8, tie_word_embeddings=True),
    "qwen3_grouped": Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=8, tie_word_embeddings=False),
    "qwen3_single": Qwen3Config(**SIZES, num_key_value_heads=1, head_dim=8, tie_word_embeddings=True),
    "qwen3_sharded": Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=8, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SIZES, num_key_value_heads=2, tie_word_embeddings=True),
    "llama": LlamaConfig(**SIZES, num_key_value_heads=2, tie_word_embeddings=False),
    "llama3": LlamaConfig(**SIZES, num_key_value_heads=2, head_dim=8, tie_word_embeddings=True, rope_parameters=LLAMA3),
}
TOP_LEVEL_ROPE = ("qwen3_full", "qwen2")
TIED_WITH_LM_HEAD = ("qwen3_single",)
SHARDED = ("qwen3_sharded",)


def main() -> None:
    """Rewrite every case; the seed of a case is its place in the list."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    for seed, (name, config) in enumerate(CASES.items()):
        write(FOLDER / name, config, seed)


def write(folder: Path, config: PreTrainedConfig, seed: int) -> None:
    """Write a checkpoint and its reference: tokens [B, T], hidden [B, T, D] after the final norm, logits [B, T, V]."""
    generator = torch.Generator().manual_seed(seed)
    if config.rope_parameters["rope_type"] == "default":
        config.rope_parameters["rope_theta"] = 1000.0
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Wide enough that norms, biases and attention patterns all show, narrow enough to stay well-conditioned.
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator) + float(parameter.ndim == 1))
        model.get_input_embeddings().weight.mul_(5.0)
        tokens = torch.randint(config.vocab_size, (2, 48), generator=generator)
        output = model(tokens, output_hidden_states=True)
    model.save_pretrained(folder, max_shard_size="15KB" if folder.name in SHARDED else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)

    saved = json.loads((folder / "config.json").read_text())
    if folder.name in TOP_LEVEL_ROPE:
        saved["rope_theta"] = saved.pop("rope_parameters")["rope_theta"]
        (folder / "config.json").write_text(json.dumps(saved, indent=2) + "\n")
    if folder.name in TIED_WITH_LM_HEAD:
        tensors = load_file(folder / "model.safetensors")
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
        save_file(tensors, folder / "model.safetensors")
    reference = {
        "tokens": tokens.numpy().astype(np.int32),
        "hidden": output.hidden_states[-1].numpy(),
        "logits": output.logits.numpy(),
    }
    save_file(reference, folder / "reference.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    main()
