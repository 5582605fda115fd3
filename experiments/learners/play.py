"""Runs of learners on one world: a learner in one kind of coordinates is one compiled program for all of its steps."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from experiments.learners.settings import Readout
from experiments.learners.steps import AtStep, without_step
from experiments.worlds import Coordinator
from trinity_jax.config import LearningSettings
from trinity_jax.coordinator.layout import BIAS
from trinity_jax.learning import probes
from trinity_jax.learning.learner import build
from trinity_jax.training.warm_start import model_rows
from trinity_jax.world.evolve import Course, Rules, World, evolve, log_prob, worth

COMPILER = {"xla_backend_optimization_level": 1}
"""Compiles a quarter faster than level 3 and runs as fast."""


class View(NamedTuple):
    """The world in one kind of coordinates, the head that reads them, and the calls that it took to fit them."""

    world: World
    coordinator: Coordinator
    calls: int


class Task(NamedTuple):
    """Runs to make: a learner in coordinates at a step, once for every key."""

    learning: LearningSettings
    readout: Readout
    step: float
    keys: Sequence[PRNGKeyArray]


class Runs(NamedTuple):
    """What became of the R runs of a task.

    Attributes:
        train: exact success on the training questions, sampling and with the largest logits.
        held_out: the same on the held-out questions.
        calls: that had to be made, those to fit the coordinates included.
        course: by generation; None for a start that single calls gave.
    """

    train: Float[np.ndarray, "R 2"]
    held_out: Float[np.ndarray, "R 2"]
    calls: Float[np.ndarray, " R"]
    course: Course | None


Program = Callable[[float, PRNGKeyArray], Runs]
"""(step, key) -> one run: `Runs` without the axis R."""


class Player:
    """Plays tasks on one world; keeps the programs it compiled.

    Attributes:
        worth: by coordinates, a vector's exact success on training and on held-out questions, see `Runs`.
    """

    def __init__(self, views: Mapping[Readout, View], rules: Rules):
        self._views, self._rules = views, rules
        self.worth = {readout: _judge(view, rules) for readout, view in views.items()}
        self._programs: dict[Any, Program] = {}

    def play(self, tasks: Sequence[Task]) -> Iterator[Runs]:
        """Runs of every task, in the order of the tasks; programs run side by side, one on a core."""
        groups: dict[Any, list[int]] = {}
        for number, task in enumerate(tasks):
            groups.setdefault((without_step(task.learning), task.readout), []).append(number)
        for key in groups.keys() - self._programs.keys():
            self._programs[key] = self._program(*key)

        def one(program: Program, task: Task) -> Runs:
            runs = [program(task.step, key) for key in task.keys]
            return jax.tree.map(lambda *leaves: np.stack(leaves), *runs)

        def together(key: Any, numbers: list[int]) -> dict[int, Runs]:
            return {number: one(self._programs[key], tasks[number]) for number in numbers}

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            futures = {n: future for g in groups.items() for future in [threads.submit(together, *g)] for n in g[1]}
            for number in range(len(tasks)):
                yield futures[number].result()[number]

    def _program(self, learning: LearningSettings, readout: Readout) -> Program:
        (world, coordinator, paid), rules = self._views[readout], self._rules
        logits, n = coordinator.logits, coordinator.layout.size

        def evolved(world: World, step: Float[Array, ""], key: PRNGKeyArray) -> tuple[Float[Array, " n"], Course]:
            learner: Any = AtStep(build(learning, n, log_prob(world, rules, logits)), step)
            return evolve(learner, world, rules, logits, learning.generations, key)

        def fitted(step: float, key: PRNGKeyArray) -> Runs:
            vector = model_rows(coordinator.layout, rows(world, jnp.asarray(step), key))
            calls = paid + learning.warm_start.calls(world.skills.worker.shape[1], len(world.train))
            return Runs(*self.worth[readout](jnp.asarray(vector, jnp.float32)), np.asarray(calls), None)

        def played(step: float, key: PRNGKeyArray) -> Runs:
            vector, course = program(world, jnp.asarray(step), key)
            return Runs(*self.worth[readout](vector), paid + course.made.sum(), course)

        if learning.generations:
            build(learning, n, log_prob(world, rules, logits))  # evosax's part is kept, and must not be made in a trace
            program = jax.jit(evolved, compiler_options=COMPILER)
            return played
        bias = BIAS in coordinator.layout.names
        rows = jax.jit(lambda *given: _rows(learning, bias, *given), compiler_options=COMPILER)
        return fitted


def _judge(view: View, rules: Rules) -> Callable[[Float[Array, " n"]], tuple[Any, Any]]:
    """Exact success on the training and the held-out questions: (sampling, largest logits) each."""

    def both(world: World, vector: Float[Array, " n"]) -> tuple[Any, Any]:
        everything, logits = jnp.arange(len(world.kinds)), view.coordinator.logits
        one = lambda sample: worth(world, rules, logits, vector, everything, sample).reward  # noqa: E731
        by_question = jax.vmap(one)(jnp.array([True, False]))
        return by_question[:, world.train].mean(axis=1), by_question[:, world.held_out].mean(axis=1)

    program = jax.jit(both, compiler_options=COMPILER)
    return lambda vector: program(view.world, vector)


def _rows(learning: LearningSettings, bias: bool, world: World, step: Any, key: PRNGKeyArray) -> probes.Rows:
    """Every model answers every training question by itself; rows of the head are fitted to that."""
    warm = learning.warm_start
    chance = world.skills.take(world.train).worker
    luck = jax.random.uniform(jax.random.fold_in(key, 0), (*chance.shape, warm.samples))
    rewards = (luck < chance[..., None]).astype(jnp.float32)
    z = jax.vmap(lambda question: world.states.every(question)[0])(world.train)
    if warm.kind == "ridge":
        return probes.ridge(z, rewards, step, bias).rows
    targets = probes.labels(rewards, warm.labels == "majority")
    return probes.sft(jax.random.fold_in(key, 1), z, targets, step, warm.batch, warm.steps, bias)
