"""Recorded decisions against a coordinator, its choices computed here from plainly rebuilt weights."""

import importlib.util
import json
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiny import make_encoder, tiny_run
from trinity_jax.config import parse
from trinity_jax.coordinator.export import save_coordinator
from trinity_jax.coordinator.layout import plan
from trinity_jax.coordinator.readout import Readout
from trinity_jax.encoder import svf
from trinity_jax.encoder.checkpoint import load_checkpoint
from trinity_jax.encoder.decoder import hidden
from trinity_jax.encoder.text import Router
from trinity_jax.encoder.tokenizer import load_tokenizer

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "replay_decisions.py"
MESSAGES = [
    [{"role": "system", "content": "Pick."}, {"role": "user", "content": text}] for text in ("1+1?", "Why?", "xyz " * 9)
]
TEXTS = ["What is 2 + 2?", "Spell it backward."]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("replay_decisions", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(folder, input_format):
    """A coordinator folder of random numbers, its decoder with the scales written out, logits of hidden states."""
    source = make_encoder(folder / "encoder")
    groups = {"readout": {"kind": "raw"}, "svf": {"preset": "released"}}
    settings = parse(tiny_run(source, encoder__input_format=input_format, encoder__buckets=[512], **groups), "test")
    decoder, checkpoint = load_checkpoint(str(source), dtype="float32")
    sizes = {name: svf.rank(name, decoder.config) for name in svf.targets(settings.svf, decoder.config)}
    head, layout = plan(sizes, 1.0, settings.head, settings.readout, 16, settings.pool.names)
    vector = np.random.default_rng(4).normal(0, 0.3, layout.size)
    save_coordinator(folder / "coordinator", settings, checkpoint, layout, head, Readout(), vector)
    deltas = jnp.asarray(vector[: -head.size], jnp.float32)
    new = svf.rebuilt(decoder, svf.Adaptation(decoder, settings.svf), deltas)
    return settings, new, vector[-head.size :].reshape(5, 16)


@pytest.fixture(scope="module", params=["chat", "plain"])
def made(request, tmp_path_factory):
    """The folder, and right cases: messages and texts."""
    folder = tmp_path_factory.mktemp(request.param)
    settings, decoder, rows = make(folder, request.param)
    tokenizer = load_tokenizer(settings.encoder.source)
    router = Router(tokenizer, settings.encoder, 2)
    cases = []
    for conversation in (*MESSAGES, *TEXTS):
        if isinstance(conversation, str):
            ids = router.ids(conversation)
        elif request.param == "chat":
            parts = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in conversation)
            ids = tokenizer.encode(parts + "<|im_start|>assistant\n")
        else:
            ids = tokenizer.encode("\n".join(f"{m['role']}: {m['content']}" for m in conversation))
        logits = rows @ np.asarray(hidden(decoder, jnp.asarray(ids)))[-2]
        role = ("worker", "thinker", "verifier")[logits[2:].argmax()]
        cases.append({"conversation": conversation, "model": ("ada", "bo")[logits[:2].argmax()], "role": role})
    return folder, cases


def fixture(path, cases):
    path.write_text(json.dumps({"cases": cases}))
    return str(path)


def test_the_same_decisions(script, made, tmp_path, capsys):
    folder, cases = made
    assert len({(case["model"], case["role"]) for case in cases}) > 1
    assert script.main([str(folder / "coordinator"), fixture(tmp_path / "f.json", cases)]) == 0
    assert capsys.readouterr().out == "5 of 5 agree (model 5, role 5)\n"


def test_other_decisions_are_named(script, made, tmp_path, capsys):
    folder, cases = made
    other = {"ada": 1, "bo": 0}[cases[1]["model"]]
    wrong = [cases[0], {**cases[1], "model": other}, *cases[2:]]
    wrong[4] = {**wrong[4], "role": "thinker" if wrong[4]["role"] != "thinker" else "worker"}
    moved = (folder / "encoder").rename(tmp_path / "elsewhere")
    try:
        arguments = [str(folder / "coordinator"), fixture(tmp_path / "f.json", wrong), "--source", str(moved)]
        assert script.main(arguments) == 1
    finally:
        moved.rename(folder / "encoder")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"case 1: expected {('ada', 'bo')[other]} as {cases[1]['role']} (probabilities 0.")
    assert lines[1].startswith(f"case 4: expected {cases[4]['model']} as {wrong[4]['role']} ")
    assert lines[2] == "3 of 5 agree (model 4, role 4)"


CASE = {"conversation": "Why?", "model": "ada", "role": "worker"}
BAD = {
    "no JSON": ("{", "Invalid JSON"),
    "a list": ([CASE], "valid dictionary|Input should be an object"),
    "no cases": ({"cases": []}, "cases: .*at least 1"),
    "no model": ({"cases": [CASE, {"conversation": "Why?", "role": "worker"}]}, r"cases\.1\.model: Field required"),
    "unknown role": ({"cases": [{**CASE, "role": "solver"}]}, r"cases\.0\.role: .*'worker'"),
    "unknown model": ({"cases": [{**CASE, "model": "cy"}]}, r"cases\.0\.model: expected one of ada, bo, .* got 'cy'"),
    "model 2": ({"cases": [{**CASE, "model": 2}]}, r"or 0 to 1, got 2"),
    "model -1": ({"cases": [{**CASE, "model": -1}]}, r"or 0 to 1, got -1"),
    "too long": ({"cases": [{**CASE, "conversation": [{"role": "user", "content": "x" * 600}]}]}, r"cases\.0: .*512"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_fixtures_give_one_message(script, made, tmp_path, capsys, bad):
    content, message = BAD[bad]
    (tmp_path / "f.json").write_text(content if isinstance(content, str) else json.dumps(content))
    assert script.main([str(made[0] / "coordinator"), str(tmp_path / "f.json")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert re.search(message, line)


def test_other_weights_and_lost_files(script, made, tmp_path, capsys):
    folder = made[0]
    deeper = make_encoder(tmp_path / "deeper", 4)
    file = fixture(tmp_path / "f.json", [CASE])
    assert script.main([str(folder / "coordinator"), file, "--source", str(deeper)]) == 2
    assert script.main([str(folder / "coordinator"), str(tmp_path / "none.json")]) == 2
    assert script.main([str(folder / "encoder"), file]) == 2
    first, second, third = capsys.readouterr().err.splitlines()
    assert "expected the weights" in first
    assert "none.json: cannot be read" in second
    assert "coordinator.json: cannot be read" in third


def test_weights_of_another_shape_where_the_hash_is_not_known(script, made, tmp_path, capsys):
    described = made[0] / "coordinator" / "coordinator.json"
    before = described.read_text()
    described.write_text(json.dumps(json.loads(before) | {"checkpoint": "unknown"}))
    try:
        deeper = make_encoder(tmp_path / "deeper", 4)
        arguments = [str(made[0] / "coordinator"), fixture(tmp_path / "f.json", [CASE]), "--source", str(deeper)]
        assert script.main(arguments) == 2
    finally:
        described.write_text(before)
    assert "the coordinator scales" in capsys.readouterr().err
