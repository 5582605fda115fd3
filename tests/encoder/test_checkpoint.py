"""Loading is strict: the right weights under the right names, or one message."""

import hashlib
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from trinity_jax.encoder import decoder as dec
from trinity_jax.encoder.checkpoint import (
    checkpoint_folder,
    from_tensors,
    load_checkpoint,
    tensor_shapes,
)
from trinity_jax.encoder.decoder import DecoderConfig
from trinity_jax.errors import UserError

FIXTURES = Path(__file__).parent.parent / "fixtures" / "encoder"


@pytest.fixture
def copy(tmp_path):
    """Name of a case -> a copy of its folder that a test may break."""

    def copied(case: str) -> Path:
        return Path(shutil.copytree(FIXTURES / case, tmp_path / case))

    return copied


def edit(folder: Path, change) -> None:
    """Apply ``change`` to the tensors of model.safetensors."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_identity_is_the_hash_of_the_weight_file():
    _, identity = load_checkpoint(str(FIXTURES / "qwen3_full"), dtype="float32")
    assert identity == hashlib.sha256((FIXTURES / "qwen3_full" / "model.safetensors").read_bytes()).hexdigest()


def test_identity_of_shards_covers_index_and_every_shard(copy):
    folder = copy("qwen3_sharded")
    files = [folder / "model.safetensors.index.json", *sorted(folder.glob("model-*.safetensors"))]
    assert len(files) == 4
    _, identity = load_checkpoint(str(folder), dtype="float32")
    assert identity == hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    tensors = load_file(files[-1])
    tensors[next(iter(tensors))].flat[0] += 1.0
    save_file(tensors, files[-1])
    assert load_checkpoint(str(folder), dtype="float32")[1] != identity


def test_kernels_are_transposed_once_and_stacked():
    model, _ = load_checkpoint(str(FIXTURES / "qwen2"), dtype="float32")
    tensors = load_file(FIXTURES / "qwen2" / "model.safetensors")
    for layer in range(3):
        block = dec.block_at(model, layer)
        assert jnp.array_equal(block.q[...], tensors[f"model.layers.{layer}.self_attn.q_proj.weight"].T)
        assert jnp.array_equal(block.arrays()["v_bias"], tensors[f"model.layers.{layer}.self_attn.v_proj.bias"])


def test_bfloat16_files_need_no_torch(copy):
    folder = copy("qwen3_grouped")
    edit(folder, lambda tensors: tensors.update({k: v.astype(ml_dtypes.bfloat16) for k, v in tensors.items()}))
    tensors = load_file(folder / "model.safetensors")
    kept, _ = load_checkpoint(str(folder), dtype="bfloat16")
    widened, _ = load_checkpoint(str(folder), dtype="float32")
    assert kept.embed.dtype == jnp.bfloat16
    assert widened.embed.dtype == jnp.float32
    for model in (kept, widened):
        assert model.lm_head is not None
        assert np.array_equal(model.embed[...], tensors["model.embed_tokens.weight"].astype(model.embed.dtype))
        assert np.array_equal(model.lm_head[...], tensors["lm_head.weight"].T.astype(model.embed.dtype))


def test_tied_lm_head_may_be_stored():
    assert "lm_head.weight" in load_file(FIXTURES / "qwen3_single" / "model.safetensors")
    assert "lm_head.weight" not in load_file(FIXTURES / "qwen3_full" / "model.safetensors")
    for case in ("qwen3_single", "qwen3_full"):
        assert load_checkpoint(str(FIXTURES / case), dtype="float32")[0].lm_head is None


def test_tensor_shapes_are_those_of_the_file():
    for case in ("qwen2", "llama", "qwen3_grouped", "llama3"):
        model, _ = load_checkpoint(str(FIXTURES / case), dtype="float32")
        file = load_file(FIXTURES / case / "model.safetensors")
        assert tensor_shapes(model.config) == {name: tensor.shape for name, tensor in file.items()}


def test_from_tensors_asks_once_for_each_tensor():
    config = DecoderConfig(11, 8, 12, 2, 2, 1, 4)
    asked = []

    def get(name):
        asked.append(name)
        return np.full(tensor_shapes(config)[name], 0.5, np.float64)

    model = from_tensors(config, get, "float32")
    assert sorted(asked) == sorted(tensor_shapes(config))
    assert all(leaf.dtype == jnp.float32 and (leaf == 0.5).all() for leaf in jax.tree.leaves(model))


def refused(source: str | Path, **options) -> str:
    with pytest.raises(UserError) as caught:
        load_checkpoint(str(source), dtype="float32", **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_unexpected_and_misshapen_tensors_are_named(copy):
    folder = copy("qwen3_full")
    edit(folder, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    assert "1 missing tensors for this config.json: model.layers.1.mlp.up_proj.weight" in refused(folder)
    shutil.rmtree(folder)

    folder = copy("qwen3_full")
    edit(folder, lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": np.zeros(32, np.float32)}))
    assert "1 unexpected tensors for this config.json: model.layers.0.self_attn.q_proj.bias" in refused(folder)
    shutil.rmtree(folder)

    folder = copy("qwen3_full")
    edit(folder, lambda tensors: tensors.update({"model.norm.weight": np.zeros(5, np.float32)}))
    assert "model.norm.weight: expected shape (16,), got (5,)" in refused(folder)


def test_weights_that_are_no_numbers_are_named(copy):
    folder = copy("qwen3_full")
    edit(folder, lambda tensors: tensors.update({"model.norm.weight": np.full(16, np.nan, np.float32)}))
    assert "model.norm.weight: holds NaN" in refused(folder)


def test_absurd_layer_counts_are_refused_at_once(copy):
    folder = copy("qwen3_full")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**9}))
    assert "config.json: num_hidden_layers is 1000000000, but there are" in refused(folder)


def test_a_name_that_no_file_has():
    assert "cannot be read" in refused("a\0b.gguf")


def test_untied_needs_its_lm_head(copy):
    folder = copy("llama")
    edit(folder, lambda tensors: tensors.pop("lm_head.weight"))
    assert "missing tensors for this config.json: lm_head.weight" in refused(folder)


def test_inv_freq_of_old_files_is_let_pass(copy):
    folder = copy("llama")
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)}
    edit(folder, lambda tensors: tensors.update(buffer))
    load_checkpoint(str(folder), dtype="float32")


@pytest.mark.parametrize("keep", [0, 5, 1000, -1])
def test_truncated_file(copy, keep):
    folder = copy("qwen3_full")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    assert f"{file}: not a whole safetensors file" in refused(folder)


def test_missing_shard_and_broken_index(copy):
    folder = copy("qwen3_sharded")
    lost = sorted(folder.glob("model-*.safetensors"))[1]
    lost.unlink()
    assert f"names shards that are not there: {lost.name}" in refused(folder)
    index = folder / "model.safetensors.index.json"
    for broken in ("{", "[]", "{}", '{"weight_map": {"a": 1}}', '{"weight_map": {"a": "../model.safetensors"}}'):
        index.write_text(broken)
        assert str(index) in refused(folder)


def test_folder_without_parts(copy, tmp_path):
    folder = copy("qwen3_full")
    (folder / "model.safetensors").unlink()
    assert "expected model.safetensors or model.safetensors.index.json, found neither" in refused(folder)
    (folder / "config.json").write_text("{,")
    assert "config.json: not valid JSON" in refused(folder)
    (folder / "config.json").write_text("[]")
    assert "config.json: expected a JSON object, got list" in refused(folder)
    (folder / "config.json").unlink()
    assert "config.json: cannot be read (No such file or directory)" in refused(folder)


def test_another_architecture(copy):
    folder = copy("qwen3_full")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    assert "model_type: expected one of qwen3, qwen2, llama, got 'gpt2'" in refused(folder)
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    assert "6 unexpected tensors for this config.json: model.layers.0.self_attn.k_norm.weight" in refused(folder)


def test_hub_id_that_cannot_be_reached(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    message = refused("Nobody/Nothing-0.6B", revision="abc")
    assert "'Nobody/Nothing-0.6B' is no folder here" in message
    assert "`hf download Nobody/Nothing-0.6B --revision abc`" in message


@pytest.mark.parametrize("source", ["", "no_such_folder", "/no/such/folder", "a/b/c", "../x", "https://a/b"])
def test_neither_folder_nor_hub_id(source):
    assert "expected `embedded`, a .gguf file, a folder or a hub id" in refused(source)


def test_hub_id_in_the_cache_is_found_offline(tmp_path, monkeypatch):
    """The cache's own layout: refs/main names a commit, snapshots/<commit> is the folder."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    root = tmp_path / "models--Some--Tiny"
    commit = "0" * 40
    shutil.copytree(FIXTURES / "qwen2", root / "snapshots" / commit)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)
    assert checkpoint_folder("Some/Tiny") == root / "snapshots" / commit
    assert load_checkpoint("Some/Tiny", dtype="float32")[0].config.qkv_bias
