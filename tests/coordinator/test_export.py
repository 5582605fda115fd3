"""A coordinator folder: everything comes back, and damage is named."""

import hashlib
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from trinity_jax.config import parse
from trinity_jax.coordinator.export import describe, load_coordinator, save_coordinator
from trinity_jax.coordinator.heads import respond
from trinity_jax.coordinator.layout import plan
from trinity_jax.coordinator.policy import choose
from trinity_jax.coordinator.readout import Readout, coordinates, fit
from trinity_jax.errors import UserError

D = 12
SIZES = {"layers.10.q": 4, "layers.2.q": 3}
READOUTS = ("raw", "centred", "whitened")
RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(30, D)) + 5


def settings(**groups):
    pool = {"kind": "simulated", "simulated": [{"name": n, "worker": {"default": 0.5}} for n in ("ann", "bob")]}
    data = {"pool": pool, "tasks": {"mix": [{"kind": "leg_counting"}]}, "learning": {"questions": 4}}
    svf = {"preset": "custom", "matrices": list(SIZES), "scale": 0.1}
    return parse({**data, "svf": svf, "readout": {"k": 5}, **groups}, "test")


@pytest.fixture
def saved(tmp_path):
    chosen = settings()
    head, layout = plan(SIZES, chosen.svf.scale, chosen.head, chosen.readout, D, chosen.pool.names)
    readout, vector = fit("whitened", 5, STATES), RNG.normal(size=layout.size)
    folder = tmp_path / "coordinator"
    save_coordinator(folder, chosen, "abc123", layout, head, readout, vector)
    return folder, layout, vector, readout


def test_round_trip(saved):
    folder, layout, vector, readout = saved
    coordinator = load_coordinator(folder)
    np.testing.assert_array_equal(coordinator.vector, vector)
    assert coordinator.vector.dtype == np.float64
    assert coordinator.layout == layout
    assert coordinator.description.pool == ("ann", "bob")
    assert coordinator.description.checkpoint == "abc123"
    for part, original in zip(coordinator.readout, readout, strict=True):
        np.testing.assert_array_equal(part, original)
    assert list(coordinator.deltas) == list(SIZES)
    np.testing.assert_allclose(coordinator.deltas["layers.2.q"], 0.1 * vector[4:7], rtol=1e-6)
    parts = layout.split(vector)
    z = (STATES - np.asarray(readout.mean)) @ np.asarray(readout.basis)
    expected = z @ parts["head"].T + parts["bias"]
    assert coordinator.bias is not None
    np.testing.assert_allclose(
        respond(coordinator.weights, jnp.asarray(STATES)) + coordinator.bias, expected, atol=1e-4
    )
    assert coordinator.description.evolved_n == 7 + 5 * 5 + 5
    assert coordinator.description.folded_n == 7 + 5 * D + 5


def test_raw_block_diagonal_without_svf(tmp_path):
    chosen = settings(
        svf={}, readout={"kind": "raw"}, head={"kind": "block_diagonal", "blocks": 5}, encoder={"layers": 8}
    )
    head, layout = plan({}, 1.0, chosen.head, chosen.readout, D, chosen.pool.names)
    vector = RNG.normal(size=D)
    save_coordinator(tmp_path / "c", chosen, "abc", layout, head, Readout(), vector)
    coordinator = load_coordinator(tmp_path / "c")
    assert coordinator.bias is None
    assert coordinator.deltas == {}
    assert coordinator.readout == Readout()
    weights = np.asarray(coordinator.weights)
    np.testing.assert_allclose(weights[weights != 0], vector, rtol=1e-6)
    text = describe(coordinator)
    for part in ("block-diagonal, 5 blocks", "raw", "none (0 scales)", "first 8 layers", "n = 12 evolved, 60 folded"):
        assert part in text


KINDS = [
    *({"head": {"kind": "low_rank", "rank": 3}, "readout": {"kind": kind, "k": 5}} for kind in READOUTS),
    *({"head": {"kind": "sparse"}, "readout": {"kind": kind, "k": 5}} for kind in READOUTS),
    {"head": {"kind": "block_diagonal", "blocks": 3}, "readout": {"kind": "centred"}},
    {"head": {"kind": "low_rank", "rank": 3}, "readout": {"kind": "centred", "bias": False}},
    {"readout": {"kind": "centred", "bias": False}},
]


@pytest.mark.parametrize(
    "groups", KINDS, ids=lambda groups: "-".join(str(v) for g in groups.values() for v in g.values())
)
def test_every_head_comes_back_to_the_same_choices_and_folds_onto_plain_states(tmp_path, groups):
    chosen = settings(svf={}, **groups)
    head, layout = plan({}, 1.0, chosen.head, chosen.readout, D, chosen.pool.names)
    readout, vector = fit(chosen.readout.kind, 5, STATES), np.random.default_rng(1).normal(size=layout.size)
    save_coordinator(tmp_path / "c", chosen, "abc", layout, head, readout, vector)
    coordinator = load_coordinator(tmp_path / "c")
    assert (coordinator.head, coordinator.layout) == (head, layout)

    def logits(head, layout, readout, vector):
        parts = layout.split(vector)
        parameters = jnp.asarray(parts["head"].reshape(-1), jnp.float32)
        return head.logits(parameters, coordinates(readout, jnp.asarray(STATES))) + parts.get("bias", 0.0)

    before = logits(head, layout, readout, vector)
    after = logits(coordinator.head, coordinator.layout, coordinator.readout, coordinator.vector)
    np.testing.assert_array_equal(after, before)
    bias = 0.0 if coordinator.bias is None else coordinator.bias
    plain = respond(coordinator.weights, jnp.asarray(STATES, jnp.float32)) + bias
    np.testing.assert_allclose(plain, before, atol=2e-4)
    keys, roles = jax.random.split(jax.random.key(0), len(STATES)), jnp.ones(3, bool)
    for sample in (True, False):
        choices = jax.vmap(choose, (0, 0, None, None))
        for one, other in zip(
            choices(plain, keys, sample, roles)[:2], choices(before, keys, sample, roles), strict=False
        ):
            np.testing.assert_array_equal(one, other)
    numbers = sum(leaf.size for leaf in jax.tree.leaves((coordinator.weights, coordinator.bias)))
    assert coordinator.description.folded_n == numbers


@pytest.mark.parametrize(
    "head, parts",
    [
        ({"kind": "low_rank", "rank": 3}, ("low-rank, rank 3", "folds to 3 x 12 and 5 x 3 and a bias")),
        ({"kind": "sparse"}, ("sparse, 2 of 5 inputs kept", "folds to 5 x 12 and a bias")),
    ],
)
def test_other_heads_for_people(tmp_path, head, parts):
    chosen = settings(svf={}, head=head)
    built, layout = plan({}, 1.0, chosen.head, chosen.readout, D, chosen.pool.names)
    save_coordinator(tmp_path / "c", chosen, "abc", layout, built, fit("whitened", 5, STATES), np.zeros(layout.size))
    text = describe(load_coordinator(tmp_path / "c"))
    for part in parts:
        assert part in text


def test_factors_of_another_rank_are_named(tmp_path):
    chosen = settings(svf={}, head={"kind": "low_rank", "rank": 3}, readout={"kind": "raw"})
    head, layout = plan({}, 1.0, chosen.head, chosen.readout, D, chosen.pool.names)
    save_coordinator(tmp_path / "c", chosen, "abc", layout, head, Readout(), np.zeros(layout.size))
    rewrite(tmp_path / "c", **{"head.v": np.zeros((5, 2), np.float32)})
    with pytest.raises(UserError, match=r"expected head tensors .*'v': \(5, 3\).* pool ann, bob, got .*'v': \(5, 2\)"):
        load_coordinator(tmp_path / "c")
    rewrite(tmp_path / "c", **{"head.u": None})
    with pytest.raises(UserError, match=r"no tensor 'head\.u'"):
        load_coordinator(tmp_path / "c")


def test_description_for_people(saved):
    coordinator = load_coordinator(saved[0])
    text = describe(coordinator)
    for part in (
        "ann, bob",
        "linear, evolved in whitened, 5 directions",
        "folds to 5 x 12 and a bias",
        "layers.10.q",
        "(7 scales)",
        "abc123",
        "n = 37 evolved, 72 folded",
        coordinator.description.sha256,
    ):
        assert part in text


def test_saving_again_replaces_and_leaves_nothing_behind(saved):
    folder, layout, vector, readout = saved
    chosen = settings()
    head, _ = plan(SIZES, chosen.svf.scale, chosen.head, chosen.readout, D, chosen.pool.names)
    save_coordinator(folder, chosen, "def", layout, head, readout, 2 * vector)
    np.testing.assert_array_equal(load_coordinator(folder).vector, 2 * vector)
    assert [path.name for path in folder.parent.iterdir()] == ["coordinator"]


def test_a_failed_save_leaves_the_older_one_whole(saved, monkeypatch):
    folder, layout, vector, readout = saved
    chosen = settings()
    head, _ = plan(SIZES, chosen.svf.scale, chosen.head, chosen.readout, D, chosen.pool.names)

    def no_space(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(OSError, match="no space"):
        save_coordinator(folder, chosen, "def", layout, head, readout, 2 * vector)
    np.testing.assert_array_equal(load_coordinator(folder).vector, vector)


def edit(folder, **changes):
    path = folder / "coordinator.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def truncate(folder):
    path = folder / "coordinator.safetensors"
    path.write_bytes(path.read_bytes()[:-20])


def flip(folder):
    path = folder / "coordinator.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x77")


def rewrite(folder, **changes):
    """Other tensors under a hash that fits; None takes one away."""
    path = folder / "coordinator.safetensors"
    tensors = {name: t for name, t in (load_file(path) | changes).items() if t is not None}
    save_file(tensors, path)
    edit(folder, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


FLAT = np.zeros(5, np.float32)
DAMAGE = {
    "no folder": (lambda f: (f / "coordinator.json").unlink(), r"coordinator\.json: cannot be read"),
    "no tensors": (lambda f: (f / "coordinator.safetensors").unlink(), r"safetensors: cannot be read"),
    "truncated": (truncate, "not a whole safetensors file"),
    "flipped": (flip, r"expected SHA-256 .* got"),
    "not JSON": (lambda f: (f / "coordinator.json").write_text("{"), "Invalid JSON"),
    "another format": (lambda f: edit(f, format=2), "format: Input should be 1"),
    "an unknown key": (lambda f: edit(f, colour="red"), "colour: Extra inputs"),
    "another pool": (lambda f: edit(f, pool=["ann", "bob", "cid"]), r"expected 43 .* ann, bob, cid .* got 37"),
    "a flat head": (lambda f: rewrite(f, **{"head.weight": FLAT}), "expected the head as a matrix"),
    "a boxed vector": (lambda f: rewrite(f, vector=np.zeros((1, 37))), "a flat vector"),
    "too few rows": (
        lambda f: rewrite(f, **{"head.weight": np.zeros((4, D), np.float32)}),
        r"'weight': \(5, 12\).* got",
    ),
    "no bias": (lambda f: rewrite(f, **{"head.bias": None}), r"'bias': \(5,\)"),
    "no basis": (lambda f: rewrite(f, **{"readout.basis": None}), "expected read-out tensors"),
    "another target": (lambda f: edit(f, targets=["layers.0.q"]), r"no tensor 'svf\.layers\.0\.q'"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named(saved, damage):
    do, message = DAMAGE[damage]
    do(saved[0])
    with pytest.raises(UserError, match=message):
        load_coordinator(saved[0])


def test_a_vector_that_does_not_fit_is_not_saved(saved, tmp_path):
    _, layout, vector, readout = saved
    chosen = settings()
    head, _ = plan(SIZES, chosen.svf.scale, chosen.head, chosen.readout, D, chosen.pool.names)
    with pytest.raises(UserError, match="expected 37"):
        save_coordinator(tmp_path / "new", chosen, "abc", layout, head, readout, vector[:-1])
    assert not (tmp_path / "new").exists()
