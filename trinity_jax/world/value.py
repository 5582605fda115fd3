"""What a policy is worth, exactly: the expectation over choices and replies, by backward induction over histories."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from trinity_jax.world.episode import THINKER, VERIFIER, WORKER
from trinity_jax.world.histories import Event, Histories, Response, build, last_event
from trinity_jax.world.skills import Skills


class Expected(NamedTuple):
    """Expectations over an episode: success, and calls made."""

    reward: Float[Array, ""]
    calls: Float[Array, ""]


def probabilities(
    logits: Float[Array, "S L+3"],
    histories: Histories,
    sample: bool | Bool[Array, ""] = True,
    verifier_needs_response: bool = False,
    allowed: Bool[Array, " L"] | bool = True,
) -> tuple[Float[Array, "S L"], Float[Array, "S 3"]]:
    """Distributions over models and roles at each history; with ``sample`` False all weight is on the largest logit.

    Models that are not ``allowed`` have chance zero, the others keep their ratios.
    """
    may = jnp.ones((len(logits), 3), bool)
    may = may.at[:, VERIFIER].set((histories.response != Response.NONE) | (not verifier_needs_response))

    def chances(group: Float[Array, "S G"]) -> Float[Array, "S G"]:
        return jnp.where(sample, jax.nn.softmax(group), jax.nn.one_hot(jnp.argmax(group, 1), group.shape[1]))

    return chances(jnp.where(allowed, logits[:, :-3], -jnp.inf)), chances(jnp.where(may, logits[:, -3:], -jnp.inf))


def expected(
    models: Float[Array, "S L"], roles: Float[Array, "S 3"], skills: Skills, histories: Histories, max_calls: int
) -> Expected:
    r"""Expected reward and calls of an episode on one question.

    With $V_t(s, c)$ the value before call t + 1 at history s with suggestion c (none, bad, good),

    $$V_t(s, c) = \sum_m p_m \left[ p_W (a_m V(s W_+) + (1 - a_m) V(s W_-)) + p_T (\ldots) + p_V (\ldots) \right],$$

    where a suggestion forces the Worker. Differentiable in the probabilities: the exact policy gradient.

    Args:
        models: chance of each model at each history.
        roles: chance of each role.
        skills: of the question (chances of shape [L]).
        histories: of the transcript mode and ``max_calls``.
        max_calls: K.
    """
    response = histories.response
    right_now = (response == Response.RIGHT).astype(jnp.float32)[:, None]
    ended = jnp.concatenate([right_now, jnp.zeros_like(right_now)], 1)  # [S, (reward, calls)]
    won, lost = jnp.array([1.0, 0.0]), jnp.array([0.0, 0.0])
    one_call = jnp.array([0.0, 1.0])

    helped = jnp.clip(skills.worker + jnp.array([0.0, 0.0, 1.0])[:, None] * skills.boost, 0.0, 1.0)  # [3, L]
    right = models @ helped.T  # [S, 3]: chance that the Worker is right, by suggestion
    good = models @ skills.thinker
    accepts = jnp.where(right_now > 0, skills.accepts_right, skills.accepts_wrong)
    accepted = jnp.sum(models * accepts, 1)[:, None]

    def before(on_right, on_wrong, on_thought, on_reject):
        """Values [S, 3, 2] before a call, from those after it: [S, 2] each, on_thought [S, 3, 2]."""
        work = one_call + right[..., None] * on_right[:, None] + (1 - right[..., None]) * on_wrong[:, None]
        think = one_call + good[:, None] * on_thought[:, 2] + (1 - good[:, None]) * on_thought[:, 1]
        verify = one_call + accepted * ended + (1 - accepted) * on_reject
        verify = jnp.where((response == Response.NONE)[:, None], lost, verify)
        free = roles[:, [WORKER]] * work[:, 0] + roles[:, [THINKER]] * think + roles[:, [VERIFIER]] * verify
        return jnp.stack([free, work[:, 1], work[:, 2]], 1)

    def earlier(value, _):
        after = value[histories.after]  # [S, 4, 3, 2]
        return before(
            after[:, Event.RIGHT, 0], after[:, Event.WRONG, 0], after[:, Event.THINKER], after[:, Event.REJECT, 0]
        ), None

    every = jnp.zeros_like(ended)
    last = before(every + won, every + lost, jnp.broadcast_to(ended[:, None], (len(ended), 3, 2)), ended)
    value, _ = jax.lax.scan(earlier, last, length=max_calls - 1)
    return Expected(*value[0, 0])


class Fixed(NamedTuple):
    """One model per role: (Thinker, if any) -> Worker -> Verifier -> on rejection Worker -> Verifier ..."""

    thinker: int | None
    worker: int
    verifier: int


def fixed_policies(models: int) -> list[Fixed]:
    """All L^2 (Worker, Verifier) pairs and all L^3 triples with a Thinker; the family of `evaluation.deciders`."""
    thinkers = (None, *range(models))
    return [Fixed(*policy) for policy in itertools.product(thinkers, range(models), range(models))]


def fixed_values(skills: Skills, max_calls: int) -> Float[np.ndarray, "F Q"]:
    """Exact success of every fixed policy on every question."""
    count = skills.accepts_right.shape[0]
    histories, last = build("full", max_calls), last_event("full", max_calls)
    model_rows, role_rows = [], []
    for policy in fixed_policies(count):
        role = np.where(np.isin(last, (Event.WRONG, Event.RIGHT)), VERIFIER, WORKER)
        role[0] = WORKER if policy.thinker is None else THINKER
        chosen = np.where(role == VERIFIER, policy.verifier, policy.worker)
        chosen[0] = policy.worker if policy.thinker is None else policy.thinker
        model_rows.append(np.eye(count)[chosen])
        role_rows.append(np.eye(3)[role])

    def one(models, roles, worker, thinker):
        mine = skills._replace(worker=worker, thinker=thinker)
        return expected(models, roles, mine, histories, max_calls).reward

    by_question = jax.vmap(one, in_axes=(None, None, 0, 0))
    every = jax.jit(jax.vmap(by_question, in_axes=(0, 0, None, None)))
    return np.asarray(
        every(jnp.asarray(model_rows, jnp.float32), jnp.asarray(role_rows, jnp.float32), skills.worker, skills.thinker)
    )


class Attainable(NamedTuple):
    """What there is to gain on a set of questions.

    Attributes:
        fixed: success of the best single fixed policy.
        per_kind: success when each kind gets its best fixed policy.
        policy: the best fixed one.
        by_kind: the best one for each kind.
    """

    fixed: float
    per_kind: float
    policy: Fixed
    by_kind: dict[str, Fixed]

    @property
    def gain(self) -> float:
        """per_kind - fixed."""
        return self.per_kind - self.fixed


def attainable(skills: Skills, kinds: list[str], max_calls: int) -> Attainable:
    """Enumerate all fixed policies; ties go to the first."""
    values, policies = fixed_values(skills, max_calls), fixed_policies(skills.accepts_right.shape[0])
    best = int(values.mean(1).argmax())
    of = {kind: np.array([other == kind for other in kinds]) for kind in dict.fromkeys(kinds)}
    by_kind = {kind: int(values[:, rows].mean(1).argmax()) for kind, rows in of.items()}
    per_kind = np.concatenate([values[by_kind[kind], rows] for kind, rows in of.items()]).mean()
    return Attainable(
        float(values[best].mean()), float(per_kind), policies[best], {k: policies[i] for k, i in by_kind.items()}
    )
