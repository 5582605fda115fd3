"""Simulated models: stated skills, replies as real text, so that the way from prompt to parser to grader runs.

Every draw is a hash of (seed, call identity): the same call gets the same reply in any order and any process, and
calls shared under common random numbers share their luck. Nothing in a reply tells whether it is right, except the
answer itself.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from trinity_jax.config import PoolSettings, SimulatedModelSettings
from trinity_jax.errors import UserError
from trinity_jax.pool.reply import Call, Outcome, Reply

_CHARS_PER_TOKEN = 4
_SHOWN_CHARS = 40

# One sentence each, of like length; which one is said depends on (model, question) alone.
_APPROACHES = (
    "Took it step by step",
    "Worked from both ends",
    "Went through it slowly",
    "Wrote it out in full",
    "Tried a direct way",
    "Split it into parts",
    "Followed the wording",
    "Sorted the facts first",
)
# A suggestion names one of these. Half of them, drawn per question, are the good ones: only the simulation knows which.
# A model has one good and one bad suggestion per question, and one remark as Verifier, so that transcripts repeat.
_FOCUS = (
    "order", "start", "end", "wording", "middle", "limits", "pattern", "detail",
    "outline", "units", "steps", "cases", "symbols", "layout", "signs", "premise",
)  # fmt: skip
_REMARKS = (
    "I went through the response once more.",
    "I compared it with my own attempt.",
    "I looked at each step in turn.",
    "I read it against the task.",
)


@dataclass(frozen=True)
class SimulatedQuestion:
    """What a simulated model knows of a question: its ``answer`` and ``wrong`` ones are said as they stand."""

    kind: str
    answer: str
    wrong: tuple[str, ...]
    id: str


@dataclass(frozen=True)
class _Prepared:
    """A question as one model meets it: everything about it that no call changes."""

    question: SimulatedQuestion
    worker: float
    thinker: float
    accepts_right: float
    accepts_wrong: float
    wrong: tuple[str, ...]
    approach: str
    remark: str
    good: tuple[str, ...]
    named: tuple[str, str]


class SimulatedModel:
    """One simulated model of the pool (a ``Responder``).

    As Worker it is right with probability ``worker[kind]``, plus ``thinker_boost`` if its message holds a good
    suggestion; a wrong reply is w_1 with probability c + (1 - c)/m and each other of the m wrong answers with
    (1 - c)/m, where c is ``wrong_concentration`` and w_1 is the same for all models. As Thinker it makes a good
    suggestion, always for the Worker, with probability ``thinker[kind]``. As Verifier it accepts the response quoted
    in its message with ``accepts_right`` or ``accepts_wrong``. Tokens are estimated: four characters each.

    Args:
        settings: Skills, price and latency of this model.
        pool: The pool it belongs to.
        questions: By prompt; a call is understood by the longest prompt that its user message holds.
        seed: Any integer; 0 is a seed like any other.

    Raises:
        UserError: A question's kind is in no skill table, it has no wrong answer, or a wrong one that is right.
    """

    def __init__(
        self,
        settings: SimulatedModelSettings,
        pool: PoolSettings,
        questions: Mapping[str, SimulatedQuestion],
        seed: int,
    ):
        self.name = settings.name
        self._settings = settings
        self._pool = pool
        self._key = blake2b(str(seed).encode(), digest_size=32).digest()
        # Longest first: a prompt may stand inside another one.
        self._prepared = {
            prompt: self._prepare(questions[prompt]) for prompt in sorted(questions, key=len, reverse=True)
        }

    async def reply(self, call: Call) -> Reply:
        """Answer one call; a message without a known question is an error outcome."""
        if self._settings.latency_seconds:
            await asyncio.sleep(self._settings.latency_seconds)
        content = next((m.content for m in reversed(call.messages) if m.role == "user"), "")
        found = self._find(content)
        if found is None:
            return Reply(Outcome.ERROR, detail="simulated: the message holds none of the known questions")
        prompt, prepared = found
        rest = content[content.index(prompt) + len(prompt) :]
        luck, pick = self._draws(call.key())
        if call.role == "worker":
            text = self._work(prepared, rest, luck, pick)
        elif call.role == "thinker":
            text = _think(prepared, luck)
        elif call.role == "verifier":
            text = _verify(prepared, rest, luck)
        else:
            return Reply(Outcome.ERROR, detail=f"simulated: no role {call.role!r}")
        tokens_in = sum(_tokens(message.content) for message in call.messages)
        tokens_out = _tokens(text)
        price = self._settings.price
        return Reply(
            Outcome.OK,
            text,
            input_tokens=tokens_in,
            output_tokens=tokens_out,
            cost=(tokens_in * price.input + tokens_out * price.output) / 1e6,
            seconds=self._settings.latency_seconds,
            finish_reason="stop",
        )

    async def close(self) -> None:
        """Nothing to free."""

    def _prepare(self, question: SimulatedQuestion) -> _Prepared:
        if not question.wrong or question.answer in question.wrong:
            raise UserError(
                f"simulated pool: question {question.id} needs wrong answers that differ from {question.answer!r}, "
                f"got {list(question.wrong)}"
            )
        skills = self._skills(question)
        focus = self._ranked(_FOCUS, "focus", question.id)
        good, bad = focus[: len(focus) // 2], focus[len(focus) // 2 :]
        mine = (question.id, self.name)
        return _Prepared(
            question=question,
            worker=_skill(skills, "worker", question.kind),
            thinker=_skill(skills, "thinker", question.kind),
            accepts_right=skills.accepts_right,
            accepts_wrong=skills.accepts_wrong,
            wrong=self._ranked(tuple(dict.fromkeys(question.wrong)), "wrong", question.id),
            approach=self._ranked(_APPROACHES, "approach", *mine)[0],
            remark=self._ranked(_REMARKS, "remark", *mine)[0],
            good=good,
            named=(self._ranked(good, "named", *mine)[0], self._ranked(bad, "named", *mine)[0]),
        )

    def _skills(self, question: SimulatedQuestion) -> SimulatedModelSettings:
        """Whose skills this model has on this question: its own, or under ``shuffle_skills`` a permuted model's."""
        if not self._pool.shuffle_skills:
            return self._settings
        names = self._pool.names
        owner = self._ranked(names, "skills", question.id)[names.index(self.name)]
        return self._pool.simulated[names.index(owner)]

    def _ranked(self, items: tuple[str, ...], *purpose: str) -> tuple[str, ...]:
        """The items in an order drawn by hash of (seed, purpose)."""
        return tuple(sorted(items, key=lambda item: self._digest("\0".join((*purpose, item)))))

    def _find(self, content: str) -> tuple[str, _Prepared] | None:
        # Messages begin with the question as a rule, and that is the cheap test.
        for prompt, prepared in self._prepared.items():
            if content.startswith(prompt):
                return prompt, prepared
        return next((item for item in self._prepared.items() if item[0] in content), None)

    def _draws(self, text: str) -> tuple[float, float]:
        """Two independent uniform numbers in [0, 1)."""
        digest = self._digest(text)
        return int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:16]) / 2**64

    def _digest(self, text: str) -> bytes:
        return blake2b(text.encode(), digest_size=16, key=self._key).digest()

    def _work(self, prepared: _Prepared, rest: str, luck: float, pick: float) -> str:
        advice = _last(rest, "<suggestion>", "</suggestion>")
        boost = self._pool.thinker_boost if advice and advice.rpartition(" ")[2] in prepared.good else 0.0
        if luck < prepared.worker + boost:
            said = prepared.question.answer
        else:
            said = _distractor(prepared.wrong, self._pool.wrong_concentration, pick)
        shown = " ".join(said.split())
        shown = shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + "..."
        return f"<idea>{prepared.approach}: {shown}</idea>\n<answer>{said}</answer>"


def _think(prepared: _Prepared, luck: float) -> str:
    word = prepared.named[luck >= prepared.thinker]
    return f"<suggestion>Keep an eye on the {word}</suggestion>\n<suggested_role>worker</suggested_role>"


def _verify(prepared: _Prepared, rest: str, luck: float) -> str:
    right = _last(rest, "<answer>", "</answer>") == prepared.question.answer.strip()
    accepted = luck < (prepared.accepts_right if right else prepared.accepts_wrong)
    return f"{prepared.remark}\nVERDICT: {'ACCEPT' if accepted else 'REJECT'}"


def _distractor(wrong: tuple[str, ...], concentration: float, pick: float) -> str:
    """The wrong answer at quantile ``pick`` of c on the first and 1 - c spread evenly over all."""
    if pick < concentration:
        return wrong[0]
    return wrong[min(int((pick - concentration) / (1 - concentration) * len(wrong)), len(wrong) - 1)]


def _skill(settings: SimulatedModelSettings, role: str, kind: str) -> float:
    table: dict[str, float] = getattr(settings, role)
    if kind not in table and "default" not in table:
        raise UserError(
            f"pool.simulated: {settings.name}: {role} has no skill for {kind!r} and no default (has {sorted(table)})"
        )
    return table.get(kind, table.get("default", 0.0))


def _last(text: str, opening: str, closing: str) -> str | None:
    """What stands in the last ``opening`` ... ``closing``."""
    stop = text.rfind(closing)
    begin = text.rfind(opening, 0, max(stop, 0))
    return text[begin + len(opening) : stop].strip() if begin >= 0 else None


def _tokens(text: str) -> int:
    return math.ceil(len(text) / _CHARS_PER_TOKEN)
