"""Why a call is not answered from a journal: the recorded call nearest to it, field by field."""

import json
from collections.abc import Sequence
from typing import Any

from trinity_jax.errors import UserError
from trinity_jax.pool.records import Records, request
from trinity_jax.pool.reply import Outcome, digest

FIELDS = ("endpoint", "model", "role", "messages", "sampling", "scope", "repeat", "occurrence")
"""What the identity of a call is made of (``reply.Call``)."""

# What a person would call nearest: the same words to the same model, whatever the scope or the number of the repeat.
_WEIGHT = {"messages": 8.0, "model": 4.0, "role": 4.0, "endpoint": 2.0, "sampling": 2.0}
_SHOWN = 60
_WHY = {
    "scope": "replies are shared within a scope only; journal.reuse: run makes one scope of all generations",
    "repeat": "repeats are meant to differ; without common random numbers each candidate has repeats of its own",
    "occurrence": "the same request for the second time in one episode may be answered differently",
    "sampling": "another sampling may answer differently; null and a number are different",
}


def explain(records: Records, call: str) -> str:
    """What the journal knows of a call and, where it can't answer it, why; several lines.

    Args:
        records: the journal.
        call: canonical JSON of the call (``Call.canonical``), or JSON with the same fields.

    Raises:
        UserError: not the JSON of a call, or a damaged journal.
    """
    asked = request(call)
    if asked is None:
        raise UserError(f"expected the JSON of a call, with {', '.join(FIELDS)}; got {_cut(call)!r}")
    lacking = [field for field in FIELDS if field not in asked]
    if lacking:
        raise UserError(f"the call lacks {', '.join(lacking)}; a call has {', '.join(FIELDS)}")
    canonical = json.dumps(asked, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    key = digest(canonical)
    ends = [row[0] for row in records.query("SELECT outcome FROM calls WHERE key = ? ORDER BY id", (key,))]
    if ends:
        return f"call {key}\n{_verdict(ends)}"
    near = _nearest(records, asked)
    if near is None:
        return f"call {key}\nnot in the journal, which holds no calls at all"
    near_key, found, count = near
    lines = [f"call {key}", f"not in the journal; the nearest of its {count:,} calls is {near_key}:"]
    lines += [f"  {field:<11}{_difference(field, found.get(field), asked[field])}" for field in FIELDS]
    return "\n".join(lines)


def summary(records: Records) -> str:
    """A table of the calls by model, role and outcome; cost of one that was cut off is what was set aside for it."""
    heads = ("model", "role", "outcome", "calls", "tokens in", "out", "cost", "seconds")
    lines = [
        (str(r.model), str(r.role), r.outcome or "in flight", str(r.calls), str(r.input_tokens), str(r.output_tokens),
         f"{r.cost:.4g}", f"{r.seconds:.2f}")
        for r in records.summary()
    ]  # fmt: skip
    total = records.totals()
    lines.append(
        ("all", "", "", str(total.calls), str(total.input_tokens), str(total.output_tokens), f"{total.cost:.4g}", "")
    )
    widths = [max(len(line[i]) for line in (heads, *lines)) for i in range(len(heads))]
    return "\n".join(_aligned(line, widths) for line in (heads, *lines))


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell.ljust(w) if i < 3 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))]
    return "  ".join(cells).rstrip()


def find(records: Records, key: str) -> str:
    """The request of a recorded call by its key, or by the key's first letters if they are one call's.

    Raises:
        UserError: there is none, or several.
    """
    if not key or not set(key) <= set("0123456789abcdef"):
        raise UserError(f"expected the key of a call (hexadecimal) or its JSON, got {_cut(key)!r}")
    rows = records.query("SELECT DISTINCT key, request FROM calls WHERE key GLOB ? LIMIT 2", (f"{key}*",))
    if len(rows) != 1:
        found = "no call" if not rows else "several calls"
        raise UserError(f"{records.path}: {found} with key {key}; a call that is not recorded is told by its JSON")
    return rows[0][1]


def _verdict(ends: Sequence[str | None]) -> str:
    """What the outcomes of all tries of one call mean for who asks it now."""
    if any(end in {outcome for outcome in Outcome if outcome.gradable} for end in ends):
        return f"in the journal: {len(ends)} sent, ended {_listed(ends)}; it is answered from there"
    return (
        f"in the journal, but not answered from there: {len(ends)} sent, ended {_listed(ends)}; only a reply that "
        + ("can be graded is reused, so it is made again")
    )


def _listed(ends: Sequence[str | None]) -> str:
    return ", ".join("nowhere (the process died while it was in flight)" if end is None else end for end in ends)


def _nearest(records: Records, asked: dict[str, Any]) -> tuple[str, dict[str, Any], int] | None:
    """Key and content of the recorded call most like ``asked`` (of equals the first), and how many there are."""
    best: tuple[float, str, dict[str, Any]] | None = None
    count = 0
    for row in records.rows("calls"):
        count += 1
        found = request(row["request"]) or {}
        merit = sum(_WEIGHT.get(field, 1.0) for field in FIELDS if found.get(field) == asked[field])
        if found["messages"] != asked["messages"]:
            merit += _likeness(str(found["messages"]), str(asked["messages"]))
        if best is None or merit > best[0]:
            best = merit, row["key"], found
    return None if best is None else (best[1], best[2], count)


def _likeness(one: str, other: str) -> float:
    return _common(one, other) / max(len(one), len(other), 1)


def _common(one: str, other: str) -> int:
    """How many characters two texts have in common at their start."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _difference(field: str, found: Any, asked: Any) -> str:
    if found == asked:
        return "the same"
    if field == "messages":
        return _messages_differ(found, asked)
    if field == "sampling" and isinstance(found, dict) and isinstance(asked, dict):
        parts = [
            f"{name}: recorded {_json(found, name)}, asked {_json(asked, name)}"
            for name in sorted(found.keys() | asked.keys())
            if found.get(name) != asked.get(name) or (name in found) != (name in asked)
        ]
        told = "; ".join(parts)
    else:
        told = f"recorded {_cut(json.dumps(found))}, asked {_cut(json.dumps(asked))}"
    return told + (f" ({_WHY[field]})" if field in _WHY else "")


def _messages_differ(found: Any, asked: Any) -> str:
    if not isinstance(found, list) or not isinstance(asked, list) or len(found) != len(asked):
        return f"recorded {_count(found)}, asked {_count(asked)}"
    number, (one, other) = next(
        (i, pair) for i, pair in enumerate(zip(found, asked, strict=True), 1) if pair[0] != pair[1]
    )
    texts = [m.get("content") if isinstance(m, dict) else None for m in (one, other)]
    if not all(isinstance(text, str) for text in texts) or one.get("role") != other.get("role"):
        return f"message {number}: recorded {_cut(json.dumps(one))}, asked {_cut(json.dumps(other))}"
    recorded, wanted = map(str, texts)
    at = _common(recorded, wanted)
    begin = max(at - _SHOWN // 3, 0)
    shown = [repr(text[begin : at + _SHOWN]) for text in (recorded, wanted)]
    return f"message {number} ({one['role']}) from character {at}: recorded ...{shown[0]}, asked ...{shown[1]}"


def _count(messages: Any) -> str:
    return f"{len(messages)} messages" if isinstance(messages, list) else _cut(json.dumps(messages))


def _json(fields: dict[str, Any], name: str) -> str:
    return _cut(json.dumps(fields[name])) if name in fields else "nothing"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
