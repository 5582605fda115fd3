"""A row less is a mask, a row more changes no other logit; a profile head with one-hot profiles is the linear head."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trinity_jax.config import (
    EncoderSettings,
    EpisodeSettings,
    HeadSettings,
    PolicySettings,
    ReadoutSettings,
    SvfSettings,
)
from trinity_jax.coordinator import layout as layouts
from trinity_jax.coordinator.export import assemble, load_coordinator, write_coordinator
from trinity_jax.coordinator.heads import respond
from trinity_jax.coordinator.lineage import Step
from trinity_jax.coordinator.policy import choose
from trinity_jax.coordinator.pool_change import changed, drop, extended
from trinity_jax.coordinator.readout import fit
from trinity_jax.errors import UserError

D, NAMES = 12, ("ann", "bob", "cid")
RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(40, D)) + 3


def coordinator(head=None, readout=None, names=NAMES, fallback=None):
    head, readout = head or HeadSettings(), readout or ReadoutSettings(k=5)
    svf = SvfSettings(preset="custom", matrices=("layers.1.q",), scale=0.1)
    built, layout = layouts.plan({"layers.1.q": 4}, 0.1, head, readout, D, names)
    groups = {
        "head": head,
        "readout": readout,
        "svf": svf,
        "encoder": EncoderSettings(),
        "policy": PolicySettings(),
        "episode": EpisodeSettings(),
    }
    fitted = fit(readout.kind, readout.k, STATES)
    return assemble(groups, "abc", layout, built, fitted, RNG.normal(size=layout.size), fallback=fallback)


def logits(one):
    found = respond(one.weights, jnp.asarray(STATES, jnp.float32))
    return np.asarray(found if one.bias is None else found + one.bias)


def probabilities(scores, mask: jax.Array | bool = True):
    roles = jnp.ones(3, bool)
    one = lambda row: choose(row, jax.random.key(0), True, roles, mask)  # noqa: E731
    return jax.vmap(one)(jnp.asarray(scores))


@pytest.mark.parametrize("kind", ["raw", "centred", "whitened"])
@pytest.mark.parametrize("name", NAMES)
def test_dropping_a_row_is_masking_it(kind, name):
    whole = coordinator(readout=ReadoutSettings(kind=kind, k=5))
    mask = np.array([other != name for other in NAMES])
    masked, dropped = probabilities(logits(whole), jnp.asarray(mask)), probabilities(logits(drop(whole, name)))
    np.testing.assert_allclose(masked.model_probs[:, mask], dropped.model_probs, atol=1e-6)
    np.testing.assert_allclose(masked.role_probs, dropped.role_probs, atol=1e-6)
    assert float(jnp.abs(masked.model_probs[:, ~mask]).max()) == 0


@pytest.mark.parametrize("kind", ["raw", "whitened"])
def test_adding_a_row_leaves_every_other_logit_as_it_was(kind, tmp_path):
    old = coordinator(readout=ReadoutSettings(kind=kind, k=5))
    _, _, vector = extended(old, "dee", RNG.normal(size=old.head.inputs), 0.7)
    step = Step(action="add", models=("dee",), parent=old.description.sha256, calls=3)
    new = changed(old, (*NAMES, "dee"), vector, step, None)
    write_coordinator(tmp_path / "new", new)
    read = load_coordinator(tmp_path / "new")
    np.testing.assert_array_equal(np.delete(logits(read), 3, axis=1), logits(old))
    assert read.description == new.description
    assert read.description.lineage == (step,)
    assert (read.description.router_pool, read.description.named_pool) == (3, 3)
    np.testing.assert_array_equal(read.deltas["layers.1.q"], old.deltas["layers.1.q"])
    # And back again: the same numbers, and no word of a router that names another pool.
    back = drop(read, "dee")
    np.testing.assert_array_equal(back.vector, old.vector)
    assert back.description.router_pool is None
    assert [one.action for one in back.description.lineage] == ["add", "drop"]


def test_the_best_single_model_is_forgotten_with_its_row():
    assert drop(coordinator(fallback="ann"), "bob").description.fallback == "ann"
    assert drop(coordinator(fallback="ann"), "ann").description.fallback is None


def test_what_cannot_be_changed_is_told():
    one = coordinator()
    with pytest.raises(UserError, match="does not know zoe; its pool is ann, bob, cid"):
        drop(one, "zoe")
    with pytest.raises(UserError, match="ann is in the coordinator's pool already"):
        extended(one, "ann", np.zeros(5), 0.0)
    with pytest.raises(UserError, match="only model"):
        drop(drop(drop(one, "ann"), "bob"), "cid")
    for head in (HeadSettings(kind="low_rank", rank=3), HeadSettings(kind="sparse")):
        with pytest.raises(UserError, match="linear"):
            drop(coordinator(head), "ann")


def test_one_hot_profiles_make_the_linear_head():
    profile = HeadSettings(kind="profile", profiles=tuple(map(tuple, np.eye(3).tolist())))
    by_profile, linear = coordinator(profile), coordinator()
    same = replace(by_profile, vector=linear.vector)
    assert by_profile.layout.size == linear.layout.size
    parts = {name: getattr(linear.description, name) for name in ("readout", "svf", "encoder", "policy", "episode")}
    built = (by_profile.layout, by_profile.head, linear.readout, same.vector)
    np.testing.assert_allclose(logits(assemble({"head": profile, **parts}, "abc", *built)), logits(linear), atol=1e-5)


def test_a_profile_head_has_a_row_for_a_model_it_never_saw(tmp_path):
    known = ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5))
    write_coordinator(tmp_path / "p", coordinator(HeadSettings(kind="profile", profiles=known)))
    one = load_coordinator(tmp_path / "p")
    found = logits(one)[:, :3]
    np.testing.assert_allclose(found[:, 2], found[:, :2].mean(axis=1), atol=1e-4)
    assert one.description.evolved_n == 4 + 5 * 5 + 5
    with pytest.raises(UserError, match="expected 3 of one length"):
        coordinator(HeadSettings(kind="profile", profiles=known[:2]))
