import json

import pytest
from hypothesis import given
from hypothesis import settings as rules
from hypothesis import strategies as st

from trinity_jax.config import TaskSettings
from trinity_jax.errors import UserError
from trinity_jax.tasks import Grade, grade
from trinity_jax.tasks.jsonl import load_questions, load_tasks


def write(path, *rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_defaults_come_from_the_file_and_the_answer(tmp_path):
    path = write(
        tmp_path / "mine.jsonl",
        {"prompt": "6 * 7?", "answer": 42},
        "",
        {"prompt": "Capital?", "answer": "B", "options": ["Paris", "Berlin"]},
        {"prompt": "Half?", "answer": "1/2", "wrong": ["1/3", "2"]},
        {"prompt": "Backward: ab", "answer": "ba", "id": "own", "kind": "words"},
        {"prompt": "Tiny?", "answer": 1e-30},
    )
    number, letter, half, word, tiny = load_questions(path)
    assert (number.id, number.kind, number.grader, number.answer) == ("mine/1", "mine", "numeric", "42")
    assert (letter.id, letter.grader, letter.prompt) == ("mine/3", "choice", "Capital?\nA) Paris\nB) Berlin")
    assert (half.grader, half.wrong) == ("numeric", ("1/3", "2"))
    assert (word.id, word.kind, word.grader) == ("own", "words", "exact")
    assert tiny.grader == "numeric"
    for question in (number, letter, half, word, tiny):
        assert grade(question, f"The answer is {question.answer}.", False) is Grade.RIGHT


GOOD = {"prompt": "p", "answer": "1"}
BAD = [
    ("{", "not valid JSON"),
    ("[" * 100_000, "not valid JSON"),
    ('{"prompt": "p", "answer": ' + "9" * 10_000 + "}", "not valid JSON"),
    ("[1]", "expected a JSON object, got list"),
    ({"answer": "1"}, "prompt is missing"),
    ({"prompt": "p"}, "answer is missing"),
    ({"prompt": 3, "answer": "1"}, "prompt must be text"),
    ({"prompt": "p", "answer": True}, "answer must be text"),
    ({"prompt": "p", "answer": None}, "answer must be text"),
    ({"prompt": "p", "answer": " "}, "answer must be text"),
    ({"prompt": "p", "answer": float("nan")}, "not a number"),
    ({**GOOD, "id": 7}, "id must be text"),
    ({**GOOD, "options": "AB"}, "options must be a list"),
    ({**GOOD, "wrong": [1]}, "wrong must be a list"),
    ({**GOOD, "grader": "fuzzy"}, "unknown grader 'fuzzy'"),
    ({**GOOD, "answers": "1"}, "unknown key 'answers'"),
    ({**GOOD, "id": "first"}, "id 'first' is used twice"),
    ({"prompt": "p", "answer": "C", "options": ["x", "y"]}, "letter from A to B"),
    ({"prompt": "p", "answer": "A", "grader": "choice"}, "2 to 26 options, got 0"),
    ({"prompt": "p", "answer": "many", "grader": "numeric"}, "not a number"),
    ({**GOOD, "wrong": ["2", "1.0"]}, "wrong answer '1.0' would be graded right"),
]


@pytest.mark.parametrize("row, message", BAD)
def test_bad_rows_are_named_by_file_and_line(tmp_path, row, message):
    path = write(tmp_path / "mine.jsonl", {**GOOD, "id": "first"}, "", row)
    with pytest.raises(UserError) as error:
        load_questions(path)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}:3: ")
    assert len(str(error.value)) < 400


def test_half_a_surrogate_pair_is_no_text(tmp_path):
    with pytest.raises(UserError, match=r"q\.jsonl:1: holds half of a surrogate pair"):
        load_questions(write(tmp_path / "q.jsonl", {"prompt": "x \ud83d y", "answer": "1"}))


def test_a_name_that_no_file_has():
    with pytest.raises(UserError, match="cannot be read"):
        load_questions("a\0b")


def test_bad_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.jsonl: cannot be read"):
        load_questions(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="holds no question"):
        load_questions(write(tmp_path / "empty.jsonl", "", "  "))
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xe9"}')
    with pytest.raises(UserError, match="not UTF-8"):
        load_questions(tmp_path / "latin.jsonl")


def test_a_line_separator_inside_text_splits_no_line(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "a\u2028b", "answer": "1"}\r\n', encoding="utf-8")
    assert load_questions(path)[0].prompt == "a\u2028b"


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=5))
@rules(max_examples=50, deadline=None)
def test_any_prompt_survives(tmp_path_factory, prompts):
    path = write(tmp_path_factory.mktemp("any") / "q.jsonl", *({"prompt": prompt, "answer": 1} for prompt in prompts))
    assert [question.prompt for question in load_questions(path)] == prompts


def tasks(tmp_path, **counts):
    files = {f"{split}_file": tmp_path / f"{split}.jsonl" for split in ("train", "validation", "test")}
    for split, path in zip(("train", "validation", "test"), files.values(), strict=True):
        write(path, *({"prompt": f"{split} {row}", "answer": row} for row in range(5)))
    return TaskSettings(kind="jsonl", **files, **counts)


def test_sets_are_cut_to_the_counts_asked_for(tmp_path):
    made = load_tasks(tasks(tmp_path, train=2, validation=3, test=5))
    assert [len(each) for each in made] == [2, 3, 5]
    assert made.test[4].prompt == "test 4"


def test_too_few_questions_are_an_error(tmp_path):
    with pytest.raises(UserError, match=r"validation\.jsonl: tasks\.validation asks for 6 questions, the file has 5"):
        load_tasks(tasks(tmp_path, train=2, validation=6, test=5))


def test_a_question_in_two_sets_is_an_error(tmp_path):
    settings = tasks(tmp_path, train=5, validation=2, test=2)
    write(tmp_path / "test.jsonl", {"prompt": "train 3", "answer": 3}, {"prompt": "new", "answer": 3})
    with pytest.raises(UserError, match=r"prompt 'train 3' is in train_file and in test_file"):
        load_tasks(settings)


def test_generated_questions_come_by_the_same_door():
    made = load_tasks(TaskSettings.model_validate({"mix": [{"kind": "gcd"}], "train": 3, "validation": 2, "test": 1}))
    assert [question.id for question in made.train] == ["gcd/train/0", "gcd/train/1", "gcd/train/2"]
