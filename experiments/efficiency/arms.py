"""Evolution strategies on an objective, compiled once for each kind and n."""

import copy
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from evosax.algorithms.distribution_based.cma_es import CMA_ES
from jaxtyping import Array, Float, PRNGKeyArray

from experiments.efficiency.objective import Objective, dense
from trinity_jax.config import LearningSettings
from trinity_jax.learning.shaping import tie_averaged_weights
from trinity_jax.learning.strategy import Strategy

KINDS = ("isotropic", "csa", "tpa", "full")
"""No adaptation but CSA's; separable CMA-ES with CSA or TPA; CMA-ES with a full covariance matrix."""

LINKS = ("exact", "logistic", "linear")
"""What a fitness is: the logit itself, or the mean of Bernoulli draws with chance sigmoid(l) or clip(1/2 + l, 0, 1)."""


GENERATIONS_A_CALL = 20
"""Of the compiled program."""

WRITTEN_OUT = 128
"""Up to this n objectives are written out as one block, so that all of one n have one shape."""


class Trace(NamedTuple):
    """Runs; entry t is after t generations [runs, T + 1], or of the step from t to t + 1 [runs, T].

    Attributes:
        logit: true l of the mean.
        crowd: mean true l of the candidates.
        distance2: squared length of the mean.
        sigma: step size.
        pull: how far, in sigma, the mean went along the gradient at the old mean.
        exact_pull: how far exact ranks would have pulled it.
        length2: squared length of the step, in sigma^2.
    """

    logit: Any
    crowd: Any
    distance2: Any
    sigma: Any
    pull: Any
    exact_pull: Any
    length2: Any


class FullCMA:
    """evosax's CMA-ES with a full covariance matrix, whose learning rates are right, behind `Strategy`'s interface."""

    def __init__(self, population: int, n: int):
        self._algorithm = CMA_ES(population, jnp.zeros(n), metrics_fn=lambda *_: {})
        self.params: Any = self._algorithm.default_params
        self.c_mu = float(self.params.c_mu)

    def init(self, key: PRNGKeyArray) -> Any:
        """State around the origin."""
        return self._algorithm.init(key, jnp.zeros(self._algorithm.num_dims), self.params)

    def ask(self, state: Any, key: PRNGKeyArray) -> tuple[Float[Array, "P n"], Any]:
        """Candidates, and the state that `tell` expects."""
        return self._algorithm.ask(key, state, self.params)

    def tell(self, state: Any, X: Float[Array, "P n"], fitness: Float[Array, " P"], key: PRNGKeyArray) -> Any:
        """Move towards high fitness."""
        return self._algorithm.tell(key, X, -fitness, state, self.params)[0]


@lru_cache
def strategy(kind: str, n: int, population: int) -> Strategy | FullCMA:
    """One of `KINDS` by name; its initial step size is set with the state."""
    if kind == "full":
        return FullCMA(population, n)
    learner = "isotropic_es" if kind == "isotropic" else "sep_cma_es"
    step_size = "tpa" if kind == "tpa" else "csa"
    return Strategy(LearningSettings(learner=learner, population=population, step_size=step_size), n)


def new_key(rng: np.random.Generator) -> PRNGKeyArray:
    """A key for `evolve`. Numpy draws what is drawn once: JAX would compile for every shape."""
    return jax.random.key(int(rng.integers(2**32)))


def evolve(
    kind: str,
    objective: Objective,
    key: PRNGKeyArray,
    runs: int,
    sigma0: float,
    population: int,
    generations: int,
    link: str = "exact",
    replications: int = 1,
    start: Float[np.ndarray, " n"] | None = None,
    follow: bool = False,
) -> Trace:
    """Independent runs from ``start`` (the origin by default).

    Args:
        kind: one of `KINDS`.
        objective: what is climbed.
        key: run i has the key fold_in(key, i).
        runs: how many.
        sigma0: initial step size; with ``follow`` the step size is this times |gradient at the mean| all along.
        population: P.
        generations: T.
        link: one of `LINKS`.
        replications: R, Bernoulli draws a candidate.
        start: initial mean.
        follow: take the step size from the gradient, which no real strategy knows.

    Returns:
        Arrays [runs, T or T + 1].
    """
    n = len(objective.slope)
    params: Any = strategy(kind, n, population).params
    # The two differ in constants only, which are arguments, and so share a compilation.
    chosen = strategy("csa" if kind == "isotropic" else kind, n, population)
    about = _About(
        objective=jax.tree.map(_single, dense(objective) if n <= WRITTEN_OUT else objective),
        params=params,
        sigma0=_single(sigma0),
        follow=np.asarray(follow),
        replications=_single(replications),
        linear=np.asarray(link == "linear"),
    )
    mean = np.zeros(n, np.float32) if start is None else _single(start)
    norm = jnp.linalg.norm(about.objective.gradient(jnp.asarray(mean)))
    first = chosen.init(key).replace(mean=mean, std=_single(sigma0 * norm if follow else sigma0))
    # A generation of long vectors fills the caches alone; short ones are cheaper in company. Groups of one n have one
    # size and calls one number of generations, and what is too much is thrown away: so any number of runs and of
    # generations shares the compilation.
    group = min(max(1, 4096 // n), 4 if kind == "full" else 16)
    courses = []
    for number in range(0, runs, group):
        state = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (group, *np.shape(leaf))), first)
        numbers, traces = np.arange(number, number + group), []
        for t in range(0, generations, GENERATIONS_A_CALL):
            state, trace = _advance(about, state, key, numbers, t, chosen, link == "exact")
            traces.append(trace)
        courses.append(jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *jax.device_get(traces)))
    trace = jax.tree.map(lambda *parts: np.concatenate(parts)[:runs, :generations].astype(float), *courses)
    begin = {"logit": about.objective.logit(jnp.asarray(mean)), "distance2": np.sum(mean**2), "sigma": first.std}
    return trace._replace(**{name: np.insert(getattr(trace, name), 0, value, axis=1) for name, value in begin.items()})


class _About(NamedTuple):
    """What a run is told, all of it arrays; see `evolve`."""

    objective: Objective
    params: Any
    sigma0: Any
    follow: Any
    replications: Any
    linear: Any


def _single(value: Any) -> np.ndarray:
    return np.asarray(value, np.float32)


@partial(jax.jit, static_argnames=("chosen", "exact"))
def _advance(about: _About, states, key, numbers, t, chosen, exact: bool):
    """Some generations, from t on, of a group of runs."""
    objective, strategy = about.objective, copy.copy(chosen)
    strategy.params = about.params

    def fitness(logits, key):
        if exact:
            return logits
        chance = jnp.where(about.linear, jnp.clip(0.5 + logits, 0.0, 1.0), jax.nn.sigmoid(logits))
        return jax.random.binomial(key, about.replications, chance)

    def generation(state, keys):
        ask_key, reward_key, tell_key = keys
        gradient = objective.gradient(state.mean)
        norm = jnp.linalg.norm(gradient)
        state = state.replace(std=jnp.where(about.follow, about.sigma0 * norm, state.std))
        X, asked = strategy.ask(state, ask_key)
        logits = objective.logit(X)
        after = strategy.tell(asked, X, fitness(logits, reward_key), tell_key)
        along = gradient / (norm * state.std)
        step = after.mean - state.mean
        exact_weights = tie_averaged_weights(X, -logits, after, about.params)
        seen = Trace(
            logit=objective.logit(after.mean),
            crowd=jnp.mean(logits),
            distance2=jnp.sum(after.mean**2),
            sigma=after.std,
            pull=step @ along,
            exact_pull=exact_weights @ ((X - state.mean) @ along),
            length2=jnp.sum((step / state.std) ** 2),
        )
        return after, seen

    def run(state, number):
        keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, number), t), (GENERATIONS_A_CALL, 3))
        return jax.lax.scan(generation, state, keys)

    return jax.vmap(run)(states, numbers)
