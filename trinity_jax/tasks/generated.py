"""Question sets from reasoning-gym: short prompts, gold answers its verifiers accept, and four wrong answers each."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from string import ascii_uppercase
from typing import Any

from trinity_jax.config import TaskSettings
from trinity_jax.errors import UserError
from trinity_jax.tasks import choice, grade
from trinity_jax.tasks.question import Grade, Question

WRONG_ANSWERS = 4
Entry = Mapping[str, Any]
Wrong = Callable[[str, Random], str]


@dataclass(frozen=True)
class Family:
    """How a reasoning-gym dataset becomes questions.

    ``easy`` and ``normal`` configure the dataset ``source``. ``stem`` shortens its question text; entries without a
    match, or whose answer matches ``skip``, are left out. ``wrong`` proposes one
    plausible wrong answer; ``lettered`` turns the answers into options; ``lines`` keeps line breaks, for drawings.
    """

    source: str
    grader: str
    stem: tuple[str, str]
    wrong: Wrong
    easy: Mapping[str, Any] = field(default_factory=dict)
    normal: Mapping[str, Any] = field(default_factory=dict)
    lettered: bool = False
    skip: str = "(?!)"
    lines: bool = False


def _near(answer: str, rng: Random) -> str:
    """A whole number that a slip gives: off by little or by ten, a changed digit, a lost sign."""
    number = int(answer)
    digits = list(str(abs(number)))
    place = rng.randrange(len(digits))
    digits[place] = str((int(digits[place]) + rng.choice((1, 9, 2, 8))) % 10)
    changed = int("".join(digits)) * (-1 if number < 0 else 1)
    return str(rng.choice([number + step for step in (-2, -1, 1, 2, -10, 10)] + [-number, changed]))


def _count(answer: str, rng: Random) -> str:
    """As ``_near``, never negative."""
    return str(abs(int(_near(answer, rng))))


def _ratio(answer: str, rng: Random) -> str:
    top, bottom = (int(part) for part in answer.split("/"))
    step = rng.choice((-2, -1, 1, 2))
    if rng.random() < 0.5:
        return f"{top}/{max(bottom + step, 1)}"
    return f"{max(top + step, 1)}/{bottom}"


def _letters(answer: str, rng: Random) -> str:
    """Two neighbouring letters swapped, a letter dropped or doubled."""
    at = rng.randrange(len(answer) - 1)
    slip = rng.choice(("swap", "swap", "drop", "double"))
    if slip == "swap":
        return answer[:at] + answer[at + 1] + answer[at] + answer[at + 2 :]
    return answer[:at] + answer[at] * (2 if slip == "double" else 0) + answer[at + 1 :]


def _hexadecimal(answer: str, rng: Random) -> str:
    """One digit changed, or two neighbours swapped; a sign and ``0x`` stay."""
    head = answer[: answer.find("x") + 1]
    digits = list(answer[len(head) :])
    at = rng.randrange(len(digits))
    if at and rng.random() < 0.5:
        digits[at - 1 : at + 1] = digits[at], digits[at - 1]
    else:
        digits[at] = rng.choice("0123456789abcdef"[: max(int(digit, 36) for digit in digits) + 1] + "1")
    return head + "".join(digits)


def _order(answer: str, rng: Random) -> str:
    """Two items of a comma-separated list swapped, or all in another order."""
    items = answer.split(", ")
    if rng.random() < 0.3:
        rng.shuffle(items)
    else:
        a, b = rng.sample(range(len(items)), 2)
        items[a], items[b] = items[b], items[a]
    return ", ".join(items)


def _one_of(*names: str) -> Wrong:
    return lambda answer, rng: rng.choice(names)


_WEEKDAY = _one_of("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_RELATIVE = _one_of(
    "mother", "father", "son", "daughter", "wife", "husband", "sister", "brother", "grandmother", "uncle"
)
_COLOR = _one_of(
    "red", "green", "blue", "yellow", "orange", "purple", "pink", "brown", "cyan", "gold", "silver", "white"
)
_FAMILY_STEM = (r"(?s)(.*?)\s*\n\n\s*(.*?\?).*", r"\1 \2")
# reasoning-gym 0.1.25 names these from the other person's side (a child's wife is its "father-in-law"): left out.
_INVERTED = r"in-law|niece|nephew"

KINDS: dict[str, dict[str, Family]] = {
    "arithmetic": {
        "chain_sum": Family(
            "chain_sum", "numeric", (r".*: (.*) =", r"What is \1?"), _near,
            {"min_terms": 3, "max_terms": 4, "min_digits": 1, "max_digits": 2},
            {"min_terms": 4, "max_terms": 6, "min_digits": 2, "max_digits": 4},
        ),
        "products": Family(
            "products", "numeric", (r".*?: (.*?)\. .*", r"Multiply \1."), _near,
            {"max_terms": 2, "min_digits": 2, "max_digits": 2}, {"max_terms": 2, "min_digits": 3, "max_digits": 4},
        ),
        "gcd": Family(
            "gcd", "numeric", (r"Find the Greatest Common Divisor \(GCD\) of these numbers: (.*?)\. .*",
                               r"Find the greatest common divisor of \1."), _count,
            {"max_value": 100}, {"max_numbers": 3, "max_value": 1000},
        ),
        "lcm": Family(
            "lcm", "numeric", (r"Find the Least Common Multiple \(LCM\) of these numbers: (.*)",
                               r"Find the least common multiple of \1."), _count,
            {"max_value": 30}, {"max_numbers": 3, "max_value": 60},
        ),
        "count_primes": Family(
            "count_primes", "numeric", (r"(.*?) ?\?", r"\1?"), _count, {"max_n": 100}, {"min_n": 500, "max_n": 2000},
        ),
    },
    "algebra": {
        "simple_equations": Family(
            "simple_equations", "numeric", (r"(.*)", r"\1"), _near,
            {"max_terms": 2, "max_value": 20}, {"min_terms": 3, "max_terms": 4},
        ),
    },
    "sequences": {
        "number_sequence": Family(
            "number_sequence", "numeric", (r"(.*)", r"Continue the sequence: \1"), _near,
            {"max_terms": 6, "max_complexity": 1}, {"max_terms": 8, "max_complexity": 3},
        ),
    },
    "words": {
        "letter_counting": Family(
            "letter_counting", "numeric", (r"(.*)", r"\1"), _count,
            {"min_words": 3, "max_words": 6}, {"min_words": 8, "max_words": 14},
        ),
        "spell_backward": Family(
            "spell_backward", "exact", (r".*: (.*)", r'Spell the word "\1" backward.'), _letters,
            {"min_word_len": 4, "max_word_len": 6}, {"min_word_len": 7, "max_word_len": 10},
        ),
        "word_sorting": Family(
            "word_sorting", "exact_case",
            (r"(?s).*Now, sort these words in (\w+) order .*?: (.*)\n", r"Sort in \1 ASCII order, with commas: \2"),
            _order, {"min_words": 4, "max_words": 4, "max_word_length": 8}, {"min_words": 6, "max_words": 8},
        ),
        "word_sequence_reversal": Family(
            "word_sequence_reversal", "exact_case",
            (r"(?s).*Reverse this list of words: (.*)\n", r"Reverse this list, keeping the commas: \1"), _order,
            {"min_words": 4, "max_words": 5}, {"min_words": 6, "max_words": 8},
        ),
    },
    "logic": {
        "family_relationships": Family(
            "family_relationships", "exact", _FAMILY_STEM, _RELATIVE,
            {"min_family_size": 3, "max_family_size": 4}, {"min_family_size": 5, "max_family_size": 6}, skip=_INVERTED,
        ),
        "leg_counting": Family(
            "leg_counting", "numeric", (r"(?s).*if you have (.*)\?\s*", r"How many legs do \1 have together?"), _count,
            {"min_animals": 2, "max_animals": 3, "max_instances": 5}, {"min_animals": 4, "max_animals": 6},
        ),
        "siblings": Family("aiw", "numeric", (r"(?s)(.*)", r"\1"), _count, {"max_entities": 6}, {"max_entities": 20}),
        "self_reference": Family(
            "self_reference", "numeric", (r"(?s).*please tell me (the number of possible solutions): (.*)",
                                          r"Give \1, that is, of ways to call each of these true or false: \2"), _count,
            {"difficulty": 2}, {"difficulty": 6},
        ),
    },
    "code": {
        "count_bits": Family("count_bits", "numeric", (r"(.*)", r"\1"), _count, {"max_n": 300}, {"min_n": 5000}),
        "string_rules": Family(
            "string_manipulation", "exact_case",
            (r"(?s).*first applicable rule to the string:\n(.*?)\n\nOnce .*:\n(\w+)\s*",
             r"Change the string \2 by the first of these rules that fits, again and again, until none changes it or a "
             r"string comes twice (then the one before): \1 What is it at the end?"), _letters,
            {"min_string_length": 5, "max_string_length": 8, "min_num_rules": 3, "max_num_rules": 3},
            {"min_string_length": 9, "max_string_length": 14, "min_num_rules": 4, "max_num_rules": 5}, skip=r"^.?$",
        ),
        "base_conversion": Family(
            "base_conversion", "exact", (r"(?s).*Now, convert (.*?)\s*",
                                         r"Convert \1, with lowercase letters for digits above 9."), _hexadecimal,
            {"max_base": 10, "max_value": 100}, {"min_value": 300, "max_value": 3000}, skip=r"^.$",
        ),
        "bitwise": Family(
            "bitwise_arithmetic", "exact", (r"(?s).*\n(\(.*\))\s*",
                                            r"Compute \1 with unlimited signed integers; answer in hexadecimal: -0x3."),
            _hexadecimal, {"difficulty": 1}, {"difficulty": 2},
        ),
    },
    "puzzles": {
        "maze": Family(
            "maze", "numeric", (r"(?s)(Navigate .*?):\s+```\n(.*)\n```\n(Legend: .*?)\n.*",
                                r"\1 in the fewest steps. How many?\n\2\n\3"), _count,
            {"min_dist": 3, "max_dist": 6, "min_grid_size": 5, "max_grid_size": 6},
            {"min_dist": 6, "max_dist": 12, "min_grid_size": 7, "max_grid_size": 9}, lines=True,
        ),
        "cube": Family(
            "color_cube_rotation", "exact", (r"(?s)(.*\?)\s*Provide.*", r"\1"), _COLOR,
            {"min_rotations": 1, "max_rotations": 1}, {"min_rotations": 2, "max_rotations": 3},
        ),
        "island": Family(
            "largest_island", "numeric", (r"(?s).*matrix grid:\n(.*?)\n\n.*",
                                          r"How many 1s has the largest group that touches by sides?\n\1"), _count,
            {"min_rows": 3, "max_rows": 4, "min_cols": 3, "max_cols": 5},
            {"min_rows": 6, "max_rows": 8, "min_cols": 6, "max_cols": 8}, skip="^0$", lines=True,
        ),
        "alternation": Family(
            "binary_alternation", "numeric", (r"(?s).*alternating: ([01]+)\s*",
                                              r"The fewest swaps of two bits, neighbours or not, that make \1 alternate"
                                              r" (-1 if none do)?"), _near,
            {"min_n": 6, "max_n": 10}, {"min_n": 12, "max_n": 24},
        ),
    },
    "choice": {
        "family_choice": Family(
            "family_relationships", "choice", _FAMILY_STEM, _RELATIVE,
            {"min_family_size": 3, "max_family_size": 4}, {"min_family_size": 5, "max_family_size": 6},
            lettered=True, skip=_INVERTED,
        ),
        "weekday_choice": Family(
            "calendar_arithmetic", "choice", (r"([^/]*?\d{4}(?: fall)?[?.]) .*", r"\1"), _WEEKDAY,
            {"tasks": ["weekday_of_date"]}, {"tasks": ["weekday_of_date"], "year": 1907}, lettered=True,
        ),
        "fraction_choice": Family(
            "fraction_simplification", "choice", (r"Simplify the fraction (\S+) .*", r"Simplify \1."), _ratio,
            {"max_value": 20, "max_factor": 9, "styles": ["plain"]},
            {"min_value": 20, "max_value": 300, "styles": ["plain"]}, lettered=True,
        ),
    },
}  # fmt: skip
FAMILIES: dict[str, Family] = {name: family for group in KINDS.values() for name, family in group.items()}


def generate(settings: TaskSettings) -> tuple[tuple[Question, ...], tuple[Question, ...], tuple[Question, ...]]:
    """Training, validation and test questions of ``settings.mix``, families in turn, no prompt twice.

    Each split holds equally many questions a family (one more of the first ones where the count does not divide). A
    family's stream is cut in the order test, validation, training: more training questions leave the others alone.

    Raises:
        UserError: for an unknown or repeated family, or one with too few distinct prompts.
    """
    names = [task.kind for task in settings.mix]
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        known = "; ".join(f"{kind}: {', '.join(families)}" for kind, families in KINDS.items())
        raise UserError(f"tasks.mix: unknown family {unknown[0]!r} ({known})")
    if len(set(names)) < len(names):
        raise UserError(f"tasks.mix: a family may come once, got {names}")
    counts = {"test": settings.test, "validation": settings.validation, "train": settings.train}
    splits: dict[str, list[list[Question]]] = {split: [] for split in counts}
    for place, task in enumerate(settings.mix):
        shares = {split: len(range(place, count, len(names))) for split, count in counts.items()}
        stream = draw(task.kind, task.difficulty, settings.seed, sum(shares.values()))
        for split, share in shares.items():
            splits[split].append([replace(next(stream), id=f"{task.kind}/{split}/{index}") for index in range(share)])
    train, validation, test = (in_turn(splits[split]) for split in ("train", "validation", "test"))
    return train, validation, test


def draw(name: str, difficulty: str, seed: int, count: int) -> Iterator[Question]:
    """``count`` questions of a family with distinct prompts, their ids still blank.

    Raises:
        UserError: when the family runs out of distinct prompts.
    """
    family, prompts = FAMILIES[name], set()
    for entry in entries(name, difficulty, seed, 20 * count + 200):
        made = question(name, entry, Random(_seed(seed, name, entry["question"])))
        if made is None or made.prompt in prompts:
            continue
        prompts.add(made.prompt)
        yield made
        if len(prompts) == count:
            return
    raise UserError(
        f"tasks.mix: {name} ({difficulty}) has only {len(prompts)} distinct prompts of the {count} needed; "
        f"ask for fewer, another difficulty or another family than {family.source}"
    )


def identified(name: str, difficulty: str, seed: int, count: int) -> list[Question]:
    """As ``draw``, with ids."""
    made = draw(name, difficulty, seed, count)
    return [replace(question, id=f"{name}/{difficulty}/{index}") for index, question in enumerate(made)]


def entries(name: str, difficulty: str, seed: int, size: int) -> Iterator[Entry]:
    """Raw entries of reasoning-gym, from its dataset of ``size``; imported here because that takes seconds."""
    dataset = source(name, difficulty, seed, size)
    return (dataset[index] for index in range(size))


def source(name: str, difficulty: str, seed: int, size: int) -> Any:
    """The reasoning-gym dataset behind a family (its ``score_answer`` verifies answers)."""
    import reasoning_gym

    family = FAMILIES[name]
    config = dict(family.easy if difficulty == "easy" else family.normal)
    return reasoning_gym.create_dataset(family.source, seed=_seed(seed, name, difficulty), size=size, **config)


def question(name: str, entry: Entry, rng: Random) -> Question | None:
    """A question without id from an entry, or ``None`` for an entry that has no short form or too few wrong answers."""
    family = FAMILIES[name]
    pattern, template = family.stem
    match = re.fullmatch(pattern, entry["question"])
    answer = str(entry["answer"])
    if match is None or re.search(family.skip, answer):
        return None
    stem = match.expand(template).strip() if family.lines else " ".join(match.expand(template).split())
    grader = "exact" if family.lettered else family.grader
    plain = Question("", name, stem, answer, grader)
    wrong = _distractors(plain, family.wrong, rng)
    if wrong is None:
        return None
    if not family.lettered:
        return Question("", name, stem, answer, grader, wrong=wrong)
    options = [answer, *wrong]
    rng.shuffle(options)
    gold = options.index(answer)
    letters = ascii_uppercase[: len(options)]
    others = tuple(letter for letter in letters if letter != letters[gold])
    return Question("", name, choice.render(stem, options), letters[gold], family.grader, tuple(options), others)


def _distractors(plain: Question, propose: Wrong, rng: Random) -> tuple[str, ...] | None:
    found: list[str] = []
    for _ in range(60):
        try:
            wrong = propose(plain.answer, rng)
        except ValueError:
            return None
        if wrong not in found and grade(plain, f"<answer>{wrong}</answer>", True) is Grade.WRONG:
            found.append(wrong)
        if len(found) == WRONG_ANSWERS:
            return tuple(found)
    return None


def in_turn(columns: list[list[Question]]) -> tuple[Question, ...]:
    """The first of every column, then the second of every column, and so on."""
    longest = max(len(column) for column in columns)
    return tuple(column[row] for row in range(longest) for column in columns if row < len(column))


def _seed(*parts: object) -> int:
    """A 31-bit seed: reasoning-gym adds the index to it, so neighbouring seeds would share entries."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4]) >> 1
