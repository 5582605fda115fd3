import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tasks.corpora import load
from trinity_jax.tasks import Grade, Question, choice, grade

R, W, U = Grade.RIGHT, Grade.WRONG, Grade.UNDECIDED

CITIES = ("Paris", "Berlin", "Rome", "New York")
ARTICLES = ("a dog", "A cat", "I am", "York")
NINE = tuple(f"thing {number}" for number in range(9))
NUMBERS = ("1", "10", "12.5", "-3")

# (options, gold letter, reply, grade)
CHOICE = [
    (CITIES, "B", "B", R),
    (CITIES, "B", "(B)", R),
    (CITIES, "B", "B.", R),
    (CITIES, "B", "**B**", R),
    (CITIES, "B", "b", U),
    (CITIES, "B", "<answer>b</answer>", R),
    (CITIES, "B", "<answer>B</answer>", R),
    (CITIES, "B", "<answer> (B) </answer>", R),
    (CITIES, "B", "<answer>B) Berlin</answer>", R),
    (CITIES, "B", "<answer>Berlin</answer>", R),
    (CITIES, "B", "<answer>berlin.</answer>", R),
    (CITIES, "B", "<answer>The answer is B.</answer>", R),
    (CITIES, "B", r"<answer>\boxed{B}</answer>", R),
    (CITIES, "B", "<ANSWER>**B**</ANSWER>", R),
    (CITIES, "B", "<answer>A</answer> no, <answer>B</answer>", R),
    (CITIES, "B", "<answer>B</answer> as it should stand in the <answer> tag", R),
    (CITIES, "B", "I use <answer>...</answer>. <answer>C</answer>", W),
    (CITIES, "B", "<answer></answer>", U),
    (CITIES, "B", "<answer>E</answer>", U),
    (CITIES, "B", "<answer>B or C</answer>", U),
    (CITIES, "B", "Thinking done. <answer>B", R),
    (CITIES, "B", "The answer is (B).", R),
    (CITIES, "B", "the answer is B", R),
    (CITIES, "B", "The answer is **B**.", R),
    (CITIES, "B", "The answer is: B", R),
    (CITIES, "B", "The correct answer is option B.", R),
    (CITIES, "B", "The correct answer is most likely B.", R),
    (CITIES, "B", "The answer to the question is B, because it is in Germany.", R),
    (CITIES, "B", "The answer is $\\boxed{\\text{B}}$.", R),
    (CITIES, "B", r"\boxed{B}", R),
    (CITIES, "B", r"\boxed{\textbf{(B)}}", R),
    (CITIES, "B", r"\boxed{Berlin}", R),
    (CITIES, "B", "Final answer: B.", R),
    (CITIES, "B", "**Final Answer:** B", R),
    (CITIES, "B", "### Answer\n\nB", R),
    (CITIES, "B", "Answer:\n\n**B) Berlin**", R),
    (CITIES, "B", "Answer: C", W),
    (CITIES, "B", "B) Berlin", R),
    (CITIES, "B", "B. Berlin", R),
    (CITIES, "B", "B: Berlin", R),
    (CITIES, "B", "Berlin", R),
    (CITIES, "B", "It is Berlin, of course.", R),
    (CITIES, "B", "It is not Paris.", U),
    (CITIES, "B", "Paris and Berlin are both cities.", U),
    (CITIES, "B", "The answer is Berlin.", R),
    (CITIES, "D", "The answer is New York City.", R),
    (CITIES, "B", "I choose B.", R),
    (CITIES, "B", "I'd go with (B) here.", R),
    (CITIES, "B", "I would not choose C.", U),
    (CITIES, "B", "B is correct.", R),
    (CITIES, "B", "Option C is the correct answer.", W),
    (CITIES, "B", "C is not correct.", U),
    (CITIES, "B", "If C is correct, we would see it; so the answer is B.", R),
    (CITIES, "B", "The answer is A. Wait: the answer is B.", R),
    (CITIES, "B", "The answer is B. That is my answer.", R),
    (CITIES, "B", "The answer is not C.", U),
    (CITIES, "B", "The answer is B or C.", U),
    (CITIES, "B", "Answer: A, B", U),
    (CITIES, "B", "A) Paris\nB) Berlin\nC) Rome\nD) New York", U),
    (CITIES, "B", "A) Paris is in France.\nB) Berlin is in Germany.\n\nAnswer: B", R),
    (CITIES, "B", "Looking at the map, **B** it is.", R),
    (CITIES, "B", "**A** and **C** can be ruled out.", U),
    (CITIES, "B", "It must be (B) then.", R),
    (CITIES, "B", "", U),
    (CITIES, "B", "I don't know.", U),
    (CITIES, "B", "A hard question; I can't say.", U),
    (CITIES, "A", "A hard question; I can't say.", U),
    (CITIES, "A", "The answer is a matter of taste.", U),
    (CITIES, "A", "The answer is A matter of taste.", U),
    (CITIES, "A", "The answer is A because of the tower.", R),
    (CITIES, "A", "The answer is A, the French capital.", R),
    (CITIES, "A", "Answer: A - Paris", R),
    (CITIES, "B", "A: The capital is Berlin.", R),
    (CITIES, "B", "<think>The answer is A.</think>The answer is B.", R),
    (CITIES, "B", "<think>The answer is B.</think>I can't say.", U),
    (CITIES, "B", "<think>The answer is B. But then", U),
    (CITIES, "B", "The answer is C.</think>The answer is B.", R),
    (CITIES, "B", "The answer is E.", U),
    (ARTICLES, "B", "The answer is A cat.", R),
    (ARTICLES, "A", "a dog", R),
    (ARTICLES, "C", "I am", R),
    (ARTICLES, "D", "York", R),
    (ARTICLES, "A", "I think it moves.", U),
    (NINE, "I", "I think so.", U),
    (NINE, "I", "The answer is I.", R),
    (NINE, "I", "Answer: I think none of them fits", U),
    (NINE, "I", "Answer: I'm not sure", U),
    (NINE, "I", "<answer>I</answer>", R),
    (NINE, "J", "The answer is thing 8.", W),
    (NUMBERS, "B", "The answer is 10.", R),
    (NUMBERS, "A", "The answer is 10.", W),
    (NUMBERS, "C", "The answer is 12.5", R),
    (NUMBERS, "D", "<answer>-3</answer>", R),
    (NUMBERS, "A", "It equals 10 in the end.", W),
    (("C", "C++", "C#"), "B", "The answer is C++.", R),
    (("q/L^2", "q/l^2"), "A", "<answer>q/l^2</answer>", W),
    (("q/L^2", "q/l^2"), "A", "The answer is q/L^2.", R),
    (("q/L^2", "q/l^2"), "B", "It is q/l^2.", R),
    (("C", "C++", "C#"), "A", "The answer is A.", R),
    (CITIES, "B", "The answer is A/B.", U),
]


def ask(options, gold):
    return Question("q", "k", "p", gold, "choice", tuple(options))


@pytest.mark.parametrize("options, gold, reply, expected", CHOICE)
def test_corpus(options, gold, reply, expected):
    assert grade(ask(options, gold), reply, False) is expected


def test_corpus_covers_every_grade():
    counts = {each: sum(row[3] is each for row in CHOICE) for each in Grade}
    assert len(CHOICE) >= 60
    assert min(counts.values()) >= 5, counts


@pytest.mark.parametrize(
    "reply, expected",
    [("The answer is B.", U), ("<answer>B", U), ("<answer>B</answer>", R), ("<answer>C</answer>", W), ("", U)],
)
def test_strict_wants_the_closed_tag(reply, expected):
    assert grade(ask(CITIES, "B"), reply, True) is expected


FORMS = [
    "{}",
    "({})",
    "**{}**",
    "<answer>{}</answer>",
    "The answer is ({}).",
    "\\boxed{{{}}}",
    "Final answer: {}.",
    "Both are tempting.\n\nAnswer: **{}**",
    "I choose {}.",
    "<think>maybe A, maybe B</think>{}.",
]


@given(st.integers(2, 26), st.data(), st.sampled_from(FORMS))
@settings(max_examples=200, deadline=None)
def test_every_letter_in_every_form_is_found_and_no_letter_beyond_the_options(count, data, form):
    options = [f"the {number}th thing" for number in range(count)]
    place = data.draw(st.integers(0, 25))
    letter = chr(ord("A") + place)
    assert choice.pick(options, form.format(letter)) == (letter if place < count else None)


@given(st.permutations(["red", "green", "deep red", "blue-green"]), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_option_texts_are_found_whatever_their_order(options, place):
    letter = "ABCD"[place]
    for form in ("{}", "The answer is {}.", "It must be {}.", "<answer>{}</answer>", letter + ") {}"):
        assert choice.pick(options, form.format(options[place])) == letter


@given(st.text() | st.text(alphabet="AIBa .,:()*\\{}<>/\nanswerisboxed"))
@settings(max_examples=300, deadline=None)
def test_any_text_is_graded_without_raising(reply):
    for strict in (False, True):
        assert grade(ask(ARTICLES, "B"), reply, strict) in Grade


@given(st.lists(st.sampled_from(["a", "A", "I", "think", "it", "is", "some", "old", "thing", "we", "saw"]), min_size=2))
@settings(max_examples=200, deadline=None)
def test_article_and_pronoun_are_no_letters(words):
    assert choice.pick(NINE, " ".join(words)) is None


HOSTILE = [
    "<answer>", "</answer>", "<think>", "\\boxed{", "{", "answer ", "answer is ", "answer:\n", "**", "**A", " ", "\n",
    "A", "(A", "A is ", "not ", "option ", "Berlin", "A, ", "$", "\\text{", "(A) or ", "####",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_linearly(piece):
    def seconds(size):
        reply = piece * (size // len(piece))
        started = time.process_time()
        grade(ask(CITIES, "B"), reply, False)
        return time.process_time() - started

    assert seconds(120_000) < max(1.0, 16 * min(seconds(15_000) for _ in range(2)))


@pytest.mark.parametrize(
    "options, answer, part",
    [
        (("one",), "A", "2 to 26"),
        ([str(n) for n in range(27)], "A", "2 to 26"),
        (CITIES, "E", "from A to D"),
        (CITIES, "b", "from A to D"),
        (CITIES, "Berlin", "from A to D"),
        (("x", "x"), "A", "same"),
        (("x", " "), "A", "blank"),
    ],
)
def test_a_question_that_cannot_be_graded_says_why(options, answer, part):
    assert part in (choice.problem(ask(options, answer)) or "")


def test_prompt_shows_every_option():
    assert choice.render("Which?\n", ("x", "y")) == "Which?\nA) x\nB) y"


OPTIONS = {
    "fruits": ("apple", "banana", "cherry", "dill", "elder"),
    "ten": tuple(
        f"item {word}" for word in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    ),
    "yesno": ("Yes", "No"),
    "many": tuple(f"word{number}" for number in range(1, 27)),
}


def test_corpus_of_awkward_forms():
    rows = [(entry, reply) for entry in load("choice") for reply in entry["replies"]]
    assert sum(entry["say"] is not None for entry, _ in rows) >= 100
    missed = [reply for entry, reply in rows if choice.pick(OPTIONS[entry["options"]], reply) != entry["say"]]
    assert len(missed) <= 0.01 * len(rows), missed


def test_forms_of_another_option_are_wrong():
    for entry in load("choice"):
        if entry["say"] is not None:
            options = OPTIONS[entry["options"]]
            gold = "A" if entry["say"] != "A" else "B"
            graded = [grade(ask(options, gold), reply, False) for reply in entry["replies"]]
            assert set(graded) == {W}


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_is_read_in_seconds(piece):
    reply = piece * (1_000_000 // len(piece))
    started = time.process_time()
    choice.pick(CITIES, reply)
    choice.pick(CITIES, f"<answer>{reply}</answer>")
    assert time.process_time() - started < 5
