"""A model joins a trained coordinator, or is looked at again: probes, a row, a short evolution, on a real pool.

Everything that is paid for goes through a journal and a ledger: a change that was stopped is given again and pays only
for what is missing. Q questions, L models, S answers, B states, n length of the vector.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from rich.console import Console

from trinity_jax import config
from trinity_jax.config import ChangeFile, ChangeSettings, LearningSettings, PoolFile, PoolSettings, Settings
from trinity_jax.coordinator import pool_change
from trinity_jax.coordinator.export import UNKNOWN, Coordinator
from trinity_jax.coordinator.layout import BIAS, HEAD
from trinity_jax.coordinator.lineage import Step
from trinity_jax.coordinator.population import PopulationEncoder
from trinity_jax.coordinator.profile import Moved, Profile, alarms, anchor, as_answers, moved
from trinity_jax.coordinator.readout import coordinates
from trinity_jax.encoder.text import Router
from trinity_jax.episode.episode import EpisodeState, Role, start, step
from trinity_jax.episode.transcript import view
from trinity_jax.errors import UserError
from trinity_jax.evaluation.bench import worker_samples
from trinity_jax.evaluation.scores import episode_keys, from_results
from trinity_jax.learning import new_row
from trinity_jax.learning.fitness import mean_reward
from trinity_jax.learning.learner import build
from trinity_jax.learning.partial import Partial
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.pool import Pool
from trinity_jax.rollout.batcher import Batcher
from trinity_jax.rollout.decide import EpisodeKey
from trinity_jax.rollout.engine import EpisodeResult, rollout
from trinity_jax.tasks.jsonl import Tasks, load_tasks
from trinity_jax.tasks.question import Question
from trinity_jax.training.alarms import stop_on_failures
from trinity_jax.training.change_forecast import ask
from trinity_jax.training.draw import draw_questions
from trinity_jax.training.experience import states_of
from trinity_jax.training.folder import RunFolder
from trinity_jax.training.rig import Model, build_model, open_pool

AGAIN = "give the same command again: what was paid for is kept"
_QUESTIONS, _LOOKS, _STRATEGY = 7_000_000, 8_000_000, 9_000_000  # branches of the root key; stand for a generation


@dataclass(frozen=True)
class Job:
    """One change: the coordinator, the pool in head order (a newcomer last), the questions, and how it is done."""

    coordinator: Coordinator
    pool: PoolFile
    file: ChangeFile
    calls: Path

    @property
    def change(self) -> ChangeSettings:
        """How it is done."""
        return self.file.change

    @property
    def settings(self) -> Settings:
        """Those of a run in which the coordinator plays on this pool."""
        described, change = self.coordinator.description, self.change
        groups = {name: getattr(described, name) for name in ("encoder", "svf", "head", "policy", "episode")}
        return Settings(
            seed=self.file.seed,
            pool=self.pool.pool,
            budget=self.pool.budget,
            tasks=self.file.tasks,
            # Its directions are fitted already: how many questions there are is no matter.
            readout=described.readout.model_copy(update={"source": "script"}),
            learning=LearningSettings(
                generations=max(change.generations, 1),
                population=change.population,
                questions=min(change.questions or self.file.tasks.train, self.file.tasks.train),
                sigma0=change.sigma0,
                step_size="tpa",
            ),
            **groups,
        )


def read(file: str | Path, overrides: tuple[str, ...] = ()) -> ChangeFile:
    """The groups of a run's file, or of a file of tasks, that count here.

    Raises:
        UserError: naming the key and what is wrong with it.
    """
    return config.parse(_own(config.read(file, overrides), ChangeFile), str(file), ChangeFile)


def read_pool(file: str | Path) -> PoolFile:
    """A pool's file, or the groups ``pool`` and ``budget`` of a run's.

    Raises:
        UserError: naming the key and what is wrong with it.
    """
    return config.parse(_own(config.read(file), PoolFile), str(file), PoolFile)


def _own(data: dict[str, Any], model: type[config.Group]) -> dict[str, Any]:
    """Drop groups that belong into the other kinds of file; unknown ones stay, so that parsing refuses them."""
    others = {*Settings.model_fields, *ChangeFile.model_fields, *PoolFile.model_fields} - model.model_fields.keys()
    return {key: value for key, value in data.items() if key not in others}


def in_order(pool: PoolFile, names: Sequence[str], where: str) -> PoolFile:
    """The same pool with its models in this order.

    Raises:
        UserError: a model that is not in the file.
    """
    if missing := [name for name in names if name not in pool.pool.names]:
        raise UserError(f"{where}: expected all models of the coordinator, {', '.join(missing)} is missing")
    field = "simulated" if pool.pool.simulated else "models"
    models = {model.name: model for model in getattr(pool.pool, field)}
    ordered: PoolSettings = pool.pool.model_copy(update={field: tuple(models[name] for name in names)})
    return pool.model_copy(update={"pool": ordered})


def newcomer(coordinator: Coordinator, pool: PoolFile, where: str) -> str:
    """The one model of the file that the coordinator does not know.

    Raises:
        UserError: none, or several.
    """
    new = [name for name in pool.pool.names if name not in coordinator.description.pool]
    if len(new) != 1:
        known = ", ".join(coordinator.description.pool)
        raise UserError(
            f"{where}: expected one model that the coordinator does not know (it knows {known}), got "
            f"{', '.join(new) or 'none'}; models are added one at a time"
        )
    return new[0]


def add(job: Job, name: str, action: str, console: Console, yes: bool) -> Coordinator:
    """A coordinator with a row for the last model of ``job.pool``.

    Args:
        job: its coordinator does not have the model.
        name: of that model.
        action: ``add``, or ``renew`` where the coordinator had a row for it before.
        console: where the forecast is shown, and the question put.
        yes: go on without asking.

    Raises:
        UserError: a head without rows, a profile of other questions, failed calls, a spent budget, or the answer no.
    """
    old, change, settings = job.coordinator, job.change, job.settings
    head, layout, vector = pool_change.extended(old, name, np.zeros(old.head.inputs), 0.0)
    tasks = load_tasks(settings.tasks)
    drawn, known = _anchors(job, tasks.train)
    questions = [tasks.train[place] for place in drawn]
    asked = [model for model in settings.pool.names if known is None or model not in known.answers]
    with _journal(job.calls) as journal, asyncio.Runner() as runner:
        pool = runner.run(open_pool(settings, tasks, journal))
        try:
            before = journal.totals()
            ask(job, pool, questions, len(asked), console, yes)
            # The encoder is loaded once it is clear that the change is wanted.
            model = _model(job, old, settings)
            rows = [pool.names.index(name), *range(len(pool.names), len(pool.names) + 3)]
            strategy = settings.learning
            learner = Partial(layout.places(rows), layout.size, lambda m: build(strategy, m))
            model = replace(model, head=head, layout=layout, learner=learner)
            population = PopulationEncoder(model.encoder, layout, head, old.readout, settings.seed)
            batcher = Batcher(population, model.router, settings.episode, journal)
            try:
                work = _Work(job, runner, pool, model, population, batcher, questions)
                profile = work.profile(asked, known, drawn, tasks)
                console.print(f"{name}: {np.nanmean(profile.rewards([name])):.0%} right on {len(questions)} questions")
                vector = work.row(vector, profile)
                vector = work.evolve(vector, console)
            finally:
                batcher.close()
            after = journal.totals()
        finally:
            runner.run(pool.close())
    step_taken = Step(
        action="renew" if action == "renew" else "add",
        models=(name,),
        parent=old.description.sha256 if action == "add" else old.description.lineage[-1].parent,
        calls=after.calls,
        cost=after.cost,
        probes=len(asked) * len(questions) * change.samples,
        generations=change.generations,
        episodes=len(questions),
        population=change.population,
    )
    console.print(f"{after.calls:,} calls in all, {after.calls - before.calls:,} of them now; cost {after.cost:.4g}")
    if action == "renew":
        lineage = old.description.lineage[:-1]
        old = replace(old, description=old.description.model_copy(update={"lineage": lineage}))
    return pool_change.changed(old, settings.pool.names, vector, step_taken, profile)


@dataclass(frozen=True)
class Look:
    """What a check found of one model."""

    model: str
    found: Moved
    alarm: bool


def check(job: Job, console: Console, yes: bool) -> tuple[Coordinator | None, list[Look]]:
    """Ask the anchors again and compare with the profile; without one, make it.

    Returns:
        The coordinator with a profile, where it had none; and what was found of each model, where it had one.

    Raises:
        UserError: a profile of other questions, failed calls, a spent budget, or the answer no.
    """
    coordinator, settings = job.coordinator, job.settings
    names, tasks = settings.pool.names, load_tasks(settings.tasks)
    drawn, known = _anchors(job, tasks.train)
    questions = [tasks.train[place] for place in drawn]
    done = job.calls / "checks.txt"
    number = len(done.read_text(encoding="utf-8").splitlines()) if done.exists() else 0
    with _journal(job.calls) as journal, asyncio.Runner() as runner:
        pool = runner.run(open_pool(settings, tasks, journal))
        try:
            before = journal.totals()
            ask(job, pool, questions, len(names), console, yes, alone=True)
            # A scope of its own: the same questions have to be asked anew, not looked up.
            scope = "profile" if known is None else f"check {number}"
            found = runner.run(_probed(job, pool, questions, names, scope))
            after = journal.totals()
        finally:
            runner.run(pool.close())
    console.print(f"{after.calls - before.calls:,} calls, cost {after.cost - before.cost:.4g}")
    if known is None:
        profile = _new_profile(questions, dict(zip(names, found, strict=True)))
        taken = Step(
            action="profile",
            models=tuple(names),
            parent=coordinator.description.sha256,
            calls=after.calls - before.calls,
            cost=after.cost - before.cost,
            probes=len(names) * len(questions) * job.change.samples,
        )
        return pool_change.changed(coordinator, names, coordinator.vector, taken, profile), []
    looks = [moved(known.rewards([m])[:, 0], now, known.kinds) for m, now in zip(names, found, strict=True)]
    raised = alarms([look.p for look in looks], job.change.level)
    with done.open("a", encoding="utf-8") as file:
        file.write(f"{number}: {', '.join(m for m, on in zip(names, raised, strict=True) if on) or 'nothing moved'}\n")
    return None, [Look(*one) for one in zip(names, looks, raised, strict=True)]


@dataclass(frozen=True)
class _Work:
    """The newcomer's way from answers to numbers."""

    job: Job
    runner: asyncio.Runner
    pool: Pool
    model: Model
    population: PopulationEncoder
    batcher: Batcher
    questions: Sequence[Question]

    def profile(self, asked: Sequence[str], known: Profile | None, drawn: Sequence[int], tasks: Tasks) -> Profile:
        """Answers of every model."""
        scope = f"probes {len(self.job.coordinator.description.lineage)}"
        found = self.runner.run(_probed(self.job, self.pool, self.questions, asked, scope))
        answers = dict(zip(asked, found, strict=True))
        if known is None:
            return _new_profile(self.questions, answers)
        for name, rewards in answers.items():
            known = known.with_answers(name, rewards)
        return known

    def row(self, vector: Float[np.ndarray, " n"], profile: Profile) -> Float[np.ndarray, " n"]:
        """The vector with a row fitted twice: on the questions, then on the states of its own episodes too."""
        states = [(place, start(question.prompt)) for place, question in enumerate(self.questions)]
        replies = self.runner.run(self._replies())
        episode = self.job.settings.episode
        newest = len(self.pool.names) - 1
        for place, text in replies:
            states.append((place, step(states[place][1], newest, Role.WORKER, text, episode)))
        vector = self._fitted(vector, profile, states)
        looks = self.job.change.looks
        if looks:
            self.population.load(vector[None])
            keys = episode_keys(len(self.questions), looks, generation=_LOOKS)
            results = self.played(keys, _LOOKS)
            met = [(r.key.question, state) for r in results for state in states_of(r, episode)]
            vector = self._fitted(vector, profile, states + met)
        return vector

    def evolve(self, vector: Float[np.ndarray, " n"], console: Console) -> Float[np.ndarray, " n"]:
        """A short evolution of the newcomer's row and the role rows."""
        learner, Q = self.model.learner, len(self.questions)
        root = jax.random.fold_in(jax.random.key(self.job.file.seed), _STRATEGY)
        generations = self.job.change.generations
        state = learner.init(jax.random.fold_in(root, generations), vector)
        for generation in range(generations):
            ask_key, tell_key = jax.random.split(jax.random.fold_in(root, generation))
            X, state = learner.ask(state, ask_key)
            # What does not move keeps all its digits: the learner counts in single precision.
            self.population.load(self._whole(vector, np.asarray(X)))
            keys = [EpisodeKey(0, p, q, 0) for p in range(learner.population) for q in range(Q)]
            results = self.played(keys, generation)
            rewards = np.array([np.nan if r.reward is None else r.reward for r in results])
            fitness = mean_reward(rewards.reshape(learner.population, Q))
            state = learner.tell(state, X, fitness, tell_key)
            console.print(f"generation {generation}: fitness {np.nanmean(fitness):.3f}")
        return self._whole(vector, np.asarray(learner.mean(state))) if generations else vector

    def _whole(self, vector: np.ndarray, moved: np.ndarray) -> np.ndarray:
        newest = len(self.pool.names) - 1
        places = self.model.layout.places([newest, *range(newest + 1, newest + 4)])
        whole = np.broadcast_to(vector, moved.shape).copy()
        whole[..., places] = moved[..., places]
        return whole

    def played(self, keys: list[EpisodeKey], recorded_as: int) -> list[EpisodeResult]:
        """Episodes of the candidates that are loaded."""
        self.batcher.mode = self.job.settings.policy.train
        self.batcher.recall(recorded_as)
        self.pool.forget_failures()
        episode = self.job.settings.episode
        results = self.runner.run(rollout(keys, self.questions, self.batcher, self.pool, episode, "run"))
        stop_on_failures(results, self.job.change.max_failed_share, "pool change", AGAIN)
        return results

    async def _replies(self) -> list[tuple[int, str]]:
        """The newcomer's first reply to each question, from the journal; a failed one is left out."""
        scope = f"probes {len(self.job.coordinator.description.lineage)}"
        newest = len(self.pool.names) - 1
        results = await worker_samples(newest, self.questions, 1, self.pool, self.job.settings.episode, scope)
        return [(r.key.question, r.state.response) for r in results if r.state.response is not None]

    def _fitted(
        self, vector: Float[np.ndarray, " n"], profile: Profile, states: Sequence[tuple[int, EpisodeState]]
    ) -> Float[np.ndarray, " n"]:
        layout, newest = self.model.layout, len(self.pool.names) - 1
        self.population.load(vector[None])
        mode = self.job.settings.episode.transcript
        tokens = [self.model.router.ids(view(state, mode)) for _, state in states]
        h = np.stack(self.population.encoder.encode([(0, one) for one in tokens]))
        z = np.asarray(coordinates(self.population.readout, jnp.asarray(h)))
        parts = layout.split(vector)
        old = z @ parts[HEAD][:newest].T + (parts[BIAS][:newest] if BIAS in parts else 0.0)
        question = np.array([place for place, _ in states])
        first = z[: len(self.questions)]
        greedy = self.job.settings.policy.evaluate == "argmax"
        rewards = profile.rewards(self.pool.names)
        row = new_row.fit(first, rewards, z, question, old, BIAS in parts, greedy)
        fitted = vector.copy()
        values = [np.ravel(row.weights), np.ravel(row.bias)] if BIAS in parts else [np.ravel(row.weights)]
        fitted[layout.places([newest])] = np.concatenate(values)
        return fitted


async def _probed(
    job: Job, pool: Pool, questions: Sequence[Question], models: Sequence[str], scope: str
) -> list[Float[np.ndarray, "Q S"]]:
    """Single Worker calls of some models on all questions."""
    settings = job.settings
    samples = await asyncio.gather(
        *(
            worker_samples(pool.names.index(name), questions, job.change.samples, pool, settings.episode, scope)
            for name in models
        )
    )
    results = [one for each in samples for one in each]
    stop_on_failures(results, job.change.max_failed_share, "probes", AGAIN)
    return [from_results("", each).rewards for each in samples]


def _new_profile(questions: Sequence[Question], answers: dict[str, Float[np.ndarray, "Q S"]]) -> Profile:
    return Profile(
        anchors=tuple(anchor(question.prompt) for question in questions),
        kinds=tuple(question.kind for question in questions),
        answers={name: as_answers(rewards) for name, rewards in answers.items()},
    )


def _anchors(job: Job, train: Sequence[Question]) -> tuple[list[int], Profile | None]:
    """Which training questions are asked, and the profile that the coordinator has.

    Raises:
        UserError: it has one of other questions.
    """
    known = job.coordinator.description.profile
    if known is not None:
        place = {anchor(question.prompt): number for number, question in enumerate(train)}
        here = [name for name in known.anchors if name in place]
        if len(here) < len(known.anchors):
            # Named by what they are: the file's questions, as many of them as are the coordinator's.
            known.matches(list(place), "tasks")
        return [place[name] for name in known.anchors], known
    key = jax.random.fold_in(jax.random.key(job.file.seed), _QUESTIONS)
    count = min(job.change.questions or len(train), len(train))
    return draw_questions(key, [question.kind for question in train], count), None


def _model(job: Job, coordinator: Coordinator, settings: Settings) -> Model:
    """The encoder that the coordinator was trained on, with the instruction it was trained with."""
    model, described = build_model(settings), coordinator.description
    if described.checkpoint not in (model.checkpoint, UNKNOWN):
        source = described.encoder.source
        raise UserError(f"{source}: expected the weights {described.checkpoint}, got {model.checkpoint}")
    return replace(model, router=Router(model.router.tokenizer, settings.encoder, described.named_pool))


@contextmanager
def _journal(folder: Path) -> Iterator[Journal]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror})") from error
    with Journal.open(RunFolder(folder).journal) as journal:
        yield journal
