"""Plurality: many independent answers of one model, and the answer given most often."""

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from trinity_jax.evaluation.scores import Scores, at_once, spent
from trinity_jax.reasoning import visible
from trinity_jax.rollout.engine import EpisodeResult
from trinity_jax.tasks import choice, exact, extract, numeric
from trinity_jax.tasks.question import Grade, Question


def plurality(
    name: str, questions: Sequence[Question], results: Sequence[EpisodeResult], repeats: int, strict: bool
) -> Scores:
    """Majority vote of one-call episodes: sample s of a question is a voter of repeat s mod ``repeats``.

    Replies without an answer and failed calls do not vote. No vote at all is undecided; a repeat all of whose calls
    failed has no reward. Voters need not wait for one another.
    """
    shape = (len(questions), repeats)
    ballots: dict[tuple[int, int], list[EpisodeResult]] = {(q, r): [] for q, r in np.ndindex(shape)}
    for result in sorted(results, key=lambda r: (r.key.question, r.key.repeat)):
        ballots[result.key.question, result.key.repeat % repeats].append(result)
    rewards, undecided, calls = np.full(shape, np.nan), np.zeros(shape, bool), np.zeros(shape, int)
    for cell, ballot in ballots.items():
        done = [r for r in ballot if r.reward is not None]
        elected = winner([vote(questions[cell[0]], r, strict) for r in done])
        calls[cell] = sum(len(r.replies) for r in ballot)
        undecided[cell] = bool(done) and elected is None
        if done:
            rewards[cell] = 0.0 if elected is None else done[elected].reward
    replies = {cell: [reply for r in ballot for reply in r.replies] for cell, ballot in ballots.items()}
    return Scores(name, rewards, undecided, calls, spent=spent(replies, shape, at_once))


def winner(votes: Sequence[Hashable | None]) -> int | None:
    """Position of the first vote for the most frequent answer; ties go to the answer seen first; ``None`` abstains."""
    counts = Counter(v for v in votes if v is not None)
    return votes.index(max(counts, key=counts.__getitem__)) if counts else None


def vote(question: Question, result: EpisodeResult, strict: bool) -> Hashable | None:
    """What a reply stands for: equal for replies that the question's grader reads as the same answer.

    All right answers are one vote, since the grader calls them equal. Wrong ones are told apart by letter, value or
    normalised text: where that splits a vote it can only help the right answer, that is, the baseline.
    """
    if result.grade in (None, Grade.UNDECIDED) or result.state.response is None:
        return None
    if result.grade is Grade.RIGHT:
        return Grade.RIGHT
    reply = result.state.response
    if question.grader == "choice":
        return Grade.WRONG, choice.pick(question.options, reply, strict)
    if question.grader == "numeric":
        number = numeric.find(reply, strict)
        return Grade.WRONG, number and number.value
    text = visible(reply)
    said = extract.tagged(text, unclosed=not strict) or next(iter(extract.candidates(text)), text)
    return Grade.WRONG, exact.normalise(said)
