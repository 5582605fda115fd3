"""Whole runs with every learner and start: they end, go on where they were stopped, and read what was seen."""

import json
import shutil
import sqlite3
from contextlib import closing
from itertools import pairwise

import jax
import numpy as np
import pytest
from rich.console import Console

from tests.tiny import make_encoder, tiny_run
from trinity_jax import config
from trinity_jax.coordinator.export import load_coordinator
from trinity_jax.episode.episode import ROLES
from trinity_jax.errors import UserError
from trinity_jax.training import loop
from trinity_jax.training.experience import log_probability
from trinity_jax.training.train import train

QUICK = {
    "encoder__buckets": [1024],
    "svf": {"preset": "none"},
    "tasks__validation": 3,
    "tasks__test": 3,
    "evaluation__fixed_policy": False,
    "training": {"validate_every": 9},
}
RIDGE = {"kind": "ridge", "questions": 6, "samples": 2}
LEARNERS = {
    "reinforce": {"learner": "reinforce", "gradient": {"learning_rate": 0.1}},
    "grpo": {"learner": "grpo", "gradient": {"standardise": True}},
    "random_search": {"learner": "random_search"},
    "open_es": {"learner": "open_es"},
    "active": {"active": True, "step_size": "tpa"},
    "warm": {"warm_start": RIDGE},
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_encoder(tmp_path_factory.mktemp("tiny") / "encoder")


def settings_of(encoder, learning, **changes):
    base = {"generations": 2, "population": 4, "questions": 3, "sigma0": 1.0}
    return tiny_run(encoder, learning=base | learning, **(QUICK | changes))


def run(folder, settings, resume=False):
    return train(config.parse(settings, "test"), folder, resume=resume, console=Console(quiet=True))


def vector(folder):
    return load_coordinator(folder / "coordinator").vector


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def calls_of(folder, scope=""):
    with closing(sqlite3.connect(folder / "journal.sqlite")) as connection:
        return connection.execute("SELECT COUNT(*) FROM calls WHERE scope LIKE ?", (f"{scope}%",)).fetchone()[0]


@pytest.mark.parametrize("name", LEARNERS)
def test_a_run_taken_up_after_its_first_generation_ends_at_the_same_vector(encoder, tmp_path, name):
    settings, folder, again = settings_of(encoder, LEARNERS[name]), tmp_path / "run", tmp_path / "again"
    summary = run(folder, settings)
    assert vector(folder).any()
    lines, adapts = lines_of(folder), name in ("active", "warm")
    assert (lines[0]["sigma"] is None) == (name in ("reinforce", "grpo", "random_search"))
    assert (lines[0]["diagonal_spread"] is None) == (not adapts)
    assert (summary["c_mu_times_generations"] is None) == (not adapts)
    if name == "grpo":
        assert lines[0]["calls"] < lines[0]["calls_without_sharing"]
    if name == "reinforce":
        assert lines[0]["calls"] == lines[0]["calls_without_sharing"]
    shutil.copytree(folder, again)
    # Without any checkpoint the start has to be found anew.
    shutil.rmtree(again / "checkpoints" / ("" if name == "warm" else "2"))
    repeated = run(again, settings, resume=True)
    np.testing.assert_array_equal(vector(again), vector(folder))
    assert calls_of(again) == calls_of(folder) == summary["calls"]
    assert repeated["calls_without_sharing"] == summary["calls_without_sharing"]


def test_a_generation_stopped_on_its_way_ends_as_it_would_have(encoder, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    settings = settings_of(encoder, LEARNERS["grpo"])
    run(whole, settings)
    cap = lines_of(whole)[0]["calls"] + 2
    with pytest.raises(UserError, match="generation 1: budget"):
        run(stopped, settings_of(encoder, LEARNERS["grpo"], budget={"calls": cap}))
    run(stopped, settings, resume=True)
    np.testing.assert_array_equal(vector(stopped), vector(whole))
    assert calls_of(stopped) == calls_of(whole)


def test_the_trace_is_what_was_decided(encoder, tmp_path, monkeypatch):
    seen, played = [], []

    def spied(results, *arguments):
        played.append(results)
        seen.append(original(results, *arguments))
        return seen[-1]

    original = loop.relive
    monkeypatch.setattr(loop, "relive", spied)
    rigs = []
    one_generation = loop._generation
    monkeypatch.setattr(loop, "_generation", lambda rig, *rest: rigs.append(rig) or one_generation(rig, *rest))
    learning = LEARNERS["grpo"] | {"gradient": {"learning_rate": 0.5}, "questions": 6}
    run(tmp_path / "run", settings_of(encoder, learning, episode={"max_calls": 4, "transcript": "full"}))

    model = rigs[0].model
    # Generation 0 was played by zeros, generation 1 by the vector after one step.
    step = seen[0], model.learner.init(jax.random.key(0))
    after = model.learner.tell(step[1], None, None, jax.random.key(0), step[0])
    vectors = [np.zeros(model.layout.size), np.asarray(model.learner.mean(after))]
    assert vectors[1].any()
    forced = unheard = 0
    for generation, point in enumerate(vectors):
        ours = np.asarray(log_probability(model.layout, model.head, point, seen[generation].trace))
        for episode, result in enumerate(played[generation]):
            place = divmod(episode, 6)
            total, suggested = 0.0, None
            for turn, decision in enumerate(result.decisions):
                ends = turn == len(result.state.turns) and result.reward is not None  # a Verifier, nothing to verify
                unheard += ends
                total += 0.0 if ends else np.log(decision.model_probs[decision.model])
                forced += suggested is not None
                total += 0.0 if suggested else np.log(decision.role_probs[ROLES.index(decision.role)])
                suggested = result.state.turns[turn].suggested_role if turn < len(result.state.turns) else None
            assert ours[place] == pytest.approx(total, abs=1e-4)
            assert seen[generation].groups[place] == result.key.question
            assert float(seen[generation].rewards[place]) == result.reward
    assert forced
    assert unheard
    # One question, four episodes of it, and each with luck of its own.
    first = [result.decisions[0] for result in played[0] if result.key[2:] == played[0][0].key[2:]]
    assert len(first) == 4
    assert len({(one.model, one.role) for one in first}) > 1


@pytest.mark.parametrize(("kind", "readout"), [("ridge", "raw"), ("sft", "whitened")])
def test_without_generations_the_start_is_deployed(encoder, tmp_path, kind, readout):
    warm = RIDGE | {"kind": kind, "learning_rate": 0.01, "steps": 50}
    settings = settings_of(encoder, {"generations": 0, "warm_start": warm}, readout={"kind": readout, "k": 4})
    summary = run(tmp_path / "run", settings)
    parts = load_coordinator(tmp_path / "run" / "coordinator").layout.split(vector(tmp_path / "run"))
    for name, rows in parts.items():
        assert rows[:2].any(), name
        assert not rows[2:].any(), name  # roles have no preference
    assert calls_of(tmp_path / "run", "probes") == 2 * 6 * 2
    assert summary["c_mu_times_generations"] == 0
    assert lines_of(tmp_path / "run") == []
    paid = calls_of(tmp_path / "run")
    run(tmp_path / "run", settings, resume=True)
    assert calls_of(tmp_path / "run") == paid


def test_probes_that_fail_stop_the_run(encoder, tmp_path):
    with pytest.raises(UserError, match="warm start: budget"):
        run(tmp_path / "run", settings_of(encoder, {"warm_start": RIDGE}, budget={"calls": 5}))


def test_a_scripted_start_alternates_worker_and_verifier(encoder, tmp_path):
    """Role rows taught on scripted episodes: greedy choices follow the script, and its episodes are paid for once."""
    warm = {"kind": "ridge", "roles": "script"}
    readout = {"kind": "whitened", "k": 6, "source": "script"}
    settings = settings_of(
        encoder,
        {"generations": 0, "warm_start": warm},
        readout=readout,
        policy={"evaluate": "argmax"},
        episode={"transcript": "full", "max_calls": 3},
        tasks__train=12,
        tasks__test=6,
    )
    summary = run(tmp_path / "run", settings)
    assert 12 <= calls_of(tmp_path / "run", "warm-up") <= 36
    assert summary["calls"] == calls_of(tmp_path / "run")
    shown = [json.loads(line) for line in (tmp_path / "run" / "transcripts.jsonl").read_text().splitlines()]
    roles = [[turn["role"] for turn in episode["turns"]] for episode in shown]
    answered = [[b for a, b in pairwise(one) if a == "worker"] for one in roles]
    follows = [bool(one) and set(then) <= {"verifier"} for one, then in zip(roles, answered, strict=True)]
    assert sum(follows) >= 0.75 * len(follows)
