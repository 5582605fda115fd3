"""One request from its first decision to its answer: the tri-role protocol with caps, masks and a way out.

Differs from a training episode in three points, all so that there is an answer in the end: a Verifier cannot be chosen
before there is something to verify, a Thinker cannot on the last call, and a call that fails is made again by another
model (the best single one first) instead of ending the episode.
"""

import asyncio
import dataclasses
import json
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from trinity_jax.config import ServingSettings
from trinity_jax.episode.episode import ROLES, End, EpisodeState, Role, role_for, start, step
from trinity_jax.pool.client import Endpoint
from trinity_jax.pool.pool import Pool
from trinity_jax.pool.reply import TOOL_CALLS, Message, Outcome, Reply, Sampling
from trinity_jax.pool.wire import FORMATS
from trinity_jax.serving.answer import Answer, called, plain, shortened
from trinity_jax.serving.chooser import Chooser, Picked
from trinity_jax.serving.refused import Refused, failed
from trinity_jax.serving.request import Asked
from trinity_jax.serving.trace import Trace, TurnTrace

Tell = Callable[[str], Awaitable[None]]
"""Takes a line about a turn that has ended, while the answer is still being made."""

_ALONE = "alone"


class Engine(NamedTuple):
    """What answers: replaced as one where a coordinator is loaded anew. ``fallback`` is a number in the pool."""

    chooser: Chooser
    pool: Pool
    settings: ServingSettings
    fallback: int | None


class Session:
    """One request.

    Args:
        engine: who answers.
        asked: the request.
        trace: filled in on the way.
        tell: hears of turns.

    Raises:
        Refused: a mask that leaves nobody.
    """

    def __init__(self, engine: Engine, asked: Asked, trace: Trace, tell: Tell | None = None):
        self._engine, self._asked, self._trace, self._tell = engine, asked, trace, tell
        described, settings, wishes = engine.chooser.coordinator.description, engine.settings, asked.wishes
        # Those who ask for a cap get no call more, substitutes included; the coordinator's own counts turns.
        self._cap = min(filter(None, (settings.max_calls, wishes.max_calls)), default=None)
        turns = min(filter(None, (settings.max_calls or described.episode.max_calls, wishes.max_calls)))
        changes = {"max_calls": turns, "verifier_needs_response": True}
        self._episode = described.episode.model_copy(update=changes)
        self._most = min((cap for cap in (settings.max_cost, wishes.max_cost) if cap is not None), default=None)
        self._seconds = min(settings.max_seconds, wishes.max_seconds or settings.max_seconds)
        self._mask = _mask(engine, asked)
        self._down: set[int] = set()
        self._number = asked.seed % 2**32 if asked.seed is not None else secrets.randbits(32)
        self._made: Counter[tuple[int, str, tuple[Message, ...]]] = Counter()
        self._state: EpisodeState = start(asked.conversation.read())
        self._finish = "stop"
        self._calls: tuple[dict[str, Any], ...] = ()
        self._lines: list[str] = []

    async def run(self) -> Answer:
        """The answer.

        Raises:
            Refused: there is none.
        """
        clock = asyncio.timeout(self._seconds - (time.perf_counter() - self._trace.came))
        try:
            async with clock:
                if self._asked.wishes.dry_run:
                    return await self._rehearse()
                await self._play()
        except TimeoutError:
            if not clock.expired():
                raise
            self._trace.end = "seconds_spent"
            if self._state.response is None:
                raise Refused(504, f"no answer within {self._seconds:g} s", "server_error", "timeout") from None
        return self._answer()

    async def _rehearse(self) -> Answer:
        picked = await self._pick()
        names, choice = self._engine.chooser.names, picked.choice
        foreign = self._foreign(picked)
        self._trace.would = {
            "model": names[choice.model],
            "role": str(ROLES[choice.role]),
            "models": {name: round(p, 6) for name, p in zip(names, choice.model_probs, strict=True)},
            "roles": {str(role): round(p, 6) for role, p in zip(ROLES, choice.role_probs, strict=True)},
        }
        if foreign is not None:
            self._trace.fallback = {"model": names[foreign[0]], "reason": foreign[1]}
        self._trace.end = "dry_run"
        return Answer("", "stop", self._trace)

    async def _play(self) -> None:
        while self._trace.end is None:
            came = time.perf_counter()
            picked = await self._pick()
            decided = time.perf_counter()
            if not self._state.turns and (foreign := self._foreign(picked)):
                model, reason = foreign
                self._trace.fallback = {"model": self._engine.chooser.names[model], "reason": reason}
                turn = TurnTrace(1, "", _ALONE, forward_ms=1e3 * picked.seconds, decide_ms=1e3 * (decided - came))
                await self._single(model, turn)
                return
            if self._left() == 1 and self._state.forced_role is Role.THINKER:
                self._state = dataclasses.replace(self._state, forced_role=None)
            role = role_for(self._state, ROLES[picked.choice.role])
            turn = TurnTrace(
                len(self._state.turns) + 1,
                "",
                str(role),
                role_probability=picked.choice.role_probs[ROLES.index(role)],
                forced=self._state.forced_role is not None,
                forward_ms=1e3 * picked.seconds,
                decide_ms=1e3 * (decided - came),
            )
            await self._turn(picked, role, turn)
            if self._trace.end is None and not self._left():
                self._trace.end = str(End.CALLS_SPENT)

    def _left(self) -> int:
        """Turns that may still be taken, each with one call at least."""
        turns = self._episode.max_calls - len(self._state.turns)
        return turns if self._cap is None else min(turns, self._cap - len(self._trace.turns))

    async def _pick(self) -> Picked:
        roles = (True, self._left() > 1, self._state.response is not None)
        turn, said = len(self._state.turns), self._asked.conversation
        question = None if turn else said.said[said.place].text
        picked = await self._engine.chooser.choose(self._state, self._number, turn, roles, self._mask, question)
        self._trace.router_tokens += picked.tokens
        if picked.distance is not None:
            self._trace.distance, self._trace.threshold = picked.distance, self._engine.chooser.threshold
        return picked

    def _foreign(self, picked: Picked) -> tuple[int, str] | None:
        """Who answers alone, and why, where the question is unlike those of the training."""
        model, threshold = self._engine.fallback, self._engine.chooser.threshold
        if self._engine.settings.unfamiliar == "coordinate" or model is None or not self._mask[model]:
            return None
        if picked.distance is None or threshold is None or picked.distance <= threshold:
            return None
        return (
            model,
            f"unlike the training questions: distance {picked.distance:.4g}, at most {threshold:.4g} is familiar",
        )

    async def _turn(self, picked: Picked, role: Role, turn: TurnTrace) -> None:
        """One turn of the protocol, by the chosen model or whoever takes its place."""
        messages = self._asked.conversation.for_role(self._state, role, self._asked.formed)
        order = self._order(picked.choice.model, picked.choice.model_probs)
        found = await self._reply(order, str(role), messages, turn, picked.choice.model_probs)
        if found is None:
            return
        model, reply = found
        if role is Role.WORKER and self._answered(reply):
            await self._tools(reply)
            return
        self._state = step(self._state, model, role, reply.text, self._episode)
        last = self._state.turns[-1]
        self._trace.turns[-1].verdict = last.verdict
        self._trace.end = None if self._state.end is None else str(self._state.end)
        await self._say(last.thought or "")

    async def _single(self, model: int, turn: TurnTrace) -> None:
        """One model's answer to the conversation as it is."""
        found = await self._reply(self._order(model, None), _ALONE, self._asked.conversation.alone(), turn, None)
        if found is None:
            return
        self._trace.end = "fallback"
        if self._answered(found[1]):
            await self._tools(found[1])
            return
        self._state = dataclasses.replace(self._state, response=found[1].text)
        await self._say("")

    def _answered(self, reply: Reply) -> bool:
        """Take a reply for the answer so far; returns whether it calls tools."""
        self._finish = "length" if reply.outcome is Outcome.TRUNCATED else "stop"
        self._trace.answered_by = len(self._trace.turns) - 1
        return reply.finish_reason == TOOL_CALLS and bool(self._asked.form.get("tools"))

    async def _tools(self, reply: Reply) -> None:
        """The client's tools are to be called: the conversation goes on with the next request."""
        text, self._calls = called(reply.text)
        self._state = dataclasses.replace(self._state, response=text)
        self._finish, self._trace.end = "tool_calls", "tool_calls"
        await self._say("calls " + ", ".join(call["function"]["name"] for call in self._calls))

    def _order(self, chosen: int, probs: tuple[float, ...] | None) -> list[int]:
        """Who is asked: the chosen model, the best single one, then by the coordinator's own probabilities."""
        rest = sorted(range(len(self._mask)), key=lambda m: -probs[m]) if probs else range(len(self._mask))
        fallback = [] if self._engine.fallback is None else [self._engine.fallback]
        return [m for m in dict.fromkeys((chosen, *fallback, *rest)) if self._mask[m]]

    async def _reply(
        self,
        order: list[int],
        role: str,
        messages: tuple[Message, ...],
        turn: TurnTrace,
        probs: tuple[float, ...] | None,
    ) -> tuple[int, Reply] | None:
        """Who replied, and what; None where the request ends here with the response it has, or has to choose again.

        Raises:
            Refused: nobody replied or the money covers nobody's call, and there is no response yet.
        """
        names, misses, dear, why = self._engine.chooser.names, [], None, None
        for model in order:
            line = dataclasses.replace(
                turn, model=names[model], substitute=why, model_probability=None if probs is None else probs[model]
            )
            sampling = _sampling(self._engine.pool.seats[model].sampling, self._asked, role)
            if (down := self._unreachable(model)) is not None:
                reply = Reply(Outcome.ERROR, attempts=0, detail=down)
            elif (cost := self._too_dear(model, sampling, messages)) is not None:
                # Another may be cheaper.
                dear, why = dear or f"{cost} of {line.model}", f"{line.model}: {cost}"
                continue
            elif self._cap is not None and len(self._trace.turns) >= self._cap:
                break
            elif misses and self._left() == 1 and self._state.response is None and role not in (Role.WORKER, _ALONE):
                return None  # the failure took a call, and the last one has to be a Worker's: choose again
            else:
                self._trace.turns.append(line)
                turn = dataclasses.replace(turn, forward_ms=0.0, decide_ms=0.0)
                reply = await self._call(model, role, messages, sampling, line)
                if reply.outcome.gradable:
                    self._stood_in(model, why)
                    return model, reply
            misses.append((names[model], reply))
            self._down.add(model)
            why = f"{names[model]}: {reply.outcome}: {reply.detail or 'no detail'}"
            if reply.outcome is Outcome.REFUSED_BUDGET:
                break
        spent = dear is not None and not misses
        if self._state.response is None:
            if spent:
                raise Refused(400, dear or "", code="max_cost_too_small", param="trinity.max_cost")
            raise failed(misses)
        self._trace.end = "cost_spent" if spent else "failed"
        return None

    def _stood_in(self, model: int, why: str | None) -> None:
        if why is not None:
            before = self._trace.fallback["reason"] if self._trace.fallback else None
            reason = "; ".join(filter(None, (before, why)))
            self._trace.fallback = {"model": self._engine.chooser.names[model], "reason": reason}

    def _too_dear(self, model: int, sampling: Sampling, messages: tuple[Message, ...]) -> str | None:
        """Why the request's money does not cover a call, if it does not."""
        if self._most is None:
            return None
        worst = dataclasses.replace(self._engine.pool.seats[model], sampling=sampling).worst_cost(messages)
        left = self._most - self._trace.cost
        return None if worst <= left else f"max_cost: {left:.6g} left, {worst:.6g} is what a call may cost"

    def _unreachable(self, model: int) -> str | None:
        """Why a model is not even asked: it failed in this request, or its endpoint is known to be down."""
        if model in self._down:
            return "failed earlier in this request"
        responder = self._engine.pool.responders[model]
        if isinstance(responder, Endpoint) and responder.limits.circuit.resting:
            return "the endpoint is down"
        return None

    async def _call(
        self, model: int, role: str, messages: tuple[Message, ...], sampling: Sampling, line: TurnTrace
    ) -> Reply:
        began = time.perf_counter()
        same = (model, role, messages)

        def reserved(cost: float) -> None:
            line.cost = cost

        try:
            reply = await self._engine.pool.call_alone(
                model,
                role,
                messages,
                scope=self._trace.id,
                sampling=sampling,
                occurrence=self._made[same],
                reserved=reserved,
            )
        except BaseException:
            line.outcome = "cancelled"
            raise
        finally:
            line.call_ms = 1e3 * (time.perf_counter() - began)
        self._made[same] += 1
        line.outcome, line.detail = str(reply.outcome), reply.detail
        line.input_tokens, line.output_tokens, line.cost = reply.input_tokens, reply.output_tokens, reply.cost
        return reply

    async def _say(self, thought: str) -> None:
        last = self._trace.turns[-1]
        verdict = "" if last.verdict is None else ("accepts" if last.verdict else "rejects")
        said = ": ".join(
            filter(None, (f"[{last.turn}] {last.model} as {last.role}", " ".join((verdict, thought)).strip()))
        )
        self._lines.append(f"{said}\n")
        if self._tell is not None:
            await self._tell(self._lines[-1])

    def _answer(self) -> Answer:
        reply, asked = self._state.response or "", self._asked
        alone = self._trace.end == "fallback" or asked.formed or bool(self._calls)
        whole = reply.strip() if alone else plain(reply)
        text = shortened(whole, asked.stop)
        finish = "stop" if len(text) < len(whole) and self._finish == "length" else self._finish
        return Answer(text, finish, self._trace, self._calls, "".join(self._lines))


def _mask(engine: Engine, asked: Asked) -> tuple[bool, ...]:
    """Which models the request may go to.

    Raises:
        Refused: a name that the pool does not have, or none that can take what the request holds.
    """
    names, seats, wanted = engine.chooser.names, engine.pool.seats, asked.wishes.models
    if wanted is not None and (unknown := sorted(set(wanted) - set(names))):
        message = f"trinity.models: expected names out of {', '.join(names)}, got {', '.join(unknown)}"
        raise Refused(400, message, param="trinity.models")
    mask = [wanted is None or name in wanted for name in names]
    if asked.conversation.images:
        mask = [may and seat.images for may, seat in zip(mask, seats, strict=True)]
        if not any(mask):
            raise Refused(400, "no model of the pool that may be asked takes images", param="messages")
    if asked.rich:
        mask = [may and FORMATS[seat.sampling.format].rich for may, seat in zip(mask, seats, strict=True)]
        if not any(mask):
            message = "tools, images and response formats need a pool model with format: chat; none may be asked"
            raise Refused(400, message, param="tools")
    return tuple(mask)


def _sampling(sampling: Sampling, asked: Asked, role: str) -> Sampling:
    """The pool's settings with what the client asks for, in the calls that make its answer."""
    if role not in (Role.WORKER, _ALONE):
        return sampling
    changes: dict[str, Any] = {}
    if asked.max_tokens is not None:
        changes["max_tokens"] = min(sampling.max_tokens, asked.max_tokens)
    if asked.temperature is not None and sampling.temperature is not None:
        changes["temperature"] = asked.temperature
    if asked.form:
        changes["extra_body"] = json.dumps({**json.loads(sampling.extra_body), **asked.form}, sort_keys=True)
    return dataclasses.replace(sampling, **changes)
