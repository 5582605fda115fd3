"""The jitted world against the Python episode: exact by enumeration on a tiny case, statistical on a large one."""

from collections import Counter
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from trinity_jax import config
from trinity_jax.config import EpisodeSettings
from trinity_jax.episode.episode import (
    ROLES,
    EpisodeState,
    Role,
    allowed_roles,
    ends_without_call,
    role_for,
    start,
    step,
)
from trinity_jax.world import histories as h
from trinity_jax.world.episode import distinct_calls, log_probability, play
from trinity_jax.world.skills import from_pool, harder
from trinity_jax.world.value import Fixed, attainable, expected, fixed_policies, fixed_values, probabilities

POOL = config.parse(
    {
        "pool": {
            "thinker_boost": 0.15,
            "simulated": [
                {"name": "a", "worker": {"x": 0.8, "y": 0.3}, "thinker": {"default": 0.7}, "accepts_right": 0.95},
                {"name": "b", "worker": {"x": 0.4, "default": 0.9}, "accepts_wrong": 0.4},
            ],
        },
        "tasks": {"mix": [{"kind": "chain_sum"}]},
    },
    "test",
).pool
ANSWER = {True: "<idea>went</idea><answer>1</answer>", False: "<idea>off</idea><answer>0</answer>"}
ADVICE = "<suggestion>{}</suggestion><suggested_role>worker</suggested_role>"
MODES = ["worker_thoughts", "full", "counts"]


def events(state: EpisodeState) -> list[h.Event]:
    kinds = []
    for turn in state.turns:
        if turn.role is Role.WORKER:
            kinds.append(h.Event.RIGHT if turn.text == ANSWER[True] else h.Event.WRONG)
        else:
            kinds.append(h.Event.THINKER if turn.role is Role.THINKER else h.Event.REJECT)
    return kinds


def number(state: EpisodeState, mode: h.Mode, max_calls: int) -> int:
    """Which history of the world a Python state is."""
    table = h.build(mode, max_calls)
    at = 0
    for event in events(state):
        at = int(table.after[at, event])
    return at


def replies(state, model, role, skills):
    """(probability, reply) of one call, from the table."""
    if role is Role.WORKER:
        good = state.suggestion == "good"
        p = min(1.0, float(skills.worker[model]) + (0.15 if good else 0.0))
        return [(p, ANSWER[True]), (1 - p, ANSWER[False])]
    if role is Role.THINKER:
        p = float(skills.thinker[model])
        return [(p, ADVICE.format("good")), (1 - p, ADVICE.format("bad"))]
    p = float((skills.accepts_right if state.response == ANSWER[True] else skills.accepts_wrong)[model])
    return [(p, "VERDICT: ACCEPT"), (1 - p, "VERDICT: REJECT")]


def enumerate_python(logits, skills, mode, settings) -> Counter:
    """Exact distribution of (reward, roles called) by walking every branch of the Python state machine."""
    found: Counter = Counter()

    @cache
    def place(kinds):
        at = 0
        for event in kinds:
            at = int(table[at][event])
        return at

    table = np.asarray(h.build(mode, settings.max_calls).after)

    def walk(state, roles, p):
        if state.end is not None:
            found[float(state.response == ANSWER[True]), roles] += p
            return
        row = logits[place(tuple(events(state)))].astype(float)
        models = np.exp(row[:-3]) / np.exp(row[:-3]).sum()
        may = np.array(allowed_roles(state, settings.verifier_needs_response))
        weights = np.where(may, np.exp(row[-3:]), 0.0)
        weights /= weights.sum()
        sampled: Counter = Counter()
        for role, weight in zip(ROLES, weights, strict=True):
            sampled[role_for(state, role)] += weight
        for role, p_role in sampled.items():
            for model, p_model in enumerate(models):
                q = p * p_role * p_model
                if q == 0:
                    continue
                if ends_without_call(state, role):
                    walk(step(state, model, role, None, settings), roles, q)
                    continue
                for chance, text in replies(state, model, role, skills):
                    if chance:
                        walk(step(state, model, role, text, settings), (*roles, role), q * chance)

    walk(start("?"), (), 1.0)
    return found


def random_logits(mode, max_calls, seed=0, models=2):
    S = len(h.sequences(mode, max_calls))
    return np.random.default_rng(seed).normal(0, 1.2, (S, models + 3)).astype(np.float32)


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_exact_value_is_the_python_episodes_by_enumeration(mode, needs):
    K = 3
    skills = from_pool(POOL, ["x"]).take(0)
    logits = random_logits(mode, K)
    found = enumerate_python(logits, skills, mode, EpisodeSettings(max_calls=K, verifier_needs_response=needs))
    assert sum(found.values()) == pytest.approx(1.0)
    table = h.build(mode, K)
    models, roles = probabilities(jnp.asarray(logits), table, True, needs)
    ours = expected(models, roles, skills, table, K)
    assert float(ours.reward) == pytest.approx(sum(reward * p for (reward, _), p in found.items()), abs=1e-6)
    assert float(ours.calls) == pytest.approx(sum(len(calls) * p for (_, calls), p in found.items()), abs=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_played_episodes_have_the_python_distribution(mode):
    """Rewards and sequences of roles of 20,000 played episodes against the exact probabilities: chi-square."""
    K, count = 4, 20_000
    skills, logits = from_pool(POOL, ["y"]).take(0), random_logits(mode, K, seed=3)
    exact = enumerate_python(logits, skills, mode, EpisodeSettings(max_calls=K))
    table = h.build(mode, K)
    keys = jax.random.split(jax.random.key(5), (count, 2))
    rewards, trace = jax.jit(
        jax.vmap(lambda key: play(lambda s: jnp.asarray(logits)[s], skills, table, key[0], key[1], K))
    )(keys)
    seen = Counter()
    for reward, role, forced, called in zip(
        *map(np.asarray, (rewards, trace.role, trace.forced, trace.called)), strict=True
    ):
        roles = tuple(ROLES[0 if f else r] for r, f, c in zip(role, forced, called, strict=True) if c)
        seen[float(reward), roles] += 1
    assert set(seen) <= {key for key, p in exact.items() if p > 0}
    common = [key for key, p in exact.items() if p * count >= 5]
    rest = [count - sum(seen[key] for key in common), count * (1 - sum(exact[key] for key in common))]
    wanted_rest = max(rest[1], 1e-9)
    observed = [seen[key] for key in common] + [rest[0]]
    wanted = [exact[key] * count for key in common] + [wanted_rest]
    assert len(common) > 10
    assert stats.chisquare(observed, np.array(wanted) * (sum(observed) / sum(wanted))).pvalue > 1e-3


def test_argmax_plays_the_largest_logits():
    table = h.build("full", 3)
    skills = from_pool(POOL, ["x"]).take(0)
    logits = np.zeros((len(table.response), 5), np.float32)
    logits[:, 1] = 1.0  # model b
    logits[:, 2] = 1.0  # Worker, always
    models, roles = probabilities(jnp.asarray(logits), table, sample=False)
    assert float(expected(models, roles, skills, table, 3).reward) == pytest.approx(0.4)
    _, trace = play(lambda s: jnp.asarray(logits)[s], skills, table, jax.random.key(0), jax.random.key(1), 3, False)
    assert trace.model.tolist() == [1, 1, 1]
    assert trace.called.tolist() == [True] * 3


def test_candidates_that_decide_alike_share_their_luck_and_their_calls():
    table, K = h.build("worker_thoughts", 4), 4
    skills = from_pool(POOL, ["x"]).take(0)
    logits = jnp.asarray(random_logits("worker_thoughts", K))
    two = jnp.stack([logits, logits, logits + jnp.array([3.0, 0, 0, 0, 0])])[:, None]

    def episode(table_of, key):
        return play(lambda s: table_of[s], skills, table, jax.random.fold_in(key, 0), jax.random.fold_in(key, 1), K)

    keys = jax.random.split(jax.random.key(2), 50)
    every = jax.vmap(lambda one: jax.vmap(lambda key: episode(one[0], key))(keys))
    rewards, trace = every(two)
    assert (rewards[0] == rewards[1]).all()
    alone = int(trace.called[0].sum())
    assert int(distinct_calls(jax.tree.map(lambda x: x[:1], trace))) == alone
    assert int(distinct_calls(jax.tree.map(lambda x: x[:2], trace))) == alone
    expected_paths = {
        (episode, path)
        for candidate in range(3)
        for episode in range(50)
        for path, called in zip(
            trace.path[candidate, episode].tolist(), trace.called[candidate, episode].tolist(), strict=True
        )
        if called
    }
    assert int(distinct_calls(trace)) == len(expected_paths)
    assert alone < len(expected_paths) < int(trace.called.sum())


def test_log_probability_has_the_exact_policy_gradient():
    """E[reward * grad log pi] over many episodes against the gradient of the exact value."""
    table, K = h.build("full", 3), 3
    skills, logits = from_pool(POOL, ["x"]).take(0), jnp.asarray(random_logits("full", 3, seed=1))

    def value(x):
        return expected(*probabilities(x, table), skills, table, K).reward

    def term(key):
        reward, trace = play(lambda s: logits[s], skills, table, key[0], key[1], K)
        score = jax.grad(lambda x: log_probability(x[trace.history], trace, table))(logits)
        return (reward - 0.5) * score

    terms = jax.jit(jax.vmap(term))(jax.random.split(jax.random.key(0), (20_000, 2)))
    mean, error = terms.mean(0), terms.std(0) / np.sqrt(len(terms))
    exact = jax.grad(value)(logits)
    assert float(jnp.max(jnp.abs(exact))) > 0.01
    assert float(jnp.max(jnp.abs(mean - exact) / (error + 1e-4))) < 4.5


def test_fixed_policies_match_the_python_rule():
    K = 4
    skills = from_pool(POOL, ["x", "y"])
    values = fixed_values(skills, K)
    policies = fixed_policies(2)
    assert len(policies) == 2**2 + 2**3
    settings = EpisodeSettings(max_calls=K)
    for policy in (Fixed(None, 0, 1), Fixed(1, 0, 1), Fixed(0, 1, 1)):
        mine = skills.take(1)

        def walk(state, policy=policy, mine=mine):
            if state.end is not None:
                return float(state.response == ANSWER[True])
            if not state.turns:
                role = Role.WORKER if policy.thinker is None else Role.THINKER
            else:
                role = Role.VERIFIER if state.turns[-1].role is Role.WORKER else Role.WORKER
            role = role_for(state, role)
            model = {Role.WORKER: policy.worker, Role.THINKER: policy.thinker, Role.VERIFIER: policy.verifier}[role]
            return sum(p * walk(step(state, model, role, t, settings)) for p, t in replies(state, model, role, mine))

        assert values[policies.index(policy), 1] == pytest.approx(walk(start("?")), abs=1e-6)
    gain = attainable(skills, ["x", "y"], K)
    assert gain.per_kind >= gain.fixed
    assert gain.per_kind == pytest.approx((values[:, 0].max() + values[:, 1].max()) / 2)


def test_difficulty_moves_logits_and_leaves_certainty():
    chance = harder(jnp.array([0.0, 0.5, 1.0, 0.8]), jnp.array([1.0, 1.0, 1.0, 0.0]))
    assert chance.tolist() == pytest.approx([0.0, 1 / (1 + np.e), 1.0, 0.8], abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_histories_number_what_a_python_episode_can_read(mode):
    """A Python state's history number gives back its response."""
    settings, table = EpisodeSettings(max_calls=4), h.build(mode, 4)
    rng = np.random.default_rng(0)
    skills = from_pool(POOL, ["x"]).take(0)
    for _ in range(200):
        state = start("?")
        while state.end is None:
            at = number(state, mode, 4)
            have = h.Response.NONE if state.response is None else h.Response(1 + (state.response == ANSWER[True]))
            assert int(table.response[at]) == have
            role = role_for(state, ROLES[rng.integers(3)])
            if ends_without_call(state, role):
                break
            options = replies(state, 0, role, skills)
            state = step(state, 0, role, options[rng.integers(2)][1], settings)
