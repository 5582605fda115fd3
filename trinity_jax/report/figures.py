"""Geometry of the page's figures: numbers in, SVG path strings out; the template draws them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]

MOST_COLUMNS = 300
"""More generations than this are thinned to evenly spaced ones."""


@dataclass(frozen=True)
class Tick:
    """A label at a pixel position along its axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Series:
    """One curve or band. ``style`` is the index of its colour; ``dots`` are (x, y) of single points."""

    name: str
    style: int
    path: str
    dots: tuple[Point, ...]
    first: str
    last: str


@dataclass(frozen=True)
class Chart:
    """Everything the template needs to draw one figure."""

    id: str
    title: str
    caption: str
    kind: str
    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    series: tuple[Series, ...]
    description: str


def line_chart(
    id: str,
    title: str,
    caption: str,
    curves: Mapping[str, Sequence[Point]],
    unit: str = "",
    include: Sequence[float] = (),
    width: int = 640,
    height: int = 260,
) -> Chart | None:
    """Curves over generations; few points are drawn as dots too. ``None`` where there is nothing to draw.

    Args:
        id: for links inside the page.
        title: heading and accessible name.
        caption: one sentence below.
        curves: (generation, value) points by name, in colour order.
        unit: ``%`` shows shares in percent.
        include: values that the vertical axis reaches in any case.
        width: of the view box.
        height: of the view box.
    """
    drawn = {name: _thin(points) for name, points in curves.items() if points}
    if not drawn:
        return None
    every = [p for points in drawn.values() for p in points]
    low, high = min((*include, *(y for _, y in every))), max((*include, *(y for _, y in every)))
    ticks = nice_ticks(low, high, 5)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    frame = _Frame(width, height, min(x for x, _ in every), max(x for x, _ in every), low, high)
    series = []
    styles = {name: index for index, name in enumerate(curves)}
    for name, points in drawn.items():
        pixels = [(frame.x(x), frame.y(y)) for x, y in points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in pixels)
        dots = tuple(pixels) if len(pixels) <= 30 else ()
        series.append(Series(name, styles[name], path, dots, show(points[0][1], unit), show(points[-1][1], unit)))
    return frame.chart(id, title, caption, "lines", ticks, series, unit)


def share_chart(
    id: str,
    title: str,
    caption: str,
    shares: Mapping[str, Sequence[Point]],
    styles: Mapping[str, int],
    width: int = 640,
    height: int = 200,
) -> Chart | None:
    """Stacked shares, one column per generation; ``None`` where there is nothing to draw."""
    columns = _thin(sorted({x for points in shares.values() for x, _ in points}))
    if not columns:
        return None
    gap = min((b - a for a, b in pairwise(columns)), default=1.0)
    edges = [columns[0] - gap / 2, *((a + b) / 2 for a, b in pairwise(columns))]
    edges.append(columns[-1] + gap / 2)
    frame = _Frame(width, height, edges[0], edges[-1], 0.0, 1.0)
    base = [0.0] * len(columns)
    series = []
    for name, points in shares.items():
        values = dict(points)
        top = [b + max(0.0, values.get(x, 0.0)) for b, x in zip(base, columns, strict=True)]
        path = _band([frame.x(e) for e in edges], [frame.y(b) for b in base], [frame.y(t) for t in top])
        first, last = (show(values.get(x, 0.0), "%") for x in (columns[0], columns[-1]))
        series.append(Series(name, styles[name], path, (), first, last))
        base = top
    return frame.chart(id, title, caption, "shares", [0.0, 0.25, 0.5, 0.75, 1.0], series, "%", columns)


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


@dataclass(frozen=True)
class _Frame:
    width: int
    height: int
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    left: float = 56.0
    right: float = 12.0
    top: float = 10.0
    bottom: float = 40.0

    def x(self, value: float) -> float:
        inner = self.width - self.left - self.right
        span = self.x_high - self.x_low
        return self.left + (inner * (value - self.x_low) / span if span else inner / 2)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return self.top + (self.height - self.top - self.bottom) * (1 - share)

    def chart(
        self,
        id: str,
        title: str,
        caption: str,
        kind: str,
        ticks: Sequence[float],
        series: Sequence[Series],
        unit: str,
        columns: Sequence[float] = (),
    ) -> Chart:
        low, high = (columns[0], columns[-1]) if columns else (self.x_low, self.x_high)
        whole = [x for x in nice_ticks(low, high, 8) if float(x).is_integer() and low <= x <= high] or [low]
        ends = "; ".join(
            f"{s.name}: {s.last}" if s.first == s.last else f"{s.name}: from {s.first} to {s.last}" for s in series
        )
        return Chart(
            id,
            title,
            caption,
            kind,
            self.width,
            self.height,
            self.left,
            self.width - self.right,
            self.top,
            self.height - self.bottom,
            tuple(Tick(round(self.x(x), 1), f"{x:.0f}") for x in whole),
            tuple(Tick(round(self.y(y), 1), label) for y, label in zip(ticks, tick_labels(ticks, unit), strict=True)),
            tuple(series),
            f"Generation {low:.0f} to {high:.0f}. {ends}." if high > low else f"Generation {low:.0f}. {ends}.",
        )


def _thin(items: Sequence) -> list:
    if len(items) <= MOST_COLUMNS:
        return list(items)
    stride = (len(items) - 1) / (MOST_COLUMNS - 1)
    return [items[round(i * stride)] for i in range(MOST_COLUMNS)]


def _band(edges: Sequence[float], base: Sequence[float], top: Sequence[float]) -> str:
    right = "".join(f"V{t:.1f}H{e:.1f}" for t, e in zip(top, edges[1:], strict=True))
    left = "".join(f"V{b:.1f}H{e:.1f}" for b, e in zip(reversed(base), reversed(edges[:-1]), strict=True))
    return f"M{edges[0]:.1f} {base[0]:.1f}{right}{left}Z"
