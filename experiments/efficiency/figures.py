"""Figures from the points."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.efficiency import laws
from experiments.efficiency.contraction import KBAR
from experiments.efficiency.points import Point, within
from experiments.efficiency.settings import Settings


def _law(**style: Any) -> dict[str, Any]:
    """How a law is drawn."""
    return {"color": "black", "linewidth": 0.9, "linestyle": "--"} | style


def _limit(**style: Any) -> dict[str, Any]:
    """How a bound or a limit is drawn."""
    return _law(linestyle=":", **style)


def draw(points: Sequence[Point], settings: Settings) -> dict[str, Figure]:
    """By file name."""
    return {
        "gain": _gain(points, settings, "exact"),
        "gain_binary": _gain(points, settings, "bernoulli"),
        "ratio": _ratio(points),
        "sigma0": _sweep(points),
        "threshold": _threshold(points),
        "contraction": _contraction(points),
        "separability": _separability(points),
    }


def _panels(count: int, width: float = 5.2) -> tuple[Figure, list[Axes]]:
    # Margins by hand: with log scales and legends matplotlib's own layout takes most of a short run's time.
    total = width * count
    with matplotlib.rc_context({"figure.constrained_layout.use": False}):
        figure = Figure(figsize=(total, 3.8))
    figure.subplots_adjust(left=0.75 / total, right=1 - 0.1 / total, bottom=0.13, top=0.92, wspace=0.25)
    return figure, [figure.add_subplot(1, count, 1 + i) for i in range(count)]


def _finish(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7, frameon=False)


def _log_x(axes: Axes, points: Sequence[Point], name: str) -> None:
    """A logarithmic axis with ticks where something was measured, if they have room."""
    ticks = []
    for at in np.unique(_column(points, name)):
        if not ticks or at > 1.2 * ticks[-1]:
            ticks.append(at)
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"1/{1 / tick:.0f}" if name == "G" else f"{tick:g}" for tick in ticks], fontsize=8)
    axes.set_xticks([], minor=True)


def _column(points: Sequence[Point], name: str) -> np.ndarray:
    return np.array([getattr(point, name) for point in points], float)


def _arms(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.arm for point in points))


def _band(axes: Axes, points: Sequence[Point], x: str, **style: Any) -> None:
    """Values over one of their fields, with the interval as a band."""
    (drawn,) = axes.plot(_column(points, x), _column(points, "value"), **style)
    low, high = _column(points, "low"), _column(points, "high")
    axes.fill_between(_column(points, x), low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)


def _bars(axes: Axes, points: Sequence[Point], x: str, **style: Any) -> None:
    """The same with bars."""
    value = _column(points, "value")
    around = [value - _column(points, "low"), _column(points, "high") - value]
    axes.errorbar(_column(points, x), value, around, capsize=2, **{"marker": "o", "markersize": 3} | style)


def _predicted(axes: Axes, points: Sequence[Point], x: str, **style: Any) -> None:
    axes.plot(_column(points, x), _column(points, "predicted"), **_law(**style))


def _gain(points: Sequence[Point], settings: Settings, ranks: str) -> Figure:
    """Gain of the ES against T and of random search against N."""
    figure, (left, right) = _panels(2)
    found = within(points, part="gain", measure="gain", ranks=ranks, model="curved")
    unit = "gain in logits over G" if ranks == "exact" else "gain in logits"
    es = [point for point in found if point.N is None]
    for i, arm in enumerate(_arms(es)):
        _band(left, within(es, arm=arm), "T", label=arm)
        _predicted(left, within(es, arm=arm), "T", label=None if i else "law followed along the gradient")
    if ranks == "exact":
        T = np.array([0, settings.generations[-1]])
        left.plot(T, laws.kbar(settings.population) / 2 * T, label="first order, kbar/2 G T", **_limit())
    _finish(left, "ES: true logit of the mean", "generations T", unit)
    random = [point for point in found if point.N and "paper" not in point.arm]
    for i, arm in enumerate(_arms(random)):
        _bars(right, within(random, arm=arm), "N", label=arm, linestyle="none")
        _predicted(right, within(random, arm=arm), "N", label=None if i else "law")
    if ranks == "exact":
        N = np.unique(_column(random, "N"))
        right.plot(N, np.log(N), label="G ln N, its upper bound", **_limit())
    _log_x(right, random, "N")
    _finish(right, "random search: true logit of the winner", "candidates N", unit)
    return figure


def _ratio(points: Sequence[Point]) -> Figure:
    """Ratio of gains against T, the laws' quotient, the bound, and the shape T / ln N."""
    found = within(points, part="ratio")
    groups = {
        "N = P T / 2, exact ranks": ("ratio", "exact"),
        "N = P T, exact ranks": ("ratio at N = P T", "exact"),
        "N = P T / 2, binary rewards": ("ratio", "bernoulli"),
    }
    figure, panels = _panels(3, 4.6)
    for axes, (title, (measure, ranks)) in zip(panels, groups.items(), strict=True):
        group = within(found, measure=measure, ranks=ranks)
        for i, arm in enumerate(_arms(group)):
            some = within(group, arm=arm)
            bounds = within(found, measure=measure.replace("ratio", "bound"), arm=arm)
            lawful = [point for point in some if point.predicted]
            _bars(axes, some, "T", label=arm, linestyle="none", color=f"C{i}")
            _predicted(axes, lawful, "T", label=None if i else "quotient of the laws", color=f"C{i}")
            bound = None if i else "bound of Proposition 1"
            axes.plot(_column(bounds, "T"), _column(bounds, "value"), label=bound, **_limit(color=f"C{i}"))
        if group and ranks == "exact":
            first = within(group, arm=group[0].arm)
            shape = _column(first, "T") / np.log(_column(first, "N"))
            scale = shape @ _column(first, "value") / (shape @ shape)
            axes.plot(_column(first, "T"), scale * shape, color="grey", linewidth=0.9, label=f"{scale:.1f} T / ln N")
        if group:
            _log_x(axes, group, "T")
        axes.set_yscale("log")
        _finish(axes, title, "generations T", "gain of the ES / of random search")
    return figure


def _sweep(points: Sequence[Point]) -> Figure:
    """Gain against the step size, each curve over its best."""
    figure, panels = _panels(2)
    for axes, ranks in zip(panels, ("exact", "bernoulli"), strict=True):
        found = within(points, part="sweep", ranks=ranks)
        most = max((point.N or 0 for point in found), default=0)
        for arm in _arms(found):
            curve = [point for point in within(found, arm=arm) if point.N in (None, most)]
            best = _column(curve, "value").max()
            if best > 0:
                axes.plot(
                    _column(curve, "multiple"), _column(curve, "value") / best, label=arm, marker="o", markersize=3
                )
        x = np.linspace(0.2, 3, 100)
        axes.plot(x, 2 * x - x**2, label="2x - x^2", **_law())
        axes.axhline(0, color="grey", linewidth=0.5)
        axes.set_ylim(-1.5, 1.25)
        _log_x(axes, found, "multiple")
        title = "exact ranks" if ranks == "exact" else "binary rewards, where any step size gains"
        _finish(axes, title, "step size over the law's without noise", "gain over the best of the sweep")
    return figure


def _threshold(points: Sequence[Point]) -> Figure:
    """Gain against G at small step sizes."""
    figure, panels = _panels(2)
    found = within(points, part="threshold")
    for axes, who in zip(panels, ("ES", "random search"), strict=True):
        some = [point for point in found if point.arm.startswith(who)]
        gains = within(some, measure="gain")
        for i, arm in enumerate(_arms(gains)):
            _bars(axes, within(gains, arm=arm), "G", label=arm.split(", ")[1], linestyle="none", color=f"C{i}")
            _predicted(axes, within(gains, arm=arm), "G", label=None if i else "law")
        for limit in within(some, measure="threshold of vanishing steps"):
            axes.axvline(limit.value, label=f"threshold 1/{1 / limit.value:.1f}", **_limit())
        axes.axhline(0, color="grey", linewidth=0.5)
        _log_x(axes, gains, "G")
        _finish(axes, who, "G = |g|^2 / tr H", "gain in logits" + (" a generation" if who == "ES" else ""))
    return figure


def _contraction(points: Sequence[Point]) -> Figure:
    """Rates against kbar/n, the price of eps, and the floor under binary rewards."""
    figure, (rates, coupled, floor) = _panels(3, 4.6)
    found = [point for point in within(points, part="contraction") if not math.isnan(point.value)]
    for arm in _arms(found):
        some = within(found, arm=arm)
        best = [max(within(some, n=n), key=lambda point: point.value) for n in dict.fromkeys(p.n for p in some)]
        if math.isnan(best[0].low):
            rates.plot(_column(best, "n"), _column(best, "value"), label=arm, **(_limit() if arm == KBAR else _law()))
        else:
            _bars(rates, best, "n", label=arm)
    _log_x(rates, found, "n")
    rates.set_yscale("log")
    _finish(rates, "sphere, exact ranks", "n", "loss of |m|^2 a generation")
    for arm in _arms(within(points, part="blocks")):
        _bars(coupled, within(points, part="blocks", arm=arm), "eps", label=arm)
    coupled.set_ylim(bottom=0)
    _finish(coupled, "blocks, exact ranks, CSA", "eps", "loss of |m|^2 a generation")
    for i, arm in enumerate(_arms(within(points, part="floor"))):
        _band(floor, within(points, part="floor", arm=arm, measure="distance^2"), "T", label=arm, color=f"C{i}")
        for end in within(points, part="floor", arm=arm, measure="floor"):
            floor.axhline(end.predicted or math.nan, **_law(color=f"C{i}"))
    floor.set_yscale("log")
    _finish(floor, "sphere, binary rewards (dashed: noise threshold)", "generation", "|m|^2")
    return figure


def _separability(points: Sequence[Point]) -> Figure:
    """f / f_0 by generation: a panel for each placement of the curvature, a line style for each eps."""
    found = within(points, part="separability")
    placements = list(dict.fromkeys(point.problem for point in found))
    figure, panels = _panels(len(placements), 3.8)
    for axes, problem in zip(panels, placements, strict=True):
        eps = list(dict.fromkeys(point.eps for point in within(found, problem=problem)))
        for i, arm in enumerate(_arms(found)):
            for j, strength in enumerate(eps):
                curve = within(found, problem=problem, eps=strength, arm=arm)
                style = {"color": f"C{i}", "linestyle": ("-", "--", ":", "-.")[j % 4], "linewidth": 1}
                _band(axes, curve, "T", label=f"{arm}, eps {strength:g}", **style)
        axes.set_yscale("log")
        axes.set_ylim(1e-14, 2)
        _finish(axes, f"curvature: {problem}", "generation", "f / f0")
    return figure
