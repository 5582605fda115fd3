"""``python -m trinity_jax evaluate`` on tiny runs: what it writes, what it pays, what it refuses."""

import asyncio
import csv
import io
import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import yaml
from rich.console import Console

from tests.evaluation.scripted import Scripted
from tests.tiny import make_encoder, paid, tiny_run
from trinity_jax import cli, config
from trinity_jax.config import BudgetSettings, PriceSettings
from trinity_jax.errors import UserError
from trinity_jax.evaluation.baselines import Comparison
from trinity_jax.evaluation.routers import Learned
from trinity_jax.evaluation.scores import Scores
from trinity_jax.evaluation.table import Row, row
from trinity_jax.evaluation.written import as_csv
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.ledger import Ledger
from trinity_jax.pool.pool import Pool, Seat
from trinity_jax.pool.reply import Sampling
from trinity_jax.tasks.jsonl import load_tasks
from trinity_jax.training.evaluate import better, critical, evaluate, show_forecast, terms, unknown, without_failures
from trinity_jax.training.train import train
from trinity_jax.training.trial import plan

MODELS = {"kind": "endpoints", "models": [{"name": "ada", "model": "m", "base_url": "http://127.0.0.1:9/v1"}]}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_encoder(tmp_path_factory.mktemp("tiny") / "encoder")


@pytest.fixture(scope="module")
def settings(encoder):
    run = tiny_run(encoder, learning__generations=1, learning__warm_start={"kind": "ridge"}, evaluation__repeats=2)
    # An untrained coordinator would end most episodes before the first call.
    run["episode"] = run["episode"] | {"verifier_needs_response": True}
    price = {"input": 1.0, "output": 4.0}
    return run | {"pool": {"simulated": [model | {"price": price} for model in run["pool"]["simulated"]]}}


@pytest.fixture(scope="module")
def finished(settings, tmp_path_factory):
    """A run, the summary it wrote, and what evaluate found in it."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    summary = train(config.parse(settings, "test"), folder, resume=False, console=Console(quiet=True))
    assert cli.main(["evaluate", str(folder)]) == 0
    return folder, summary, read(folder / "evaluation")


def read(out):
    return json.loads((out / "evaluation.json").read_text())


def by_name(found):
    return {line["name"]: line for line in found["rows"]}


def refused(capsys, *arguments) -> str:
    assert cli.main(["evaluate", *map(str, arguments)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said


def test_the_table_has_every_row_and_the_run_s_own_are_the_same(finished):
    _, summary, found = finished
    rows, before = by_name(found), by_name(summary)
    same = ("accuracy", "calls", "undecided_share", "by_kind", "difference", "tokens_per_question")
    assert all(rows[name][key] == before[name][key] for name in before for key in same)
    new = [name for name in rows if name not in before]
    assert len(new) == 1 + 2 * 2 + 1 + 2  # per kind, two routers with one call and K, a mixture, two who reflect
    assert (found["questions"], found["repeats"]) == (6, 2)
    assert found["left_out"] == ["prompted (simulated models cannot be told to coordinate)"]
    assert "chosen on the training questions" in found["verdict"]
    assert rows[found["best_single"]]["over_single"] is None
    assert all(line["over_single"] for name, line in rows.items() if name != found["best_single"])
    assert rows["kNN router, one call"]["note"].endswith("fitted on 18 calls, one per model and training question")
    [plural] = [name for name in rows if name.startswith("kNN router, plurality of")]
    assert rows[plural]["calls_per_question"] == int(plural.split()[-1]) > 1


def test_only_what_the_run_has_not_paid_is_paid_and_the_second_time_nothing(finished, tmp_path, capsys):
    folder, _, found = finished
    with closing(sqlite3.connect(folder / "evaluation" / "journal.sqlite")) as connection:
        [taken] = connection.execute("SELECT COUNT(*) FROM calls WHERE scope = 'probes'").fetchone()
        [own] = connection.execute(
            "SELECT COUNT(*) FROM calls WHERE request LIKE '%your_reply%' OR request LIKE '%reply_1%'"
        ).fetchone()
    assert taken == 2 * 9
    before, of_run = paid(folder / "evaluation"), paid(folder)
    mixture = next(line for line in found["rows"] if line["name"].startswith("mixture"))
    assert own >= 12 + 12 * 2
    files = {name: (folder / "evaluation" / f"evaluation.{name}").read_bytes() for name in ("json", "csv", "md")}
    assert cli.main(["evaluate", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "\n0 calls made" in said
    assert re.search(r"money, at \S+ a call so far: about \S+, \S+ if all calls of the last column were made", said)
    assert "only budget.cost is a bound" in said.replace("\n", " ")
    assert (paid(folder / "evaluation"), paid(folder)) == (before, of_run)
    assert {n: (folder / "evaluation" / f"evaluation.{n}").read_bytes() for n in files} == files
    assert mixture["calls_per_question"] == 3


def test_csv_and_page_hold_what_the_json_holds(finished):
    folder, _, found = finished
    lines = list(csv.DictReader(io.StringIO((folder / "evaluation" / "evaluation.csv").read_text())))
    assert [line["method"] for line in lines] == [line["name"] for line in found["rows"]]
    for line, expected in zip(lines, found["rows"], strict=True):
        assert float(line["accuracy"]) == expected["accuracy"]["mean"]
        assert line["accuracy_low"] == ""  # six questions
        assert expected["accuracy"]["low"] is None
        assert line["budget"] == (expected["budget"] or "")
        assert line["difference_questions"] == ("" if expected["difference"] is None else "6")
        assert float(line["failed_per_question"]) == expected["failed_per_question"] == 0
        assert line["difference"] == ("" if expected["difference"] is None else str(expected["difference"]["mean"]))
        assert float(line["tokens_per_question"]) == expected["tokens_per_question"] > 0
        assert float(line["cost_per_question"]) == expected["cost_per_question"] > 0
        assert float(line["accuracy on chain_sum"]) == expected["by_kind"]["chain_sum"]
    page = (folder / "evaluation" / "evaluation.md").read_text()
    assert page.startswith("# Evaluation of one\n\n" + found["verdict"])
    assert all(f"| {line['name']} |" in page for line in found["rows"])


def test_a_coordinator_alone_on_questions_of_a_file(finished, settings, tmp_path, capsys):
    folder, out = finished[0], tmp_path / "out"
    pool, task = tmp_path / "pool.yaml", tmp_path / "sums.jsonl"
    pool.write_text(yaml.safe_dump({"pool": settings["pool"]}))
    lines = [{"prompt": f"{n} + 1?", "answer": n + 1, "wrong": [str(n)], "kind": "chain_sum"} for n in range(5)]
    task.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = [str(folder / "coordinator"), "--pool", str(pool), "--task", str(task), "--out", str(out)]
    assert cli.main(["evaluate", *arguments, "--set", "evaluation.rivals=[reflection, knn]"]) == 0
    found = read(out)
    assert (found["questions"], found["transfer"]) == (5, None)
    assert "picked on these questions, which favours it" in found["verdict"]
    assert found["rows"][0]["calls_per_question"] >= 2
    assert found["left_out"] == ["knn (there are no training questions to choose on)"]
    assert any(name.startswith("bo, self-reflection of ") for name in by_name(found))
    assert not any("fixed" in name for name in by_name(found))


def test_several_coordinators_make_a_transfer_matrix_and_seen_questions_are_left_out(finished, settings, tmp_path):
    other = tmp_path / "two"
    # Its training set holds the first one's test questions, drawn from the same place.
    tasks = {**settings["tasks"], "train": 24, "mix": settings["tasks"]["mix"][:2]}
    changed = settings | {"tasks": tasks, "evaluation": {"bootstrap": 100, "fixed_policy": False}}
    train(config.parse(changed, "test"), other, resume=False, console=Console(quiet=True))
    chosen = ["--set", "evaluation.fixed_policy=false", "--set", "evaluation.rivals=[per_kind]"]
    assert cli.main(["evaluate", str(finished[0]), str(other), "--out", str(tmp_path / "out"), *chosen]) == 0
    found = read(tmp_path / "out")
    matrix = found["transfer"]
    kinds = ("chain_sum", "spell_backward", "leg_counting")
    named = [f"one, trained on {', '.join(kinds)}", f"two, trained on {', '.join(kinds[:2])}"]
    assert (matrix["rows"], len(matrix["columns"])) == (named, 3)
    rows = by_name(found)
    for name, line in (("coordinator", 0), ("coordinator of two", 1)):
        assert matrix["accuracy"][line] == [rows[name]["by_kind"][kind] for kind in matrix["columns"]]
    assert matrix["low"] == matrix["high"] == [[None] * 3] * 2, "cells of so few questions have no interval"
    one, two = (config.load(folder / "config.yaml").tasks for folder in (finished[0], other))
    first, second = load_tasks(one), load_tasks(two)
    trained = {q.prompt for tasks in (first, second) for q in (*tasks.train, *tasks.validation)}
    tested = {q.prompt for tasks in (first, second) for q in tasks.test}
    assert tested & trained, "this test needs an overlap"
    assert found["questions"] == len(tested - trained)
    assert f"{len(tested & trained)} questions were left out" in " ".join(found["terms"])
    assert "## Transfer" in (tmp_path / "out" / "evaluation.md").read_text()


def test_what_is_wrong_is_said_in_one_line(finished, settings, encoder, tmp_path, capsys):
    folder = finished[0]
    assert "expected a run folder" in refused(capsys, tmp_path / "nothing")
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.yaml").write_text((folder / "config.yaml").read_text())
    assert "no coordinator yet" in refused(capsys, unfinished)
    assert "needs --pool with --task" in refused(capsys, folder / "coordinator")
    assert "evaluation.rivals" in refused(capsys, folder, "--set", "evaluation.rivals=[oracle]")
    assert "unknown task 'nope'" in refused(capsys, folder, "--task", "nope")

    def pool(names):
        path = tmp_path / "pool.yaml"
        path.write_text(yaml.safe_dump({"pool": {"simulated": [{"name": n, "worker": {"default": 1}} for n in names]}}))
        return path

    said = refused(capsys, folder, "--pool", pool(["ada", "cy", "di"]))
    assert "trained on the pool ada, bo; this one lacks bo and has besides cy, di" in said
    assert "must stand in the order ada, bo" in refused(capsys, folder, "--pool", pool(["bo", "ada"]))
    path = tmp_path / "endpoints.yaml"
    path.write_text(yaml.safe_dump({"pool": MODELS}))
    assert "lacks bo" in refused(capsys, folder, "--pool", path)
    seen = tmp_path / "seen.jsonl"
    question = load_tasks(config.parse(settings, "test").tasks).train[0]
    seen.write_text(json.dumps({"prompt": question.prompt, "answer": question.answer}) + "\n")
    assert "no test questions are left" in refused(capsys, folder, "--task", seen)
    (tmp_path / "file").write_text("")
    assert "cannot be made" in refused(capsys, folder, "--out", tmp_path / "file" / "out")


def test_a_spent_budget_keeps_what_was_paid_and_the_next_time_goes_on(finished, tmp_path, capsys):
    folder, out = finished[0], tmp_path / "out"
    chosen = ["--out", str(out), "--set", "evaluation.rivals=[reflection]", "--set", "evaluation.fixed_policy=false"]
    cap = paid(folder / "evaluation")[0] - 20
    assert "budget is spent" in refused(capsys, folder, *chosen, "--set", f"budget.calls={cap}")
    assert not (out / "evaluation.json").exists()
    assert paid(out)[0] == cap
    assert cli.main(["evaluate", str(folder), *chosen]) == 0
    assert paid(out)[0] > cap
    whole, part = by_name(finished[2]), by_name(read(out))
    assert any("self-reflection" in name for name in part)
    assert part == {name: whole[name] for name in part}


@pytest.mark.parametrize("yes", [False, True])
def test_where_models_are_called_it_asks_first(finished, tmp_path, monkeypatch, yes):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    models = [{"name": name, "model": name, "base_url": "http://127.0.0.1:9/v1"} for name in ("ada", "bo")]
    path = tmp_path / "pool.yaml"
    path.write_text(yaml.safe_dump({"pool": {"kind": "endpoints", "models": models}, "budget": {"calls": 1}}))
    trial = plan([finished[0]], pool_file=str(path))
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    console = Console(file=Terminal(), force_terminal=True, width=120)
    # Those of the run count against the cap: it is reached before the first new call.
    with pytest.raises(UserError, match="budget.calls: all 1 calls are made" if yes else "stopped by the answer"):
        evaluate(trial, tmp_path / "out", console, yes)


def test_csv_leaves_unknown_numbers_empty():
    scores = Scores("x", np.full((2, 1), np.nan), np.zeros((2, 1), bool), np.ones((2, 1), int))
    [line] = csv.DictReader(io.StringIO(as_csv([row(scores, ["a", "a"], None, 100, 0)])))
    assert (line["accuracy"], line["cost_per_question"], line["over_single_high"]) == ("", "", "")
    assert line["calls_per_question"] == "1.0"


def one(name: str, right: int, calls: int = 1, ceiling: bool = False, known: int = 60) -> Row:
    """A row of 60 questions beside a coordinator that has the first 30 of them right."""
    rewards = (np.arange(60) < right).astype(float)[:, None]
    ours = Scores("ours", (np.arange(60) < 30).astype(float)[:, None], rewards > 2, np.ones((60, 1), int))
    undecided = rewards > 2
    rewards[known:] = np.nan
    theirs = Scores(name, rewards, undecided, np.full((60, 1), calls), ceiling=ceiling)
    return row(theirs, ["a"] * 60, None if name == "coordinator" else ours, 200, 0)


def test_a_model_that_criticises_itself_is_named_where_it_does_better_than_by_votes():
    rows = [one("coordinator", 30), one("ada, plurality of 3", 20), one("bo, self-reflection of 3", 20)]
    assert critical(rows, "ada, plurality of 3") == ""
    rows += [one("bo, self-reflection of 2", 24), one("ada, self-reflection of 3", 27)]
    said = critical(rows, "ada, plurality of 3")
    assert said.startswith(
        " The best single model that criticises itself instead of voting, ada, self-reflection of 3, "
    )
    assert "got more right: 45.0 [" in said
    assert "the coordinator minus it is +5.0 [" in said


def test_who_is_better_is_named_with_its_calls_and_no_ceiling_is():
    ours = one("coordinator", 30)
    several = [ours, one("a", 55), one("b", 30), one("c", 10), one("d", 50, 4), one("oracle", 60, ceiling=True)]
    assert better([*several, one("few", 60, known=10)]) == (
        " Better than it, which takes 1.00: a (1.00 calls a question); d (4.00 calls a question), among 4 rivals; the "
        "intervals are not corrected for so many."
    )
    assert better([ours, one("a", 55)]) == " Better than it, which takes 1.00: a (1.00 calls a question)."
    assert better([ours, one("b", 30), one("oracle", 60, ceiling=True)]) == ""
    assert better([one("coordinator", 0), one("all", 60)]).endswith("all (1.00 calls a question).")


def compared(single: str | None, **failed: float) -> Comparison:
    """Rows of ten one-call episodes, of which a share failed."""

    def one(name: str, share: float) -> Scores:
        rewards = np.where(np.arange(10) < 10 * share, np.nan, 1.0)[:, None]
        return Scores(name, rewards, np.zeros((10, 1), bool), np.ones((10, 1), int))

    scores = (one("coordinator", 0.0), *(one(name, share) for name, share in failed.items()))
    return Comparison(scores, ("a",) * 10, tuple(n for n in failed if n in ("ada", "bo")), None, single, ("knn (why)",))


def test_a_rival_that_failed_too_often_is_left_out_and_named():
    found = without_failures(compared("ada", ada=0.1, bo=0.5, robin=0.3, random=0.2), 0.2, "again")
    assert [s.name for s in found.scores] == ["coordinator", "ada", "random"]
    assert found.singles == ("ada",)
    assert found.left_out == (
        "knn (why)",
        "bo (50% of its calls or episodes failed, more than training.max_failed_share 20% allows)",
        "robin (30% of its calls or episodes failed, more than training.max_failed_share 20% allows)",
    )
    assert without_failures(compared(None, ada=0.9, bo=0.1), 0.2, "again").best_single == "bo"


@pytest.mark.parametrize("single", ["ada", None])
def test_a_verdict_does_not_rest_on_a_rival_that_failed(single):
    with pytest.raises(UserError, match=r"evaluate: ada: 30% .*mend the endpoints and give it again"):
        without_failures(compared(single, ada=0.3, bo=0.3), 0.2, "give it again")


def test_it_says_what_calls_and_tokens_were_equal_and_what_failed_before(finished):
    trial = plan([finished[0]])
    learned = Learned(np.array([[1.0, np.nan], [0.0, 1.0]]), ["a", "b"])
    said = " ".join(terms(trial, compared("ada", ada=0.0), learned))
    assert "takes 1.00 calls a question" in said
    assert "Tokens are not matched" in said
    assert "25.0 % of the single answers to training questions failed" in said


def test_the_report_says_whose_calls_differ(finished):
    assert cli.main(["report", str(finished[0])]) == 0
    page = (finished[0] / "report.html").read_text()
    budgets = [line["budget"] for line in finished[2]["rows"]]
    assert 0 < budgets.count("fewer") == page.count("fewer calls than the coordinator")
    assert "Intervals are not corrected for the number of rows" in page


def test_money_before_the_first_call_is_no_bound(finished, elsewhere, tmp_path):
    """A question of 300 bytes, replies of at most 1,000 tokens, prices 2 and 10: 0.0106 and a template's tokens."""
    seat = Seat("http://models", "m", Sampling(max_tokens=1000), PriceSettings(input=2.0, output=10.0))
    out = io.StringIO()
    trial = plan([finished[0]])
    trial = replace(trial, test=(replace(trial.test[0], prompt="x" * 300, grader="judge"),))

    async def show():
        responders = [Scripted(name, lambda call: "") for name in ("ada", "bo")]
        with Journal.open(tmp_path / "j.sqlite") as journal:
            async with Pool(responders, journal, Ledger(BudgetSettings()), [seat, seat]) as pool:
                show_forecast(trial, pool, Console(file=out, width=250))

    asyncio.run(show())
    found = re.search(r"all +│ +([\d,]+) +│", out.getvalue())
    money = re.search(
        r"money: about (\S+) if every reply filled max_tokens and every attempt were billed", out.getvalue()
    )
    assert found
    assert money
    assert float(money[1]) / int(found[1].replace(",", "")) == pytest.approx(0.0106, rel=0.02)
    assert "at most" not in out.getvalue().partition("money")[2]
    assert "The judge's calls come on top." in out.getvalue()


@pytest.fixture(scope="module")
def elsewhere(finished, settings, tmp_path_factory):
    """The first run's training questions as the test set of another file, some new ones beside them."""
    folder = tmp_path_factory.mktemp("elsewhere")
    taught = load_tasks(config.load(finished[0] / "config.yaml").tasks)
    new = [{"prompt": f"{n} + 1?", "answer": n + 1, "wrong": [str(n)], "kind": "chain_sum"} for n in range(14)]
    old = [
        {"prompt": q.prompt, "answer": q.answer, "grader": q.grader, "wrong": list(q.wrong), "kind": q.kind}
        for q in (*taught.train, *taught.validation)
    ]
    sets = {"train": new[:6], "validation": new[6:8], "test": [*new[8:], *old]}
    for name, lines in sets.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = {f"{name}_file": str(folder / f"{name}.jsonl") for name in sets}
    counts = {name: len(lines) for name, lines in sets.items()}
    (folder / "other.yaml").write_text(yaml.safe_dump(settings | {"tasks": {"kind": "jsonl", **files, **counts}}))
    return folder, {q.prompt for q in (*taught.train, *taught.validation)}


@pytest.mark.parametrize("bare", [False, True])
def test_what_a_coordinator_learned_from_is_not_tested_whatever_the_config_says(finished, elsewhere, bare):
    folder, taught = elsewhere
    paths = [finished[0] / "coordinator"] if bare else [finished[0]]
    trial = plan(paths, run_file=str(folder / "other.yaml"))
    assert {q.prompt for q in trial.test} == {f"{n} + 1?" for n in range(8, 14)}
    assert trial.seen == len(taught)
    assert trial.unknown == ()
    assert trial.taught == (("chain_sum", "spell_backward", "leg_counting"),)


def test_nor_what_an_override_hides_or_a_further_coordinator_learned_from(finished, elsewhere, tmp_path):
    folder, taught = elsewhere
    moved = plan([finished[0]], tasks=[str(folder / "test.jsonl")], overrides=["tasks.train=6", "tasks.validation=1"])
    assert {q.prompt for q in moved.test} == {f"{n} + 1?" for n in range(8, 14)}
    alone = tmp_path / "alone"
    shutil.copytree(finished[0] / "coordinator", alone)
    beside = plan([alone, finished[0]], run_file=str(folder / "other.yaml"))
    assert {q.prompt for q in beside.test}.isdisjoint(taught)
    assert beside.unknown == ("alone (it lies beside no run)",)
    assert "not all of it, for alone (it lies beside no run)" in unknown(beside)


def test_a_run_whose_questions_are_gone_is_said_to_be_unknown(finished, elsewhere, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(finished[0], moved)
    data = yaml.safe_load((elsewhere[0] / "other.yaml").read_text())
    data["tasks"]["train_file"] = str(tmp_path / "gone.jsonl")
    (moved / "config.yaml").write_text(yaml.safe_dump(data))
    trial = plan([moved], run_file=str(elsewhere[0] / "other.yaml"))
    assert len(trial.unknown) == 1
    assert "gone.jsonl: cannot be read" in trial.unknown[0]
