"""Self-reflection: one model answers, then looks for mistakes in its own answer and mends it, call after call."""

from collections import Counter
from dataclasses import replace

from trinity_jax.episode.episode import Role, Turn
from trinity_jax.evaluation.bench import Bench
from trinity_jax.evaluation.scores import Scores, from_results
from trinity_jax.pool.reply import Message
from trinity_jax.reasoning import visible
from trinity_jax.rollout.engine import EpisodeResult, together

TITLE = "self-reflection of"
"""In a row's name between the model's and the number of calls."""

_INSTRUCTION = "You solve a task and check your own work before you hand it in."
_REVISE = (
    "This is your own reply so far. Go through it critically: say in a few words what in it is wrong or unproven, or "
    "that nothing is. Then write the whole reply anew with every mistake mended, and end with the final answer alone: "
    "<answer>...</answer>"
)


async def reflect(bench: Bench, model: int) -> Scores:
    """K calls of one model: an answer (the one that counts at one call), then K - 1 revisions of what it said last."""
    name = f"{bench.pool.names[model]}, {TITLE} {bench.votes}"
    results = await together(_revised(bench, model, first) for first in bench.answers(model))
    return from_results(name, results, "a simulated model takes a revision as a new attempt" if bench.simulated else "")


def revision(prompt: str, reply: str) -> tuple[Message, ...]:
    """What the model reads: the task, its own reply without reasoning aloud, and what to do about it."""
    said = f"<your_reply>\n{visible(reply).strip()}\n</your_reply>"
    return Message("system", _INSTRUCTION), Message("user", "\n\n".join((prompt, said, _REVISE)))


async def _revised(bench: Bench, model: int, first: EpisodeResult) -> EpisodeResult:
    state, replies = first.state, list(first.replies)
    made_before: Counter[tuple[Message, ...]] = Counter()
    while len(replies) < bench.votes and replies[-1].outcome.gradable and state.response is not None:
        messages = revision(state.prompt, state.response)
        reply = await bench.pool.call(
            model,
            Role.WORKER.value,
            messages,
            scope=bench.scope,
            repeat=first.key.repeat,
            occurrence=made_before[messages],
        )
        made_before[messages] += 1
        replies.append(reply)
        if reply.outcome.gradable:
            state = replace(state, turns=(*state.turns, Turn(model, Role.WORKER, reply.text)), response=reply.text)
    return await bench.graded(first.key, state, replies)
