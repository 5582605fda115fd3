"""A model joins, leaves, is looked at again: through the command, on a simulated pool and a tiny encoder."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from tests.tiny import make_encoder, paid
from trinity_jax.cli import main
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
from trinity_jax.coordinator.readout import Readout
from trinity_jax.encoder.checkpoint import load_checkpoint

MODELS = {
    "ada": {"chain_sum": 0.9, "default": 0.1},
    "bo": {"spell_backward": 0.9, "default": 0.1},
    "cy": {"default": 0.95},
}
TASKS = {
    "mix": [{"kind": "chain_sum"}, {"kind": "spell_backward"}, {"kind": "leg_counting"}],
    "train": 12,
    "validation": 3,
    "test": 3,
}
CHANGE = {"samples": 2, "looks": 1, "generations": 1, "population": 4}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A coordinator of ada and bo, files of pools and questions."""
    folder = tmp_path_factory.mktemp("pool")
    encoder = make_encoder(folder / "encoder", layers=2)
    _, checkpoint = load_checkpoint(str(encoder), dtype=jnp.float32)
    readout = ReadoutSettings(kind="whitened", k=4)
    head, layout = layouts.plan({}, 1.0, HeadSettings(), readout, 16, ("ada", "bo"))
    rng = np.random.default_rng(0)
    groups = {
        "head": HeadSettings(),
        "readout": readout,
        "svf": SvfSettings(),
        "encoder": EncoderSettings(source=str(encoder), buckets=(512, 1024), cache_mb=8),
        "policy": PolicySettings(),
        "episode": EpisodeSettings(max_calls=3),
    }
    fitted = Readout(jnp.asarray(rng.normal(size=16), jnp.float32), jnp.asarray(rng.normal(size=(16, 4)), jnp.float32))
    parts = (checkpoint, layout, head, fitted, rng.normal(size=layout.size))
    write_coordinator(folder / "coordinator", assemble(groups, *parts))
    (folder / "tasks.yaml").write_text(yaml.safe_dump({"tasks": TASKS, "change": CHANGE}))
    return folder


def pool(folder, *names, **changed):
    path = folder / f"pool-{'-'.join(names)}-{len(changed)}.yaml"
    models = [{"name": name, "worker": changed.get(name, MODELS[name])} for name in names]
    path.write_text(yaml.safe_dump({"pool": {"simulated": models}}))
    return str(path)


def command(shop, *words):
    return main(["pool", *map(str, words)])


@pytest.fixture(scope="module")
def added(shop):
    out = shop / "three"
    words = ("--pool", pool(shop, "cy", "bo", "ada"), "--config", shop / "tasks.yaml", "--yes", "--out", out)
    assert command(shop, "add", *words, shop / "coordinator") == 0
    return out


def test_a_model_is_added_and_nothing_else_but_the_role_rows_has_moved(shop, added):
    old, new = load_coordinator(shop / "coordinator"), load_coordinator(added)
    assert new.description.pool == ("ada", "bo", "cy")
    kept_old, kept_new = old.layout.places([0, 1]), new.layout.places([0, 1])
    np.testing.assert_array_equal(new.vector[kept_new], old.vector[kept_old])
    assert (new.vector[new.layout.places([2])] != 0).all()
    assert (new.vector[new.layout.places([3, 4, 5])] != old.vector[old.layout.places([2, 3, 4])]).any()
    (step,) = new.description.lineage
    assert (step.action, step.models, step.parent) == ("add", ("cy",), old.description.sha256)
    calls, different = paid(shop / "three-calls")
    assert step.calls == calls == different
    assert step.probes == 3 * 12 * 2 < step.calls
    # The router's instruction names as many models as in training, so that h is the same.
    assert new.description.router_pool == 2
    profile = new.description.profile
    assert profile is not None
    assert profile.rewards(("ada", "cy")).shape == (12, 2, 2)
    assert np.nanmean(profile.rewards(("cy",))) > np.nanmean(profile.rewards(("ada",)))


def test_the_same_command_again_pays_nothing(shop, added, capsys):
    again = shop / "again"
    words = ("--pool", pool(shop, "ada", "bo", "cy"), "--config", shop / "tasks.yaml", "--yes", "--out", again)
    before = paid(shop / "three-calls")
    assert command(shop, "add", *words, "--calls", shop / "three-calls", shop / "coordinator") == 0
    assert paid(shop / "three-calls") == before
    np.testing.assert_array_equal(load_coordinator(again).vector, load_coordinator(added).vector)
    assert "0 of them now" in capsys.readouterr().out


def test_a_check_sees_a_model_that_moved_and_no_other(shop, added, capsys):
    now = pool(shop, "ada", "bo", "cy", cy={"default": 0.0})
    assert command(shop, "check", "--pool", now, "--config", shop / "tasks.yaml", "--yes", added) == 1
    told = capsys.readouterr().out
    assert "cy: MOVED" in told
    assert "ada: as before" in told
    assert "add --renew cy" in told
    assert paid(shop / "three-calls")[0] > 3 * 12 * 2


def test_a_row_is_renewed_in_place_of_the_old_one(shop, added):
    out = shop / "renewed"
    now = pool(shop, "ada", "bo", "cy", cy={"default": 0.0})
    words = ("--renew", "cy", "--pool", now, "--config", shop / "tasks.yaml", "--yes", "--out", out)
    assert command(shop, "add", *words, added) == 0
    before, after = load_coordinator(added), load_coordinator(out)
    assert [step.action for step in after.description.lineage] == ["add", "renew"]
    assert after.description.lineage[1].parent == before.description.sha256
    places = after.layout.places([0, 1])
    np.testing.assert_array_equal(after.vector[places], before.vector[places])
    assert after.description.lineage[1].probes == 12 * 2


def test_a_first_check_makes_the_profile(shop, capsys):
    out = shop / "profiled"
    words = ("--pool", pool(shop, "ada", "bo"), "--config", shop / "tasks.yaml", "--yes")
    assert command(shop, "check", *words, shop / "coordinator") == 2
    assert "no profile to compare with" in capsys.readouterr().err
    assert command(shop, "check", *words, "--out", out, shop / "coordinator") == 0
    profiled, old = load_coordinator(out), load_coordinator(shop / "coordinator")
    np.testing.assert_array_equal(profiled.vector, old.vector)
    assert profiled.description.profile is not None
    assert profiled.description.lineage[0].calls == 2 * 12 * 2
    # The first check after it asks anew: compared with its own answers no model would ever move.
    before = paid(shop / "profiled-calls")[0]
    moved = pool(shop, "ada", "bo", bo={"default": 0.0})
    command(shop, "check", "--pool", moved, *words[2:], out)
    assert paid(shop / "profiled-calls")[0] == 2 * before
    assert command(shop, "check", *words, "--out", shop / "more", out) == 2
    assert "has a profile already" in capsys.readouterr().err


def test_dropping_takes_the_row_and_no_call(shop, added):
    assert command(shop, "drop", "--out", shop / "two", added, "ada") == 0
    two = load_coordinator(shop / "two")
    assert two.description.pool == ("bo", "cy")
    assert two.description.lineage[-1].calls == 0
    by_file = shop / "two too"
    assert command(shop, "drop", "--pool", pool(shop, "bo", "cy"), "--out", by_file, added) == 0
    assert (by_file / "coordinator.json").read_text() == (shop / "two" / "coordinator.json").read_text()


def test_bad_input_is_told_in_one_message(shop, added, capsys):
    tasks, good = shop / "tasks.yaml", pool(shop, "ada", "bo", "cy")
    other = shop / "other.yaml"
    other.write_text(yaml.safe_dump({"tasks": TASKS | {"seed": 7}, "change": CHANGE}))
    odd, run = shop / "odd.yaml", shop / "run.yaml"
    odd.write_text(Path(good).read_text() + "budgets: {cost: 1}\n")
    run.write_text(Path(good).read_text() + "learning: {generations: 1}\ntasks: {train: 4}\n")
    out = ("--out", shop / "never")
    asked = ("--config", tasks, "--yes")
    cases = [
        (("drop", *out, added, "zoe"), "does not know zoe"),
        (("drop", *out, added), "nobody to drop"),
        (("drop", "--out", tasks / "below", added, "ada"), "no folder can be made there"),
        (("drop", *out, "--pool", good, shop / "coordinator"), "does not know cy"),
        (("drop", *out, "--pool", run, shop / "coordinator"), "does not know cy"),
        (("drop", *out, "--pool", odd, shop / "coordinator"), "odd.yaml: budgets"),
        (("check", "--pool", good, "--config", odd, "--yes", added), "odd.yaml: budgets"),
        (("drop", added, "ada"), "--out: name the folder"),
        (("drop", "--out", added, added, "ada"), "is there already"),
        (("check", "--pool", good, *asked, shop / "coordinator"), "does not know cy"),
        (("check", "--pool", good, "--config", other, "--yes", added), "a profile of another anchor set"),
        (("add", *out, "--pool", good, *asked, added), "got none"),
        (("add", *out, "--pool", pool(shop, "ada", "cy"), *asked, shop / "coordinator"), "bo is missing"),
        (("add", *out, "--renew", "zoe", "--pool", good, *asked, added), "does not know zoe"),
    ]
    for words, part in cases:
        assert command(shop, *words) == 2, words
        told = capsys.readouterr().err
        assert part in told, (words, told)
        assert told.count("error:") == 1
    assert not (shop / "never").exists()


def test_an_old_folder_without_the_new_fields_still_loads(shop):
    path = shop / "coordinator" / "coordinator.json"
    text = path.read_text()
    data = {k: v for k, v in json.loads(text).items() if k not in ("router_pool", "lineage", "profile")}
    path.write_text(json.dumps(data))
    described = load_coordinator(shop / "coordinator").description
    path.write_text(text)
    assert (described.lineage, described.profile, described.named_pool) == ((), None, 2)


def test_the_forecast_is_kept_and_its_ceiling_holds(shop, added, capsys):
    again = shop / "forecast"
    words = ("--pool", pool(shop, "ada", "bo", "cy"), "--config", shop / "tasks.yaml", "--yes", "--out", again)
    assert command(shop, "add", *words, "--calls", shop / "three-calls", shop / "coordinator") == 0
    told = capsys.readouterr().out
    # Probes, a look of one episode of at most 3 calls, one generation of 4 candidates.
    most = 3 * 12 * 2 + 12 * 3 + 4 * 12 * 3
    assert f"at most {most:,}" in told
    assert load_coordinator(added).description.lineage[0].calls <= most
