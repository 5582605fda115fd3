"""A learner on the world: generations as one `lax.scan`, so that a study of many seeds is one compiled program."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from trinity_jax.config import Sharing
from trinity_jax.errors import UserError
from trinity_jax.learning.protocol import Experience, Learner
from trinity_jax.world.episode import Trace, distinct_calls, log_probability, play
from trinity_jax.world.histories import Histories
from trinity_jax.world.skills import Skills
from trinity_jax.world.states import Logits, States
from trinity_jax.world.value import Expected, expected, probabilities

MOST_PATHS = 2**24
"""Largest table of calls that ``reuse: run`` may keep, in entries."""


class World(NamedTuple):
    """Everything episodes depend on beside the coordinator: a pytree of arrays over Q questions.

    Attributes:
        states: hidden states by question and history.
        skills: the pool.
        histories: what can have been read.
        kinds: kind of each question, as a number.
        train: numbers of the training questions.
        held_out: numbers of the held-out ones.
        models: which models may be chosen for each question; None for all.
    """

    states: States
    skills: Skills
    histories: Histories
    kinds: Int[Array, " Q"]
    train: Int[Array, " N"]
    held_out: Int[Array, " M"]
    models: Bool[Array, "Q L"] | None = None

    def allowed(self, question: Int[Array, ""]) -> Bool[Array, " L"] | bool:
        """Which models may be chosen for a question."""
        return True if self.models is None else self.models[question]

    def without(self, model: Int[Array, ""] | int) -> "World":
        """The same world with one more model masked, for all questions."""
        L = self.skills.accepts_right.shape[0]
        before = jnp.ones((self.kinds.shape[0], L), bool) if self.models is None else self.models
        return self._replace(models=before & (jnp.arange(L) != model))


@dataclass(frozen=True)
class Rules:
    """What of a study is fixed when it is compiled.

    Attributes:
        kinds: how many kinds of question there are.
        max_calls: K.
        questions: training questions per generation (of each candidate where nothing is shared).
        repeats: episodes per question.
        sample: training draws its choices; False takes the largest logits.
        verifier_needs_response: a Verifier is not sampled while there is no response.
        reuse: ``generation``: new luck in every generation; ``run``: a question's replies are journaled and met again.
        judge_every: exact held-out values are computed in every so many generations and in the last one; NaN between.
    """

    kinds: int
    max_calls: int = 5
    questions: int = 16
    repeats: int = 1
    sample: bool = True
    verifier_needs_response: bool = False
    reuse: Literal["generation", "run"] = "generation"
    judge_every: int = 1


class Generation(NamedTuple):
    """Played episodes: rewards, the question of each, and what was chosen."""

    rewards: Float[Array, "P R"]
    questions: Int[Array, "P R"]
    trace: Trace


class Course(NamedTuple):
    """One number per generation of each, after the learner heard of it; what is exact by `Rules.judge_every`.

    Attributes:
        fitness: mean fitness of the population.
        sampled: exact held-out success of the deployed vector when it samples its choices.
        greedy: the same when it takes the largest logits.
        asked: calls that the episodes of this generation asked for.
        made: calls that had to be made.
        turns: calls of a held-out episode of the deployed vector, sampling.
        first: distribution over models at the first turn, mean of the held-out questions of each kind.
        roles: distribution over roles at the first turn.
        sigma: step size.
        norm: Euclidean norm of the deployed vector.
    """

    fitness: Float[Array, " G"]
    sampled: Float[Array, " G"]
    greedy: Float[Array, " G"]
    asked: Int[Array, " G"]
    made: Int[Array, " G"]
    turns: Float[Array, " G"]
    first: Float[Array, "G kinds L"]
    roles: Float[Array, "G 3"]
    sigma: Float[Array, " G"]
    norm: Float[Array, " G"]


def draw_questions(key: PRNGKeyArray, kinds: Int[Array, " N"], count: int) -> Int[Array, " count"]:
    """Different positions in ``kinds``, spread over the kinds as evenly as they allow."""
    luck = jax.random.uniform(jax.random.fold_in(key, 0), kinds.shape)
    same = kinds[:, None] == kinds[None, :]
    rank = jnp.sum(same & (luck[None, :] < luck[:, None]), axis=1)
    # Which kinds get one more when count is no multiple of their number is drawn too.
    turn = jax.random.uniform(jax.random.fold_in(key, 1), kinds.shape)[jnp.argmax(same, axis=1)]
    return jnp.argsort(rank + turn)[:count]


def play_generation(
    world: World,
    rules: Rules,
    logits: Logits,
    X: Float[Array, "P n"],
    sharing: Sharing,
    key: PRNGKeyArray,
    luck_key: PRNGKeyArray,
) -> Generation:
    """Every candidate plays its questions.

    Args:
        world: with training questions.
        rules: of the study.
        logits: the coordinator's head.
        X: the candidates.
        sharing: what they have in common; with ``Sharing.NOTHING`` questions and luck are each one's own.
        key: of questions and choices.
        luck_key: of the replies.
    """
    population = jnp.arange(len(X))
    repeats = jnp.tile(jnp.arange(rules.repeats), rules.questions)

    def drawn(who: Int[Array, ""] | int) -> Int[Array, " R"]:
        chosen = draw_questions(
            jax.random.fold_in(jax.random.fold_in(key, 0), who), world.kinds[world.train], rules.questions
        )
        return jnp.repeat(world.train[chosen], rules.repeats)

    def choices(who: Int[Array, ""] | int) -> PRNGKeyArray:
        mine = jax.random.fold_in(jax.random.fold_in(key, 1), who)
        return jax.vmap(lambda slot: jax.random.fold_in(mine, slot))(jnp.arange(len(repeats)))

    def luck(who: Int[Array, ""] | int, questions: Int[Array, " R"]) -> PRNGKeyArray:
        mine = jax.random.fold_in(luck_key, who)
        one = lambda question, repeat: jax.random.fold_in(jax.random.fold_in(mine, question), repeat)  # noqa: E731
        return jax.vmap(one)(questions, repeats)

    def episode(vector, question, decision_key, reply_key):
        policy = world.states.policy(logits, vector, question)
        rest = rules.max_calls, rules.sample, rules.verifier_needs_response, world.allowed(question)
        return play(policy, world.skills.take(question), world.histories, decision_key, reply_key, *rest)

    # What is shared has no candidate axis: it is drawn once.
    questions = jax.vmap(drawn)(population) if sharing.own_questions else drawn(0)
    decisions = jax.vmap(choices)(population) if sharing.own_keys else choices(0)
    replies = jax.vmap(luck)(population, questions) if sharing.own_questions else luck(0, questions)
    axes = (
        0,
        0 if sharing.own_questions else None,
        0 if sharing.own_keys else None,
        0 if sharing.own_questions else None,
    )
    each = jax.vmap(jax.vmap(episode, in_axes=(None, 0, 0, 0)), in_axes=axes)
    rewards, trace = each(X, questions, decisions, replies)
    return Generation(rewards, jnp.broadcast_to(questions, rewards.shape), trace)


def worth(
    world: World,
    rules: Rules,
    logits: Logits,
    vector: Float[Array, " n"],
    questions: Int[Array, " M"],
    sample: bool | Bool[Array, ""] = True,
) -> Expected:
    """Exact reward and calls of a vector, by question."""

    everything = jnp.arange(len(world.histories.response))

    def one(question: Int[Array, ""]) -> Expected:
        scores = jax.vmap(world.states.policy(logits, vector, question))(everything)
        rest = sample, rules.verifier_needs_response, world.allowed(question)
        models, roles = probabilities(scores, world.histories, *rest)
        return expected(models, roles, world.skills.take(question), world.histories, rules.max_calls)

    return jax.vmap(one)(questions)


def log_prob(world: World, rules: Rules, logits: Logits) -> Callable[[Float[Array, " n"], Any], Float[Array, "P R"]]:
    """What a gradient learner asks for; the trace of an `Experience` is a `Generation` here."""

    def one(vector: Float[Array, " n"], question: Int[Array, ""], trace: Trace) -> Float[Array, ""]:
        policy = world.states.policy(logits, vector, question)
        rest = rules.verifier_needs_response, world.allowed(question)
        return log_probability(jax.vmap(policy)(trace.history), trace, world.histories, *rest)

    every = jax.vmap(jax.vmap(one, in_axes=(None, 0, 0)), in_axes=(None, 0, 0))
    return lambda vector, played: every(vector, played.questions, played.trace)


def evolve(
    learner: Learner,
    world: World,
    rules: Rules,
    logits: Logits,
    generations: int,
    key: PRNGKeyArray,
    start: Float[Array, " n"] | None = None,
    explore: Callable[[PRNGKeyArray], Logits] | None = None,
) -> tuple[Float[Array, " n"], Course]:
    """Run a learner from ``start``; all randomness is of ``key``. Pure: `jit`, `vmap` or `lax.map` over keys.

    Args:
        learner: proposes and hears.
        world: episodes.
        rules: of the study.
        logits: the coordinator's head.
        generations: G.
        key: of everything random.
        start: mean to begin with; zeros by default.
        explore: for a head that draws noise in training: the logits of a generation, by its key.

    Returns:
        The deployed vector, and the course of the run.

    Raises:
        UserError: ``reuse: run`` with more possible paths than a table can hold, or without shared questions.
    """
    known = _no_calls(world, rules, learner.sharing)

    def keys(number: Int[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray]:
        mine = jax.random.fold_in(key, number)
        return mine, jax.random.split(mine, 4)

    def judged(state: Any) -> dict[str, Array]:
        vector = learner.mean(state)
        ways = jnp.array([True, False])
        exact = jax.vmap(lambda sample: worth(world, rules, logits, vector, world.held_out, sample))(ways)
        (sampled, greedy), (turns, _) = exact.reward.mean(axis=1), exact.calls.mean(axis=1)
        models, roles = _first(world, rules, logits, vector)
        return {"sampled": sampled, "greedy": greedy, "turns": turns, "first": models, "roles": roles}

    def unknown(state: Any) -> dict[str, Array]:
        return {name: jnp.full(value.shape, jnp.nan) for name, value in jax.eval_shape(judged, state).items()}

    def generation(carry: tuple[Any, Any, Any], number: Int[Array, ""]) -> tuple[tuple[Any, Any, Any], Course]:
        state, X, known = carry
        mine, (_, play_key, tell_key, luck_key) = keys(number)
        luck_key = jax.random.fold_in(key, generations + 1) if rules.reuse == "run" else luck_key
        heads = explore(jax.random.fold_in(mine, 1)) if explore else logits
        played = play_generation(world, rules, heads, X, learner.sharing, play_key, luck_key)
        fitness = played.rewards.mean(axis=1)
        state = learner.tell(state, X, fitness, tell_key, Experience(played.rewards, played.questions, played))
        asked = jnp.sum(played.trace.called)
        known, made = _paid(known, played, learner.sharing, asked)
        due = ((number + 1) % rules.judge_every == 0) | (number + 1 == generations)
        exact = judged(state) if rules.judge_every == 1 else jax.lax.cond(due, judged, unknown, state)
        course = Course(
            fitness=fitness.mean(),
            asked=asked,
            made=made,
            sigma=learner.sigma(state),
            norm=jnp.linalg.norm(learner.mean(state)),
            **exact,
        )
        X, state = learner.ask(state, keys(number + 1)[1][0])
        return (state, X, known), course

    # A population is drawn at the end of a generation and handed on: drawn where it is played, XLA would on a CPU
    # compute its normal numbers anew in each of its readers.
    state = learner.init(jax.random.fold_in(key, generations), start)
    X, state = learner.ask(state, keys(jnp.int32(0))[1][0])
    (state, _, _), course = jax.lax.scan(generation, (state, X, known), jnp.arange(generations))
    return learner.mean(state), course


def _first(
    world: World, rules: Rules, logits: Logits, vector: Float[Array, " n"]
) -> tuple[Float[Array, "kinds L"], Float[Array, " 3"]]:
    """Choices at the first turn: models by kind, roles."""
    first = jax.tree.map(lambda x: x[:1], world.histories)

    def choose(question: Int[Array, ""]) -> tuple[Float[Array, "1 L"], Float[Array, "1 3"]]:
        scores = world.states.policy(logits, vector, question)(jnp.int32(0))
        return probabilities(scores[None], first, True, rules.verifier_needs_response, world.allowed(question))

    models, roles = jax.vmap(choose)(world.held_out)
    member = jax.nn.one_hot(world.kinds[world.held_out], rules.kinds)
    return (member.T @ models[:, 0]) / jnp.maximum(member.sum(0), 1)[:, None], roles[:, 0].mean(0)


def _no_calls(world: World, rules: Rules, sharing: Sharing) -> Any:
    if rules.reuse == "generation":
        return ()
    base = 3 * world.skills.accepts_right.shape[0]
    paths = sum(base**turn for turn in range(1, rules.max_calls + 1)) + 1
    entries = world.kinds.shape[0] * rules.repeats * paths
    if sharing.own_questions or entries > MOST_PATHS:
        raise UserError(
            f"reuse: run needs shared questions and at most {MOST_PATHS} possible calls "
            f"(questions x repeats x (3 L)^K), got {entries}{' of each candidate' if sharing.own_questions else ''}"
        )
    return jnp.zeros((world.kinds.shape[0], rules.repeats, paths), bool)


def _paid(known: Any, played: Generation, sharing: Sharing, asked: Int[Array, ""]) -> tuple[Any, Int[Array, ""]]:
    if isinstance(known, tuple):
        return known, asked if sharing.own_questions else distinct_calls(played.trace)
    repeats = known.shape[1]
    slots = jnp.arange(played.questions.shape[1]) % repeats
    path = jnp.where(played.trace.called, played.trace.path, jnp.uint32(0))
    after = known.at[played.questions[..., None], slots[None, :, None], path].set(True).at[:, :, 0].set(False)
    return after, jnp.sum(after) - jnp.sum(known)
