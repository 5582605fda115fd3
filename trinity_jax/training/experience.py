"""What a generation's episodes saw and chose, as arrays, and the log-probability of it: what gradient learners read."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from trinity_jax.config import EpisodeSettings
from trinity_jax.coordinator.heads import Head, respond
from trinity_jax.coordinator.layout import BIAS, HEAD, Layout
from trinity_jax.coordinator.readout import Readout, coordinates
from trinity_jax.episode.episode import ROLES, EpisodeState, allowed_roles, ends_without_call, role_for, start, step
from trinity_jax.episode.transcript import view
from trinity_jax.learning.protocol import Experience
from trinity_jax.rollout.engine import EpisodeResult


class Trace(NamedTuple):
    """The decisions of P x R episodes, at most K each; what is beyond an episode's last one is zero and not counted.

    Attributes:
        z: read-out coordinates of the text behind each decision.
        model: chosen model.
        role: sampled role, in the order of ``ROLES``.
        roles: which roles could be sampled.
        model_counts: whether the model mattered: False where a Verifier with nothing to verify ended the episode.
        role_counts: whether the sampled role was the turn's: False where a Thinker had asked for one.
    """

    z: Float[Array, "P R K k"]
    model: Int[Array, "P R K"]
    role: Int[Array, "P R K"]
    roles: Bool[Array, "P R K 3"]
    model_counts: Bool[Array, "P R K"]
    role_counts: Bool[Array, "P R K"]


def log_probability(layout: Layout, head: Head, vector: Float[Array, " n"], trace: Trace) -> Float[Array, "P R"]:
    """Log-probability of each episode's choices under ``vector``: the sum over the decisions that count."""
    parameters = layout.split(vector)
    logits = respond(head.weights(parameters[HEAD].reshape(-1)), trace.z) + parameters.get(BIAS, 0.0)
    models = jax.nn.log_softmax(logits[..., :-3])
    roles = jax.nn.log_softmax(jnp.where(trace.roles, logits[..., -3:], -jnp.inf))

    def total(group: Float[Array, "P R K G"], chosen: Int[Array, "P R K"], counts: Bool[Array, "P R K"]):
        of_choice = jnp.take_along_axis(group, chosen[..., None], axis=-1)[..., 0]
        return jnp.sum(jnp.where(counts, of_choice, 0.0), axis=-1)

    return total(models, trace.model, trace.model_counts) + total(roles, trace.role, trace.role_counts)


def relive(
    results: Sequence[EpisodeResult],
    population: int,
    encode: Callable[[Sequence[int], Sequence[str]], Float[np.ndarray, "B D"]],
    readout: Readout,
    settings: EpisodeSettings,
) -> Experience:
    """Read the episodes again, turn by turn, as the coordinator read them.

    States come from the encoder once more (mostly from its cache) and not from the journal, so that a resumed
    generation gives the same arrays as one that was not interrupted.

    Args:
        results: candidate by candidate, equally many each.
        population: P.
        encode: questions and texts about them to hidden states (no matrices are scaled: candidates share them).
        readout: hidden states to coordinates.
        settings: the protocol they were played by.
    """
    shape = (population, len(results) // population, settings.max_calls)
    model, role = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    roles = np.ones((*shape, len(ROLES)), bool)
    model_counts, role_counts = np.zeros(shape, bool), np.zeros(shape, bool)
    places, seen = [], []
    for episode, result in enumerate(results):
        for turn, (state, decision) in enumerate(zip(states_of(result, settings), result.decisions, strict=True)):
            place = (*divmod(episode, shape[1]), turn)
            places.append(place)
            seen.append((result.key.question, view(state, settings.transcript)))
            model[place], role[place] = decision.model, ROLES.index(decision.role)
            roles[place] = allowed_roles(state, settings.verifier_needs_response)
            model_counts[place] = not ends_without_call(state, role_for(state, decision.role))
            role_counts[place] = state.forced_role is None
    read = np.asarray(coordinates(readout, jnp.asarray(encode(*zip(*seen, strict=True)))))
    z = np.zeros((*shape, read.shape[1]), np.float32)
    z[tuple(np.array(places).T)] = read
    rewards = np.array([np.nan if r.reward is None else r.reward for r in results], np.float32)
    questions = np.array([r.key.question for r in results], np.int32)
    trace = Trace(*map(jnp.asarray, (z, model, role, roles, model_counts, role_counts)))
    return Experience(jnp.asarray(rewards.reshape(shape[:2])), jnp.asarray(questions.reshape(shape[:2])), trace)


def states_of(result: EpisodeResult, settings: EpisodeSettings) -> list[EpisodeState]:
    """The state before each decision of a finished episode."""
    state = start(result.state.prompt)
    states = [state]
    for turn in result.state.turns:
        state = step(state, turn.model, turn.role, turn.text, settings)
        states.append(state)
    return states[: len(result.decisions)]
