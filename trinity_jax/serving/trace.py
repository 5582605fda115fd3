"""What happened to one request: turns, models, roles, how sure, tokens, money, milliseconds."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any


@dataclass
class TurnTrace:
    """One call.

    Attributes:
        turn: counted from 1; a turn that another model took over has a line for each.
        model: name in the pool.
        role: worker, thinker, verifier; ``alone`` where a single model answers without coordination.
        model_probability: the coordinator's for this model; None where it did not choose.
        role_probability: for this role.
        forced: whether a Thinker asked for the role.
        substitute: why this model speaks in place of the chosen one.
        outcome: the pool's word for how the call ended; ``cancelled`` where nobody waited for that.
        cost: of a call under way or cancelled what was set aside for it, as the pool's caps count it.
        verdict: whether a Verifier accepted.
        forward_ms: the coordinator's forward passes that this turn waited for.
        decide_ms: the same with everything around them.
        call_ms: until the reply was there.
    """

    turn: int
    model: str
    role: str
    model_probability: float | None = None
    role_probability: float | None = None
    forced: bool = False
    substitute: str | None = None
    outcome: str | None = None
    verdict: bool | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    forward_ms: float = 0.0
    decide_ms: float = 0.0
    call_ms: float = 0.0
    detail: str | None = None


@dataclass
class Trace:
    """One request.

    Attributes:
        id: what it can be asked for by.
        created: seconds since 1970.
        end: ``accepted``, ``calls_spent``, ``cost_spent``, ``seconds_spent``, ``tool_calls``, ``fallback``, ``failed``,
            ``cancelled``, ``dry_run``; None while it is being answered.
        fallback: which model answered in place of the coordinator, and why.
        distance: of the question from those of the training; None where the coordinator does not know them.
        threshold: beyond which it is called unlike them.
        router_tokens: what the coordinator read.
        turns: calls in order.
        answered_by: number of the line in ``turns`` whose reply is the answer.
        would: of a dry run: model, role, and both distributions.
        client: whose key it came with; None where there are no keys.
        ms: from the request's arrival, before its body was read, to its answer.
        came: `time.perf_counter` at its arrival; not told.
    """

    id: str = field(default_factory=lambda: f"trace_{secrets.token_hex(12)}")
    created: float = field(default_factory=time.time)
    end: str | None = None
    fallback: dict[str, str] | None = None
    distance: float | None = None
    threshold: float | None = None
    router_tokens: int = 0
    turns: list[TurnTrace] = field(default_factory=list)
    answered_by: int | None = None
    would: dict[str, Any] | None = None
    error: str | None = None
    client: str | None = None
    ms: float = 0.0
    came: float = field(default_factory=time.perf_counter)

    @property
    def cost(self) -> float:
        """Of all calls."""
        return sum(turn.cost for turn in self.turns)

    def tokens(self) -> tuple[int, int, int, int]:
        """In and out of the call whose reply is the answer, then of all others (orchestration)."""
        sent = sum(turn.input_tokens for turn in self.turns)
        received = sum(turn.output_tokens for turn in self.turns)
        if self.answered_by is None:
            return 0, 0, sent, received
        answer = self.turns[self.answered_by]
        own = answer.input_tokens, answer.output_tokens
        return *own, sent - own[0], received - own[1]

    def to_json(self) -> dict[str, Any]:
        """The response's ``trinity`` object, and what is kept."""
        found = {
            **vars(self),
            "turns": [_short(turn) for turn in self.turns],
            "cost": self.cost,
            "ms": round(self.ms, 3),
        }
        return {name: value for name, value in found.items() if value is not None and name != "came"}


def _short(turn: TurnTrace) -> dict[str, Any]:
    found = {name: value for name, value in vars(turn).items() if value is not None}
    return {name: round(value, 4) if name.endswith(("_ms", "probability")) else value for name, value in found.items()}


class Traces:
    """The last requests' traces, ``most`` of them."""

    def __init__(self, most: int):
        self.most = most
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def add(self, trace: Trace) -> None:
        """Keep one, and let the oldest go where there are too many."""
        self._kept[trace.id] = trace.to_json()
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)

    def get(self, number: str, client: str | None = None) -> dict[str, Any] | None:
        """By id; of one client's alone where one is named."""
        found = self._kept.get(number)
        return found if found is not None and client in (None, found.get("client")) else None

    def latest(self, most: int, client: str | None = None) -> Iterable[dict[str, Any]]:
        """The newest first; one client's alone where one is named."""
        own = (trace for trace in reversed(self._kept.values()) if client in (None, trace.get("client")))
        return list(islice(own, most))
