"""Jitted worlds of studies: generated questions, every transcript that can arise, an encoder's states of them."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from experiments.study_settings import WorldSettings
from trinity_jax.config import (
    EncoderSettings,
    EpisodeSettings,
    HeadSettings,
    PoolSettings,
    ReadoutSettings,
    SvfSettings,
    TaskSettings,
)
from trinity_jax.coordinator import layout as layouts
from trinity_jax.coordinator import readout as readouts
from trinity_jax.coordinator.heads import Head
from trinity_jax.coordinator.layout import BIAS, HEAD, Layout
from trinity_jax.coordinator.readout import Readout
from trinity_jax.coordinator.transcripts import TranscriptEncoder
from trinity_jax.encoder.decoder import cut
from trinity_jax.encoder.states import Progress, cached, decoder_of
from trinity_jax.encoder.states import read as tokens
from trinity_jax.episode.episode import EpisodeState, Role, messages, start, step
from trinity_jax.episode.transcript import view
from trinity_jax.errors import UserError
from trinity_jax.pool.reply import Call, Message, Sampling
from trinity_jax.pool.simulated import SimulatedModel, SimulatedQuestion
from trinity_jax.tasks.generated import FAMILIES
from trinity_jax.tasks.jsonl import load_tasks
from trinity_jax.tasks.question import Question
from trinity_jax.world import histories
from trinity_jax.world.episode import Trace, play
from trinity_jax.world.evolve import World
from trinity_jax.world.histories import Event
from trinity_jax.world.skills import from_pool
from trinity_jax.world.states import Drifting, Logits, States, Table, clusters

_AT_ONCE = 256  # transcripts between two words on progress


class Ground(NamedTuple):
    """Questions and raw hidden states that any pool can be put on.

    Attributes:
        kinds: kind of each of the Q questions, training questions first.
        states: of every history.
        train: how many of the questions are for training.
        difficulty: of each question, in logits.
        settings: it was made from.
    """

    kinds: tuple[str, ...]
    states: Drifting | Table
    train: int
    difficulty: Float[np.ndarray, " Q"]
    settings: WorldSettings


def build_ground(settings: WorldSettings, pool_size: int, progress: Progress | None = None) -> Ground:
    """Make the questions and their states; an encoder's are kept in the user's cache folder.

    Args:
        settings: of the world.
        pool_size: L, which the router prompt names.
        progress: hears of the encoder's batches.

    Raises:
        UserError: an unknown kind of question, or an encoder that cannot be read.
    """
    root = jax.random.key(settings.seed)
    if settings.states == "encoder":
        asked = questions(settings)
        kinds = tuple(question.kind for question in asked)
        texts = [text for question in asked for text in transcripts(question, settings)]
        h = _encoded(settings.encoder, texts, pool_size, progress)
        states: Drifting | Table = Table(jnp.asarray(h.reshape(len(asked), -1, h.shape[-1])))
    else:
        names = [task.kind for task in settings.mix]
        # Each set begins with the first kind, so that both are as even as they can be.
        numbers = np.concatenate([np.arange(settings.train), np.arange(settings.held_out)]) % len(names)
        kinds = tuple(names[number] for number in numbers)
        turns = histories.turns(settings.transcript, settings.max_calls)
        own = settings.synthetic
        states = clusters(
            jax.random.fold_in(root, 0), numbers, turns, own.width, own.separability, own.common, own.drift
        )
    luck = jax.random.normal(jax.random.fold_in(root, 1), (len(kinds),))
    return Ground(kinds, states, settings.train, settings.difficulty * np.asarray(luck), settings)


def check_pool(pool: PoolSettings, settings: WorldSettings, where: str) -> None:
    """Tell before any state is computed what is wrong with a pool's tables.

    Args:
        pool: of simulated models.
        settings: whose kinds the models must have skills for.
        where: the pool's key in the settings, for the message.

    Raises:
        UserError: a kind that a model has no skill for, or a skill for what is no kind of question.
    """
    kinds = [task.kind for task in settings.mix]
    try:
        from_pool(pool, kinds)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    for model in pool.simulated:
        for role, table in (("worker", model.worker), ("thinker", model.thinker)):
            if unknown := sorted(table.keys() - {"default", *kinds, *FAMILIES}):
                raise UserError(
                    f"{where}: {model.name}: {role}: {unknown[0]!r} is no kind of question; expected default or kinds "
                    f"of world.mix ({', '.join(dict.fromkeys(kinds))})"
                )


def on_ground(ground: Ground, pool: PoolSettings) -> World:
    """A pool of simulated models on these questions, in raw coordinates.

    Raises:
        UserError: a kind that a model has no skill for.
    """
    order = {kind: number for number, kind in enumerate(dict.fromkeys(ground.kinds))}
    return World(
        ground.states,
        from_pool(pool, ground.kinds, ground.difficulty),
        histories.build(ground.settings.transcript, ground.settings.max_calls),
        jnp.asarray([order[kind] for kind in ground.kinds]),
        jnp.arange(ground.train),
        jnp.arange(ground.train, len(ground.kinds)),
    )


class Seen(NamedTuple):
    """Coordinates of a world's states, and what they cost."""

    world: World
    readout: Readout
    calls: int


def read(world: World, settings: ReadoutSettings, max_calls: int, key: PRNGKeyArray) -> Seen:
    """Fit read-out coordinates on training questions and put the world into them.

    ``source: questions`` fits on the states before the first call, for nothing; ``episodes`` on those of one episode a
    training question under the uniform policy, whose calls are counted.

    Raises:
        UserError: more directions than the states have.
    """
    if settings.kind == "raw":
        return Seen(world, Readout(), 0)
    visited, calls = [(int(q), 0) for q in world.train], 0
    if settings.source == "episodes":
        visited, calls = _uniform_episodes(world, max_calls, key)
    readout = readouts.fit(settings.kind, settings.k, met(world, *np.asarray(visited).T))
    return Seen(into(world, readout), readout, calls)


def met(world: World, question: Int[np.ndarray, " B"], history: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B k"]:
    """The states of some (question, history)."""
    return np.asarray(_met(world.states, jnp.asarray(question), jnp.asarray(history)))


@jax.jit
def _met(states: States, question: Int[Array, " B"], history: Int[Array, " B"]) -> Float[Array, "B k"]:
    return jax.vmap(lambda q, s: states.every(q)[s])(question, history)


def into(world: World, readout: Readout) -> World:
    """The same world in other coordinates."""
    return world._replace(states=_coordinates(world.states, readout))


class Coordinator(NamedTuple):
    """A head on a world's coordinates: n numbers, and the logits they give."""

    head: Head
    layout: Layout
    logits: Logits
    explore: Callable[[PRNGKeyArray], Logits] | None


def coordinator(head: HeadSettings, readout: ReadoutSettings, width: int, models: int) -> Coordinator:
    """Lay a head's parameters (and a bias, where the read-out has one) out as in a run.

    Args:
        head: which head.
        readout: coordinates it reads.
        width: D.
        models: L.

    Raises:
        UserError: a head that does not fit D or L.
    """
    built, layout = layouts.plan({}, 1.0, head, readout, width, tuple(f"model {i}" for i in range(models)))

    def logits(vector, z, key=None):
        parts = layout.split(vector)
        scores = built.logits(parts[HEAD].reshape(-1), z, key)
        return scores + parts[BIAS] if BIAS in parts else scores

    noisy = (lambda key: lambda vector, z: logits(vector, z, key)) if built.noisy else None
    return Coordinator(built, layout, logits, noisy)


def questions(settings: WorldSettings) -> tuple[Question, ...]:
    """The generated questions of an encoder's world, training questions first."""
    tasks = load_tasks(
        TaskSettings(mix=settings.mix, train=settings.train, validation=1, test=settings.held_out, seed=settings.seed)
    )
    return *tasks.train, *tasks.test


def transcripts(question: Question, settings: WorldSettings) -> list[str]:
    """What the coordinator reads at each history of `histories.sequences`, from a simulated model's real replies.

    The turns name one and the same model: a history says what was done, not by whom.
    """
    return asyncio.run(_transcripts(question, settings))


async def _transcripts(question: Question, settings: WorldSettings) -> list[str]:
    protocol = EpisodeSettings(max_calls=settings.max_calls)
    mode = "full" if settings.transcript == "full" else "worker_thoughts"
    models = _actors(question)
    states: dict[tuple[Event, ...], EpisodeState] = {(): start(question.prompt)}
    for read in histories.sequences(settings.transcript, settings.max_calls):
        if read:
            states[read] = await _after(states[read[:-1]], read[-1], models, protocol)
    return [view(state, mode) for state in states.values()]


def _actors(question: Question) -> dict[Event, SimulatedModel]:
    """Two models of one name, one always right and one always wrong; neither ever accepts."""
    known = {question.prompt: SimulatedQuestion(question.kind, question.answer, question.wrong, question.id)}
    found = {}
    for event, skill in ((Event.RIGHT, 1.0), (Event.WRONG, 0.0)):
        one = {"name": "model", "worker": {"default": skill}, "thinker": {"default": 1.0}}
        pool = PoolSettings.model_validate(
            {
                "wrong_concentration": 1.0,
                "thinker_boost": 0.0,
                "simulated": [one | {"accepts_right": 0.0, "accepts_wrong": 0.0}],
            }
        )
        found[event] = SimulatedModel(pool.simulated[0], pool, known, seed=0)
    return found


async def _after(
    state: EpisodeState, event: Event, models: dict[Event, SimulatedModel], settings: EpisodeSettings
) -> EpisodeState:
    role = {Event.THINKER: Role.THINKER, Event.REJECT: Role.VERIFIER}.get(event, Role.WORKER)
    prompt = tuple(Message(*message) for message in messages(state, role))
    call = Call("simulated", "model", role.value, prompt, Sampling())
    reply = await models.get(event, models[Event.WRONG]).reply(call)
    return step(state, 0, role, reply.text, settings)


def _encoded(
    settings: EncoderSettings, texts: Sequence[str], pool_size: int, progress: Progress | None
) -> Float[np.ndarray, "B D"]:
    """States as a run has them: transcripts of one question begin alike, and with ``page`` share that beginning."""

    def compute(ids: Sequence[tuple[int, ...]]) -> Float[np.ndarray, "B 1 1 D"]:
        decoder = decoder_of(settings)
        decoder = decoder if settings.layers is None else cut(decoder, settings.layers)
        encoder = TranscriptEncoder(decoder, SvfSettings(), settings, population=1)
        rows = []
        for begin in range(0, len(ids), _AT_ONCE):
            rows.append(encoder.states(ids[begin : begin + _AT_ONCE]))
            if progress:
                progress(min(begin + _AT_ONCE, len(ids)), len(ids))
        return np.concatenate(rows)[:, None, None]

    ids = tokens(settings, texts, pool_size).ids
    return cached(settings, ids, (settings.layers or 0,), (settings.read_position,), compute)[:, 0, 0]


def _uniform_episodes(world: World, max_calls: int, key: PRNGKeyArray) -> tuple[list[tuple[int, int]], int]:
    """(question, history) of every decision of one episode a training question, and the calls made."""
    even = jnp.zeros((len(world.histories.response), world.skills.accepts_right.shape[0] + 3))
    trace = warm_up(world, even, key, max_calls)
    decided, history = np.asarray(trace.decided), np.asarray(trace.history)
    visited = [(int(q), int(s)) for q, mine, at in zip(world.train, decided, history, strict=True) for s in at[mine]]
    return visited, int(trace.called.sum())


@partial(jax.jit, static_argnames="max_calls")
def warm_up(world: World, script: Float[Array, "S L+3"], key: PRNGKeyArray, max_calls: int) -> Trace:
    """One episode a training question with the same logits for all, by history; the trace is [N, K]."""

    def one(question: Int[Array, ""]) -> Trace:
        keys = jax.random.split(jax.random.fold_in(key, question))
        skills = world.skills.take(question)
        return play(lambda history: script[history], skills, world.histories, keys[0], keys[1], max_calls)[1]

    return jax.vmap(one)(world.train)


def _coordinates(states: States, readout: Readout) -> Drifting | Table:
    if isinstance(states, Table):
        return Table(readouts.coordinates(readout, states.h))
    assert isinstance(states, Drifting)
    # The mean is taken off once, with the question's part.
    turn = readout._replace(mean=None)
    return Drifting(readouts.coordinates(readout, states.base), readouts.coordinates(turn, states.drift))


def kind_names(kinds: Sequence[str]) -> list[str]:
    """Each kind once, in order of first appearance: the numbers of `World.kinds`."""
    return list(dict.fromkeys(kinds))
