"""Mixture of agents (Wang et al. 2024, one layer): all models propose, one of them makes a single reply of it."""

from collections.abc import Sequence
from dataclasses import replace

from trinity_jax.episode.episode import Role, Turn, start
from trinity_jax.evaluation.bench import Bench
from trinity_jax.evaluation.scores import Scores, at_once, from_results
from trinity_jax.pool.reply import Message, Reply
from trinity_jax.reasoning import visible
from trinity_jax.rollout.engine import EpisodeResult, together

_INSTRUCTION = (
    "Several assistants have replied to the same task; their replies follow it. Some may be wrong, also several in the "
    "same way. Weigh them critically and write one reply of your own that is as right and complete as you can make it. "
    "End with the final answer alone: <answer>...</answer>"
)


async def mix(bench: Bench, aggregator: int) -> Scores:
    """Equally many proposals of every model, as many as K calls hold but one at least, and one call that unites them.

    Proposals are the models' single answers; one that failed is left out. K is met exactly where K - 1 is a multiple
    of L; with K below L + 1 this takes more calls than the coordinator.
    """
    models = len(bench.pool.names)
    each = max(1, (bench.votes - 1) // models)
    cells: dict[tuple[int, int], list[EpisodeResult]] = {}
    for samples in bench.samples:
        for result in samples:
            if result.key.repeat < bench.repeats * each:
                cells.setdefault((result.key.question, result.key.repeat % bench.repeats), []).append(result)
    results = await together(_united(bench, aggregator, proposals) for proposals in cells.values())
    note = f"{each} of each model, {bench.pool.names[aggregator]} aggregates"
    note += "; a simulated model takes it as a new attempt of its own" if bench.simulated else ""
    return from_results(f"mixture of agents, {models * each + 1} calls", results, note, _waited)


def aggregation(prompt: str, replies: Sequence[str]) -> tuple[Message, ...]:
    """What the aggregator reads: the task and the replies without reasoning aloud; nothing says whose they are."""
    tagged = (f"<reply_{i}>\n{visible(reply).strip()}\n</reply_{i}>" for i, reply in enumerate(replies, 1))
    return Message("system", _INSTRUCTION), Message("user", "\n\n".join((prompt, *tagged)))


async def _united(bench: Bench, aggregator: int, proposals: Sequence[EpisodeResult]) -> EpisodeResult:
    proposals = sorted(proposals, key=lambda result: result.key.repeat)  # a model's second one after all first ones
    key = proposals[0].key._replace(repeat=proposals[0].key.repeat % bench.repeats)
    state = start(bench.questions[key.question].prompt)
    replies = [reply for result in proposals for reply in result.replies]
    texts = [reply.text for reply in replies if reply.outcome.gradable]
    if not texts:
        return EpisodeResult(key, None, None, state, (), tuple(replies))
    messages = aggregation(state.prompt, texts)
    reply = await bench.pool.call(aggregator, Role.WORKER.value, messages, scope=bench.scope, repeat=key.repeat)
    state = replace(state, turns=(Turn(aggregator, Role.WORKER, reply.text),), response=reply.text)
    return await bench.graded(key, state, (*replies, reply))


def _waited(replies: Sequence[Reply]) -> float:
    return at_once(replies[:-1]) + at_once(replies[-1:])
