import json
import subprocess
import sys
import types

import numpy as np
import pytest

from trinity_jax.config import BenchmarkTask, TaskSettings
from trinity_jax.errors import UserError
from trinity_jax.tasks import benchmarks
from trinity_jax.tasks.benchmarks import BENCHMARKS, Cut, cut, digest, load, read_rows
from trinity_jax.tasks.jsonl import load_tasks
from trinity_jax.tasks.tests import read_tests

CASES = json.dumps([{"input": "1", "output": "2", "testtype": "stdin"}])


def chat(text):
    return [{"role": "system", "content": "think"}, {"role": "user", "content": text}]


def coding(i, **changes):
    row = {"question_id": f"p{i}", "question_content": f"Add one, {i}.", "starter_code": "", "metadata": "{}"}
    return {**row, "public_test_cases": CASES, "private_test_cases": CASES, **changes}


# One made-up row of each schema, by its number.
ROWS = {
    "math500": lambda i: {"problem": f"Find {i}.", "answer": str(i), "unique_id": f"t/{i}.json", "level": 1},
    "mmlu": lambda i: {"question": f"Which is {i}?", "choices": [str(i), "x", "y", "z"], "answer": 0, "subject": "s"},
    "rlpr": lambda i: {"prompt": chat(f"What is {i}?"), "reward_model": {"ground_truth": str(i)}, "ability": "x"},
    "livecodebench_v1": coding,
    "livecodebench_v6": lambda i: coding(i, starter_code="class Solution:", metadata='{"func_name": "add"}'),
    "aime2025": lambda i: {"problem": f"Count {i}.", "answer": str(i), "id": i},
    "gpqa_diamond": lambda i: {
        "Question": f"Pick {i}.", "Correct Answer": "yes\n", "Incorrect Answer 1": "no", "Incorrect Answer 2": "maybe",
        "Incorrect Answer 3": "never", "Record ID": f"rec{i}",
    },
    "bigcodebench": lambda i: {
        "task_id": f"BigCodeBench/{i}", "instruct_prompt": f"Return {i}.", "code_prompt": "def task_func():\n",
        "canonical_solution": f"    return {i}\n", "test": "class TestCases: ...", "entry_point": "task_func",
    },
    "mt_bench": lambda i: {"prompt_id": i, "category": "c", "prompt": [f"Write {i}.", "Again."], "reference": ["x"]},
}  # fmt: skip
USABLE = [name for name in ROWS if name != "mt_bench"]


@pytest.fixture
def small(monkeypatch):
    """The benchmarks with a tenth of their cuts, and as many rows as those need."""
    for name, known in BENCHMARKS.items():
        tenth = Cut(*(-(-size // 10) if size < 1000 else 12 for size in known.cut))
        size = None if known.size is None else sum(tenth)
        monkeypatch.setitem(BENCHMARKS, name, known._replace(cut=tenth, size=size))
    return BENCHMARKS


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def filled(folder, name, count=None):
    known = BENCHMARKS[name]
    return write(folder / f"{name}.jsonl", map(ROWS[name], range(count or known.size or sum(known.cut))))


def fetch(name, folder, **given):
    return load(BenchmarkTask(name=name, **given), folder)


@pytest.mark.parametrize("name", ROWS)
def test_every_schema_becomes_questions(small, tmp_path, name):
    filled(tmp_path, name)
    loaded = fetch(name, tmp_path)
    assert len(loaded.questions) == sum(small[name].cut)
    assert not loaded.left_out
    assert [len(split) for split in cut(loaded)] == list(small[name].cut)
    assert "not pinned" in str(loaded)
    for question in loaded.questions[1:3]:
        number = question.id.split("/")[-1]
        assert question.kind == name
        if question.grader in ("math", "short"):
            assert question.answer in question.prompt
        elif question.grader == "choice":
            assert question.options["ABCD".index(question.answer)] in ("yes", number)
            assert f"{question.answer}) " in question.prompt
            assert len(question.wrong) == 3
        elif question.grader == "code":
            tests = read_tests(question.answer)
            assert tests.form == {"livecodebench_v1": "stdin", "livecodebench_v6": "call"}.get(name, "unittest")
            assert tests.function == {"livecodebench_v1": "", "livecodebench_v6": "add"}.get(name, "task_func")
            assert question.solution == (f"def task_func():\n    return {number}\n" if tests.form == "unittest" else "")
        else:
            assert (question.grader, question.prompt) == ("judge", f"Write {number}.")


def test_options_of_gpqa_are_in_an_order_of_their_own(small, tmp_path):
    filled(tmp_path, "gpqa_diamond")
    first, again = fetch("gpqa_diamond", tmp_path), fetch("gpqa_diamond", tmp_path)
    assert first == again
    assert {question.answer for question in first.questions} == set("ABCD")


def test_the_shuffle_is_seed_42_and_one_permutation(small, tmp_path):
    filled(tmp_path, "math500")
    loaded = fetch("math500", tmp_path)
    train, validation, test = cut(loaded)
    wanted = np.random.default_rng(42).permutation(len(loaded.questions))
    assert [*train, *validation, *test] == [loaded.questions[place] for place in wanted]


def test_a_prompt_that_comes_twice_is_in_one_split(small, tmp_path):
    count = sum(small["mmlu"].cut)
    small["mmlu"] = small["mmlu"]._replace(size=count + 8)
    rows = [ROWS["mmlu"](i) for i in [*range(count), *range(8)]]
    write(tmp_path / "mmlu.jsonl", rows)
    splits = cut(fetch("mmlu", tmp_path))
    prompts = [question.prompt for split in splits for question in split]
    assert len(set(prompts)) == len(prompts) == count


def test_long_answers_of_rlpr_are_left_out_and_counted(small, tmp_path):
    long = {"prompt": chat("Why?"), "reward_model": {"ground_truth": "x" * 31}}
    write(tmp_path / "rlpr.jsonl", [*map(ROWS["rlpr"], range(40)), long, long])
    loaded = fetch("rlpr", tmp_path)
    assert len(loaded.questions) == 40
    assert "2 left out (answers over 30 characters)" in str(loaded)


def test_a_few_questions_without_an_answer_are_left_out_but_not_many(small, tmp_path):
    same = {"question": "Which?", "choices": ["a", "a"], "answer": 0}
    small["mmlu"] = small["mmlu"]._replace(size=101)
    write(tmp_path / "mmlu.jsonl", [*map(ROWS["mmlu"], range(100)), same])
    assert "1 left out (two options are the same)" in str(fetch("mmlu", tmp_path))
    small["mmlu"] = small["mmlu"]._replace(size=23)
    write(tmp_path / "mmlu.jsonl", [*map(ROWS["mmlu"], range(20)), same, same, same])
    with pytest.raises(UserError, match=r"mmlu: 3 of 23 rows .* can't be graded: two options are the same"):
        fetch("mmlu", tmp_path)


@pytest.mark.parametrize("change", [-1, 1])
def test_another_size_is_an_error(small, tmp_path, change):
    filled(tmp_path, "aime2025", small["aime2025"].size + change)
    with pytest.raises(
        UserError, match=rf"aime2025: expected 3 rows, .*aime2025\.jsonl has {3 + change}: not the whole"
    ):
        fetch("aime2025", tmp_path)


def test_content_is_pinned_by_the_digest(small, tmp_path):
    filled(tmp_path, "math500")
    loaded = fetch("math500", tmp_path)
    assert fetch("math500", tmp_path, sha256=loaded.digest.upper()).pinned
    rows = list(map(ROWS["math500"], range(50)))
    write(tmp_path / "math500.jsonl", [*rows[:-1], {**rows[-1], "answer": "7"}])
    with pytest.raises(UserError, match=f"is not what was pinned: expected sha256 {loaded.digest}, got "):
        fetch("math500", tmp_path, sha256=loaded.digest)
    assert digest(loaded.questions[::-1]) != loaded.digest


def test_parquet_and_jsonl_hold_the_same(small, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # pyright: ignore[reportMissingImports]

    for name in USABLE:
        filled(tmp_path, name)
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(arrow.Table.from_pylist(list(read_rows(tmp_path / f"{name}.jsonl"))), path)
        assert fetch(name, tmp_path, file=path).digest == fetch(name, tmp_path).digest
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match=r"bad\.parquet: not a readable parquet file"):
        fetch("mmlu", tmp_path, file=tmp_path / "bad.parquet")


BAD = [
    (
        "math500",
        lambda row: row.pop("answer"),
        "row 2: column 'answer' is missing .there are: problem, unique_id, level",
    ),
    ("math500", lambda row: row.update(problem=" "), "row 2: column 'problem' must be text that is not blank, got ' '"),
    ("math500", lambda row: row.update(unique_id="t/0.json"), "row 2: id 'math500/t/0.json' is there twice"),
    ("mmlu", lambda row: row.update(answer="A"), "row 2: column 'answer' must be an index of choices, got 'A'"),
    ("mmlu", lambda row: row.update(answer=4), "must be an index of choices, got 4"),
    ("mmlu", lambda row: row.update(choices="abcd"), "row 2: column 'choices' must be a list of texts, got 'abcd'"),
    ("rlpr", lambda row: row.update(prompt="?"), "column 'prompt' must be a list of chat messages, got"),
    ("rlpr", lambda row: row["prompt"].pop(), "column 'prompt' holds no message of the user"),
    ("rlpr", lambda row: row.update(reward_model="7"), "column 'reward_model' must be an object, got '7'"),
    ("rlpr", lambda row: row["reward_model"].clear(), "row 2, reward_model: column 'ground_truth' is missing"),
    ("livecodebench_v1", lambda row: row.update(metadata="[]"), "column 'metadata' must be the JSON text of an object"),
    (
        "livecodebench_v1",
        lambda row: row.update(public_test_cases="?"),
        "column 'public_test_cases': not test cases as",
    ),
    (
        "livecodebench_v1",
        lambda row: row.update(private_test_cases=""),
        "'private_test_cases' must be text that is not",
    ),
    ("gpqa_diamond", lambda row: row.pop("Incorrect Answer 3"), "column 'Incorrect Answer 3' is missing"),
    ("bigcodebench", lambda row: row.pop("test"), "column 'test' is missing"),
    ("mt_bench", lambda row: row.update(prompt=[]), "column 'prompt' holds no turn"),
]


def test_open_questions_without_a_reference_are_left_out_and_counted(small, tmp_path):
    rows = [ROWS["mt_bench"](i) for i in range(8)]
    rows[3]["reference"] = []
    write(tmp_path / "mt_bench.jsonl", rows)
    loaded = fetch("mt_bench", tmp_path)
    assert len(loaded.questions) == 7
    assert dict(loaded.left_out) == {"there is no reference answer to judge by": 1}


@pytest.mark.parametrize("name, spoil, message", BAD)
def test_rows_of_another_schema_are_told_in_one_message(small, tmp_path, name, spoil, message):
    rows = [ROWS[name](0), ROWS[name](1)]
    spoil(rows[1])
    write(tmp_path / f"{name}.jsonl", rows)
    with pytest.raises(UserError, match=message) as error:
        fetch(name, tmp_path)
    assert len(str(error.value)) < 400


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.jsonl: cannot be read"):
        fetch("mmlu", tmp_path, file=tmp_path / "none.jsonl")
    (tmp_path / "mmlu.jsonl").write_text("{}\n[1]\n")
    with pytest.raises(UserError, match=r"mmlu\.jsonl: row 1: column"):
        fetch("mmlu", tmp_path)
    (tmp_path / "mmlu.jsonl").write_text("[1]\n")
    with pytest.raises(UserError, match=r"mmlu\.jsonl:1: expected a JSON object, got list"):
        fetch("mmlu", tmp_path)
    (tmp_path / "mmlu.jsonl").write_text("{\n")
    with pytest.raises(UserError, match=r"mmlu\.jsonl:1: not valid JSON"):
        fetch("mmlu", tmp_path)
    (tmp_path / "mmlu.jsonl").write_bytes(b"PAR1\xff\n")
    with pytest.raises(UserError, match=r"expected JSON lines or a file named \.parquet"):
        fetch("mmlu", tmp_path)
    with pytest.raises(UserError, match=r"unknown name 'mmmlu' .known: math500, mmlu, .*humaneval"):
        fetch("mmmlu", tmp_path)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_without_file_and_hub_it_says_what_to_run_and_where_to_put_it(monkeypatch, tmp_path, name):
    monkeypatch.setattr(benchmarks.importlib.util, "find_spec", lambda module: None)
    with pytest.raises(UserError, match=f"{name}: no file, and the package datasets is not installed") as error:
        fetch(name, tmp_path)
    message = str(error.value)
    assert f"put {name}.jsonl into {tmp_path}" in message
    command = message.split('python -c "')[1].split('"\n')[0]
    calls = []
    table = types.SimpleNamespace(to_json=calls.append)
    fake = types.SimpleNamespace(load_dataset=lambda *args, **kwargs: calls.append((args, kwargs)) or table)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    exec(command, {})
    (args, kwargs), written = calls
    assert written == f"{name}.jsonl"
    assert BENCHMARKS[name].dataset in f"{args} {kwargs}"
    assert BENCHMARKS[name].file is None or BENCHMARKS[name].file in kwargs["data_files"]


def test_rows_come_from_the_hub_by_name_and_revision(monkeypatch, small, tmp_path):
    asked = []
    rows = {"cais/mmlu": "mmlu", "json": "livecodebench_v6"}

    def load_dataset(*args, **kwargs):
        asked.append((args, kwargs))
        name = rows[args[0]]
        return list(map(ROWS[name], range(sum(small[name].cut))))

    fake = types.ModuleType("datasets")
    vars(fake)["load_dataset"] = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setattr(benchmarks.importlib.util, "find_spec", lambda module: fake)
    count = sum(small["mmlu"].cut)
    small["mmlu"] = small["mmlu"]._replace(size=count)
    assert fetch("mmlu", tmp_path, revision="abc").source == "cais/mmlu at abc"
    assert asked.pop() == (("cais/mmlu", "all"), {"split": "test", "revision": "abc"})
    fetch("livecodebench_v6", tmp_path)
    file = "hf://datasets/livecodebench/code_generation_lite@main/test6.jsonl"
    assert asked.pop() == (("json",), {"data_files": file, "split": "train"})

    def refused(*args, **kwargs):
        raise ConnectionError("no route")

    vars(fake)["load_dataset"] = refused
    with pytest.raises(UserError, match=r"cais/mmlu could not be had \(ConnectionError: no route\); where the hub is"):
        fetch("mmlu", tmp_path)


MIX = ("math500", "mmlu", "rlpr", "livecodebench_v1", "livecodebench_v6")


def settings(folder, *names, **counts):
    data = {"kind": "benchmarks", "folder": folder, "benchmarks": [{"name": name} for name in names], **counts}
    return TaskSettings.model_validate(data)


def test_the_log_says_what_was_loaded_and_what_is_not_pinned(small, tmp_path, caplog):
    filled(tmp_path, "math500")
    load_tasks(settings(tmp_path, "math500", train=3, validation=3, test=3))
    assert "math500: 50 questions of" in caplog.text
    assert "not pinned: sha256: " in caplog.text


def test_the_balanced_mix(small, tmp_path):
    for name in MIX:
        filled(tmp_path, name)
    made = load_tasks(settings(tmp_path, *MIX, train=40, validation=17, test=38))
    assert [len(split) for split in made] == [40, 17, 38]
    kinds = [question.kind for question in made.train]
    assert [kinds.count(name) for name in MIX] == [10, 10, 10, 10, 0]
    assert kinds[:4] == list(MIX[:4])
    assert [[question.kind for question in made.validation].count(name) for name in MIX] == [5, 4, 4, 4, 0]
    assert [[question.kind for question in made.test].count(name) for name in MIX] == [10, 10, 9, 0, 9]
    ids = [question.id for split in made for question in split]
    assert len(set(ids)) == len(ids)
    more = load_tasks(settings(tmp_path, *MIX, train=44, validation=17, test=38))
    assert more.train[:40] == made.train
    assert more[1:] == made[1:]


def test_too_few_are_never_made_up_for(small, tmp_path):
    for name in MIX:
        filled(tmp_path, name)
    with pytest.raises(UserError, match=r"tasks\.train: 52 questions of 4 .* are 13 of mmlu, which has 12; at most 48"):
        load_tasks(settings(tmp_path, *MIX, train=52, validation=4, test=4))
    with pytest.raises(UserError, match=r"none of livecodebench_v6 has train questions"):
        load_tasks(settings(tmp_path, "livecodebench_v6", train=1, validation=1, test=1))
    with pytest.raises(UserError, match="may come once"):
        load_tasks(settings(tmp_path, "mmlu", "mmlu"))
    small["math500"] = small["math500"]._replace(size=49)
    filled(tmp_path, "math500")
    with pytest.raises(UserError, match=r"math500: its cut \(30, 10, 10\) needs 50 questions, there are 49"):
        load_tasks(settings(tmp_path, "math500"))


def test_offline_sets_go_by_the_same_door(monkeypatch, tmp_path):
    questions = [benchmarks.schemas.gsm8k(benchmarks.Row({"id": str(i), "prompt": f"{i}?", "expected": i}, "", i), "g")
                 for i in range(100)]  # fmt: skip
    monkeypatch.setattr(benchmarks.offline, "load", lambda name: questions)
    made = load_tasks(settings(tmp_path, "gsm8k_100", train=60, validation=20, test=20))
    assert sorted((question for split in made for question in split), key=lambda q: int(q.id)) == questions


def test_the_papers_cuts():
    assert {name: known.cut for name, known in BENCHMARKS.items() if known.cut.train} == {
        "math500": (300, 100, 100), "mmlu": (4593, 1531, 1531), "rlpr": (4593, 1531, 1531),
        "livecodebench_v1": (240, 80, 0),
    }  # fmt: skip
    assert BENCHMARKS["livecodebench_v6"].cut == (0, 0, 175)
    assert {name for name, known in BENCHMARKS.items() if sum(known.cut[:2]) == 0} == {
        "livecodebench_v6", "aime2025", "gpqa_diamond", "bigcodebench", "mt_bench",
    }  # fmt: skip


def test_datasets_is_imported_only_to_ask_the_hub():
    code = "import sys, trinity_jax.tasks.jsonl; sys.exit('datasets' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
