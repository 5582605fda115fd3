"""A row for a model that joins a learned head: what probes say of it, in the units of the rows that are there.

Evolved rows are no predictions of success: their logits are as large as selection made them. So the new row is fitted
to the one thing that counts, when it should win against all others together. Q questions, L models (the new one last),
S answers each, B states at which a row is needed, k coordinates.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from trinity_jax.learning.probes import Rows, ridge

NEWTON_STEPS = 30
"""Of a convex problem in k + 1 numbers; it has converged long before."""

PENALTY = 1e-2
"""On the squared row, over the mean square of the old rows' log-sum-exp: it only keeps a separable problem finite."""


def lead(rows: Rows, z: Float[Array, "Q k"], policy: Float[Array, "Q L-1"]) -> Float[Array, " Q"]:
    """By how much the last model is expected to do better than a policy over the others, by question.

    Args:
        rows: of `probes.ridge` on all models, with temperature 1: predicted success, but for what all have in common.
        z: coordinates of the questions.
        policy: chances of the others.
    """
    predicted = z @ rows.weights.T + rows.bias
    return predicted[:, -1] - jnp.sum(policy * predicted[:, :-1], axis=1)


@partial(jax.jit, static_argnames=("bias", "greedy"))
def fit(
    z: Float[ArrayLike, "Q k"],
    rewards: Float[ArrayLike, "Q L S"],
    states: Float[ArrayLike, "B k"],
    question: Int[ArrayLike, " B"],
    logits: Float[ArrayLike, "B L-1"],
    bias: bool = True,
    greedy: bool = False,
    counts: Float[ArrayLike, " B"] | None = None,
) -> Rows:
    r"""The row of the last model, [1, k], and its bias, [1].

    At state b let $d_b$ be the lead (see `lead`) over the old policy, of the question that the state is about, less one
    standard error of the mean lead: who joins has to be better by more than luck. And let
    $f_b = w z_b + c - \log \sum_m e^{l_{bm}}$ the new row's margin: its chance under the softmax is
    $\mathrm{sigmoid}(f_b)$. Minimised is $\sum_b |d_b| \log(1 + e^{-\mathrm{sign}(d_b) f_b})$, by Newton's method: a
    classification in which each state costs what is at stake there. (To aim at a chance in proportion to the lead, as
    ridge's logits do, leaves a small lead to how well a row follows the others' maximum: on four pools and on recorded
    outcomes that was worse.)

    Args:
        z: coordinates of the questions, before the first call.
        rewards: of single Worker calls; NaN where an answer is missing.
        states: coordinates of transcripts on which the row decides; the questions themselves, and later ones.
        question: which question each state is about.
        logits: of the old models' rows at ``states``.
        bias: fit a bias.
        greedy: the old policy takes its largest logit; else it draws.
        counts: how often each state counts; once where not said.
    """
    z, states, logits = (jnp.asarray(x, float) for x in (z, states, logits))
    rows = ridge(z, rewards, 1.0, bias).rows
    of = jnp.asarray(question)
    policy = jax.nn.one_hot(jnp.argmax(logits, axis=1), logits.shape[1]) if greedy else jax.nn.softmax(logits)
    gap = lead(rows, z[of], policy)
    often = jnp.ones(len(states)) if counts is None else jnp.asarray(counts, float)
    success = jnp.nanmean(jnp.asarray(rewards, float), axis=2)[of]
    # The standard error of the mean lead, from what the fit leaves of the single answers; states of a question are one.
    left = success[:, -1] - jnp.sum(policy * success[:, :-1], axis=1) - gap
    seen = often * ~jnp.isnan(left)
    gap = gap - jnp.sqrt(jnp.sum(seen * jnp.nan_to_num(left) ** 2) / jnp.maximum(seen.sum(), 1e-12) / len(z))
    target, weight = (gap > 0).astype(z.dtype), often * jnp.abs(gap)
    weight = weight / jnp.maximum(weight.sum(), 1e-12)
    X = jnp.concatenate([states, jnp.ones((len(states), 1))], axis=1) if bias else states
    offset = -jax.nn.logsumexp(logits, axis=1)
    size = jnp.sum(often * offset**2) / often.sum()
    scale = PENALTY / jnp.maximum(size, 1.0) * jnp.eye(X.shape[1])

    def newton(w: Float[Array, " k+1"], _: None) -> tuple[Float[Array, " k+1"], None]:
        chance = jax.nn.sigmoid(X @ w + offset)
        slope = X.T @ (weight * (chance - target)) + scale @ w
        curvature = (X * (weight * jnp.maximum(chance * (1 - chance), 1e-2))[:, None]).T @ X + scale
        step = jnp.linalg.solve(curvature, slope)
        # A bounded step: far from the solution the curvature is nearly flat.
        return w - step * jnp.minimum(1.0, 10.0 / jnp.maximum(jnp.linalg.norm(step), 1e-12)), None

    w, _ = jax.lax.scan(newton, jnp.zeros(X.shape[1]), length=NEWTON_STEPS)
    return Rows(w[None, : z.shape[1]], w[z.shape[1] :] if bias else jnp.zeros(1))
