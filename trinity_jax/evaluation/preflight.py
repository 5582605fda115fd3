"""Before a run: is every model there in every role, can its replies be read, what does it know, what will it cost.

The calls are those that validation makes anyway (same scope, first repeat), so a run that has them in its journal does
not pay for them again.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from scipy import stats

from trinity_jax.config import Settings
from trinity_jax.episode.episode import EpisodeState, Role, messages, start, step
from trinity_jax.episode.roles import reason, suggestion, verdict
from trinity_jax.evaluation.bench import worker_samples
from trinity_jax.evaluation.forecast import Part, forecast
from trinity_jax.evaluation.intervals import Estimate
from trinity_jax.evaluation.scores import Scores, from_results
from trinity_jax.pool.pool import Pool
from trinity_jax.pool.reply import Message, Outcome, Reply
from trinity_jax.reasoning import visible
from trinity_jax.tasks.question import Question

SCOPE = "validation"
"""Of the loop's validation episodes."""


@dataclass(frozen=True)
class Check:
    """One model in one role. ``fault`` stops a run; ``remark`` does not."""

    model: str
    role: str
    outcome: str
    fault: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Means:
    """Of one model's replies: tokens, money and seconds a call."""

    input_tokens: float
    output_tokens: float
    cost: float
    seconds: float


@dataclass(frozen=True)
class Findings:
    """What was seen. ``single`` are the models' scores with one call on each of a few validation questions.

    ``accept`` is the Verifiers' share of acceptances, (accepted + 1) / (read + 2).
    """

    checks: tuple[Check, ...]
    single: tuple[Scores, ...]
    means: tuple[Means, ...]
    accept: float
    calls: int

    @property
    def faults(self) -> list[str]:
        """What must be mended before a run."""
        return [f"{c.model} as {c.role}: {c.fault}" for c in self.checks if c.fault]

    @property
    def oracle(self) -> np.ndarray:
        """Per question: was any model right, NaN where none has a grade, [Q]."""
        rewards = np.stack([s.per_question for s in self.single])
        known = ~np.isnan(rewards)
        return np.where(known.any(axis=0), np.where(known, rewards, 0.0).max(axis=0), np.nan)

    def disagreement(self) -> list[tuple[str, str, float]]:
        """For each two models, the share of questions that exactly one of them got right."""
        pairs = [(a, b) for i, a in enumerate(self.single) for b in self.single[i + 1 :]]
        return [(a.name, b.name, share(np.abs(a.per_question - b.per_question)).mean) for a, b in pairs]


@dataclass(frozen=True)
class Bill:
    """What a number of calls takes. ``hours`` of waiting for models alone."""

    calls: float
    tokens: float
    cost: float
    hours: float


async def inspect(pool: Pool, questions: Sequence[Question], settings: Settings) -> Findings:
    """Ask every model in every role once, and as Worker all of ``questions``.

    Args:
        pool: who answers; its journal keeps the replies.
        questions: the first few of validation, in their order: identity of the calls depends on it.
        settings: of the run.
    """
    names, models = pool.names, range(len(pool.names))
    samples = await asyncio.gather(*(worker_samples(m, questions, 1, pool, settings.episode, SCOPE) for m in models))
    single = tuple(from_results(name, results) for name, results in zip(names, samples, strict=True))
    replies: list[list[Reply]] = [[reply for r in results for reply in r.replies] for results in samples]
    checks = [_worker(names[m], single[m], replies[m]) for m in models]

    begun = start(questions[0].prompt)
    said = [samples[m][0].state.response for m in models]
    some = next((text for text in said if text is not None), None)
    thoughts = await asyncio.gather(*(_ask(pool, m, Role.THINKER, begun) for m in models))
    judged = [text if text is not None else some for text in said]
    verdicts = await asyncio.gather(
        *(
            _ask(pool, m, Role.VERIFIER, step(begun, m, Role.WORKER, text, settings.episode))
            for m, text in enumerate(judged)
            if text is not None
        )
    )
    for m, reply in enumerate(thoughts):
        unread = "" if suggestion(reply.text) else "the suggestion could not be read: the turn is lost"
        checks.append(_check(names[m], Role.THINKER, reply, unread))
    for m, reply in enumerate(verdicts):
        unread = "" if _states_verdict(reply.text) else "no verdict could be read: it counts as a rejection"
        checks.append(_check(names[m], Role.VERIFIER, reply, unread))
    for m, own in enumerate(replies):
        own += [thoughts[m], *verdicts[m : m + 1]]
    read = [verdict(reply.text) for reply in verdicts if reply.outcome.gradable]
    accept = (sum(read) + 1) / (len(read) + 2)
    return Findings(tuple(checks), single, tuple(map(_means, replies)), accept, sum(map(len, replies)))


async def _ask(pool: Pool, model: int, role: Role, state: EpisodeState) -> Reply:
    prompt = [Message(*message) for message in messages(state, role)]
    return await pool.call(model, role.value, prompt, scope=SCOPE)


def _worker(name: str, scores: Scores, replies: Sequence[Reply]) -> Check:
    failed = next((reply for reply in replies if not reply.outcome.gradable), None)
    unread = int(scores.undecided.sum())
    cut = sum(reply.outcome is Outcome.TRUNCATED for reply in replies)
    remarks = [f"no answer could be read in {unread} of {len(replies)}"] * bool(unread)
    remarks += [f"{cut} of {len(replies)} cut off at max_tokens"] * bool(cut)
    if failed is None and unread == len(replies):
        return Check(name, Role.WORKER.value, replies[0].outcome.value, "no answer could be read in any reply")
    return _check(name, Role.WORKER, failed or replies[0], "; ".join(remarks))


def _check(name: str, role: Role, reply: Reply, remark: str) -> Check:
    if not reply.outcome.gradable:
        fault = f"{reply.outcome.value}: {reply.detail or 'no detail'}"
        return Check(name, role.value, reply.outcome.value, fault)
    return Check(name, role.value, reply.outcome.value, "", remark)


def _states_verdict(text: str) -> bool:
    # The reason is the reply without the lines that state a verdict.
    return verdict(text) or reason(text, len(text)).split() != visible(text).split()


def _means(replies: Sequence[Reply]) -> Means:
    good = [reply for reply in replies if reply.outcome.gradable]
    fields = ("input_tokens", "output_tokens", "cost", "seconds")
    return Means(*(float(np.mean([getattr(r, field) for r in good])) if good else 0.0 for field in fields))


def share(values: np.ndarray) -> Estimate:
    """Share of ones among what is not NaN, with Wilson's 95 % interval: it holds for few questions too."""
    known = values[~np.isnan(values)]
    if not known.size:
        return Estimate(np.nan, np.nan, np.nan)
    interval = stats.binomtest(int(known.sum()), known.size).proportion_ci(method="wilson")
    return Estimate(float(known.mean()), float(interval.low), float(interval.high))


def bill(calls: float, findings: Findings, settings: Settings) -> Bill:
    """Tokens, money and hours of so many calls, spread evenly over the models."""
    each = calls / len(findings.means)
    tokens = sum(each * (m.input_tokens + m.output_tokens) for m in findings.means)
    cost = sum(each * m.cost for m in findings.means)
    # Endpoints work side by side; each is busy, and every generation waits for an episode's calls one after another.
    slots = [float(model.concurrency) for model in settings.pool.models] or [math.inf] * len(findings.means)
    busy = max(each * m.seconds / slot for m, slot in zip(findings.means, slots, strict=True))
    chain = settings.episode.max_calls * float(np.mean([m.seconds for m in findings.means]))
    return Bill(calls, tokens, cost, (busy + (settings.learning.generations + 3) * chain) / 3600)


def bills(findings: Findings, settings: Settings, population: int) -> tuple[list[Part], Bill, Bill]:
    """The forecast by part, and what the whole run takes: about, and at most."""
    parts = forecast(settings, population, findings.accept)
    about, most = sum(part.about for part in parts), sum(part.most for part in parts)
    return parts, bill(about, findings, settings), bill(most, findings, settings)


def show(console: Console, findings: Findings, settings: Settings, population: int) -> None:
    """Tables of checks, single models and forecast."""
    checks = Table("model", "role", "reply", "remark", title="Every model in every role")
    for check in findings.checks:
        text = f"[red]{escape(check.fault)}[/red]" if check.fault else escape(check.remark)
        checks.add_row(escape(check.model), check.role, check.outcome, text)
    console.print(checks)

    single = Table("model", "right", "95 % interval", "seconds", "tokens in", "out", title="One call on validation")
    for scores, m in zip(findings.single, findings.means, strict=True):
        tokens = (f"{m.seconds:.2f}", f"{m.input_tokens:.0f}", f"{m.output_tokens:.0f}")
        single.add_row(escape(scores.name), *_estimate(share(scores.per_question)), *tokens)
    single.add_row("any of them (inflated by luck)", *_estimate(share(findings.oracle)))
    console.print(single)
    for one, other, apart in findings.disagreement():
        console.print(escape(f"{one} and {other}: exactly one of them is right on {apart:.0%} of the questions"))

    parts, about, most = bills(findings, settings, population)
    table = Table("part", "calls, about", "at most", title="The whole run")
    for part in parts:
        table.add_row(part.name, f"{part.about:,.0f}", f"{part.most:,}")
    for name, unit in (("calls", ",.0f"), ("tokens", ",.0f"), ("cost", ",.4g"), ("hours", ",.2g")):
        table.add_row(f"all: {name}", *(format(getattr(total, name), unit) for total in (about, most)))
    console.print(table)
    console.print("about: choices as an untrained policy makes them; hours: waiting for models, not deciding")
    for line in doubts(findings, settings, about):
        console.print(f"[bold]{escape(line)}[/bold]")


def doubts(findings: Findings, settings: Settings, about: Bill) -> list[str]:
    """What speaks against going on though nothing is at fault: caps below the forecast, models that know nothing."""
    budget = settings.budget
    wanted = {"calls": about.calls, "cost": about.cost, "tokens": about.tokens}
    found = [
        f"budget.{name}: {cap:,} is less than the run takes, about {wanted[name]:,.4g}: it will stop there"
        for name in wanted
        if (cap := getattr(budget, name)) is not None and wanted[name] > cap
    ]
    if findings.oracle.size and np.nanmax(np.append(findings.oracle, 0.0)) == 0.0:
        found.append("no model was right on any of these questions: as far as they tell there is nothing to learn")
    elif not any(apart > 0 for _, _, apart in findings.disagreement()) and len(findings.single) > 1:
        found.append("the models were right on the same questions: as far as they tell there is nothing to choose")
    return found


def summary(findings: Findings, settings: Settings, population: int) -> dict[str, Any]:
    """What preflight.json holds."""
    _, about, most = bills(findings, settings, population)
    accuracy = {s.name: share(s.per_question)._asdict() for s in findings.single}
    return {
        "calls": findings.calls,
        "checks": [asdict(check) for check in findings.checks],
        "accuracy": {name: {k: _finite(v) for k, v in e.items()} for name, e in accuracy.items()},
        "oracle": _finite(share(findings.oracle).mean),
        "accept": findings.accept,
        "about": asdict(about),
        "most": asdict(most),
    }


def _estimate(estimate: Estimate) -> tuple[str, str]:
    if math.isnan(estimate.mean):
        return "none", ""
    return f"{estimate.mean:.0%}", f"{estimate.low:.0%} to {estimate.high:.0%}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
