"""One episode of the tri-role protocol as a scan over turns (paper section 3; the rules of `trinity_jax.episode`)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from trinity_jax.coordinator.policy import choose
from trinity_jax.world.histories import Event, Histories, Response
from trinity_jax.world.skills import Skills

WORKER, THINKER, VERIFIER = range(3)
"""Role numbers, in the order of the head's last rows."""

Policy = Callable[[Int[Array, ""]], Float[Array, " L+3"]]
"""Number of a history -> logits of the choice made there."""

_NONE, _BAD, _GOOD = range(3)


class Trace(NamedTuple):
    """What happened at each of the K turns.

    Attributes:
        history: number of the history that the decision met.
        model: chosen model.
        role: role that was sampled; where ``forced``, the turn's role is Worker all the same.
        forced: a Thinker had asked for the role.
        decided: the episode was still running.
        called: a model was called (not so for a Verifier without a response).
        path: number of the decisions up to and with this one: equal paths of one question are equal calls. Exact
            while (3 L)^K fits 32 bits, else a hash.
    """

    history: Int[Array, " K"]
    model: Int[Array, " K"]
    role: Int[Array, " K"]
    forced: Bool[Array, " K"]
    decided: Bool[Array, " K"]
    called: Bool[Array, " K"]
    path: Int[Array, " K"]


class _State(NamedTuple):
    history: Int[Array, ""]
    response: Int[Array, ""]
    suggestion: Int[Array, ""]
    path: Int[Array, ""]
    running: Bool[Array, ""]


def play(
    policy: Policy,
    skills: Skills,
    histories: Histories,
    decisions: PRNGKeyArray,
    luck: PRNGKeyArray,
    max_calls: int,
    sample: bool | Bool[Array, ""] = True,
    verifier_needs_response: bool = False,
    models: Bool[Array, " L"] | bool = True,
) -> tuple[Float[Array, ""], Trace]:
    """Play one episode; `vmap` adds candidates and replications.

    A reply's luck is a function of ``luck`` and the decisions so far, so candidates that share ``luck`` and have
    decided alike get the same reply: the shared calls of common random numbers.

    Args:
        policy: logits at each history.
        skills: of this episode's question (chances of shape [L]).
        histories: of the transcript mode and ``max_calls``.
        decisions: key of the choices.
        luck: key of the replies.
        max_calls: K.
        sample: False takes the largest logits.
        verifier_needs_response: a Verifier is not sampled while there is no response.
        models: which may be chosen; the others' chances go to these in proportion.

    Returns:
        Reward 1 or 0, and the trace.
    """
    count = skills.accepts_right.shape[0]

    def turn(state: _State, number: Int[Array, ""]) -> tuple[_State, Trace]:
        answered = state.response != Response.NONE
        may = jnp.array([True, True, True]).at[VERIFIER].set(answered | (not verifier_needs_response))
        chosen = choose(policy(state.history), jax.random.fold_in(decisions, number), sample, may, models)
        model, forced = chosen.model, state.suggestion != _NONE
        role = jnp.where(forced, WORKER, chosen.role)
        called = state.running & (answered | (role != VERIFIER))
        path = state.path * jnp.uint32(3 * count) + (3 * model + role + 1).astype(jnp.uint32)

        chance = jnp.stack(
            [
                skills.worker[model] + jnp.where(state.suggestion == _GOOD, skills.boost, 0.0),
                skills.thinker[model],
                jnp.where(state.response == Response.RIGHT, skills.accepts_right[model], skills.accepts_wrong[model]),
            ]
        )[role]
        success = jax.random.uniform(jax.random.fold_in(luck, path)) < chance
        worked, thought = called & (role == WORKER), called & (role == THINKER)
        event = jnp.where(
            role == WORKER,
            jnp.where(success, Event.RIGHT, Event.WRONG),
            jnp.where(role == THINKER, Event.THINKER, Event.REJECT),
        )
        accepted = called & (role == VERIFIER) & success
        # A Verifier with nothing to verify ends the episode without a call.
        running = state.running & ~accepted & called
        after = _State(
            jnp.where(running, histories.after[state.history, event], state.history),
            jnp.where(worked, jnp.where(success, Response.RIGHT, Response.WRONG), state.response),
            jnp.where(thought, jnp.where(success, _GOOD, _BAD), _NONE),
            path,
            running,
        )
        return after, Trace(state.history, model, chosen.role, forced, state.running, called, path)

    zero = jnp.int32(0)
    begin = _State(zero, zero, zero, jnp.uint32(0), jnp.array(True))
    end, trace = jax.lax.scan(turn, begin, jnp.arange(max_calls))
    return (end.response == Response.RIGHT).astype(jnp.float32), trace


def log_probability(
    logits: Float[Array, "K L+3"],
    trace: Trace,
    histories: Histories,
    verifier_needs_response: bool = False,
    models: Bool[Array, " L"] | bool = True,
) -> Float[Array, ""]:
    """Log-probability of all choices that an episode sampled.

    Args:
        logits: at the histories of the trace.
        trace: of one episode.
        histories: as in `play`.
        verifier_needs_response: as in `play`.
        models: as in `play`.
    """
    log_models = jax.nn.log_softmax(jnp.where(models, logits[:, :-3], -jnp.inf))
    answered = histories.response[trace.history] != Response.NONE
    may = jnp.ones((len(logits), 3), bool).at[:, VERIFIER].set(answered | (not verifier_needs_response))
    roles = jax.nn.log_softmax(jnp.where(may, logits[:, -3:], -jnp.inf))
    turns = jnp.arange(len(logits))
    model = log_models[turns, trace.model]
    # A forced role was not the coordinator's choice.
    role = jnp.where(trace.forced, 0.0, roles[turns, trace.role])
    return jnp.sum(jnp.where(trace.decided, model + role, 0.0))


def distinct_calls(trace: Trace) -> Int[Array, ""]:
    """Calls that have to be made when P candidates play the same R episodes and share equal calls; trace [P, R, K]."""
    path = jnp.where(trace.called, trace.path, jnp.uint32(0))  # paths begin at 1
    ordered = jnp.sort(path, axis=0)
    first = jnp.concatenate([jnp.ones_like(ordered[:1], bool), ordered[1:] != ordered[:-1]])
    return jnp.sum(first & (ordered != 0))
