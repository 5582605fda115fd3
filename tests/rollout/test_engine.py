import asyncio
import gc
from collections import Counter
from dataclasses import replace

import pytest

from trinity_jax.config import BudgetSettings, EpisodeSettings
from trinity_jax.episode.episode import End, Role
from trinity_jax.errors import UserError
from trinity_jax.evaluation.deciders import FixedPolicy, RandomPolicy
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.ledger import Ledger
from trinity_jax.pool.pool import Pool, Seat
from trinity_jax.pool.reply import Call, Outcome, Reply
from trinity_jax.rollout import engine
from trinity_jax.rollout.decide import Decision, EpisodeKey
from trinity_jax.rollout.engine import rollout
from trinity_jax.tasks import GRADERS, Grader
from trinity_jax.tasks.question import Grade, Question

QUESTIONS = [Question(f"q{n}", "sum", f"[{n}] What is {n} + 1?", str(n + 1), "numeric") for n in range(4)]
SETTINGS = EpisodeSettings(max_calls=4)


class Scripted:
    """Answers by role; ``worker`` may be an outcome. Replies arrive in an order drawn from ``delays``."""

    def __init__(self, worker="<answer>1</answer>", verdicts=("REJECT",), delays=(0.0,), name="scripted"):
        self.name, self.worker, self.verdicts, self.delays = name, worker, verdicts, delays
        self.calls: list[Call] = []

    async def reply(self, call: Call) -> Reply:
        self.calls.append(call)
        await asyncio.sleep(self.delays[len(self.calls) % len(self.delays)])
        if call.role == "worker" and isinstance(self.worker, Outcome):
            return Reply(self.worker, detail="scripted failure")
        if call.role == "worker":
            return Reply(Outcome.OK, self.worker)
        return Reply(Outcome.OK, f"VERDICT: {self.verdicts[call.occurrence % len(self.verdicts)]}")

    async def close(self) -> None:
        pass


def play(tmp_path, responders, decider, keys, settings=SETTINGS, budget=None):
    async def body():
        journal = Journal.open(tmp_path / "journal.sqlite")
        seats = [Seat("test", responder.name) for responder in responders]
        async with Pool(responders, journal, Ledger(budget or BudgetSettings()), seats) as pool:
            return await rollout(keys, QUESTIONS, decider, pool, settings, "run"), replace(pool.counters)

    return asyncio.run(body())


def keys(candidates, questions=4):
    return [EpisodeKey(0, p, q, 0) for p in range(candidates) for q in range(questions)]


def test_candidates_that_decide_alike_share_every_call(tmp_path):
    responder = Scripted()
    results, counters = play(tmp_path, [responder], FixedPolicy(0, 0), keys(8))
    assert [r.key for r in results] == keys(8)
    assert counters.asked == 8 * 4 * 4
    assert counters.made == len(responder.calls) == 4 * 4


def test_a_second_verifier_is_another_call(tmp_path):
    class WorkThenVerify:
        async def decide(self, key, state):
            return Decision(0, Role.VERIFIER if state.turns else Role.WORKER)

    responder = Scripted(verdicts=("REJECT", "REJECT", "ACCEPT"))
    [result], _ = play(tmp_path, [responder], WorkThenVerify(), keys(1, 1))
    assert [call.occurrence for call in responder.calls] == [0, 0, 1, 2]
    assert result.state.end is End.ACCEPTED
    assert result.grade is Grade.RIGHT


def test_rewards_follow_the_latest_worker(tmp_path):
    results, _ = play(tmp_path, [Scripted("<answer>1</answer>")], FixedPolicy(0, 0), keys(1))
    assert [r.reward for r in results] == [1.0, 0.0, 0.0, 0.0]
    assert all(r.state.end is End.CALLS_SPENT for r in results)


def test_a_verifier_first_ends_without_a_call(tmp_path):
    class VerifyFirst:
        async def decide(self, key, state):
            return Decision(0, Role.VERIFIER)

    responder = Scripted()
    [result], counters = play(tmp_path, [responder], VerifyFirst(), keys(1, 1))
    assert (result.reward, result.state.end, result.replies, counters.asked) == (0.0, End.NO_RESPONSE, (), 0)


@pytest.mark.parametrize("outcome", [o for o in Outcome if not o.gradable])
def test_a_failed_call_is_no_wrong_answer(tmp_path, outcome):
    results, _ = play(tmp_path, [Scripted(outcome)], FixedPolicy(0, 0), keys(1))
    assert [(r.reward, r.grade, r.state.end) for r in results] == [(None, None, End.FAILED)] * 4


def test_a_spent_budget_is_a_failed_episode_and_holds(tmp_path):
    responder = Scripted()
    results, _ = play(tmp_path, [responder], FixedPolicy(0, 0), keys(1), budget=BudgetSettings(calls=5))
    assert len(responder.calls) == 5
    assert any(reply.outcome is Outcome.REFUSED_BUDGET for r in results for reply in r.replies)


def test_arrival_order_changes_nothing(tmp_path):
    def outcome(folder, delays):
        (tmp_path / folder).mkdir()
        responders = [Scripted(f"<answer>{n}</answer>", ("REJECT", "ACCEPT"), delays, name=str(n)) for n in (1, 2)]
        results, _ = play(tmp_path / folder, responders, RandomPolicy(2, seed=3), keys(6))
        return [(r.key, r.reward, r.state, r.decisions) for r in results]

    assert outcome("at once", (0.0,)) == outcome("shuffled", (0.011, 0.0, 0.004, 0.017, 0.002))


def test_an_error_stops_the_other_episodes(tmp_path):
    class Broken:
        def __init__(self):
            self.asked = Counter()

        async def decide(self, key, state):
            self.asked[key] += 1
            if key.question == 3 and state.turns:
                raise RuntimeError("broken decider")
            return Decision(0, Role.WORKER)

    responder = Scripted(delays=(0.01,))
    with pytest.raises(RuntimeError, match="broken decider"):
        play(tmp_path, [responder], Broken(), keys(1), EpisodeSettings(max_calls=50))
    assert len(responder.calls) < 50


def test_the_collector_runs_seldom_during_a_rollout_and_as_before_after_it(tmp_path):
    before, during = gc.get_threshold(), []

    class Watching(FixedPolicy):
        async def decide(self, key, state):
            during.append(gc.get_threshold())
            return await super().decide(key, state)

    play(tmp_path, [Scripted()], Watching(0, 0), keys(1, 1))
    assert min(during) > before
    assert min(during)[0] > 0  # never off
    assert gc.get_threshold() == before


def test_rollouts_that_overlap_leave_the_collector_as_it_was():
    before = gc.get_threshold()
    first, second = engine._seldom_collected(), engine._seldom_collected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() > before
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


class Judged(Scripted):
    """Two models in one: what it says as a judge is scripted too."""

    def __init__(self, sayings):
        super().__init__(worker="Lyon", verdicts=("ACCEPT",))
        self.sayings = sayings

    async def reply(self, call: Call) -> Reply:
        if call.role != "judge":
            return await super().reply(call)
        self.calls.append(call)
        said = self.sayings[sum(c.role == "judge" for c in self.calls) - 1]
        return Reply(said, detail="scripted") if isinstance(said, Outcome) else Reply(Outcome.OK, said)


def judged(tmp_path, sayings, judge: int | None = 0):
    async def body():
        journal, responder = Journal.open(tmp_path / "journal.sqlite"), Judged(sayings)
        question = Question("open", "town", "Where does the Rhone meet the Saone?", "Lyons", "judge")
        with journal:
            async with Pool([responder], journal, Ledger(BudgetSettings()), [Seat("t", "m")], judge=judge) as pool:
                results = await rollout(keys(3, 1), [question], FixedPolicy(0, 0), pool, SETTINGS, "run")
                return results, [c for c in responder.calls if c.role == "judge"], journal.totals().calls, pool.counters

    return asyncio.run(body())


@pytest.mark.parametrize(
    ("sayings", "reward", "grade"),
    [
        (("VERDICT: SAME", "VERDICT: SAME"), 1.0, Grade.RIGHT),
        (("VERDICT: DIFFERENT", "VERDICT: DIFFERENT"), 0.0, Grade.WRONG),
        (("VERDICT: SAME", "VERDICT: DIFFERENT"), 0.0, Grade.UNDECIDED),
        (("VERDICT: SAME", Outcome.TIMEOUT), None, None),  # a judge that fails is not a wrong answer
    ],
)
def test_a_judge_grades_in_both_orders_over_the_same_journal(tmp_path, sayings, reward, grade):
    results, asked, journaled, counters = judged(tmp_path, sayings)
    assert [(r.reward, r.grade) for r in results] == [(reward, grade)] * 3
    assert len(asked) == 2  # of three candidates that answered alike
    assert asked[0].messages != asked[1].messages
    assert journaled == counters.made


def test_a_question_for_a_judge_without_one_is_told(tmp_path):
    with pytest.raises(UserError, match=r"question open: its answers need a judge: set pool.judge"):
        judged(tmp_path, (), judge=None)


def graded_by(monkeypatch, terms=None, grades=(Grade.RIGHT,)):
    """A grader that gives these in turn, as a limit of time may have it; who was asked."""
    asked: list[tuple[str, bool]] = []

    def compare(question: Question, reply: str, strict: bool) -> Grade:
        asked.append((question.id, strict))
        return grades[len(asked) % len(grades)]

    monkeypatch.setitem(GRADERS, "numeric", Grader(compare, lambda question: None, terms))
    return asked


def rewards(tmp_path, candidates, settings=SETTINGS):
    results, _ = play(tmp_path, [Scripted()], FixedPolicy(0, 0), keys(candidates), settings)
    return [result.reward for result in results]


def test_a_costly_grader_is_asked_once_for_equal_replies_and_not_again_by_the_next_process(tmp_path, monkeypatch):
    asked = graded_by(monkeypatch, lambda: "sandbox", (Grade.WRONG, Grade.RIGHT))
    first = rewards(tmp_path, 3)
    assert first == first[:4] * 3
    assert len(asked) == 4
    assert rewards(tmp_path, 3) == first
    assert len(asked) == 4


def test_a_cheap_grader_is_asked_each_time(tmp_path, monkeypatch):
    asked = graded_by(monkeypatch)
    rewards(tmp_path, 3)
    assert len(asked) == 12


def test_other_terms_or_another_reading_are_another_grade(tmp_path, monkeypatch):
    terms = ["bubblewrap"]
    asked = graded_by(monkeypatch, lambda: terms[-1])
    for strict in (False, True):
        rewards(tmp_path, 1, SETTINGS.model_copy(update={"strict_answer_tag": strict}))
    assert sorted(strict for _, strict in asked) == [False] * 4 + [True] * 4
    terms.append("rlimits")
    rewards(tmp_path, 1)
    assert len(asked) == 12


def test_an_undecided_grade_is_made_again_by_the_next_process(tmp_path, monkeypatch):
    asked = graded_by(monkeypatch, lambda: "sandbox", (Grade.UNDECIDED,))
    assert rewards(tmp_path, 1) == [0.0] * 4
    graded_by(monkeypatch, lambda: "sandbox")
    assert rewards(tmp_path, 1) == [1.0] * 4
    assert len(asked) == 4
