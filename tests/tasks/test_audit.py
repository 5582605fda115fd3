import json

import pytest

from trinity_jax import cli
from trinity_jax.errors import UserError
from trinity_jax.tasks import GRADERS, Grade, Grader, Question, generated
from trinity_jax.tasks.audit import audit, known, report, said, spoiled, summary
from trinity_jax.tasks.offline import generate, offline_tasks

CHOICE = Question("c", "k", "Which?", "B", "choice", ("red", "blue", "green"))
MATHS = Question("m", "k", "What?", r"\frac{\sqrt{3}}{2}", "math")


@pytest.mark.parametrize("kind", generated.KINDS)
def test_generated_kinds_are_believable(kind):
    done = audit(kind, generate(kind, per_family=3))
    assert done.believable, done.examples
    assert done.undecided == 0
    assert done.wrong > 0.5


def test_every_sort_of_answer_is_spoiled():
    for question in (CHOICE, MATHS, Question("n", "k", "?", "25%", "numeric"), Question("e", "k", "?", "abc", "exact")):
        assert len(set(spoiled(question))) >= 5
        done = audit("one", [question])
        assert done.believable, done.examples
        assert (done.items, done.replies) == (1, len(said(question, question.answer)))


@pytest.mark.parametrize(
    "verdict, negative, positive, undecided",
    [(Grade.RIGHT, 0, 1, 0), (Grade.WRONG, 1, 0, 0), (Grade.UNDECIDED, 1, 0, 1)],
)
def test_a_grader_that_always_says_the_same_is_found_out(monkeypatch, verdict, negative, positive, undecided):
    monkeypatch.setitem(GRADERS, "stuck", Grader(lambda *_: verdict, lambda _: None))
    done = audit("stuck", [Question("s", "k", "?", "abc", "stuck")])
    assert (done.false_negative, done.false_positive, done.undecided) == (negative, positive, undecided)
    assert not done.believable
    assert done.examples


def test_no_question_is_not_believable():
    assert not audit("none", []).believable


def test_shares_of_several_tasks_are_weighted(monkeypatch):
    monkeypatch.setitem(GRADERS, "stuck", Grader(lambda *_: Grade.WRONG, lambda _: None))
    stuck = audit("stuck", [Question("s", "k", "?", "abc", "stuck")])
    good = audit("good", [CHOICE] * 3)
    whole = summary([stuck, good])
    assert whole["items"] == 4
    assert whole["false_negative"] == pytest.approx(stuck.replies / (stuck.replies + good.replies))
    assert json.loads(list(report([stuck, good], as_json=True))[-1]) == whole


def test_command(capsys, monkeypatch, tmp_path):
    assert cli.main(["tasks", "audit", "--task", "generated/choice", "--json"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(last) == {"items", "false_negative", "false_positive", "undecided", "per_s"}
    assert last["items"] > 0
    monkeypatch.setitem(GRADERS, "exact", Grader(lambda *_: Grade.WRONG, lambda _: None))
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "Say abc", "answer": "abc"}\n')
    assert cli.main(["tasks", "audit", "--task", str(path)]) == 1
    assert "mine" in capsys.readouterr().out
    assert cli.main(["tasks", "audit", "--task", "nothing"]) == 2


def test_an_unknown_task_names_the_known_ones():
    with pytest.raises(UserError, match="generated/arithmetic"):
        known("sums", offline_tasks())
