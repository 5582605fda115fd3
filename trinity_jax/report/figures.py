"""Geometry of the page's figures: numbers in, SVG path strings and a data table out; the template draws them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

Point = tuple[float, float]

MOST_COLUMNS = 300
"""More generations than this are thinned to evenly spaced ones."""

MOST_ROWS = 40
"""The same for the rows of a data table."""

MOST_WHISKERS = 30
"""More intervals than this are drawn as a band."""

_LINE_HEIGHT = 14.0


class Interval(NamedTuple):
    """From ``low`` to ``high`` at generation ``x``."""

    x: float
    low: float
    high: float


@dataclass(frozen=True)
class Tick:
    """A label at a pixel position along its axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Table:
    """The numbers of a figure as text: ``head`` names the columns, the first of which heads each row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Series:
    """One curve or stacked share.

    ``style`` is the index of its colour and ``pattern`` of its filling ("" is solid), ``dots`` are (x, y) of single
    points, ``band`` the path of what surrounds it, ``whiskers`` are (x, y of the low end, y of the high end).
    """

    name: str
    style: int
    path: str
    first: str
    last: str
    pattern: str = ""
    dots: tuple[Point, ...] = ()
    band: str = ""
    whiskers: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True)
class Chart:
    """Everything the template needs to draw one figure; ``labels`` stand at the right of the frame."""

    id: str
    title: str
    caption: str
    kind: str
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_label: str
    y_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    series: tuple[Series, ...]
    labels: tuple[Tick, ...]
    description: str
    table: Table


def line_chart(
    id: str,
    title: str,
    caption: str,
    curves: Mapping[str, Sequence[Point]],
    unit: str = "",
    y_label: str = "",
    include: Sequence[float] = (),
    intervals: Mapping[str, Sequence[Interval]] | None = None,
    bands: Mapping[str, Sequence[Interval]] | None = None,
    size: tuple[float, float] = (560, 240),
) -> Chart | None:
    """Curves over generations; few points are drawn as dots too. ``None`` where there is nothing to draw.

    Args:
        id: for links inside the page.
        title: heading and accessible name.
        caption: one sentence below.
        curves: (generation, value) points by name, in colour order.
        unit: ``%`` shows shares in percent.
        y_label: what the vertical axis counts, and in what.
        include: values that the vertical axis reaches in any case.
        intervals: how sure a curve's points are, by its name: whiskers, or a band where there are many.
        bands: what lies around a curve, by its name.
        size: width and height of the view box.
    """
    intervals, bands = intervals or {}, bands or {}
    drawn = {name: thin(points, MOST_COLUMNS) for name, points in curves.items() if points}
    if not drawn:
        return None
    around = [i for name in drawn for i in (*intervals.get(name, ()), *bands.get(name, ()))]
    heights = [y for points in drawn.values() for _, y in points] + [y for i in around for y in (i.low, i.high)]
    ticks = nice_ticks(min((*include, *heights)), max((*include, *heights)), 5)
    xs = [x for points in drawn.values() for x, _ in points]
    frame = _Frame(*size, min(xs), max(xs), min(*heights, ticks[0]), max(*heights, ticks[-1]), pad=12.0)
    styles = {name: index for index, name in enumerate(curves)}
    series = []
    for name, points in drawn.items():
        pixels = [(frame.x(x), frame.y(y)) for x, y in points]
        whiskers = [(frame.x(i.x), frame.y(i.low), frame.y(i.high)) for i in intervals.get(name, ())]
        surround = thin(bands.get(name, ()), MOST_COLUMNS)
        if len(whiskers) > MOST_WHISKERS:
            whiskers, surround = [], thin(intervals[name], MOST_COLUMNS)
        series.append(
            Series(
                name,
                styles[name],
                "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in pixels),
                show(points[0][1], unit),
                show(points[-1][1], unit),
                dots=tuple(pixels) if len(pixels) <= MOST_WHISKERS else (),
                band=_around([(frame.x(i.x), frame.y(i.low), frame.y(i.high)) for i in surround]),
                whiskers=tuple(whiskers),
            )
        )
    table = _table(drawn, {name: (*intervals.get(name, ()), *bands.get(name, ())) for name in drawn}, unit)
    return frame.chart(id, title, caption, "lines", y_label, ticks, series, unit, table)


def share_chart(
    id: str,
    title: str,
    caption: str,
    shares: Mapping[str, Sequence[Point]],
    styles: Mapping[str, int],
    patterns: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    y_label: str = "share of calls",
    size: tuple[float, float] = (560, 220),
) -> Chart | None:
    """Stacked shares, one column per generation; ``None`` where there is nothing to draw.

    The large ones of the last generation are named at the right.

    Args:
        id, title, caption, y_label, size: as for `line_chart`.
        shares: (generation, share) points by name, from the bottom up.
        styles: index of each name's colour.
        patterns: its filling, where it is not solid.
        labels: what stands at the right, where it is not the name.
    """
    columns = thin(sorted({x for points in shares.values() for x, _ in points}), MOST_COLUMNS)
    if not columns:
        return None
    gap = min((b - a for a, b in pairwise(columns)), default=1.0)
    edges = [columns[0] - gap / 2, *((a + b) / 2 for a, b in pairwise(columns))]
    edges.append(columns[-1] + gap / 2)
    frame = _Frame(*size, edges[0], edges[-1], 0.0, 1.0, right=140.0)
    base = [0.0] * len(columns)
    series, ends = [], []
    drawn: dict[str, list[Point]] = {}
    for name, points in shares.items():
        values = dict(points)
        drawn[name] = [(x, max(0.0, values.get(x, 0.0))) for x in columns]
        top = [b + y for b, (_, y) in zip(base, drawn[name], strict=True)]
        path = _band([frame.x(e) for e in edges], [frame.y(b) for b in base], [frame.y(t) for t in top])
        first, last = (show(drawn[name][i][1], "%") for i in (0, -1))
        series.append(Series(name, styles[name], path, first, last, pattern=(patterns or {}).get(name, "")))
        ends.append((top[-1] - base[-1], frame.y((top[-1] + base[-1]) / 2), name))
        base = top
    named = sorted(ends, reverse=True)[: int(frame.inner_height // _LINE_HEIGHT)]
    words = {name: name for name in shares} | dict(labels or {})
    aside = [(y, _short(words[name])) for share, y, name in named if share >= 0.03]
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    table = _table(drawn, {}, "%")
    return frame.chart(id, title, caption, "shares", y_label, ticks, series, "%", table, columns, _apart(aside, frame))


def interval_chart(
    id: str, title: str, caption: str, rows: Sequence[tuple[str, float, float, float]], x_label: str
) -> Chart | None:
    """Methods one below the other, each a share with its interval; the first one's mean is drawn through all.

    Args:
        id, title, caption: as for `line_chart`.
        rows: (name, mean, low, high).
        x_label: what is shared out.
    """
    if not rows:
        return None
    ticks = nice_ticks(min(low for _, _, low, _ in rows), max(high for *_, high in rows), 6)
    height = 26.0 * len(rows) + 60
    frame = _Frame(880, height, ticks[0], ticks[-1], 0.0, 1.0, left=340.0, right=150.0, top=10.0)
    step = frame.inner_height / len(rows)
    series, names, labels = [], [], []
    for index, (name, mean, low, high) in enumerate(rows):
        y = frame.top + (index + 0.5) * step
        text = f"{100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        whisker = (y, frame.x(low), frame.x(high))
        series.append(Series(name, int(index > 0), "", text, text, dots=((frame.x(mean), y),), whiskers=(whisker,)))
        names.append(Tick(round(y, 1), _short(name, 52)))
        labels.append(Tick(round(y, 1), text))
    at = zip(ticks, tick_labels(ticks, "%"), strict=True)
    return Chart(
        *(id, title, caption, "intervals", frame.width, frame.height),
        *(frame.left, frame.width - frame.right, frame.top, frame.height - frame.bottom, x_label, ""),
        tuple(Tick(round(frame.x(x), 1), label) for x, label in at),
        *(tuple(names), tuple(series), tuple(labels)),
        "; ".join(f"{s.name}: {s.last}" for s in series) + ".",
        Table((), ()),
    )


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """About ``count`` round numbers (1, 2 or 5 times a power of ten) that cover [low, high]."""
    if not high > low:
        spread = abs(low) * 0.5 or 0.5
        low, high = low - spread, high + spread
    raw = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next((m * magnitude for m in (1, 2, 5) if m * magnitude >= raw), 10 * magnitude)
    return [k * step for k in range(math.floor(low / step), math.ceil(high / step) + 1)]


def tick_labels(ticks: Sequence[float], unit: str = "") -> list[str]:
    """As many decimals as the step between ticks needs."""
    scale, suffix = (100, " %") if unit == "%" else (1, "")
    decimals = max(0, -math.floor(math.log10(scale * (ticks[1] - ticks[0])) + 1e-9))
    return [f"{scale * tick:,.{decimals}f}{suffix}" for tick in ticks]


def show(value: float, unit: str = "") -> str:
    """A number for a reader: percent, thousands, or four significant digits."""
    if unit == "%":
        return f"{100 * value:.3g} %"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def thin(items: Sequence, most: int) -> list:
    """At most ``most`` of the items, evenly spaced, both ends kept."""
    if len(items) <= most:
        return list(items)
    stride = (len(items) - 1) / (most - 1)
    return [items[round(i * stride)] for i in range(most)]


@dataclass(frozen=True)
class _Frame:
    width: float
    height: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    left: float = 62.0
    right: float = 14.0
    top: float = 26.0
    bottom: float = 42.0
    pad: float = 0.0

    @property
    def inner_height(self) -> float:
        return self.height - self.top - self.bottom

    def x(self, value: float) -> float:
        inner = self.width - self.left - self.right - 2 * self.pad
        span = self.x_high - self.x_low
        return self.left + self.pad + (inner * (value - self.x_low) / span if span else inner / 2)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return self.top + self.inner_height * (1 - share)

    def chart(
        self,
        id: str,
        title: str,
        caption: str,
        kind: str,
        y_label: str,
        ticks: Sequence[float],
        series: Sequence[Series],
        unit: str,
        table: Table,
        columns: Sequence[float] = (),
        labels: Sequence[Tick] = (),
    ) -> Chart:
        low, high = (columns[0], columns[-1]) if columns else (self.x_low, self.x_high)
        whole = [x for x in nice_ticks(low, high, 8) if float(x).is_integer() and low <= x <= high] or [low]
        ends = "; ".join(
            f"{s.name}: {s.last}" if s.first == s.last else f"{s.name}: from {s.first} to {s.last}" for s in series
        )
        at = zip(ticks, tick_labels(ticks, unit), strict=True)
        return Chart(
            *(id, title, caption, kind, self.width, self.height),
            *(self.left, self.width - self.right, self.top, self.height - self.bottom, "generation", y_label),
            tuple(Tick(round(self.x(x), 1), f"{x:.0f}") for x in whole),
            tuple(Tick(round(self.y(y), 1), label) for y, label in at),
            tuple(series),
            tuple(labels),
            f"Generation {low:.0f} to {high:.0f}. {ends}." if high > low else f"Generation {low:.0f}. {ends}.",
            table,
        )


def _table(curves: Mapping[str, Sequence[Point]], around: Mapping[str, Sequence[Interval]], unit: str) -> Table:
    every = sorted({x for points in curves.values() for x, _ in points})
    rows = thin(every, MOST_ROWS)
    values = {name: dict(points) for name, points in curves.items()}
    spans = {name: {i.x: (i.low, i.high) for i in around.get(name, ())} for name in curves}

    def cell(name: str, x: float) -> str:
        if x not in values[name]:
            return "-"
        text = show(values[name][x], unit)
        return text if x not in spans[name] else f"{text} [{', '.join(show(v, unit) for v in spans[name][x])}]"

    note = "" if len(rows) == len(every) else f"{len(rows)} of {len(every)} generations, evenly spaced."
    return Table(("generation", *curves), tuple((f"{x:.0f}", *(cell(n, x) for n in curves)) for x in rows), note)


def _apart(labels: Sequence[tuple[float, str]], frame: _Frame) -> list[Tick]:
    """Labels moved as little as keeps a line's height between them, inside the frame."""
    ordered = sorted(labels)
    ys = [y for y, _ in ordered]
    for i in range(1, len(ys)):
        ys[i] = max(ys[i], ys[i - 1] + _LINE_HEIGHT)
    floor = frame.height - frame.bottom
    for i in reversed(range(len(ys))):
        ys[i] = min(ys[i], floor)
        floor = ys[i] - _LINE_HEIGHT
    return [Tick(round(y, 1), text) for y, (_, text) in zip(ys, ordered, strict=True)]


def _short(name: str, most: int = 18) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _around(spans: Sequence[tuple[float, float, float]]) -> str:
    """The path around (x, y of the low end, y of the high end)."""
    if len(spans) < 2:
        return ""
    there = "L".join(f"{x:.1f} {high:.1f}" for x, _, high in spans)
    back = "L".join(f"{x:.1f} {low:.1f}" for x, low, _ in reversed(spans))
    return f"M{there}L{back}Z"


def _band(edges: Sequence[float], base: Sequence[float], top: Sequence[float]) -> str:
    right = "".join(f"V{t:.1f}H{e:.1f}" for t, e in zip(top, edges[1:], strict=True))
    left = "".join(f"V{b:.1f}H{e:.1f}" for b, e in zip(reversed(base), reversed(edges[:-1]), strict=True))
    return f"M{edges[0]:.1f} {base[0]:.1f}{right}{left}Z"
