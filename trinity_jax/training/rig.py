"""Everything a run needs, built from its settings in one place: questions, encoder, pool, read-out, learner."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from trinity_jax.config import Settings, TrialSettings
from trinity_jax.coordinator import layout as layouts
from trinity_jax.coordinator import readout as readouts
from trinity_jax.coordinator.heads import Head
from trinity_jax.coordinator.layout import Layout
from trinity_jax.coordinator.population import PopulationEncoder
from trinity_jax.coordinator.readout import Readout
from trinity_jax.coordinator.transcripts import TranscriptEncoder
from trinity_jax.encoder import svf
from trinity_jax.encoder.checkpoint import load_checkpoint
from trinity_jax.encoder.decoder import cut
from trinity_jax.encoder.text import Router
from trinity_jax.encoder.tokenizer import load_tokenizer
from trinity_jax.episode.episode import start
from trinity_jax.episode.transcript import view
from trinity_jax.errors import UserError
from trinity_jax.evaluation.deciders import RandomPolicy, ScriptedPolicy
from trinity_jax.evaluation.scores import episode_keys
from trinity_jax.learning.learner import Learner, build
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.pool import Pool, build_pool
from trinity_jax.pool.records import Records
from trinity_jax.pool.simulated import SimulatedModel, SimulatedQuestion
from trinity_jax.rollout.batcher import Batcher
from trinity_jax.rollout.decide import EpisodeKey
from trinity_jax.rollout.engine import EpisodeResult, rollout
from trinity_jax.tasks.jsonl import Tasks, load_tasks
from trinity_jax.training.experience import log_probability, states_of
from trinity_jax.training.folder import RunFolder
from trinity_jax.training.hosts import Hosts

WARM_UP, WARM_UP_SCOPE = 3_000_000, "warm-up"
"""Stand in for the generation and its scope in the episodes that the read-out is fitted on."""


@dataclass(frozen=True)
class Model:
    """What is trained, without anything that costs a call: questions, encoder, vector layout, learner.

    Attributes:
        checkpoint: hash of the encoder's weights.
        layout: of the evolved vector.
    """

    tasks: Tasks
    checkpoint: str
    router: Router
    encoder: TranscriptEncoder
    head: Head
    layout: Layout
    learner: Learner


@dataclass(frozen=True)
class Rig:
    """A model wired to its pool and run folder."""

    settings: Settings
    folder: RunFolder
    hosts: Hosts
    model: Model
    pool: Pool
    readout: Readout
    population: PopulationEncoder
    batcher: Batcher


def build_model(settings: Settings) -> Model:
    """Load questions, weights and tokenizer, and lay out the vector.

    Raises:
        UserError: whatever is wrong with any of them.
    """
    tasks = load_tasks(settings.tasks)
    source, revision = settings.encoder.source, settings.encoder.revision
    decoder, checkpoint = load_checkpoint(source, dtype=jnp.dtype(settings.encoder.dtype), revision=revision)
    if settings.encoder.layers is not None:
        decoder = cut(decoder, settings.encoder.layers)
    longest, positions = settings.encoder.buckets[-1], decoder.config.max_positions
    if longest > positions:
        raise UserError(f"encoder.buckets: this encoder reads at most {positions} tokens, got {longest}")
    names = settings.pool.names
    tokenizer = load_tokenizer(source, revision)
    if tokenizer.vocab_size > decoder.config.vocab_size:
        # JAX would read the last embedding for each id beyond them.
        raise UserError(
            f"encoder.source: {source}: the tokenizer has {tokenizer.vocab_size} tokens, the weights embed "
            f"{decoder.config.vocab_size}: the two do not belong together"
        )
    router = Router(tokenizer, settings.encoder, len(names))
    sizes = {name: svf.rank(name, decoder.config) for name in svf.targets(settings.svf, decoder.config)}
    width = decoder.config.hidden_size
    if settings.readout.kind == "whitened" and settings.readout.k > width:
        raise UserError(f"readout.k: this encoder's states have {width} directions, got {settings.readout.k}")
    head, layout = layouts.plan(sizes, settings.svf.scale, settings.head, settings.readout, width, names)
    learner = build(settings.learning, layout.size, partial(log_probability, layout, head))
    # At least two decisions an episode, of at least the shortest bucket.
    episodes = settings.learning.questions * settings.learning.repeats
    tokens = 2 * episodes * settings.encoder.buckets[0]
    encoder = TranscriptEncoder(decoder, settings.svf, settings.encoder, learner.population, tokens)
    return Model(tasks, checkpoint, router, encoder, head, layout, learner)


@asynccontextmanager
async def rigged(settings: Settings, folder: RunFolder, hosts: Hosts, model: Model) -> AsyncIterator[Rig]:
    """Open the journal and the pool and fit or read the read-out; closes all of it at the end.

    Raises:
        UserError: an endpoint that cannot be reached, a journal in use, a damaged read-out.
    """
    async with AsyncExitStack() as stack:
        journal = stack.enter_context(await hosts.open_journal())
        pool = await stack.enter_async_context(await open_pool(settings, model.tasks, journal))
        readout = await _readout(settings, folder, hosts, model, pool)
        population = PopulationEncoder(model.encoder, model.layout, model.head, readout, settings.seed)
        shared_keys = not model.learner.sharing.own_keys
        batcher = Batcher(population, model.router, settings.episode, pool.journal, shared_keys)
        stack.callback(batcher.close)
        yield Rig(settings, folder, hosts, model, pool, readout, population, batcher)


async def open_pool(settings: Settings | TrialSettings, tasks: Tasks, journal: Journal) -> Pool:
    """The pool of a run; simulated models know its questions.

    Raises:
        UserError: see `pool.build_pool`.
    """
    known = {
        q.prompt: SimulatedQuestion(q.kind, q.answer, q.wrong, q.id)
        for q in (*tasks.train, *tasks.validation, *tasks.test)
    }
    if settings.pool.kind == "recorded" and settings.pool.journal is not None:
        with Records.read(settings.pool.journal) as source:
            await journal.take_grades(source.grades())
    played = settings.pool.simulated if settings.pool.kind == "simulated" else ()
    simulated = [SimulatedModel(one, settings.pool, known, settings.seed) for one in played]
    return await build_pool(settings.pool, journal, settings.budget, simulated)


async def _readout(settings: Settings, folder: RunFolder, hosts: Hosts, model: Model, pool: Pool) -> Readout:
    """Fit once per run and keep: a resumed run must not depend on the last bits of a second fit."""
    if hosts.once(folder.readout.exists):
        return _load_readout(settings, folder, model)
    chosen = settings.readout
    if chosen.kind == "raw":
        readout = Readout()
    else:
        if chosen.source == "questions":
            met = [(i, start(q.prompt)) for i, q in enumerate(model.tasks.train)]
        else:
            played = await warm_up(settings, hosts, model.tasks, pool)
            met = [(r.key.question, state) for r in played for state in states_of(r, settings.episode)]
        texts = [view(state, settings.episode.transcript) for _, state in met]
        states = encoded(hosts, model, [question for question, _ in met], texts)
        readout = hosts.once(lambda: readouts.fit(chosen.kind, chosen.k, states))
    hosts.once(lambda: _save_readout(folder, model, readout))
    return readout


def encoded(hosts: Hosts, model: Model, questions: Sequence[int], texts: Sequence[str]) -> Float[np.ndarray, "B D"]:
    """Hidden states of the un-adapted encoder; each process encodes the texts of its own questions."""
    places = hosts.share(questions)
    mine = model.encoder.states([model.router.ids(texts[place]) for place in places]) if places else ()
    return np.stack(hosts.joined(places, list(mine)))


def _save_readout(folder: RunFolder, model: Model, readout: Readout) -> None:
    arrays = {name: np.asarray(value) for name, value in readout._asdict().items() if value is not None}
    partial = folder.readout.with_suffix(".partial")
    save_file(arrays, partial, metadata={"checkpoint": model.checkpoint})
    os.replace(partial, folder.readout)


def _load_readout(settings: Settings, folder: RunFolder, model: Model) -> Readout:
    try:
        with safe_open(folder.readout, framework="numpy") as file:
            fitted_on = (file.metadata() or {}).get("checkpoint")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder.readout}: not a usable read-out ({error})") from error
    if fitted_on != model.checkpoint:
        raise UserError(f"{folder.path}: the run used encoder weights {fitted_on}, this encoder has {model.checkpoint}")
    expected = readouts.shapes(settings.readout.kind, settings.readout.k, model.encoder.width)
    if {name: array.shape for name, array in arrays.items()} != expected or not all(map(_finite, arrays.values())):
        raise UserError(f"{folder.readout}: expected finite tensors {expected}; the file is damaged")
    return Readout(**{name: jnp.asarray(array) for name, array in arrays.items()})


def _finite(array: np.ndarray) -> bool:
    return bool(np.isfinite(array).all())


async def warm_up(settings: Settings, hosts: Hosts, tasks: Tasks, pool: Pool) -> list[EpisodeResult]:
    """The episodes that ``readout.source`` asks for, one a training question; the second time from the journal."""
    models = len(settings.pool.names)
    policy = (
        ScriptedPolicy(models, settings.seed)
        if settings.readout.source == "script"
        else RandomPolicy(models, settings.seed, settings.episode.verifier_needs_response)
    )
    keys = episode_keys(len(tasks.train), 1, generation=WARM_UP)

    async def play(mine: list[EpisodeKey]) -> list[EpisodeResult]:
        return await rollout(mine, tasks.train, policy, pool, settings.episode, WARM_UP_SCOPE)

    return await hosts.rollout(keys, pool, play)
