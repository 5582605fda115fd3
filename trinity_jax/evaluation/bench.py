"""What every rival of the coordinator is played on: the same questions, repeats, pool and single answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trinity_jax.config import EpisodeSettings, EvaluationSettings
from trinity_jax.episode.episode import EpisodeState
from trinity_jax.evaluation.deciders import FixedPolicy
from trinity_jax.evaluation.scores import Scores, episode_keys, from_results
from trinity_jax.pool.pool import Pool
from trinity_jax.pool.reply import Reply
from trinity_jax.rollout.decide import Decider, EpisodeKey
from trinity_jax.rollout.engine import EpisodeResult, rewarded, rollout
from trinity_jax.tasks.question import Question

SIMULATED = "simulated"
"""The endpoint of simulated models in a call's identity."""


class Terms(Protocol):
    """The settings that a comparison goes by; a run's have them all."""

    @property
    def seed(self) -> int:
        """Of random policies and of the bootstrap."""
        ...

    @property
    def episode(self) -> EpisodeSettings:
        """The protocol."""
        ...

    @property
    def evaluation(self) -> EvaluationSettings:
        """Which rows, how many resamples."""
        ...


@dataclass(frozen=True)
class Bench:
    """Q held-out questions, each ``repeats`` times.

    Attributes:
        votes: K, the coordinator's mean calls per episode, rounded up: what a single model may spend.
        samples: for each model Q x (repeats * votes) independent Worker calls; sample s belongs to repeat s mod
            ``repeats``. All methods share them, each counts them as if it were alone.
        scope: of the calls' identity.
    """

    questions: Sequence[Question]
    repeats: int
    votes: int
    pool: Pool
    terms: Terms
    samples: Sequence[Sequence[EpisodeResult]]
    scope: str

    async def play(self, name: str, decider: Decider, note: str = "") -> Scores:
        """The tri-role protocol with this decider."""
        keys = episode_keys(len(self.questions), self.repeats)
        results = await rollout(keys, self.questions, decider, self.pool, self.terms.episode, self.scope)
        return from_results(name, results, note)

    def answers(self, model: int) -> list[EpisodeResult]:
        """One answer of a model to every question and repeat."""
        return [result for result in self.samples[model] if result.key.repeat < self.repeats]

    async def graded(self, key: EpisodeKey, state: EpisodeState, replies: Sequence[Reply]) -> EpisodeResult:
        """An episode of these replies, graded by its last response; without a reward where its last call failed."""
        reward, grade = None, None
        if replies[-1].outcome.gradable:
            question, terms = self.questions[key.question], self.terms.episode
            reward, grade = await rewarded(key, question, self.pool, state, terms, self.scope)
        return EpisodeResult(key, reward, grade, state, (), tuple(replies))

    @property
    def simulated(self) -> bool:
        """Whether the pool only plays at being models: it reads questions and roles, and no other instruction."""
        return all(seat.endpoint == SIMULATED for seat in self.pool.seats)


async def worker_samples(
    model: int, questions: Sequence[Question], samples: int, pool: Pool, settings: EpisodeSettings, scope: str
) -> list[EpisodeResult]:
    """Episodes of one Worker call each: ``samples`` independent answers of one model to every question."""
    once = settings.model_copy(update={"max_calls": 1})
    return await rollout(episode_keys(len(questions), samples), questions, FixedPolicy(model, model), pool, once, scope)
