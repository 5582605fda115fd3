"""A newcomer's row: it wins where it is better, however large the old rows' logits are."""

import numpy as np
import pytest
from scipy.optimize import minimize

from trinity_jax.learning import new_row
from trinity_jax.learning.probes import ridge

RNG = np.random.default_rng(0)
Q, K = 80, 3
Z = RNG.normal(size=(Q, K))
# The old models are right at 0.5; the newcomer at 0.9 where z0 > 0, else at 0.1.
CHANCE = np.stack([np.full(Q, 0.5), np.full(Q, 0.5), np.where(Z[:, 0] > 0, 0.9, 0.1)], axis=1)
REWARDS = (RNG.random((Q, 3, 6)) < CHANCE[:, :, None]).astype(float)


def old_logits(size):
    return size * np.stack([Z[:, 1], -Z[:, 1]], axis=1) + size


@pytest.mark.parametrize("size", [0.1, 3.0, 30.0])
@pytest.mark.parametrize("bias", [True, False])
def test_the_newcomer_wins_where_it_is_better(size, bias):
    # Without a bias a row through the origin cannot follow a level.
    logits = old_logits(size) if bias else old_logits(size) - size
    row = new_row.fit(Z, REWARDS, Z, np.arange(Q), logits, bias=bias)
    assert row.weights.shape == (1, K)
    assert bias or float(np.abs(row.bias).max()) == 0
    ours = Z @ np.asarray(row.weights)[0] + np.asarray(row.bias)[0]
    clear = np.abs(Z[:, 0]) > 0.3
    won = ours > logits.max(axis=1)
    # max(z1, -z1) is convex and a row is flat: the larger it is, the less of it can be beaten where z1 is large too.
    least = {0.1: 0.95, 3.0: 0.7, 30.0: 0.55}[size] if bias else 0.5
    assert (won == (Z[:, 0] > 0))[clear].mean() >= least


def test_it_minimises_the_stated_loss():
    logits = old_logits(2.0)
    row = new_row.fit(Z, REWARDS, Z, np.arange(Q), logits)
    rows = ridge(Z, REWARDS, 1.0).rows
    predicted = Z @ np.asarray(rows.weights).T + np.asarray(rows.bias)
    policy = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    gap = predicted[:, 2] - (policy * predicted[:, :2]).sum(axis=1)
    left = REWARDS[:, 2].mean(axis=1) - (policy * REWARDS[:, :2].mean(axis=2)).sum(axis=1) - gap
    gap = gap - np.sqrt((left**2).mean() / Q)
    sign, weight = np.sign(gap), np.abs(gap) / np.abs(gap).sum()
    offset = -np.log(np.exp(logits).sum(axis=1))
    X = np.column_stack([Z, np.ones(Q)])
    penalty = new_row.PENALTY / max((offset**2).mean(), 1.0)

    def loss(w):
        f = X @ w + offset
        return weight @ np.logaddexp(0, -sign * f) + penalty * (w @ w) / 2

    found = np.concatenate([np.asarray(row.weights)[0], np.asarray(row.bias)])
    best = minimize(loss, np.zeros(K + 1))
    assert loss(found) <= best.fun + 1e-4


def test_states_count_as_often_as_they_are_told():
    twice = np.concatenate([np.arange(Q), np.arange(0, Q, 2)])
    counts = np.where(np.arange(Q) % 2 == 0, 2.0, 1.0)
    logits = old_logits(2.0)
    repeated = new_row.fit(Z, REWARDS, Z[twice], twice, logits[twice])
    counted = new_row.fit(Z, REWARDS, Z, np.arange(Q), logits, counts=counts)
    np.testing.assert_allclose(repeated.weights, counted.weights, atol=2e-3)


def test_a_newcomer_that_is_no_better_is_not_asked():
    worse = REWARDS.copy()
    worse[:, 2] = RNG.random((Q, 6)) < 0.42
    row = new_row.fit(Z, worse, Z, np.arange(Q), old_logits(5.0), greedy=True)
    ours = Z @ np.asarray(row.weights)[0] + np.asarray(row.bias)[0]
    assert (ours > old_logits(5.0).max(axis=1)).mean() < 0.1


def test_missing_answers_are_left_out():
    rewards = REWARDS.copy()
    rewards[:, 2, 1:] = np.nan
    row = new_row.fit(Z, rewards, Z, np.arange(Q), old_logits(0.1))
    assert np.isfinite(row.weights).all()
    assert np.asarray(row.weights)[0, 0] > 0
