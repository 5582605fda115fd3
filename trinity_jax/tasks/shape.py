r"""What an answer is made of: one thing, a list, a tuple or interval, a union of intervals, a matrix."""

import re
from dataclasses import dataclass, replace
from enum import Enum

from trinity_jax.tasks.latex import split, ungroup

_RELATION = re.compile(r"(\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|<|>)")
_AND = re.compile(r",?\s*\\text\{\s*(?:and|or)\s*\}\s*")
_ASSIGNED = re.compile(r"^(?:\([a-zA-Z\\, ]+\)|[a-zA-Z](?:_\w|_\{\w+\})?)\s*(?:=|\\in(?![a-zA-Z]))\s*")
_BUILDER = re.compile(r"\\\{\s*[a-z](?:\s*\\in\s*\\mathbb\{?R\}?)?\s*(?::|\|)\s*(.*)\\\}")
_MATRIX = re.compile(r"(?:\(|\[)?\s*\\begin\{pmatrix\}(.*)\\end\{pmatrix\}\s*(?:\)|\])?", re.DOTALL)
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_EQUALS = re.compile(r"(?<![<>!=\\])=(?!=)")
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![a-zA-Z])")
_VARIABLE = re.compile(r"[a-z](?:\([a-z]\))?")


class Kind(Enum):
    """Order counts in a tuple and a matrix, not in a list or a union."""

    ATOM = "atom"
    LIST = "list"
    TUPLE = "tuple"
    UNION = "union"
    MATRIX = "matrix"


@dataclass(frozen=True)
class Shape:
    """``brackets`` as written: ``()``, ``[)``, ``{}`` or none; ``width`` of a matrix's rows."""

    kind: Kind
    text: str
    items: "tuple[Shape, ...]" = ()
    brackets: str = ""
    widths: tuple[int, ...] = ()


def rows_of(matrix: Shape) -> list[tuple[Shape, ...]]:
    """A matrix's entries, row by row."""
    rows, start = [], 0
    for width in matrix.widths:
        rows.append(matrix.items[start : start + width])
        start += width
    return rows


def sides(text: str) -> tuple[str, str] | None:
    """First and last side of an equation, or ``None``."""
    parts = _EQUALS.split(text)
    return (parts[0].strip(), parts[-1].strip()) if len(parts) > 1 else None


def shape(text: str, listed: bool = False, depth: int = 0) -> Shape:
    """Take a normalised answer apart; with ``listed`` 1,234 is two numbers, not one."""
    text = text.strip()
    if depth > 4:
        return Shape(Kind.ATOM, text)
    text = _AND.sub(", ", text)
    text = re.sub(r",\s*,", ",", text)
    assigned = _ASSIGNED.match(text)
    body = text[assigned.end() :] if assigned and len(split(text)) == 1 else text
    builder = _BUILDER.fullmatch(body)
    body = builder[1].strip() if builder else body
    matrix = _MATRIX.fullmatch(body)
    if matrix:
        return _matrix(body, matrix[1], depth)
    union = body.split(r"\cup")
    if len(union) > 1:
        return Shape(Kind.UNION, text, tuple(shape(part, listed, depth + 1) for part in union))
    if _NUMBER.fullmatch(body) and not listed:
        return Shape(Kind.ATOM, text)
    pieces = [piece for piece in split(body) if piece]
    if len(pieces) > 1:
        return _list(text, pieces, listed, depth)
    interval = _interval(body)
    if interval is not None:
        return interval
    if body.startswith(r"\{") and body.endswith(r"\}"):
        inner = [shape(piece, listed, depth + 1) for piece in split(body[2:-2]) if piece]
        return Shape(Kind.LIST, text, tuple(inner), "{}")
    bracketed = _bracketed(body)
    if bracketed is not None:
        opening, inner, closing = bracketed
        items = [piece for piece in split(inner) if piece]
        if len(items) > 1:
            return Shape(Kind.TUPLE, text, tuple(shape(item, False, depth + 1) for item in items), opening + closing)
    if _PLUS_MINUS.search(body):
        both = [_PLUS_MINUS.sub(lambda match, s=signs: s[match[1] == "mp"], body) for signs in ("+-", "-+")]
        return Shape(Kind.LIST, text, tuple(shape(one, listed, depth + 1) for one in both))
    return Shape(Kind.ATOM, text)


def _list(text: str, pieces: list[str], listed: bool, depth: int) -> Shape:
    """Several things; assignments of different letters in the letters' order, inequalities as a union."""
    named = [match[0] for piece in pieces if (match := _ASSIGNED.match(piece))]
    if len(named) == len(pieces) == len(set(named)):
        pieces = sorted(pieces)
    items: list[Shape] = []
    for piece in pieces:
        assigned = _ASSIGNED.match(piece)
        made = shape(piece[assigned.end() :] if assigned else piece, listed, depth + 1)
        # Nested lists are one list: "x = 1 \pm 2, 3".
        items += made.items if made.kind is Kind.LIST and not made.brackets else (made,)
    if all(item.kind is Kind.TUPLE and _RELATION.search(item.text) for item in items):
        return Shape(Kind.UNION, text, tuple(items))
    return Shape(Kind.LIST, text, tuple(items))


def _bracketed(text: str) -> tuple[str, str, str] | None:
    """Opening bracket, inside, closing bracket, where one pair holds the whole text."""
    if text.startswith(r"\langle") and text.endswith(r"\rangle"):
        return "(", text[len(r"\langle") : -len(r"\rangle")], ")"
    if len(text) < 2 or text[0] not in "([" or text[-1] not in ")]":
        return None
    depth = 0
    for at, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if depth == 0 and at < len(text) - 1:
            return None
    return text[0], text[1:-1], text[-1]


def _interval(text: str) -> Shape | None:
    """An inequality about one letter as the interval it describes."""
    parts = [part.strip() for part in _RELATION.split(text)]
    if len(parts) == 5:
        if (parts[1] in ("<", r"\le")) != (parts[3] in ("<", r"\le")):
            return None
        if parts[1] in (">", r"\ge"):
            parts = [parts[4], _flip(parts[3]), parts[2], _flip(parts[1]), parts[0]]
        if parts[3] in (">", r"\ge") or not _VARIABLE.fullmatch(parts[2]):
            return None
        low, first, _, second, high = parts
        return _between(text, low, high, "[" if first == r"\le" else "(", "]" if second == r"\le" else ")")
    if len(parts) != 3:
        return None
    if _VARIABLE.fullmatch(parts[2]) and not _VARIABLE.fullmatch(parts[0]):
        parts = [parts[2], _flip(parts[1]), parts[0]]
    if not _VARIABLE.fullmatch(parts[0]):
        return None
    if parts[1] in ("<", r"\le"):
        return _between(text, r"-\infty", parts[2], "(", "]" if parts[1] == r"\le" else ")")
    return _between(text, parts[2], r"\infty", "[" if parts[1] == r"\ge" else "(", ")")


def _flip(relation: str) -> str:
    return {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}[relation]


def _between(text: str, low: str, high: str, opening: str, closing: str) -> Shape:
    return Shape(Kind.TUPLE, text, (Shape(Kind.ATOM, low), Shape(Kind.ATOM, high)), opening + closing)


def _matrix(text: str, inside: str, depth: int) -> Shape:
    rows = [row for row in re.split(r"\\\\", inside) if row.strip()]
    cells = [row.split("&") for row in rows]
    items = tuple(shape(ungroup(cell.strip()), False, depth + 1) for row in cells for cell in row)
    return replace(Shape(Kind.MATRIX, text, items), widths=tuple(map(len, cells)))
