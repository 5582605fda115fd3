"""A whole population of coordinators on the device: transcripts in, choices of (model, role) out."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from trinity_jax.coordinator.groups import CALL_ROWS, calls, each, grouped
from trinity_jax.coordinator.heads import Head, Weights, respond
from trinity_jax.coordinator.layout import BIAS, HEAD, Layout
from trinity_jax.coordinator.policy import Chosen, choose, decision_key
from trinity_jax.coordinator.readout import Readout, coordinates
from trinity_jax.coordinator.transcripts import Tokens, TranscriptEncoder

_TOGETHER = 8
"""Choices per device step: a few products each."""


class Row(NamedTuple):
    """One decision that is wanted.

    Attributes:
        candidate: index into the loaded vectors.
        tokens: what the coordinator reads.
        key: generation, candidate (0 under common random numbers), question, repeat, turn.
        roles: which of Worker, Thinker, Verifier may be chosen.
        models: which models may be chosen, [L]; None for all.
    """

    candidate: int
    tokens: Tokens
    key: tuple[int, int, int, int, int]
    roles: tuple[bool, bool, bool] = (True, True, True)
    models: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Choice:
    """A decision, the two distributions it comes from, and the hash of the h behind it.

    ``role`` counts Worker, Thinker, Verifier; probabilities are in the head's row order.
    """

    model: int
    role: int
    model_probs: tuple[float, ...]
    role_probs: tuple[float, ...]
    h_hash: str


class PopulationEncoder:
    """Decides for many candidates and episodes in few jitted calls of fixed shapes.

    Args:
        encoder: hidden vectors; its ``population`` is the most vectors that can be loaded.
        layout: of the vectors.
        head: from coordinates to logits.
        readout: coordinates the head reads.
        seed: root of every sampling key.

    Attributes:
        seconds: spent in `decide` so far, encoding included.
    """

    def __init__(self, encoder: TranscriptEncoder, layout: Layout, head: Head, readout: Readout, seed: int):
        self.encoder, self.layout, self.head, self.readout = encoder, layout, head, readout
        self.seconds = 0.0
        self._root = jax.random.key(seed)
        self._weights: Weights | None = None
        self._bias: Array | None = None
        self._loaded = 0
        self._traces = 0
        self._choose = jax.jit(self._choose_program)
        self._weigh = jax.jit(jax.vmap(head.weights))

    @property
    def compilations(self) -> int:
        """Programs traced so far: at most one per function and bucket."""
        return self.encoder.compilations + self._traces

    @property
    def distinct_transcripts(self) -> int:
        """How many different token tuples have been encoded in all."""
        return self.encoder.distinct_transcripts

    def load(self, vectors: Float[np.ndarray, "P n"], noise: PRNGKeyArray | None = None, shared: bool = True) -> None:
        """Put candidates on the device, at most the encoder's ``population`` of them.

        Args:
            vectors: the candidates.
            noise: key of the noise that a noisy head draws once per generation in training; None in evaluation.
            shared: common random numbers: one draw for all candidates, else one each.

        Raises:
            UserError: vectors of another length than the layout's, or not finite.
            ValueError: more vectors than the encoder was made for.
        """
        vectors = self.layout.checked(np.atleast_2d(np.asarray(vectors, np.float64)), "vectors")
        if len(vectors) > self.encoder.population:
            raise ValueError(f"made for {self.encoder.population} candidates, got {len(vectors)}")
        filled = np.zeros((self.encoder.population, self.layout.size))
        filled[: len(vectors)] = vectors
        parameters = self.layout.split(filled)
        deltas = [parameters[block.name] for block in self.layout.svf]
        self.encoder.adapt(np.concatenate(deltas, axis=1) if deltas else np.zeros((len(filled), 0)))
        keys = None
        if noise is not None and self.head.noisy:
            candidates = jnp.zeros(len(filled), int) if shared else jnp.arange(len(filled))
            keys = jax.vmap(jax.random.fold_in, (None, 0))(noise, candidates)
        self._weights = self._weigh(parameters[HEAD].reshape(len(filled), -1).astype(np.float32), keys)
        bias = parameters.get(BIAS, np.zeros((len(filled), self.head.biases)))
        self._bias = jax.vmap(self.head.bias)(jnp.asarray(bias, jnp.float32))
        self._loaded = len(vectors)

    def decide(self, rows: Sequence[Row], mode: str = "sample") -> list[Choice]:
        """One choice per row; ``mode`` is ``sample`` or ``argmax``.

        A row's choice depends on the row alone, never on the others or on its place among them.
        """
        started = time.perf_counter()
        if self._weights is None:
            raise ValueError("no candidates are loaded")
        if mode not in ("sample", "argmax"):
            raise ValueError(f"mode: expected sample or argmax, got {mode!r}")
        if beyond := [row.candidate for row in rows if not 0 <= row.candidate < self._loaded]:
            raise ValueError(f"{self._loaded} candidates are loaded, a row asks for {beyond[0]}")
        states = self.encoder.encode([(row.candidate, row.tokens) for row in rows])
        choices: list[Choice] = []
        step = CALL_ROWS
        everyone = (True,) * (self.head.outputs - 3)
        wanted = [
            (
                h,
                np.int32(row.candidate),
                np.asarray(row.key, np.uint32),
                np.asarray(row.roles),
                np.asarray(row.models or everyone),
            )
            for h, row in zip(states, rows, strict=True)
        ]
        for call in calls(wanted, wanted[0], step) if wanted else ():
            arguments = (self._weights, self._bias, self.readout, self._root, call.columns, mode == "sample")
            # Of the places that no row fills, nothing is made.
            chosen = [part[: len(call.where)] for part in jax.device_get(self._choose(*arguments, call.counts))]
            choices += [
                Choice(int(model), int(role), tuple(models.tolist()), tuple(roles.tolist()), h_hash(state))
                for model, role, models, roles, state in zip(*chosen, call.columns[0][: len(call.where)], strict=True)
            ]
        self.seconds += time.perf_counter() - started
        return choices

    def _choose_program(self, weights, bias, readout, root, wanted, sample, counts) -> Chosen:
        self._traces += 1

        def one(row: Any) -> Chosen:
            h, candidate, key, roles, models = row
            logits = respond(jax.tree.map(lambda leaf: leaf[candidate], weights), coordinates(readout, h))
            return choose(logits + bias[candidate], decision_key(root, *key), sample, roles, models)

        capacity, L = len(wanted[1]), self.head.outputs - 3
        into = Chosen(
            jnp.zeros(capacity, jnp.int32),
            jnp.zeros(capacity, jnp.int32),
            jnp.zeros((capacity, L), jnp.float32),
            jnp.zeros((capacity, 3), jnp.float32),
        )
        return grouped(wanted, counts[0], _TOGETHER, into, each(one))


def h_hash(h: Float[np.ndarray, " D"]) -> str:
    """First 16 hexadecimal digits of the SHA-256 of h's float32 bytes."""
    return hashlib.sha256(np.ascontiguousarray(h, np.float32).tobytes()).hexdigest()[:16]
