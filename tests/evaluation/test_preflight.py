"""Preflight sees what is wrong with models before a run pays for it."""

import asyncio
import io

import numpy as np
import pytest
from rich.console import Console

from trinity_jax import config
from trinity_jax.config import BudgetSettings
from trinity_jax.episode.episode import Role
from trinity_jax.evaluation.deciders import FixedPolicy
from trinity_jax.evaluation.preflight import SCOPE, Findings, bills, doubts, inspect, share, show, summary
from trinity_jax.evaluation.scores import episode_keys
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.ledger import Ledger
from trinity_jax.pool.pool import Pool, Seat
from trinity_jax.pool.reply import Outcome, Reply
from trinity_jax.rollout.engine import rollout

SETTINGS = config.parse(
    {
        "pool": {"simulated": [{"name": name, "worker": {"default": 0.5}} for name in ("ada", "bo")]},
        "tasks": {"mix": [{"kind": "chain_sum"}]},
        "learning": {"population": 4, "generations": 2},
    },
    "test",
)


class Scripted:
    """Answers by role."""

    def __init__(self, name: str, **said: str | Reply):
        self.name = name
        self.made = 0
        self._said = {
            "worker": "<answer>1</answer>",
            "thinker": "<suggestion>Count.</suggestion><suggested_role>worker</suggested_role>",
            "verifier": "Fine.\nVERDICT: ACCEPT",
        } | said

    async def reply(self, call):
        self.made += 1
        said = self._said[call.role]
        return said if isinstance(said, Reply) else Reply(Outcome.OK, said, 100, 50, 0.01, 2.0)

    async def close(self):
        pass


@pytest.fixture
def questions(make_questions):
    return make_questions(["sums"] * 4)  # the answers are 1, 2, 3, 4


def look(tmp_path, questions, *models: Scripted) -> Findings:
    tmp_path.mkdir(exist_ok=True)

    async def go():
        journal = Journal.open(tmp_path / "journal.sqlite")
        async with Pool(models, journal, Ledger(BudgetSettings()), [Seat("here", m.name) for m in models]) as pool:
            return await inspect(pool, questions, SETTINGS)

    return asyncio.run(go())


def test_good_models_have_no_faults_and_their_answers_are_counted(tmp_path, questions):
    found = look(tmp_path, questions, Scripted("ada"), Scripted("bo", worker="<answer>2</answer>"))
    assert found.faults == []
    assert [c.remark for c in found.checks] == [""] * 6
    assert {(c.model, c.role) for c in found.checks} == {(m, r.value) for m in ("ada", "bo") for r in Role}
    assert [share(s.per_question).mean for s in found.single] == [0.25, 0.25]
    assert share(found.oracle).mean == 0.5
    assert found.disagreement() == [("ada", "bo", 0.5)]
    assert found.accept == 3 / 4
    assert found.calls == 2 * (4 + 2)


@pytest.mark.parametrize(
    ("said", "fault", "remark"),
    [
        ({"worker": Reply(Outcome.TIMEOUT, detail="slow")}, "bo as worker: timeout: slow", ""),
        ({"worker": "I do not know."}, "bo as worker: no answer could be read in any reply", ""),
        ({"verifier": Reply(Outcome.FILTERED)}, "bo as verifier: filtered: no detail", ""),
        ({"verifier": "Hm, well."}, "", "no verdict could be read: it counts as a rejection"),
        ({"verifier": "Wrong sum.\nVERDICT: REJECT"}, "", ""),
        ({"thinker": "Just do it."}, "", "the suggestion could not be read: the turn is lost"),
        ({"worker": Reply(Outcome.TRUNCATED, "<answer>1</answer> and")}, "", "4 of 4 cut off at max_tokens"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, questions, said, fault, remark):
    found = look(tmp_path, questions, Scripted("ada"), Scripted("bo", **said))
    assert found.faults == [fault] * bool(fault)
    assert {c.remark for c in found.checks if c.model == "bo"} - {""} == {remark} - {""}


def test_all_models_dead_is_a_finding_too(tmp_path, questions):
    dead = Reply(Outcome.ERROR, detail="gone")
    found = look(tmp_path, questions, Scripted("ada", worker=dead, thinker=dead), Scripted("bo", worker=dead))
    assert len(found.faults) == 3
    assert np.isnan(found.oracle).all()


def test_validation_pays_for_nothing_that_preflight_has_paid(tmp_path, questions):
    models = Scripted("ada"), Scripted("bo")
    look(tmp_path, questions, *models)
    paid = [model.made for model in models]

    async def validate():
        journal = Journal.open(tmp_path / "journal.sqlite")
        async with Pool(models, journal, Ledger(BudgetSettings()), [Seat("here", m.name) for m in models]) as pool:
            keys = episode_keys(len(questions), 1, generation=1_000_000)
            await rollout(keys, questions, FixedPolicy(0, 0), pool, SETTINGS.episode, SCOPE)

    asyncio.run(validate())
    # Worker replies to all four and the Verifier's on the first are known.
    assert [model.made - before for model, before in zip(models, paid, strict=True)] == [3, 0]


def test_the_bill_and_the_page(tmp_path, questions):
    found = look(tmp_path, questions, Scripted("ada"), Scripted("[bo]"))
    parts, about, most = bills(found, SETTINGS, 4)
    assert most.calls == sum(part.most for part in parts)
    assert about.tokens == pytest.approx(150 * about.calls)
    assert most.cost == pytest.approx(0.01 * most.calls)
    assert about.hours == pytest.approx((2 + 3) * SETTINGS.episode.max_calls * 2.0 / 3600)
    screen = io.StringIO()
    show(Console(file=screen, width=140), found, SETTINGS, 4)
    assert "[bo]" in screen.getvalue()
    assert f"{most.calls:,}" in screen.getvalue()
    assert summary(found, SETTINGS, 4)["most"]["calls"] == most.calls


def test_caps_below_the_forecast_and_models_that_tell_nothing_apart_are_said(tmp_path, questions):
    found = look(tmp_path, questions, Scripted("ada"), Scripted("bo"))
    _, about, _ = bills(found, SETTINGS, 4)
    [same] = doubts(found, SETTINGS, about)
    assert "nothing to choose" in same
    capped = SETTINGS.model_copy(update={"budget": BudgetSettings(calls=5, tokens=10**9)})
    assert [line.split(":")[0] for line in doubts(found, capped, about)] == ["budget.calls", same.split(":")[0]]
    lost = look(tmp_path / "lost", questions, *(Scripted(n, worker="<answer>9</answer>") for n in ("ada", "bo")))
    assert "nothing to learn" in doubts(lost, SETTINGS, about)[0]
    better = look(tmp_path / "better", questions, Scripted("ada"), Scripted("bo", worker="<answer>2</answer>"))
    assert doubts(better, SETTINGS, about) == []


def test_few_questions_have_wide_intervals():
    # Wilson's interval of 8 of 8, from the formula: n / (n + z^2).
    found = share(np.ones(8))
    assert found.mean == 1.0
    assert found.low == pytest.approx(8 / (8 + 1.959964**2), abs=1e-6)
