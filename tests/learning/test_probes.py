"""Warm starts against scikit-learn, refits and brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from trinity_jax.learning import probes

KEY = jax.random.key(0)
NAN = np.nan


def some_probes(seed=0, Q=40, k=5, L=3, S=2, missing=0.1):
    """Rewards that depend on the coordinates, as each model's logit."""
    rng = np.random.default_rng(seed)
    z, w = rng.normal(size=(Q, k)), rng.normal(size=(L, k))
    rewards = (rng.random((Q, L, S)) < 1 / (1 + np.exp(-2 * z @ w.T))[..., None]).astype(float)
    rewards[rng.random(rewards.shape) < missing] = NAN
    return z, rewards, w


def regression(rewards):
    """Target and weight of each (question, model), plainly."""
    count = (~np.isnan(rewards)).sum(axis=2)
    success = np.where(count > 0, np.nansum(rewards, axis=2) / np.maximum(count, 1), NAN)
    return success - np.nanmean(success, axis=1, keepdims=True), count


@pytest.mark.parametrize("bias", [True, False])
def test_rows_are_scikit_learns_and_the_penalty_has_the_least_left_out_error(bias):
    z, rewards, _ = some_probes()
    target, count = regression(rewards)
    with jax.enable_x64(True):
        fit = probes.ridge(z, rewards, temperature=0.5, bias=bias)

        def refit(penalty, model, kept):
            used = kept & (count[:, model] > 0)
            # The unit of the penalty is that of the whole set, also where a question is left out.
            alpha = penalty * np.mean(z**2) * count[:, model].sum()
            return Ridge(alpha=alpha, fit_intercept=bias).fit(z[used], target[used, model], count[used, model])

        everything = np.ones(len(z), bool)
        for model in range(3):
            theirs = refit(float(fit.penalty), model, everything)
            np.testing.assert_allclose(fit.rows.weights[model], theirs.coef_ / 0.5, atol=1e-8)
            np.testing.assert_allclose(fit.rows.bias[model], theirs.intercept_ / 0.5, atol=1e-8)
        for index in (4, 12, 25):
            total = 0.0
            for model in range(3):
                for question in np.flatnonzero(count[:, model]):
                    kept = everything & (np.arange(len(z)) != question)
                    predicted = refit(float(probes.PENALTIES[index]), model, kept).predict(z[[question]])[0]
                    total += count[question, model] * (target[question, model] - predicted) ** 2
            assert float(fit.errors[index]) == pytest.approx(total / count.sum(), rel=1e-6)
        assert float(fit.penalty) == float(probes.PENALTIES[np.argmin(fit.errors)])


def test_ridge_finds_who_is_good_where():
    z, rewards, w = some_probes(Q=400, S=1)
    fit = probes.ridge(z, rewards)
    chosen = np.argmax(z @ np.asarray(fit.rows.weights).T + np.asarray(fit.rows.bias), axis=1)
    right = np.take_along_axis(1 / (1 + np.exp(-2 * z @ w.T)), chosen[:, None], 1).mean()
    assert right > 0.95 * (1 / (1 + np.exp(-2 * z @ w.T))).max(axis=1).mean()
    assert right > 0.7


def test_without_anything_to_learn_the_penalty_is_the_largest():
    z, _, _ = some_probes(Q=200)
    rewards = np.random.default_rng(3).integers(0, 2, (200, 3, 1)).astype(float)
    fit = probes.ridge(z, rewards)
    assert float(jnp.abs(fit.rows.weights).max()) < 0.5


@pytest.mark.parametrize("what", ["all", "a model", "a question"])
def test_missing_answers_give_finite_rows(what):
    z, rewards, _ = some_probes()
    rewards[{"all": np.s_[:], "a model": np.s_[:, 1], "a question": np.s_[2]}[what]] = NAN
    fit = probes.ridge(z, rewards)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in fit.rows)
    targets = probes.labels(rewards)
    assert np.asarray(targets).sum() == pytest.approx({"all": 0, "a model": 40, "a question": 39}[what])
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in probes.sft(KEY, z, targets, 0.1, steps=5))
    if what == "a model":
        assert not np.asarray(fit.rows.weights)[1].any()


def test_labels():
    rewards = np.array([
        [[1, 1, 0], [0, 0, 1], [1, 0, NAN]],  # two of three; one of three; a half is no majority
        [[0, 0, 0], [0, 1, 0], [0, 0, 0]],  # nobody by majority, the second by mean
        [[1, 1, 1], [NAN, NAN, NAN], [1, 1, 0]],  # who was not asked is not chosen
        [[NAN] * 3] * 3,
    ])  # fmt: skip
    third = 1 / 3
    np.testing.assert_allclose(probes.labels(rewards), [[1, 0, 0], [third] * 3, [0.5, 0, 0.5], [0] * 3], atol=1e-6)
    np.testing.assert_allclose(probes.labels(rewards, False), [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0] * 3], atol=1e-6)


def test_sft_ends_where_logistic_regression_does():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 3))
    best = np.argmax(z @ rng.normal(size=(3, 3)).T + rng.gumbel(size=(60, 3)), axis=1)
    rows = probes.sft(KEY, z, np.eye(3)[best], 0.05, batch=64, steps=1500)
    theirs = LogisticRegression(C=1e6, max_iter=1000).fit(z, best)
    ours = z @ np.asarray(rows.weights).T + np.asarray(rows.bias)
    probabilities = np.exp(ours - np.log(np.exp(ours).sum(axis=1, keepdims=True)))
    np.testing.assert_allclose(probabilities, theirs.predict_proba(z), atol=0.02)


def test_a_step_of_sft_is_the_learning_rate():
    z, rewards, _ = some_probes()
    rows = probes.sft(KEY, z, probes.labels(rewards), steps=1)
    assert float(jnp.abs(rows.weights).max()) == pytest.approx(1e-6, rel=1e-3)
    assert not np.asarray(probes.sft(KEY, z, probes.labels(rewards), steps=3, bias=False).bias).any()
