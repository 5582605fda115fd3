"""A start for the head: models' rows from single Worker calls on training questions, role rows from a script."""

import asyncio

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from trinity_jax.coordinator.layout import BIAS, HEAD, Layout
from trinity_jax.coordinator.readout import coordinates
from trinity_jax.episode.episode import start
from trinity_jax.episode.transcript import view
from trinity_jax.evaluation.bench import worker_samples
from trinity_jax.evaluation.deciders import script
from trinity_jax.evaluation.scores import from_results
from trinity_jax.learning import probes
from trinity_jax.training.alarms import stop_on_failures
from trinity_jax.training.draw import draw_questions
from trinity_jax.training.experience import states_of
from trinity_jax.training.rig import Rig, encoded, warm_up

PROBES_SCOPE = "probes"
"""Of the probes' calls in the journal: a resumed run finds its own there, and nothing else does."""

_PROBES = 6_000_000  # branch of the run's root key, beside those in training.loop


async def warm_vector(rig: Rig) -> Float[np.ndarray, " n"]:
    """The vector to begin with: fitted rows for the models; for the roles the script, or zeros (no preference).

    Raises:
        UserError: too many probes failed.
    """
    settings, model = rig.settings, rig.model
    chosen, names = settings.learning.warm_start, settings.pool.names
    key = jax.random.fold_in(jax.random.key(settings.seed), _PROBES)
    kinds = [question.kind for question in model.tasks.train]
    drawn = draw_questions(jax.random.fold_in(key, 0), kinds, chosen.questions or len(kinds))
    questions = [model.tasks.train[index] for index in drawn]
    places = rig.hosts.share(drawn)
    mine = [questions[place] for place in places]
    async with rig.hosts.spending(rig.pool):
        samples = await asyncio.gather(
            *(
                worker_samples(index, mine, chosen.samples, rig.pool, settings.episode, PROBES_SCOPE)
                for index in range(len(names))
            )
        )
    results = [one for part in rig.hosts.gather(samples) for each in part for one in each]
    stop_on_failures(results, settings.training.max_failed_share, "warm start")
    own = np.stack([from_results("", each).rewards for each in samples], axis=1)
    rewards = np.stack(rig.hosts.joined(places, list(own)))
    texts = [view(start(q.prompt), settings.episode.transcript) for q in questions]
    z = coordinates(rig.readout, jnp.asarray(encoded(rig.hosts, model, drawn, texts)))
    bias = BIAS in model.layout.names
    if chosen.kind == "ridge":
        rows = probes.ridge(z, rewards, chosen.temperature, bias).rows
    else:
        targets = probes.labels(rewards, chosen.labels == "majority")
        training = (chosen.learning_rate, chosen.batch, chosen.steps)
        rows = probes.sft(jax.random.fold_in(key, 1), z, targets, *training, bias=bias)
    if chosen.roles == "script":
        rows = _with_roles(rows, await _script_rows(rig, jax.random.fold_in(key, 2), bias))
    return model_rows(model.layout, rows)


async def _script_rows(rig: Rig, key: PRNGKeyArray, bias: bool) -> probes.Rows:
    """Role rows that follow the script on the states that the read-out was fitted on; no new calls."""
    settings, model = rig.settings, rig.model
    results = await warm_up(settings, rig.hosts, model.tasks, rig.pool)
    met = [(r.key.question, state) for r in results for state in states_of(r, settings.episode)]
    texts = [view(state, settings.episode.transcript) for _, state in met]
    z = coordinates(rig.readout, jnp.asarray(encoded(rig.hosts, model, [question for question, _ in met], texts)))
    chances = np.array([script(state) for _, state in met])
    return probes.sft(key, z, chances, *probes.ROLE_TRAINING, bias=bias)


def _with_roles(models: probes.Rows, roles: probes.Rows) -> probes.Rows:
    return probes.Rows(*(jnp.concatenate([jnp.asarray(m), jnp.asarray(r)]) for m, r in zip(models, roles, strict=True)))


def model_rows(layout: Layout, rows: probes.Rows) -> Float[np.ndarray, " n"]:
    """A vector of zeros but for the first rows of a linear head, models' first, and, where there is one, the bias."""
    vector = np.zeros(layout.size)
    for name, values in ((HEAD, rows.weights), (BIAS, rows.bias)):
        # Rows stand in head order, models first.
        offset = next((block.offset for block in layout.blocks if block.name == name), None)
        if offset is not None:
            flat = np.asarray(values, np.float64).ravel()
            vector[offset : offset + flat.size] = flat
    return vector
