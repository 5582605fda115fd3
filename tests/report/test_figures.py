import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trinity_jax.report.figures import MOST_COLUMNS, line_chart, nice_ticks, share_chart, show, tick_labels

FINITE = st.floats(-1e9, 1e9, allow_nan=False)


@given(FINITE, FINITE)
def test_ticks_cover_the_range_in_round_steps(a, b):
    low, high = min(a, b), max(a, b)
    ticks = nice_ticks(low, high, 5)
    assert 2 <= len(ticks) <= 9
    steps = np.diff(ticks)
    assert (steps > 0).all()
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    slack = 1e-9 * max(abs(low), abs(high), steps[0])
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    mantissa = steps[0] / 10 ** np.floor(np.log10(steps[0]) + 1e-9)
    assert min(abs(mantissa - m) for m in (1, 2, 5, 10)) < 1e-4


def test_a_curve_goes_through_its_points():
    chart = line_chart("a", "A", "", {"nothing": [], "x": [(0, 0.0), (1, 1.0), (2, 0.5)]}, include=(0, 1))
    assert chart is not None
    (series,) = chart.series
    numbers = np.array([float(n) for n in re.findall(r"[\d.]+", series.path)]).reshape(-1, 2)
    expected_x = [chart.left + 12, (chart.left + chart.right) / 2, chart.right - 12]
    np.testing.assert_allclose(numbers[:, 0], expected_x, atol=0.1)
    np.testing.assert_allclose(numbers[:, 1], [chart.bottom, chart.top, (chart.top + chart.bottom) / 2], atol=0.1)
    assert series.style == 1
    assert chart.description == "Generation 0 to 2. x: from 0 to 0.5."
    assert [t.label for t in chart.x_ticks] == ["0", "1", "2"]


def area(path: str) -> float:
    """Shoelace area of an M/V/H/Z path."""
    x = y = 0.0
    corners = []
    for command, body in re.findall(r"([MVH])([\d. -]+)", path):
        values = [float(v) for v in body.split()]
        x, y = values if command == "M" else (values[0], y) if command == "H" else (x, values[0])
        corners.append((x, y))
    xs, ys = np.array(corners).T
    return abs(np.dot(xs, np.roll(ys, -1)) - np.dot(ys, np.roll(xs, -1))) / 2


@pytest.mark.parametrize("generations", [1, 2, 7])
def test_bands_fill_the_frame_in_proportion(generations):
    rng = np.random.default_rng(generations)
    rows = rng.dirichlet(np.ones(3), generations)
    shares = {name: [(float(g), float(rows[g, i])) for g in range(generations)] for i, name in enumerate("abc")}
    chart = share_chart("s", "S", "", shares, {"a": 0, "b": 1, "c": 2})
    assert chart is not None
    frame = (chart.right - chart.left) * (chart.bottom - chart.top)
    found = [area(s.path) / frame for s in chart.series]
    np.testing.assert_allclose(found, rows.mean(axis=0), atol=0.003)


def test_long_runs_are_thinned_and_keep_both_ends():
    points = [(float(g), float(g)) for g in range(5000)]
    chart = line_chart("a", "A", "", {"x": points})
    assert chart is not None
    assert chart.series[0].path.count("L") == MOST_COLUMNS - 1
    assert (chart.series[0].first, chart.series[0].last) == ("0", "4,999")


def test_nothing_to_draw():
    assert line_chart("a", "A", "", {"x": []}) is None
    assert share_chart("a", "A", "", {"x": []}, {"x": 0}) is None


def test_numbers_for_readers():
    assert [show(0.125, "%"), show(12345.6), show(1.0021), show(0)] == ["12.5 %", "12,346", "1.002", "0"]


@pytest.mark.parametrize(
    ("low", "high", "unit", "labels"),
    [
        (1.0, 1.002, "", ["1.0000", "1.0005", "1.0010", "1.0015", "1.0020"]),
        (0, 1, "%", ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]),
        (0, 0.01, "%", ["0.0 %", "0.2 %", "0.4 %", "0.6 %", "0.8 %", "1.0 %"]),
        (0, 2400, "", ["0", "500", "1,000", "1,500", "2,000", "2,500"]),
    ],
)
def test_tick_labels_tell_ticks_apart(low, high, unit, labels):
    assert tick_labels(nice_ticks(low, high, 5), unit) == labels
