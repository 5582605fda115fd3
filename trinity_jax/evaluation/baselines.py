"""What the coordinator has to beat: what else could be done with the same pool and questions, at stated calls."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trinity_jax.config import EpisodeSettings
from trinity_jax.evaluation import table
from trinity_jax.evaluation.bench import Bench, Terms, worker_samples
from trinity_jax.evaluation.deciders import Dispatch, FixedPolicy, RandomPolicy, RoundRobin
from trinity_jax.evaluation.forecast import searched_cells
from trinity_jax.evaluation.intervals import known_mean
from trinity_jax.evaluation.rivals import play_rivals
from trinity_jax.evaluation.routers import Learned
from trinity_jax.evaluation.scores import Scores, Spent, episode_keys, from_results
from trinity_jax.evaluation.voting import plurality
from trinity_jax.pool.pool import Pool
from trinity_jax.rollout.engine import EpisodeResult, rollout
from trinity_jax.tasks.question import Question

COORDINATOR = "coordinator"
FIXED = "best fixed tri-role policy"
PER_KIND = "best fixed policy per kind (a ceiling: it is told the kind)"


@dataclass(frozen=True)
class Search:
    """Every fixed tri-role policy on the training questions, equally often each.

    ``asked`` counts the calls of all episodes, ``made`` those that had to be made: the others were shared or known.
    """

    policies: tuple[FixedPolicy, ...]
    scores: tuple[Scores, ...]
    kinds: tuple[str, ...]
    asked: int
    made: int

    def best(self, kind: str | None = None) -> FixedPolicy:
        """The policy with the highest mean reward (on one kind of question); ties go to fewer calls, then the first."""
        rows = np.array([kind is None or other == kind for other in self.kinds])

        def merit(index: int) -> tuple[float, float]:
            accuracy = known_mean(self.scores[index].per_question[rows])
            return (-1.0 if math.isnan(accuracy) else accuracy, -float(self.scores[index].calls[rows].sum()))

        return self.policies[max(range(len(self.policies)), key=merit)]


@dataclass(frozen=True)
class Comparison:
    """The coordinator and its rivals on the same held-out questions and repeats.

    Attributes:
        scores: in table order, the coordinator's first.
        kinds: of the questions.
        singles: names of the rows of single models at the coordinator's number of calls.
        search: of fixed policies, if there was one.
        single: the one of ``singles`` that was chosen on training questions; None where there were none, and the best
            on the held-out questions counts.
        left_out: rows that were asked for and could not be played, and why.
    """

    scores: tuple[Scores, ...]
    kinds: tuple[str, ...]
    singles: tuple[str, ...]
    search: Search | None
    single: str | None = None
    left_out: tuple[str, ...] = ()

    @property
    def best_single(self) -> str:
        """Name of the row that stands for what one model can do alone."""
        means = {s.name: known_mean(s.per_question) for s in self.scores if s.name in self.singles}
        return self.single or max(means, key=lambda name: -1.0 if math.isnan(means[name]) else means[name])

    def rows(self, resamples: int, seed: int) -> list[table.Row]:
        """The table's lines, the coordinator's first."""
        ours, best = self.scores[0], next(s for s in self.scores if s.name == self.best_single)
        return [
            table.row(
                s, self.kinds, None if s is ours else ours, resamples, seed, None if s.name == best.name else best
            )
            for s in self.scores
        ]

    def summary(self, rows: Sequence[table.Row]) -> dict[str, Any]:
        """The comparison's part of summary.json (``table.summary``) and what the search of fixed policies took."""
        fixed = FIXED if self.search else None
        found = table.summary(rows, COORDINATOR, self.best_single, fixed, len(self.kinds), self.single is not None)
        if self.search:
            found["fixed_policy_search"] = {
                "policies": len(self.search.policies),
                "questions": len(self.search.kinds),
                "repeats": self.search.scores[0].rewards.shape[1],
                "calls": self.search.asked,
                "calls_made": self.search.made,
            }
        return found


async def compare(
    coordinator: Sequence[EpisodeResult],
    training: Sequence[Question],
    held_out: Sequence[Question],
    pool: Pool,
    terms: Terms,
    scope: str = "evaluation",
    search_episodes: int = 0,
    rivals: Sequence[str] = (),
    learned: Learned | None = None,
) -> Comparison:
    """Run every baseline on the coordinator's held-out questions and repeats.

    Args:
        coordinator: its episodes on ``held_out``, one for each question and repeat.
        training: where the best fixed policy is chosen.
        held_out: where everything is compared.
        pool: who answers. All methods share equal calls; each method's calls are counted as if it were alone.
        terms: of the run.
        scope: of the calls' identity.
        search_episodes: about how many episodes the search of fixed policies plays; every policy plays every training
            question at least once. As many as the coordinator's training had make a fair rival: on few questions once
            each, luck picks a policy well below the best.
        rivals: the rows beyond those of every run, see ``EvaluationSettings.rivals``.
        learned: single answers to the training questions, for rows that choose by them.
    """
    ours = from_results(COORDINATOR, coordinator)
    repeats, names, kinds = ours.rewards.shape[1], pool.names, tuple(q.kind for q in held_out)
    votes = max(1, math.ceil(ours.calls.mean()))
    samples = [
        await worker_samples(model, held_out, repeats * votes, pool, terms.episode, scope)
        for model in range(len(names))
    ]
    bench = Bench(held_out, repeats, votes, pool, terms, samples, scope)
    strict = terms.episode.strict_answer_tag
    single = [from_results(f"{name}, one call", bench.answers(model)) for model, name in enumerate(names)]
    plural = [
        plurality(f"{name}, plurality of {votes}", held_out, samples[model], repeats, strict)
        for model, name in enumerate(names)
    ]

    search, fixed = None, []
    if terms.evaluation.fixed_policy and training:
        search = await search_fixed(training, pool, len(names), terms.episode, f"{scope} search", search_episodes)
        best = search.best()
        by_kind = {kind: search.best(kind) if kind in search.kinds else best for kind in dict.fromkeys(kinds)}
        told = Dispatch(lambda key: by_kind[kinds[key.question]])
        note = "; ".join(f"{kind}: {policy.describe(names)}" for kind, policy in by_kind.items())
        fixed = [await bench.play(FIXED, best, best.describe(names))]
        fixed.append(replace(await bench.play(PER_KIND, told, note), ceiling=True))

    needs_response = terms.episode.verifier_needs_response
    random = await bench.play("random model and role", RandomPolicy(len(names), terms.seed, needs_response))
    robin = await bench.play("round-robin", RoundRobin(len(names)))
    played, left_out = await play_rivals(bench, single, plural, rivals, learned)
    scores = (ours, *fixed, *plural, *played, *single, random, robin, per_question_best(single))
    chosen = plural[learned.best()].name if learned else None
    return Comparison(scores, kinds, tuple(s.name for s in plural), search, chosen, left_out)


async def search_fixed(
    training: Sequence[Question], pool: Pool, models: int, settings: EpisodeSettings, scope: str, episodes: int = 0
) -> Search:
    """Play all L^2 (Worker, Verifier) pairs and all L^3 triples with a Thinker on the training questions.

    Each plays every question equally often: as often as ``episodes`` in all allow, and once at least. ``scope`` is for
    these calls alone.
    """
    policies = tuple(
        FixedPolicy(worker, verifier, thinker)
        for thinker, worker, verifier in itertools.product((None, *range(models)), range(models), range(models))
    )
    repeats = searched_cells(models, len(training), episodes) // len(training)
    keys = [key for index in range(len(policies)) for key in episode_keys(len(training), repeats, candidate=index)]
    results = await rollout(keys, training, Dispatch(lambda key: policies[key.candidate]), pool, settings, scope)
    width = len(training) * repeats
    scores = tuple(from_results("", results[i : i + width]) for i in range(0, len(results), width))
    asked = sum(int(s.calls.sum()) for s in scores)
    # The journal's count, since a resumed process makes only what is left.
    return Search(policies, scores, tuple(q.kind for q in training), asked, pool.journal.totals(scope).calls)


def per_question_best(single: Sequence[Scores]) -> Scores:
    """The oracle over models at one call each: right where any model was.

    It is inflated by luck: among L lucky draws the luckiest is taken, so even L equal models look better than one.
    """
    rewards = np.stack([s.rewards for s in single])
    failed = np.isnan(rewards)
    best = np.where(failed.all(axis=0), np.nan, np.where(failed, -1.0, rewards).max(axis=0))
    undecided = np.logical_and.reduce([s.undecided for s in single])
    calls = np.sum([s.calls for s in single], axis=0)
    took, spent = [s.spent for s in single if s.spent is not None], None
    if took:  # the models could be asked at once
        spent = Spent(*(np.sum(part, axis=0) for part in zip(*took, strict=True)))
        spent = spent._replace(seconds=np.max([t.seconds for t in took], axis=0))
    return Scores("best per question (oracle, inflated by luck)", best, undecided, calls, spent=spent, ceiling=True)
