"""Episodes as conversations to read and to filter."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import escape

from trinity_jax.report.folder import as_dicts, number
from trinity_jax.report.markup import TURN_CHARS, clip

CONVERSATIONS = 120
CONVERSATION_CHARS = 12_000
PAGE_CHARS = 2_000_000
"""Of all conversations of a page together, as they stand in it: a quotation mark takes five."""

MARKS = {"right": "✓", "wrong": "✗", "undecided": "?", "failed": "!"}


def conversations(transcripts: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """What the template shows of the chosen episodes."""
    shown, left = [], PAGE_CHARS
    for episode in choose(transcripts):
        conversation = _conversation(episode, names)
        left -= len(escape(conversation["question"])) + sum(len(escape(turn["text"])) for turn in conversation["turns"])
        if left < 0:
            break
        shown.append(conversation)
    return shown


def filters(shown: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What there is to choose from: kinds, outcomes, models, roles, each in the order of their first appearance."""
    turns = [turn for c in shown for turn in c["turns"]]
    found = {
        "kind": (c["kind"] for c in shown),
        "outcome": (c["outcome"] for c in shown),
        "model": (turn["model"] for turn in turns),
        "role": (turn["role"] for turn in turns),
    }
    return {name: list(dict.fromkeys(values)) for name, values in found.items()}


def choose(transcripts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Episodes to read, taken in turn from every (kind, outcome), in the order of the file within each."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for episode in transcripts:
        groups.setdefault((str(episode.get("kind")), outcome(episode)), []).append(episode)
    depth = max(map(len, groups.values()), default=0)
    return [group[i] for i in range(depth) for group in groups.values() if i < len(group)][:CONVERSATIONS]


def outcome(episode: Mapping[str, Any]) -> str:
    """``right``, ``wrong``, ``undecided`` or ``failed``."""
    return "failed" if episode.get("reward") is None else str(episode.get("grade") or "no answer")


def _conversation(episode: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    turns = as_dicts(episode.get("turns"))
    limit = min(TURN_CHARS, CONVERSATION_CHARS // max(1, len(turns)))
    spoken = [_turn(turn, names, limit) for turn in turns]
    result = outcome(episode)
    return {
        "question": clip(str(episode.get("question", ""))),
        "kind": str(episode.get("kind", "")),
        "answer": clip(str(episode.get("answer", "")), 300),
        "outcome": result,
        "mark": MARKS.get(result, "·"),
        "style": result if result in MARKS else "none",
        "end": str(episode.get("end") or "").replace("_", " "),
        "failure": str(episode.get("failure") or "").replace("_", " "),
        "turns": spoken,
        "pairs": json.dumps([[turn["model"], turn["role"]] for turn in spoken]),
        "letters": "".join(turn["role"][:1].upper() for turn in spoken),
    }


def _turn(turn: dict[str, Any], names: Sequence[str], limit: int) -> dict[str, Any]:
    model, role = turn.get("model"), str(turn.get("role", ""))
    return {
        "model": names[model] if isinstance(model, int) and 0 <= model < len(names) else str(model),
        "role": role,
        "style": role if role in ("worker", "thinker", "verifier") else "other",
        "text": clip(str(turn.get("text") or ""), limit),
        "verdict": turn.get("verdict"),
        "facts": _facts(turn),
    }


def _facts(turn: Mapping[str, Any]) -> str:
    probability, cost = number(turn.get("probability")), number(turn.get("cost"))
    tokens_in, tokens_out = number(turn.get("input_tokens")), number(turn.get("output_tokens"))
    parts = [] if probability is None else [f"chosen with probability {probability:.2f}"]
    if tokens_in is not None and tokens_out is not None:
        parts.append(f"{tokens_in:,.0f} tokens in, {tokens_out:,.0f} out")
    if cost:
        parts.append(f"cost {cost:.2g}")
    return "; ".join(parts)
