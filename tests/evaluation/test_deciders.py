import asyncio
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from trinity_jax.config import EpisodeSettings
from trinity_jax.episode.episode import EpisodeState, Role, role_for, start, step
from trinity_jax.evaluation.deciders import Dispatch, FixedPolicy, RandomPolicy, RoundRobin
from trinity_jax.rollout.decide import Decider, EpisodeKey

KEY = EpisodeKey(0, 0, 0, 0)
REPLIES = {
    Role.WORKER: "<answer>1</answer>",
    Role.THINKER: "<suggestion>count</suggestion><suggested_role>worker</suggested_role>",
    Role.VERIFIER: "VERDICT: REJECT",
}


def walk(decider: Decider, key: EpisodeKey = KEY, calls: int = 5, **replies: str) -> list[tuple[int, str]]:
    """The (model, role) sequence against fixed replies."""
    settings = EpisodeSettings(max_calls=calls)
    state, taken = start("question"), []
    while state.end is None:
        decision = asyncio.run(decider.decide(key, state))
        role = role_for(state, decision.role)
        taken.append((decision.model, role.value))
        state = step(state, decision.model, role, replies.get(role.value, REPLIES[role]), settings)
    return taken


def test_a_pair_alternates_until_accepted():
    assert walk(FixedPolicy(2, 1)) == [(2, "worker"), (1, "verifier")] * 2 + [(2, "worker")]
    assert walk(FixedPolicy(2, 1), verifier="VERDICT: ACCEPT") == [(2, "worker"), (1, "verifier")]


def test_a_thinker_speaks_first_and_once():
    expected = [(0, "thinker"), (2, "worker"), (1, "verifier"), (2, "worker"), (1, "verifier")]
    assert walk(FixedPolicy(2, 1, thinker=0)) == expected


def test_a_thinkers_wish_gets_that_roles_model():
    state = EpisodeState("question", response="<answer>1</answer>", forced_role=Role.VERIFIER)
    decision = asyncio.run(FixedPolicy(2, 1, thinker=0).decide(KEY, state))
    assert (decision.model, decision.role) == (1, Role.VERIFIER)


def test_descriptions_name_every_role():
    assert FixedPolicy(0, 1).describe(["a", "b"]) == "Worker a, Verifier b"
    assert FixedPolicy(0, 1, 1).describe(["a", "b"]) == "Thinker b, Worker a, Verifier b"


def test_round_robin_takes_models_in_turn():
    for question in range(5):
        turns = walk(RoundRobin(3), EpisodeKey(0, 0, question, 0))
        assert [role for _, role in turns] == ["worker", "verifier"] * 2 + ["worker"]
        assert [(m - turns[0][0]) % 3 for m, _ in turns] == [0, 1, 2, 0, 1]


def test_round_robin_starts_without_regard_to_alternating_kinds():
    starts = Counter(
        (q % 3, asyncio.run(RoundRobin(3).decide(EpisodeKey(0, 0, q, r), start(""))).model)
        for q in range(300)
        for r in range(2)
    )
    counts = [starts[kind, model] for kind in range(3) for model in range(3)]
    assert stats.chisquare(counts).pvalue > 1e-3


def test_random_is_uniform_over_models_and_roles():
    decisions = [
        asyncio.run(RandomPolicy(4, 0).decide(EpisodeKey(0, 0, q, r), start(""))) for q in range(60) for r in range(20)
    ]
    counts = Counter((d.model, d.role) for d in decisions)
    assert stats.chisquare([counts[m, role] for m in range(4) for role in Role]).pvalue > 1e-3


def test_random_does_not_depend_on_order_but_on_every_part_of_the_key():
    policy = RandomPolicy(50, 3)

    def models(keys):
        return {key: asyncio.run(policy.decide(key, start(""))).model for key in keys}

    keys = [EpisodeKey(*np.eye(4, dtype=int)[i]) for i in range(4)] + [KEY]
    assert models(keys) == models(reversed(keys))
    assert len(set(models(keys).values())) > 2
    assert models([EpisodeKey(-1, 0, 0, 0)])
    other = RandomPolicy(50, 0)
    assert [asyncio.run(other.decide(k, start(""))).model for k in keys] != list(models(keys).values())


@pytest.mark.parametrize("needs_response", [False, True])
def test_random_respects_the_mask_of_a_verifier_without_response(needs_response):
    policy = RandomPolicy(2, 0, verifier_needs_response=needs_response)
    roles = {asyncio.run(policy.decide(EpisodeKey(0, 0, q, 0), start(""))).role for q in range(50)}
    assert (Role.VERIFIER in roles) is not needs_response


def test_dispatch_asks_the_decider_of_the_key():
    dispatch = Dispatch(lambda key: (FixedPolicy(0, 0), FixedPolicy(7, 7))[key.candidate])
    assert asyncio.run(dispatch.decide(EpisodeKey(0, 1, 0, 0), start(""))).model == 7
