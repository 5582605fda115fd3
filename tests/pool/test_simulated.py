import asyncio
import time
from collections import Counter
from dataclasses import replace

import pytest
from scipy.stats import chisquare

from trinity_jax.config import EpisodeSettings, PoolSettings, PriceSettings, SimulatedModelSettings
from trinity_jax.episode import episode, roles
from trinity_jax.episode.episode import End, EpisodeState, Role
from trinity_jax.errors import UserError
from trinity_jax.pool.reply import Call, Message, Outcome, Reply, Sampling
from trinity_jax.pool.simulated import SimulatedModel, SimulatedQuestion
from trinity_jax.tasks.extract import tagged

WRONG = ("11", "12", "13", "14")
QUESTIONS = {f"What is task {i}?": SimulatedQuestion(("sums", "words")[i % 2], "10", WRONG, f"q{i}") for i in range(80)}
ANN = SimulatedModelSettings(name="ann", worker={"sums": 0.8, "default": 0.3}, thinker={"sums": 0.9, "words": 0.2})
BOB = SimulatedModelSettings(name="bob", worker={"default": 0.5}, accepts_right=0.7, accepts_wrong=0.1)
POOL = PoolSettings(simulated=(ANN, BOB), thinker_boost=0.2)
ASK = episode.start


def model(settings=ANN, pool=POOL, questions=QUESTIONS, seed=0):
    return SimulatedModel(settings, pool, questions, seed)


def call(state: EpisodeState, role: str = "worker", name: str = "ann", **identity) -> Call:
    messages = tuple(Message(*message) for message in episode.messages(state, Role(role)))
    return Call("simulated", name, role, messages, Sampling(), **identity)


def ask(simulated: SimulatedModel, request: Call) -> Reply:
    return asyncio.run(simulated.reply(request))


def texts(simulated: SimulatedModel, requests) -> list[str]:
    async def go():
        return [(await simulated.reply(request)).text for request in requests]

    return asyncio.run(go())


def answers(simulated: SimulatedModel, states, times: int = 50) -> list[str | None]:
    requests = (call(state, name=simulated.name, occurrence=i) for state in states for i in range(times))
    return [tagged(text) for text in texts(simulated, requests)]


def of_kind(kind: str) -> list[EpisodeState]:
    return [ASK(prompt) for prompt, question in QUESTIONS.items() if question.kind == kind]


def right_share(simulated: SimulatedModel, states) -> float:
    found = answers(simulated, states)
    return sum(answer == "10" for answer in found) / len(found)


def quoting(answer: str) -> list[EpisodeState]:
    return [replace(ASK(prompt), response=f"<idea>so</idea><answer>{answer}</answer>") for prompt in QUESTIONS]


# 2,000 draws each: four standard errors are at most 0.045.


def test_workers_are_as_right_as_the_table_says():
    assert right_share(model(), of_kind("sums")) == pytest.approx(0.8, abs=0.045)
    assert right_share(model(), of_kind("words")) == pytest.approx(0.3, abs=0.045)
    assert right_share(model(BOB), of_kind("words")) == pytest.approx(0.5, abs=0.045)


@pytest.mark.parametrize(
    "settings, answer, share", [(ANN, "10", 0.9), (ANN, "12", 0.25), (BOB, "10", 0.7), (BOB, "12", 0.1)]
)
def test_verifiers_accept_as_the_table_says(settings, answer, share):
    requests = (call(state, "verifier", settings.name, occurrence=i) for state in quoting(answer) for i in range(25))
    verdicts = [roles.verdict(text) for text in texts(model(settings), requests)]
    assert sum(verdicts) / len(verdicts) == pytest.approx(share, abs=0.045)


def test_verifiers_judge_the_latest_response_in_whatever_form():
    certain = model(ANN.model_copy(update={"accepts_right": 1.0, "accepts_wrong": 0.0}))
    for response, accepted in (
        ("<answer>11</answer> no: <answer> 10 </answer>", True),
        ("<answer>10</answer> no: <answer>11</answer>", False),
        ("10", False),
    ):
        state = replace(ASK("What is task 0?"), response=response, suggestion="Keep an eye on the order")
        assert roles.verdict(ask(certain, call(state, "verifier")).text) is accepted


@pytest.mark.parametrize("kind, good", [("sums", 0.9), ("words", 0.2)])
def test_good_suggestions_come_at_their_rate_and_help_the_worker(kind, good):
    helped = {0.0: [], 1.0: []}
    for skill, shares in helped.items():
        thinker = model(ANN.model_copy(update={"thinker": {"default": skill}}))
        states = [
            episode.step(state, 0, Role.THINKER, ask(thinker, call(state, "thinker")).text, EpisodeSettings())
            for state in of_kind(kind)
        ]
        assert all(state.forced_role is Role.WORKER for state in states)
        shares.append(right_share(model(), states))
    base = ANN.worker.get(kind, 0.3)
    assert helped[0.0] == pytest.approx([base], abs=0.045)
    assert helped[1.0] == pytest.approx([min(base + 0.2, 1.0)], abs=0.045)
    # The share of good words is the stated skill: a certain thinker tells which words are good.
    certain = model(ANN.model_copy(update={"thinker": {"default": 1.0}}))
    hits = []
    for state in of_kind(kind):
        known = set(texts(certain, (call(state, "thinker", occurrence=i) for i in range(80))))
        hits += [text in known for text in texts(model(), (call(state, "thinker", occurrence=i) for i in range(50)))]
    assert sum(hits) / len(hits) == pytest.approx(good, abs=0.045)


def test_same_call_same_reply_and_any_part_of_its_identity_draws_afresh():
    base = [call(state) for state in of_kind("sums")]
    first = texts(model(), base)
    assert texts(model(), reversed(base)) == first[::-1]
    for change in ({"occurrence": 1}, {"repeat": 1}, {"scope": "generation 1"}):
        assert texts(model(), [replace(request, **change) for request in base]) != first
    assert texts(model(seed=1), base) != first


def test_seed_decides_everything_hidden():
    def misconceptions(seed):
        wrong = model(ANN.model_copy(update={"worker": {"default": 0.0}}), concentrated(1.0), seed=seed)
        return answers(wrong, map(ASK, QUESTIONS), times=1)

    assert misconceptions(0) == misconceptions(0)
    assert misconceptions(0) != misconceptions(1)


def concentrated(c: float) -> PoolSettings:
    return POOL.model_copy(update={"wrong_concentration": c})


def wrong_answers(settings: SimulatedModelSettings, c: float) -> list[list[str | None]]:
    never = settings.model_copy(update={"worker": {"default": 0.0}})
    found = answers(model(never, concentrated(c)), map(ASK, QUESTIONS))
    return [found[i : i + 50] for i in range(0, len(found), 50)]


def test_full_concentration_is_one_wrong_answer_a_question_shared_by_all_models():
    each = wrong_answers(ANN, 1.0)
    assert all(len(set(found)) == 1 for found in each)
    assert each == wrong_answers(BOB, 1.0)
    assert {found[0] for found in each} == set(WRONG)


def test_no_concentration_spreads_evenly():
    counts = Counter(answer for found in wrong_answers(ANN, 0.0) for answer in found)
    assert set(counts) == set(WRONG)
    assert chisquare(list(counts.values())).pvalue > 0.001
    top = [Counter(found).most_common(1)[0][1] for found in wrong_answers(ANN, 0.0)]
    assert sum(top) / len(top) < 21


def test_half_concentration_interpolates():
    each, favourite = wrong_answers(ANN, 0.5), wrong_answers(ANN, 1.0)
    hits = sum(answer == best[0] for found, best in zip(each, favourite, strict=True) for answer in found)
    assert hits / 4000 == pytest.approx(0.5 + 0.5 / 4, abs=0.03)


def test_shuffled_skills_are_the_same_skills_on_other_models():
    always = ANN.model_copy(update={"worker": {"default": 1.0}})
    never = BOB.model_copy(update={"worker": {"default": 0.0}})
    shuffled = PoolSettings(simulated=(always, never), shuffle_skills=True)
    states = [ASK(prompt) for prompt in QUESTIONS]
    right = [[a == "10" for a in answers(model(m, shuffled), states, times=2)] for m in (always, never)]
    assert all(one != other for one, other in zip(*right, strict=True))
    assert right[0][::2] == right[0][1::2]
    assert 0.3 < sum(right[0]) / len(right[0]) < 0.7


def thoughts(worker: float, questions=QUESTIONS) -> list[str]:
    certain = model(ANN.model_copy(update={"worker": {"default": worker}}), questions=questions)
    requests = [call(ASK(prompt), occurrence=i) for prompt in questions for i in range(5)]
    replies = texts(certain, requests)
    return [roles.idea(text, 999).replace(tagged(text) or "?", "_") for text in replies]


def test_a_thought_tells_nothing_but_the_answer():
    right, wrong = thoughts(1.0), thoughts(0.0)
    assert right == wrong
    assert all(set(right[i : i + 5]) == {right[i]} for i in range(0, len(right), 5))
    one_kind = {prompt: replace(question, kind="sums") for prompt, question in QUESTIONS.items()}
    assert thoughts(1.0, one_kind) == right
    assert len(set(right)) == 8


def test_thoughts_are_short_however_long_the_answer():
    long = {"Sort it.": SimulatedQuestion("sums", ", ".join(["pear"] * 50), ("x\ny",), "long")}
    thought = roles.idea(ask(model(ANN.model_copy(update={"worker": {"default": 1.0}}), questions=long),
                             call(ASK("Sort it."))).text, 999)  # fmt: skip
    assert len(thought.split()) <= 14
    assert len(thought) <= 70


def test_suggestions_and_remarks_look_the_same_whatever_is_behind_them():
    def words(skill):
        thinkers = [
            model(ANN.model_copy(update={"name": name, "thinker": {"default": skill}})) for name in ("m", "n", "o", "p")
        ]
        return {text for thinker in thinkers for text in texts(thinker, (call(ASK(p), "thinker") for p in QUESTIONS))}

    # By question the words differ, over questions they do not: 16 words, the same for good and bad.
    good, bad = words(1.0), words(0.0)
    assert good == bad
    assert len(good) == 16
    # One remark per question, with either verdict.
    seen = [
        {tuple(text.splitlines()) for text in texts(model(BOB), (call(s, "verifier", occurrence=i) for i in range(40)))}
        for s in quoting("10")
    ]
    assert all(len(lines) == 2 and len({remark for remark, _ in lines}) == 1 for lines in seen)
    assert len({remark for lines in seen for remark, _ in lines}) > 1


def test_a_model_has_one_good_and_one_bad_suggestion_per_question():
    def words(skill):
        thinker = model(ANN.model_copy(update={"thinker": {"default": skill}}))
        return [set(texts(thinker, (call(s, "thinker", occurrence=i) for i in range(20)))) for s in of_kind("sums")]

    good, bad, either = words(1.0), words(0.0), words(0.5)
    assert all(len(g) == len(b) == 1 and not g & b for g, b in zip(good, bad, strict=True))
    assert [g | b for g, b in zip(good, bad, strict=True)] == either
    assert len({frozenset(words) for words in good}) > 8


def test_tokens_cost_and_latency():
    priced = ANN.model_copy(update={"price": PriceSettings(input=2.0, output=10.0), "latency_seconds": 0.02})
    request = call(ASK("What is task 0?"))
    begin = time.perf_counter()
    reply = ask(model(priced), request)
    assert time.perf_counter() - begin >= 0.02
    assert reply.seconds == 0.02
    assert reply.input_tokens == sum(-(-len(message.content) // 4) for message in request.messages)
    assert reply.output_tokens == -(-len(reply.text) // 4)
    assert reply.cost == pytest.approx((2.0 * reply.input_tokens + 10.0 * reply.output_tokens) / 1e6)


def test_the_question_is_found_wherever_it_stands_and_the_longest_wins():
    nested = {
        "What is 1?": SimulatedQuestion("sums", "one", ("x",), "a"),
        "What is 1? And 2?": SimulatedQuestion("sums", "three", ("x",), "b"),
    }
    certain = model(ANN.model_copy(update={"worker": {"default": 1.0}}), questions=nested)
    for before in ("", "Dear model, "):
        for prompt, question in nested.items():
            assert tagged(ask(certain, call(ASK(f"{before}{prompt}"))).text) == question.answer


def test_what_it_does_not_know_is_an_error_outcome():
    reply = ask(model(), call(ASK("Who are you?")))
    assert (reply.outcome, reply.text) == (Outcome.ERROR, "")
    assert "none of the known questions" in (reply.detail or "")
    judge = ask(model(), replace(call(ASK("What is task 0?")), role="judge"))
    assert judge.outcome is Outcome.ERROR
    assert "'judge'" in (judge.detail or "")
    assert ask(model(), replace(call(ASK("x")), messages=())).outcome is Outcome.ERROR


@pytest.mark.parametrize(
    "settings, question, message",
    [
        ({"worker": {"sums": 1.0}}, {"kind": "odd"}, r"ann: worker has no skill for 'odd' and no default.*sums"),
        ({"thinker": {}}, {}, r"ann: thinker has no skill for 'sums'"),
        ({}, {"wrong": ()}, "question a needs wrong answers"),
        ({}, {"wrong": ("2", "1")}, r"question a needs wrong answers that differ from '1', got \['2', '1'\]"),
    ],
)
def test_bad_tables_and_questions_are_told(settings, question, message):
    known = {"q": replace(SimulatedQuestion("sums", "1", ("2",), "a"), **question)}
    with pytest.raises(UserError, match=message):
        model(ANN.model_copy(update=settings), questions=known)


def test_an_episode_runs_from_prompt_to_accept_on_real_text():
    sure = ANN.model_copy(update={"worker": {"default": 1.0}, "accepts_right": 1.0, "accepts_wrong": 0.0})
    lost = BOB.model_copy(update={"worker": {"default": 0.0}})
    pool = [model(sure), model(lost)]
    state = ASK("What is task 7?")
    ends = []
    for index, role in ((1, Role.WORKER), (0, Role.VERIFIER), (1, Role.THINKER), (0, Role.WORKER), (0, Role.VERIFIER)):
        reply = ask(pool[index], call(state, episode.role_for(state, role).value, pool[index].name))
        state = episode.step(state, index, role, reply.text, EpisodeSettings())
        ends.append(state.end)
    assert ends == [None, None, None, None, End.ACCEPTED]
    assert [turn.verdict for turn in state.turns] == [None, False, None, None, True]
    assert state.response is not None
    assert tagged(state.response) == "10"
    assert len(state.thoughts) == 2


def test_a_call_is_cheap():
    many = {f"{prompt} Among {i} tasks.": question for i, (prompt, question) in enumerate(QUESTIONS.items())}
    simulated, requests = model(questions=many), [call(ASK(prompt)) for prompt in many]

    def seconds():
        begin = time.process_time()
        texts(simulated, requests)
        return (time.process_time() - begin) / len(requests)

    # About 40 microseconds; the room is for a busy machine.
    assert min(seconds() for _ in range(5)) < 200e-6
