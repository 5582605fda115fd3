"""First-turn model choice on recorded outcomes: learnt and tuned on the training half, judged on the test half."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from rich.console import Console

from experiments.recorded import page
from experiments.recorded.names import ORACLE, PER_TASK, RANDOM, SINGLE
from experiments.recorded.outcomes import Outcomes, find, load
from experiments.recorded.routers import Option, Router, best_per_task, best_single, routers
from experiments.recorded.scores import macro, reward
from experiments.recorded.selection import Selected, seeds, select, single_rewards, validated
from experiments.recorded.settings import Settings
from experiments.results import Results
from trinity_jax.encoder.states import hidden_states, read
from trinity_jax.errors import UserError


class Policy(NamedTuple):
    """One way to choose, on the test half.

    Attributes:
        rewards: of each seed (one row for a rule without luck) and prompt.
        shares: how often each model is asked, by task; None where it is not one choice.
        chars: mean characters of the responses, over tasks; None where they are not recorded.
    """

    rewards: Float[np.ndarray, "S n"]
    shares: Float[np.ndarray, "tasks L"] | None = None
    chars: float | None = None


class Judged(NamedTuple):
    """One pool.

    Attributes:
        pool: its name.
        test: the test half.
        seen: how many prompts could be learnt from.
        policies: by name; a router that did not lead in cross-validation is the best single model.
        selected: what cross-validation says, by router.
        unguarded: every router as it is, whether it led or not.
        alone: what cross-validation on each seed's folds alone would have said, and what would have come of it.
    """

    pool: str
    test: Outcomes
    seen: int
    policies: dict[str, Policy]
    selected: dict[str, Selected]
    unguarded: dict[str, Policy]
    alone: dict[str, tuple[list[Selected], Policy]]


def run(settings: Settings, results: Results, console: Console) -> None:
    """Judge every pool and write the table, the figures and the page.

    Raises:
        UserError: no outcomes, broken ones, too few of them, or an encoder without these layers.
    """
    folder = find(settings.data.folder)
    recorded = load(folder).some(settings.data.per_task)
    pools = {name: recorded.pool(models, f"pools.{name}") for name, models in settings.pools.items()}
    _enough(recorded, settings, folder)
    console.print(f"{len(recorded.ids)} prompts of {', '.join(recorded.tasks)}; {recorded.train.sum()} to learn from")
    judged = []
    for name, outcomes in pools.items():
        with console.status(name) as status:
            one = judge(name, outcomes, settings, lambda said, name=name: status.update(f"{name}: {said}"))
        judged.append(one)
        right = {policy: macro(found.rewards.mean(0), one.test.task) for policy, found in one.policies.items()}
        console.print(f"{name}: " + ", ".join(f"{policy} {100 * value:.2f}" for policy, value in right.items()))
    results.table([row for one in judged for row in _rows(one, settings)])
    page.figures(judged, settings, results)
    results.page(page.text(judged, settings, _cut(recorded, settings)))


def judge(pool: str, outcomes: Outcomes, settings: Settings, progress: Callable[[str], None]) -> Judged:
    """Tune and learn on the training half of one pool, choose on its test half."""
    states = hidden_states(
        settings.encoder,
        outcomes.prompts,
        len(outcomes.models),
        settings.layers,
        progress=lambda done, total: progress(f"encoding {done} of {total}"),
    )[:, :, 0]
    train = outcomes.train
    taught, test = outcomes.rows(train), outcomes.rows(~train)
    fall_back = np.full(len(test.ids), best_single(taught))
    single = _policy([fall_back], test)
    selected, guarded, unguarded, alone = {}, {}, {}, {}
    bar = single_rewards(outcomes, train, settings)
    for router in routers(outcomes, states, train, settings):

        def learnt(options: list[Option], router: Router = router) -> list[Int[np.ndarray, " n"]]:
            """The choice of every seed, each with its option, on the test half."""
            pairs = zip(options, seeds(settings), strict=True)
            return [router.learn(option, train, seed)[~train] for option, seed in pairs]

        rewards = validated(router, outcomes, train, settings, progress)
        progress(f"{router.name}: learning from the whole training half")
        found = select(rewards, bar, taught.task)
        selected[router.name] = found
        unguarded[router.name] = _policy(learnt([found.option] * settings.seeds), test)
        guarded[router.name] = unguarded[router.name] if found.used else single
        own = [select({o: r[[i]] for o, r in rewards.items()}, bar[[i]], taught.task) for i in range(settings.seeds)]
        choices = zip(learnt([one.option for one in own]), own, strict=True)
        alone[router.name] = own, _policy([choice if one.used else fall_back for choice, one in choices], test)
    policies = {
        RANDOM: Policy(test.right.mean(axis=1)[None], chars=_chars(test, lambda chars: chars.mean(axis=1))),
        SINGLE: single,
        PER_TASK: _policy([best_per_task(taught)[test.task]], test),
        **guarded,
        ORACLE: Policy(test.right.max(axis=1)[None]),
    }
    return Judged(pool, test, len(taught.ids), policies, selected, unguarded, alone)


def _policy(choices: list[Int[np.ndarray, " n"]], test: Outcomes) -> Policy:
    """What one choice a seed makes of the test half."""
    asked = np.mean([choice[:, None] == np.arange(len(test.models)) for choice in choices], axis=0)
    shares = np.stack([asked[test.task == t].mean(axis=0) for t in range(len(test.tasks))])
    rewards = np.stack([reward(choice, test.right) for choice in choices])
    return Policy(rewards, shares, _chars(test, lambda chars: (asked * chars).sum(axis=1)))


def _chars(test: Outcomes, of: Callable[[np.ndarray], np.ndarray]) -> float | None:
    return None if test.chars is None else macro(of(test.chars), test.task)


def _rows(one: Judged, settings: Settings) -> list[dict[str, Any]]:
    """Rows of results.csv: every policy and seed on the test half, then every option in cross-validation."""
    rows = []
    single = one.policies[SINGLE].rewards.mean(axis=0)
    alone = {name: policy for name, (_, policy) in one.alone.items()}
    parts = {"test": one.policies, "test, no fall-back": one.unguarded, "test, each seed alone": alone}
    for what, policies in parts.items():
        for name, policy in policies.items():
            low, high = page.interval(policy.rewards.mean(axis=0), one.test.task, settings)[1:]
            lead = page.interval(policy.rewards.mean(axis=0) - single, one.test.task, settings)
            row: dict[str, Any] = {"pool": one.pool, "on": what, "policy": name, "seed": "mean"}
            row |= {"accuracy": macro(policy.rewards.mean(axis=0), one.test.task), "low": low, "high": high}
            row |= {f"{key} over best single": value for key, value in lead._asdict().items()}
            rows.append(row | {"chars": policy.chars})
            for place, rewards in enumerate(policy.rewards):
                rows.append(
                    {
                        "pool": one.pool,
                        "on": what,
                        "policy": name,
                        "seed": place,
                        "accuracy": macro(rewards, one.test.task),
                    }
                    | {task: rewards[one.test.task == t].mean() for t, task in enumerate(one.test.tasks)}
                )
    for name, found in one.selected.items():
        rows += [
            {"pool": one.pool, "on": "cross-validation", "policy": name, **option._asdict(), "accuracy": mean}
            for option, mean in found.means.items()
        ]
    return rows


def _enough(recorded: Outcomes, settings: Settings, folder: Path) -> None:
    for t, task in enumerate(recorded.tasks):
        train = recorded.train[recorded.task == t]
        if train.sum() < settings.folds or (~train).sum() < 2:
            raise UserError(
                f"{folder}: {task}: expected at least {settings.folds} prompts to learn from and 2 to judge on, got "
                f"{train.sum()} and {(~train).sum()}"
            )


def _cut(recorded: Outcomes, settings: Settings) -> int:
    return read(settings.encoder, recorded.prompts, len(next(iter(settings.pools.values())))).cuts
