"""What the coordinator of the world can have read: every history of events, numbered, with transitions between them."""

from enum import IntEnum
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

Mode = Literal["worker_thoughts", "full", "counts"]


class Event(IntEnum):
    """How a turn changes what is read. Whether a suggestion is good cannot be read off it, so it is one event."""

    WRONG = 0
    RIGHT = 1
    THINKER = 2
    REJECT = 3


class Response(IntEnum):
    """What stands as the current response."""

    NONE = 0
    WRONG = 1
    RIGHT = 2


class Histories(NamedTuple):
    """All S histories that a decision can meet; number 0 is the empty one.

    Attributes:
        after: number of the history after an event; what cannot follow, or follows only after the last decision,
            points back to itself.
        response: `Response` at that history.
    """

    after: Int[Array, "S 4"]
    response: Int[Array, " S"]


def sequences(mode: Mode, max_calls: int) -> list[tuple[Event, ...]]:
    """Every history that a decision can meet, as its readable events, in order of length.

    ``worker_thoughts``: Workers' turns only, as in the released code; a Thinker's turn or a rejection leaves no trace.
    ``full``: every turn (the paper's C_k). ``counts``: how many Workers spoke, and what the last one said; the
    merger of ``worker_thoughts`` for hidden states that depend on no more.
    """
    found: dict[tuple[Event, ...], None] = {(): None}
    # (what is read, all turns): a turn that leaves no trace still takes one of the K calls.
    frontier: list[tuple[tuple[Event, ...], Event | None]] = [((), None)]
    for _ in range(max_calls - 1):
        following: dict[tuple[tuple[Event, ...], Event | None], None] = {}
        for read, last in frontier:
            for event in _possible(read, last):
                following[_read(mode, read, event), event] = None
        frontier = list(following)
        found |= dict.fromkeys(read for read, _ in frontier)
    return list(found)


def build(mode: Mode, max_calls: int) -> Histories:
    """Number the histories of ``sequences`` and tabulate what follows each."""
    known = {read: number for number, read in enumerate(sequences(mode, max_calls))}
    after = [[known.get(_read(mode, read, event), number) for event in Event] for read, number in known.items()]
    response = [_response(read) for read in known]
    return Histories(jnp.asarray(after, jnp.int32), jnp.asarray(response, jnp.int32))


def turns(mode: Mode, max_calls: int) -> Int[np.ndarray, "S 3"]:
    """Workers' turns, Thinkers' turns and rejections that can be read in each history."""
    kinds = ((Event.WRONG, Event.RIGHT), (Event.THINKER,), (Event.REJECT,))
    return np.array([[sum(e in kind for e in read) for kind in kinds] for read in sequences(mode, max_calls)])


def last_event(mode: Mode, max_calls: int) -> Int[np.ndarray, " S"]:
    """Last event of each history; -1 for the empty one."""
    return np.array([read[-1] if read else -1 for read in sequences(mode, max_calls)])


def _possible(read: tuple[Event, ...], last: Event | None) -> tuple[Event, ...]:
    # A Thinker's word is obeyed (it always asks for a Worker); a Verifier without a response ends the episode.
    if last is Event.THINKER:
        return (Event.WRONG, Event.RIGHT)
    return tuple(Event) if _response(read) else (Event.WRONG, Event.RIGHT, Event.THINKER)


def _read(mode: Mode, read: tuple[Event, ...], event: Event) -> tuple[Event, ...]:
    if mode != "full" and event not in (Event.WRONG, Event.RIGHT):
        return read
    # Counting: earlier answers are forgotten, the number of them is not.
    return ((Event.WRONG,) * len(read) if mode == "counts" else read) + (event,)


def _response(read: tuple[Event, ...]) -> Response:
    worked = [event for event in read if event in (Event.WRONG, Event.RIGHT)]
    return Response(worked[-1] + 1) if worked else Response.NONE
