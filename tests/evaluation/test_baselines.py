import asyncio
import itertools
import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from trinity_jax import config
from trinity_jax.evaluation.baselines import FIXED, PER_KIND, compare, per_question_best, search_fixed
from trinity_jax.evaluation.deciders import FixedPolicy
from trinity_jax.evaluation.scores import Scores, episode_keys
from trinity_jax.rollout.engine import rollout

KINDS = ("sums", "words")


def settings(
    worker: list[list[float]], accepts_right: list[float], accepts_wrong: list[float], **more
) -> config.Settings:
    simulated = [
        {
            "name": f"m{i}",
            "worker": dict(zip(KINDS, skills, strict=True)),
            "thinker": {"default": 0.0},
            "accepts_right": right,
            "accepts_wrong": wrong,
        }
        for i, (skills, right, wrong) in enumerate(zip(worker, accepts_right, accepts_wrong, strict=True))
    ]
    return config.parse(
        {
            "pool": {"simulated": simulated, "thinker_boost": 0.0},
            "tasks": {"kind": "generated", "mix": [{"kind": "any"}]},
            **more,
        },
        "test",
    )


@pytest.fixture
def specialists() -> config.Settings:
    """Model 0 solves sums only, model 1 words only; 0 judges without fail, 1 rejects all; K = 3."""
    return settings([[1, 0], [0, 1]], [1, 0], [0, 0], episode={"max_calls": 3})


def play(wanted, training, held_out, pool, coordinator, repeats=1, search_episodes=0):
    async def run():
        async with pool:
            keys = episode_keys(len(held_out), repeats)
            ours = await rollout(keys, held_out, coordinator, pool, wanted.episode, "evaluation")
            return await compare(ours, training, held_out, pool, wanted, search_episodes=search_episodes)

    return asyncio.run(run())


def test_every_method_on_specialists(specialists, make_questions, make_pool):
    training, held_out = make_questions(["sums"] * 4 + ["words"] * 2), make_questions(["sums", "words", "words"], 100)
    found = play(
        specialists, training, held_out, make_pool(specialists.pool, training + held_out), FixedPolicy(1, 0), 2
    )
    scores = {s.name: s for s in found.scores}
    # The coordinator here: model 1 works, 0 judges: words accepted after 2 calls, sums wrong after all 3.
    assert_array_equal(scores["coordinator"].rewards, [[0, 0], [1, 1], [1, 1]])
    assert_array_equal(scores["coordinator"].calls, [[3, 3], [2, 2], [2, 2]])
    # Mean calls 7/3, rounded up: 3 votes.
    assert found.singles == ("m0, plurality of 3", "m1, plurality of 3")
    for i, expected in enumerate(([1, 0, 0], [0, 1, 1])):
        assert_array_equal(scores[f"m{i}, one call"].per_question, expected)
        assert_array_equal(scores[f"m{i}, one call"].calls, np.ones((3, 2)))
        assert_array_equal(scores[f"m{i}, plurality of 3"].per_question, expected)
        assert_array_equal(scores[f"m{i}, plurality of 3"].calls, np.full((3, 2), 3))
    # Training has twice as many sums, so the fixed policy is model 0 at work; told the kind, everything is solved.
    assert scores[FIXED].note == "Worker m0, Verifier m0"
    assert_array_equal(scores[FIXED].per_question, [1, 0, 0])
    assert_array_equal(scores[PER_KIND].per_question, [1, 1, 1])
    assert scores[PER_KIND].note == "sums: Worker m0, Verifier m0; words: Worker m1, Verifier m0"
    oracle = next(s for name, s in scores.items() if "oracle" in name)
    assert_array_equal(oracle.per_question, [1, 1, 1])
    assert_array_equal(oracle.calls, np.full((3, 2), 2))
    assert len(scores) == 10
    assert all(s.rewards.shape == (3, 2) for s in found.scores)

    rows = found.rows(resamples=200, seed=0)
    summary = found.summary(rows)
    json.dumps(summary, allow_nan=False)
    assert summary["coordinator_accuracy"] == pytest.approx(2 / 3)
    assert summary["best_single_equal_calls"] == pytest.approx(2 / 3)
    assert summary["fixed_policy_accuracy"] == pytest.approx(1 / 3)
    assert summary["paired_diff_fixed"] == pytest.approx(1 / 3)
    assert summary["paired_diff_single"] == 0
    assert found.search is not None
    # Without training answers the best single model is picked by plurality on the questions themselves.
    assert (found.single, found.best_single) == (None, "m1, plurality of 3")
    assert next(r for r in rows if r.name == found.best_single).over_single is None
    over = next(r for r in rows if r.name == "m0, one call").over_single
    assert over is not None
    assert over.mean == pytest.approx(1 / 3 - 2 / 3)
    search = summary["fixed_policy_search"]
    assert search["policies"] == 12
    assert (search["questions"], search["repeats"]) == (6, 1)
    assert search["calls"] == found.search.asked > search["calls_made"] > 0


def test_the_search_agrees_with_playing_each_policy_alone(make_questions, make_pool):
    wanted = settings([[0.7, 0.3], [0.4, 0.6]], [0.9, 0.6], [0.2, 0.5])
    questions = make_questions(["sums", "words"] * 6)
    pool = make_pool(wanted.pool, questions)

    async def run():
        async with pool:
            search = await search_fixed(questions, pool, 2, wanted.episode, "evaluation")
            alone = [
                await rollout(episode_keys(12, 1), questions, policy, pool, wanted.episode, "evaluation")
                for policy in search.policies
            ]
            return search, alone

    search, alone = asyncio.run(run())
    wished = [(w, v, t) for t, w, v in itertools.product((None, 0, 1), (0, 1), (0, 1))]
    assert [(p.worker, p.verifier, p.thinker) for p in search.policies] == wished
    means = [np.mean([r.reward or 0.0 for r in results]) for results in alone]
    assert_array_equal([s.per_question.mean() for s in search.scores], means)
    assert search.asked == sum(len(r.replies) for results in alone for r in results)
    calls = [sum(len(r.replies) for r in results) for results in alone]
    best = search.policies.index(search.best())
    assert means[best] == max(means)
    assert calls[best] == min(c for c, mean in zip(calls, means, strict=True) if mean == max(means))
    for kind, rows in (("sums", slice(0, None, 2)), ("words", slice(1, None, 2))):
        by_kind = [np.mean([r.reward or 0.0 for r in results[rows]]) for results in alone]
        assert by_kind[search.policies.index(search.best(kind))] == max(by_kind)


def test_the_search_gets_the_episodes_that_training_had(make_questions, make_pool):
    wanted = settings([[0.7, 0.3], [0.4, 0.6]], [0.9, 0.6], [0.2, 0.5])
    training, held_out = make_questions(["sums", "words"]), make_questions(["sums"], 50)
    pool = make_pool(wanted.pool, training + held_out)
    search = play(wanted, training, held_out, pool, FixedPolicy(0, 0), search_episodes=12 * 2 * 5 + 11).search
    assert search is not None
    # Repeats are fresh luck, not the first episode over again.
    assert {s.rewards.shape for s in search.scores} == {(2, 5)}
    assert any(np.ptp(s.rewards, axis=1).any() for s in search.scores)


@pytest.mark.parametrize("shuffled", [False, True])
def test_with_skills_shuffled_per_question_nothing_is_gained_over_a_fixed_policy(shuffled, make_questions, make_pool):
    wanted = settings([[0.8, 0.3], [0.3, 0.8]], [0.9, 0.9], [0.2, 0.2])
    shuffle = wanted.pool.model_copy(update={"shuffle_skills": shuffled})
    wanted = wanted.model_copy(update={"pool": shuffle})
    training, held_out = make_questions(["sums", "words"] * 30), make_questions(["sums", "words"] * 200, 100)
    pool = make_pool(wanted.pool, training + held_out)
    found = play(wanted, training, held_out, pool, FixedPolicy(0, 0), search_episodes=12 * 60 * 2)
    told, fixed = (next(s for s in found.scores if s.name == name) for name in (PER_KIND, FIXED))
    gain = np.mean(told.per_question - fixed.per_question)
    # What even a policy that is told the kind can gain: all there is for a coordinator to learn from the question. 0.06
    # are two standard errors of a difference of nothing on 400 questions.
    assert abs(gain) < 0.06 if shuffled else gain > 0.12


def test_without_the_search(specialists, make_questions, make_pool):
    wanted = specialists.model_copy(update={"evaluation": config.EvaluationSettings(fixed_policy=False)})
    held_out = make_questions(["sums", "words"])
    found = play(wanted, [], held_out, make_pool(wanted.pool, held_out), FixedPolicy(0, 0))
    assert FIXED not in [s.name for s in found.scores]
    summary = found.summary(found.rows(100, 0))
    assert summary["fixed_policy_accuracy"] is summary["ci_low"] is None
    assert "fixed" not in summary["verdict"]


def test_a_kind_without_training_questions_falls_back_to_the_best_of_all(specialists, make_questions, make_pool):
    training, held_out = make_questions(["sums"] * 2), make_questions(["words"], 50)
    found = play(specialists, training, held_out, make_pool(specialists.pool, training + held_out), FixedPolicy(0, 0))
    assert next(s for s in found.scores if s.name == PER_KIND).note == "words: Worker m0, Verifier m0"


def test_the_oracle_takes_the_best_of_what_was_completed():
    def one(rewards, undecided):
        return Scores("", np.array([rewards]), np.array([undecided]), np.ones((1, 4), int))

    oracle = per_question_best([one([0, 0, np.nan, np.nan], [1, 1, 0, 0]), one([1, 0, 0, np.nan], [0, 1, 0, 0])])
    assert_array_equal(oracle.rewards, [[1, 0, 0, np.nan]])
    assert_array_equal(oracle.undecided, [[False, True, False, False]])
    assert_array_equal(oracle.calls, [[2, 2, 2, 2]])
