"""Reflection, mixture and the prompted coordinator on models whose every word is known."""

import asyncio
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.evaluation.scripted import Scripted, scripted_pool
from trinity_jax import config
from trinity_jax.episode.episode import Role, start, step
from trinity_jax.errors import UserError
from trinity_jax.evaluation.baselines import compare
from trinity_jax.evaluation.deciders import FixedPolicy
from trinity_jax.evaluation.prompted import parse, question, roles_now
from trinity_jax.evaluation.routers import Learned
from trinity_jax.evaluation.scores import episode_keys
from trinity_jax.rollout.engine import rollout

TERMS = config.TrialSettings.model_validate(
    {
        "pool": {"simulated": [{"name": "unused", "worker": {"default": 0.5}}]},
        "episode": {"max_calls": 3},
        "evaluation": {"fixed_policy": False},
    }
)


def led_by(name: str) -> config.TrialSettings:
    evaluation = config.EvaluationSettings(fixed_policy=False, prompted=name)
    return TERMS.model_copy(update={"evaluation": evaluation})


def number(call) -> int:
    """The n of the question."""
    found = re.search(r"What is (\d+) \+ 1", call.messages[-1].content)
    assert found
    return int(found[1])


def answer(value: object) -> str:
    return f"<idea>so</idea><answer>{value}</answer>"


def play(tmp_path, models, questions, rivals, terms=TERMS, learned=None, repeats=1):
    """The table with these models; the coordinator is model 0 at work, and as judge, who never accepts: K calls."""

    async def run():
        async with scripted_pool(tmp_path, models) as pool:
            keys = episode_keys(len(questions), repeats)
            ours = await rollout(keys, questions, FixedPolicy(0, 0), pool, terms.episode, "evaluation")
            for model in models:
                model.calls.clear()
            return await compare(ours, [], questions, pool, terms, rivals=rivals, learned=learned)

    found = asyncio.run(run())
    return found, {s.name: s for s in found.scores}


def test_reflection_mends_what_it_sees_and_takes_k_calls(tmp_path, make_questions):
    def wrong_at_first(call):
        if call.role == "verifier":
            return "VERDICT: REJECT"
        mine = re.search(r"<your_reply>.*<answer>(-?\d+)</answer>", call.messages[-1].content, re.DOTALL)
        # Two too low at first; each look at its own reply adds one.
        return answer(int(mine[1]) + 1 if mine else number(call) - 1)

    model = Scripted("solo", wrong_at_first)
    questions = make_questions(["sums"] * 4)
    found, scores = play(tmp_path, [model], questions, ["reflection"], repeats=2)
    assert_array_equal(scores["solo, one call"].rewards, np.zeros((4, 2)))
    assert_array_equal(scores["solo, plurality of 3"].rewards, np.zeros((4, 2)))
    row = scores["solo, self-reflection of 3"]
    assert_array_equal(row.rewards, np.ones((4, 2)))
    assert_array_equal(row.calls, np.full((4, 2), 3))
    assert row.spent is not None
    assert_array_equal(row.spent.tokens, np.full((4, 2), 45))
    assert_array_equal(row.spent.cost, np.full((4, 2), 3))
    assert_array_equal(row.spent.seconds, np.full((4, 2), 6))  # one waits for the other
    plural = scores["solo, plurality of 3"].spent
    assert plural is not None
    assert_array_equal(plural.seconds, np.full((4, 2), 2))  # these need not
    # The first answer is the one call's; two revisions for each episode were new.
    assert sum("<your_reply>" in call.messages[-1].content for call in model.calls) == 4 * 2 * 2
    assert found.left_out == ()


def test_a_revision_that_says_the_same_is_asked_again_and_a_failed_one_leaves_no_reward(tmp_path, make_questions):
    def stubborn(call):
        if call.role == "verifier":
            return "VERDICT: REJECT"
        return None if number(call) == 1 and "<your_reply>" in call.messages[-1].content else answer(number(call))

    model = Scripted("solo", stubborn)
    _, scores = play(tmp_path, [model], make_questions(["sums"] * 2), ["reflection"])
    row = scores["solo, self-reflection of 3"]
    assert_array_equal(row.rewards, [[0], [np.nan]])
    assert_array_equal(row.calls, [[3], [2]])
    again = [call.occurrence for call in model.calls if "<your_reply>" in call.messages[-1].content]
    assert sorted(again) == [0, 0, 1]


def test_a_mixture_unites_one_reply_of_each_model_and_counts_all_calls(tmp_path, make_questions):
    def proposer(offset):
        def say(call):
            if call.role == "verifier":
                return "VERDICT: REJECT"
            if "<reply_1>" not in call.messages[-1].content:
                return None if number(call) == 2 and offset == 9 else answer(number(call) + offset)
            # As an aggregator: the smallest number that was proposed.
            return answer(min(int(n) for n in re.findall(r"<answer>(-?\d+)</answer>", call.messages[-1].content)))

        return say

    models = [Scripted(name, proposer(offset)) for name, offset in (("high", 7), ("right", 1), ("higher", 9))]
    learned = Learned(np.array([[0.0, 0.0, 1.0]]), ["sums"])
    questions = make_questions(["sums"] * 3)
    _, scores = play(tmp_path, models, questions, ["mixture", "per_kind"], learned=learned, repeats=2)
    row = scores["mixture of agents, 4 calls"]
    assert "higher aggregates" in row.note
    assert_array_equal(row.rewards, np.ones((3, 2)))
    assert_array_equal(row.calls, np.full((3, 2), 4))
    assert row.spent is not None
    assert_array_equal(row.spent.seconds, np.full((3, 2), 4))  # proposals at once, then the aggregator
    united = [call for model in models for call in model.calls if "<reply_1>" in call.messages[-1].content]
    assert Counter(call.model for call in united) == {"higher": 6}
    # The proposal that failed is left out, its call is counted.
    shown = {number(call): call.messages[-1].content.count("<answer>") for call in united}
    assert shown == {0: 3, 1: 3, 2: 2}
    # Chosen on training questions, the best single model is the worst here.
    assert_array_equal(
        scores["best single model per kind, plurality of 3 (it is told the kind)"].rewards,
        [[0, 0], [0, 0], [np.nan] * 2],
    )


def test_more_proposals_where_the_budget_holds_them(tmp_path, make_questions):
    terms = TERMS.model_copy(update={"episode": config.EpisodeSettings(max_calls=5)})
    model = Scripted("solo", lambda call: "VERDICT: REJECT" if call.role == "verifier" else answer(number(call) + 1))
    _, scores = play(tmp_path, [model], make_questions(["sums"]), ["mixture"], terms)
    assert_array_equal(scores["mixture of agents, 5 calls"].calls, [[5]])


def test_a_prompted_coordinator_leads_and_pays_for_its_own_calls(tmp_path, make_questions):
    def lead(call):
        if call.role != "coordinator":
            return "VERDICT: REJECT" if call.role == "verifier" else answer(0)
        text = call.messages[-1].content
        if "What is 1 +" in text:
            return "I would rather not say."
        if "What is 2 +" in text:
            return None
        return "MODEL: good\nROLE: " + ("verifier" if "Turn 1, good as worker" in text else "worker")

    def good(call):
        return "VERDICT: ACCEPT" if call.role == "verifier" else answer(number(call) + 1)

    models = [Scripted("leader", lead), Scripted("good", good)]
    _, scores = play(tmp_path, models, make_questions(["sums"] * 3), ["prompted"], led_by("leader"))
    row = scores["leader prompted as coordinator"]
    # Question 0: two turns, two decisions. Question 1: the leader works three times. Question 2: its call fails.
    assert_array_equal(row.rewards, [[1], [0], [np.nan]])
    assert row.calls[:2].tolist() == [[4], [6]]
    asked = sum(call.role == "coordinator" for call in models[0].calls)
    assert row.note.startswith(f"{asked / 3:.2f} of its calls a question are leader's")
    assert f" of {asked} of its replies named no model or role" in row.note
    assert row.spent is not None
    assert row.spent.cost[:2].tolist() == [[4.0], [6.0]]


def test_the_leader_can_be_named_and_must_be_in_the_pool(tmp_path, make_questions):
    def say(call):
        return "MODEL: a ROLE: worker" if call.role == "coordinator" else answer(number(call) + 1)

    models = [Scripted("a", say), Scripted("b", say)]
    _, scores = play(tmp_path, models, make_questions(["sums"]), ["prompted"], led_by("b"))
    assert "b prompted as coordinator" in scores
    assert {call.model for call in models[1].calls if call.role == "coordinator"} == {"b"}
    with pytest.raises(UserError, match="expected one of a, b, got 'c'"):
        play(tmp_path, models, make_questions(["sums"]), ["prompted"], led_by("c"))


def test_without_training_questions_the_rows_that_choose_on_them_are_left_out(tmp_path, make_questions):
    model = Scripted("solo", lambda call: answer(number(call) + 1))
    found, scores = play(tmp_path, [model], make_questions(["sums"]), ["per_kind", "knn", "logistic"])
    assert not any("router" in name or "per kind" in name for name in scores)
    assert [text.partition(" ")[0] for text in found.left_out] == ["per_kind", "knn", "logistic"]
    assert found.single is None
    assert found.best_single == "solo, plurality of 3"
    assert "picked on these questions" in found.summary(found.rows(100, 0))["verdict"]


NAMES = ("gpt-5", "gpt-5-mini", "Llama 3.1", "o")
ROLES = (Role.WORKER, Role.THINKER)


@pytest.mark.parametrize(
    ("text", "model", "role"),
    [
        ("MODEL: gpt-5\nROLE: worker", 0, 0),
        ("model: gpt-5-mini, role: thinker", 1, 1),
        ("**MODEL:** Llama 3.1\n**ROLE:** Thinker.", 2, 1),
        ('{"model": "gpt-5-mini", "role": "worker"}', 1, 0),
        ("<think>MODEL: o ROLE: thinker</think>MODEL: gpt-5.\nROLE: worker", 0, 0),
        ("MODEL: o\nROLE: worker\nNo, wait.\nMODEL: gpt-5\nROLE: thinker", 0, 1),
        ("I choose gpt-5-mini as the worker.", 1, 0),
        ("gpt-5 or gpt-5-mini, as worker", None, 0),
        ("MODEL: gpt-6\nROLE: verifier", None, None),
        ("MODEL: gpt-5-miniature\nROLE: worker and thinker", None, None),
        ("", None, None),
    ],
)
def test_what_a_leader_says(text, model, role):
    found = parse(text, NAMES, ROLES)
    assert found == (model, None if role is None else ROLES[role])


@given(st.text())
def test_reading_a_leader_is_total(text):
    model, role = parse(text, NAMES, ROLES)
    assert model is None or 0 <= model < len(NAMES)
    assert role is None or role in ROLES


_FRAMES = ("MODEL: {m}\nROLE: {r}", "model = {m}; role = {r}", '{{"role": "{r}", "model": "{m}"}}', "Let {m} be {r}!")


@given(st.sampled_from(range(len(NAMES))), st.sampled_from(ROLES), st.sampled_from(_FRAMES), st.booleans())
def test_a_leader_who_says_it_in_any_of_the_usual_forms_is_understood(model, role, frame, shout):
    text = frame.format(m=NAMES[model], r=role.value)
    assert parse(text.upper() if shout else text, NAMES, ROLES) == (model, role)


def test_the_leader_is_shown_the_turns_and_the_roles_that_are_allowed():
    state = start("Why?")
    assert roles_now(state) == (Role.WORKER, Role.THINKER)
    settings = config.EpisodeSettings()
    state = step(state, 1, Role.WORKER, "<think>hm</think>Because " + "x" * 50, settings)
    messages = question(state, ("ada", "bo"), roles_now(state), 5, 12)
    assert "- ada\n- bo" in messages[0].content
    assert "verifier: checks" in messages[0].content
    assert "Task:\nWhy?" in messages[1].content
    assert "Turn 1, bo as worker:\nBecause xxxx\n" in messages[1].content
    thought = "<suggestion>check</suggestion><suggested_role>verifier</suggested_role>"
    assert roles_now(step(state, 0, Role.THINKER, thought, settings)) == (Role.VERIFIER,)
