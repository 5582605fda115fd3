"""When a statement counts as confirmed, and how that is written."""

from collections.abc import Iterable

from experiments.efficiency.points import Point

TOLERANCE = 0.05
"""Of a measured number from its prediction."""

STRAIGHT = 0.99
"""R^2 of a claimed form."""

Finding = bool | None
"""None: this run cannot tell."""


def agrees(point: Point, tolerance: float = TOLERANCE) -> Finding:
    """Whether the value is as predicted; None where it is not, but its interval holds the prediction."""
    if point.predicted and abs(point.error) <= tolerance:
        return True
    return None if point.predicted is not None and point.low <= point.predicted <= point.high else False


def together(findings: Iterable[Finding]) -> Finding:
    """A statement of several parts: as good as its worst."""
    found = list(findings)
    return False if False in found else None if None in found else True


def verdict(found: Finding, text: str) -> str:
    """A statement that was tested."""
    return f"- **{({True: 'Confirmed', False: 'Not confirmed', None: 'Undecided'})[found]}.** {text}"


def note(text: str) -> str:
    """Something measured that tests no statement."""
    return f"- {text}"


def each(texts: Iterable[str]) -> str:
    """An enumeration."""
    return ", ".join(texts)
