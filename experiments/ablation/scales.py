"""Singular-value scales beside the head: the encoder runs in the generation loop, per candidate and transcript.

The world's episodes are jitted and the encoder's calls are not part of them. So a generation is played with the logits
known so far, the (candidate, transcript) pairs that it met are encoded, and it is played again, until it meets nothing
new: at most K rounds, since luck and choices do not change.
"""

import time
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray

from experiments.ablation.runs import judge, tabled
from experiments.ablation.settings import ScalesSettings
from experiments.study_settings import WorldSettings
from experiments.worlds import questions, transcripts
from trinity_jax.config import HeadSettings, LearningSettings, ReadoutSettings, Sharing, SvfSettings
from trinity_jax.coordinator import layout as layouts
from trinity_jax.coordinator.layout import HEAD
from trinity_jax.coordinator.transcripts import TranscriptEncoder
from trinity_jax.coordinator.trunk import Tokens
from trinity_jax.encoder.decoder import cut
from trinity_jax.encoder.states import decoder_of
from trinity_jax.encoder.states import read as tokens
from trinity_jax.learning.strategy import Strategy
from trinity_jax.world.evolve import Generation, Rules, World, play_generation
from trinity_jax.world.states import Table

Preset = Literal["none", "layer", "released"]


class Scaled(NamedTuple):
    """One run.

    Attributes:
        preset: which matrices had scales.
        seed: of the run.
        n: numbers evolved, of them ``scales`` singular-value scales.
        scales: see n.
        drawn: exact held-out success of the final mean, which draws its choices.
        pairs: (candidate, transcript) pairs encoded in a generation, on average.
        blocks: of the encoder that each pair has to run; the others ran once per transcript.
        seconds: a generation took, on average; the one number here that is not a function of the seed.
    """

    preset: Preset
    seed: int
    population: int
    generations: int
    sigma0: float
    n: int
    scales: int
    drawn: float
    pairs: float
    blocks: int
    seconds: float


class Encoded:
    """A small world whose states are computed as they are needed.

    Args:
        world: raw, with a table of the unscaled states.
        settings: it was made from.
        preset: which matrices are scaled.
        scales: layer and unit.
        population: P.
    """

    def __init__(self, world: World, settings: WorldSettings, preset: Preset, scales: ScalesSettings, population: int):
        assert isinstance(world.states, Table)
        self.world = world
        models = world.skills.accepts_right.shape[0]
        decoder = decoder_of(settings.encoder)
        decoder = decoder if settings.encoder.layers is None else cut(decoder, settings.encoder.layers)
        self._depth = decoder.config.num_layers
        svf = SvfSettings(preset=preset, layer=scales.layer, scale=scales.scale)
        self.encoder = TranscriptEncoder(decoder, svf, settings.encoder, population)
        names = tuple(f"model {i}" for i in range(models))
        sizes = self.encoder.adaptation.sizes
        raw = ReadoutSettings(kind="raw")
        _, self.layout = layouts.plan(sizes, scales.scale, HeadSettings(), raw, self.encoder.width, names)
        self.ids = _ids(settings, models)
        self.max_calls, self.kinds = settings.max_calls, len(settings.mix)
        self.preset: Preset = preset
        # Centred like the reference arm: the mean of the unscaled states of the training questions.
        self._mean = np.asarray(world.states.h[world.train, 0], np.float64).mean(0).astype(np.float32)

    def logits(self, X: Float[np.ndarray, "P n"], wanted: Bool[np.ndarray, "P Q S"]) -> Float[np.ndarray, "W L+3"]:
        """Logits of candidates where they are wanted, in order; the encoder remembers what it has encoded."""
        places = np.argwhere(wanted)
        h = np.stack(self.encoder.encode([(int(who), self.ids[q][s]) for who, q, s in places]))
        weights = self.layout.split(X)[HEAD][places[:, 0]]
        return np.einsum("woi,wi->wo", weights, h - self._mean)

    @property
    def blocks(self) -> int:
        """How many of the encoder's blocks every pair has to run; the others run once per transcript."""
        adaptation = self.encoder.adaptation
        first = 0 if adaptation.embeds else adaptation.first_layer
        return 0 if first is None else self._depth - first

    def adapt(self, X: Float[np.ndarray, "P n"]) -> None:
        """Give the encoder the candidates' scales."""
        parts = self.layout.split(X)
        deltas = [parts[block.name] for block in self.layout.svf]
        self.encoder.adapt(np.concatenate(deltas, axis=1) if deltas else np.zeros((len(X), 0)))


def evolve(encoded: Encoded, learning: LearningSettings, key: PRNGKeyArray, seed: int) -> Scaled:
    """Sep-CMA-ES over scales and head together: `trinity_jax.world.evolve.evolve` with the encoder in the loop.

    Args:
        encoded: the world and its encoder.
        learning: common random numbers are taken for granted.
        key: of all that is random.
        seed: to be told again.
    """
    world, n = encoded.world, encoded.layout.size
    rules = Rules(encoded.kinds, encoded.max_calls, learning.questions)
    strategy = Strategy(learning, n)
    play = jax.jit(lambda scores, play_key, luck_key: _play(world, rules, scores, play_key, luck_key))
    state = strategy.init(jax.random.fold_in(key, learning.generations))
    pairs, seconds = 0, 0.0
    for number in range(learning.generations):
        began = time.perf_counter()
        ask, play_key, tell, luck = jax.random.split(jax.random.fold_in(key, number), 4)
        X, state = strategy.ask(state, ask)
        played, count = _settled(encoded, np.asarray(X), lambda scores: play(scores, play_key, luck))  # noqa: B023
        state = strategy.tell(state, X, np.asarray(played.rewards).mean(axis=1), tell)
        pairs += count
        # The first generation compiles.
        seconds += (time.perf_counter() - began) * (number > 0)
    generations = learning.generations
    return Scaled(
        encoded.preset,
        seed,
        learning.population or strategy.population,
        generations,
        learning.sigma0,
        n,
        encoded.encoder.adaptation.size,
        success(encoded, np.asarray(strategy.mean(state))),
        pairs / generations,
        encoded.blocks,
        seconds / max(generations - 1, 1),
    )


def success(encoded: Encoded, vector: Float[np.ndarray, " n"]) -> float:
    """Exact held-out success of a vector that draws its choices."""
    world = encoded.world
    assert isinstance(world.states, Table)
    Q, S = world.states.h.shape[:2]
    wanted = np.zeros((1, Q, S), bool)
    wanted[:, np.asarray(world.held_out)] = True
    X = np.asarray(vector)[None]
    encoded.adapt(X)
    scores = np.zeros((Q, S, len(encoded.layout.rows)), np.float32)
    scores[wanted[0]] = encoded.logits(X, wanted)
    return float(judge(world, jnp.asarray(scores), encoded.max_calls)[0][np.asarray(world.held_out)].mean())


def _settled(encoded: Encoded, X: Float[np.ndarray, "P n"], play: Any) -> tuple[Generation, int]:
    """Play, encode what was met for the first time, play again; also how many pairs were encoded."""
    assert isinstance(encoded.world.states, Table)
    known = np.zeros((len(X), *encoded.world.states.h.shape[:2]), bool)
    scores = np.zeros((*known.shape, len(encoded.layout.rows)), np.float32)
    encoded.adapt(X)
    while True:
        played = play(scores)
        missing = _unknown(played, known)
        if not missing.any():
            return played, int(known.sum())
        scores[missing] = encoded.logits(X, missing)
        known |= missing


def _unknown(played: Generation, known: Bool[np.ndarray, "P Q S"]) -> Bool[np.ndarray, "P Q S"]:
    """The first transcript of each episode whose logits are not known; what follows from it was not earnest."""
    trace = jax.tree.map(np.asarray, played.trace)
    who = np.arange(len(known))[:, None, None]
    question = np.asarray(played.questions)[:, :, None]
    unknown = trace.decided & ~known[who, question, trace.history]
    first = unknown & (np.cumsum(unknown, axis=2) == 1)
    who, episode, turn = np.nonzero(first)
    missing = np.zeros(known.shape, bool)
    missing[who, question[who, episode, 0], trace.history[who, episode, turn]] = True
    return missing


def _play(world: World, rules: Rules, scores: Float[np.ndarray, "P Q S L+3"], key: Any, luck: Any) -> Generation:
    """Every candidate with logits of its own: common questions, choices and luck."""

    def one(mine: Any) -> Generation:
        own = world._replace(states=Table(mine))
        return play_generation(own, rules, tabled, jnp.zeros((1, 0)), Sharing.EVERYTHING, key, luck)

    return jax.tree.map(lambda leaf: leaf[:, 0], jax.vmap(one)(jnp.asarray(scores)))


def _ids(settings: WorldSettings, models: int) -> list[tuple[Tokens, ...]]:
    """Token ids of every question's transcripts."""
    texts = [transcripts(question, settings) for question in questions(settings)]
    flat = iter(tokens(settings.encoder, [text for mine in texts for text in mine], models).ids)
    return [tuple(next(flat) for _ in mine) for mine in texts]
