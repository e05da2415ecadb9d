"""Line charts as SVG text, which any browser shows and a test can read.

Infinite points break a line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeAlias

from lavant.core.errors import InvalidValue

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 36, 44
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a3527f", "#56b4e9", "#e69f00")
"""Okabe and Ito's, which people with any kind of colour blindness can tell apart; their purple a little darker."""
LABEL_GAP = 15.0
LETTER = 7.4
"""The width of a letter of a label, in a wide font: a longer label widens the picture."""
FONT = "font-family='system-ui, sans-serif'"


class ChartLine(NamedTuple):
    """A named series. A `steps` line keeps its value until the next point; `half_widths` are those of intervals."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    steps: bool = False
    half_widths: Sequence[float] = ()


class Chart(NamedTuple):
    """One chart. Axis labels name the quantity and its unit.

    `limit` is a dashed line across, with its label, and `choice` one upwards, at an x. `y_max` fixes the scale, so that
    charts can be compared: a line leaves the chart where it is higher, and a triangle has its highest value. `is_log`
    makes the scale logarithmic; all values are positive then.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[ChartLine]
    limit: tuple[str, float] | None = None
    y_max: float | None = None
    choice: tuple[str, float] | None = None
    is_log: bool = False


def picture(charts: Sequence[Chart]) -> str:
    """An SVG document of charts, one below the other.

    >>> picture([Chart("t", "x", "y", [ChartLine("a", [0, 1], [2, 4])])]).startswith("<svg xmlns=")
    True
    """
    height = HEIGHT * len(charts)
    body = "".join(
        f"<g transform='translate(0 {HEIGHT * number})'>{_chart(chart)}</g>" for number, chart in enumerate(charts)
    )
    longest = max(map(len, _label_texts(charts)), default=0)
    width = max(WIDTH, math.ceil(WIDTH - RIGHT + 24 + LETTER * longest))
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>"
        f"<rect width='{width}' height='{height}' fill='white'/>{body}</svg>\n"
    )


def _label_texts(charts: Sequence[Chart]) -> Iterator[str]:
    for chart in charts:
        yield from (line.name for line in chart.lines if any(map(math.isfinite, line.ys)))
        if chart.limit is not None:
            yield chart.limit[0]


def write_picture(path: Path, svg: str) -> None:
    """Write the SVG; raises `InvalidValue` if the file cannot be written."""
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise InvalidValue(f"cannot write the picture to {path}: {error.strerror}") from None


def ticks(low: float, high: float, *, count: int = 5, is_whole: bool = False) -> list[float]:
    """About `count` round numbers from low to high, or fewer if they have to be whole.

    >>> ticks(0.0, 9.3), ticks(0.0, 2.1), ticks(0.0, 2.1, is_whole=True)
    ([0.0, 2.0, 4.0, 6.0, 8.0], [0.0, 0.5, 1.0, 1.5, 2.0], [0.0, 1.0, 2.0])
    """
    size = (high - low) / count
    power = 10.0 ** math.floor(math.log10(size))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= size * 0.999)
    if is_whole:
        step = max(1.0, step)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


class _Scale(NamedTuple):
    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)


def _chart(chart: Chart) -> str:
    xs = [x for line in chart.lines for x in line.xs] or [0.0]
    ys = [y for line in chart.lines for y in line.ys if math.isfinite(y)]
    ys = [*ys, chart.limit[1]] if chart.limit else ys or [0.0]
    x = _Scale(min(xs), max(*xs, min(xs) + 1e-9), LEFT, WIDTH - RIGHT)
    top = max(max(ys) * 1.05, 1e-9) if chart.y_max is None else chart.y_max
    y = _Scale(min(ys) / 1.2 if chart.is_log else 0.0, top, HEIGHT - BOTTOM, TOP, chart.is_log)
    parts = [_text(LEFT, TOP - 16, chart.title, size=15, weight=600)]
    for value in _ticks_for(ys, y):
        parts.append(f"<path d='M{LEFT} {y(value)}H{WIDTH - RIGHT}' stroke='#ddd'/>")
        parts.append(_text(LEFT - 8, y(value) + 4, f"{value:g}", anchor="end"))
    below = HEIGHT - BOTTOM + 18
    parts += [_text(x(value), below, f"{value:g}", anchor="middle") for value in _ticks_for(xs, x, count=8)]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, chart.x_label, anchor="middle"))
    parts.append(
        f"<g transform='rotate(-90 14 {HEIGHT / 2})'>{_text(14, HEIGHT / 2, chart.y_label, anchor='middle')}</g>"
    )
    ends: list[_LineEnd] = []
    taken: list[tuple[float, float]] = []
    if chart.limit is not None:
        name, value = chart.limit
        parts.append(f"<path d='M{LEFT} {y(value)}H{WIDTH - RIGHT}' stroke='#333' stroke-dasharray='5 4'/>")
        ends.append(_LineEnd(name, "#333", WIDTH - RIGHT, y(value)))
    if chart.choice is not None:
        name, value = chart.choice
        parts.append(f"<path d='M{x(value)} {TOP}V{HEIGHT - BOTTOM}' stroke='#333' stroke-dasharray='2 3'/>")
        side = "end" if 2 * x(value) > LEFT + WIDTH - RIGHT else "start"
        parts.append(_text(x(value), TOP - 5, name, anchor=side))
    for number, line in enumerate(chart.lines):
        colour = COLOURS[number % len(COLOURS)]
        path = _path(line, x, y)
        parts.append(f"<path d='{path}' fill='none' stroke='{colour}' stroke-width='1.8' stroke-linejoin='round'/>")
        parts += [
            f"<path d='M{x(px)} {y(py - half)}V{y(py + half)}' stroke='{colour}' stroke-width='1.2'/>"
            for px, py, half in zip(line.xs, line.ys, line.half_widths, strict=False)
            if half > 0
        ]
        points = [(px, py) for px, py in zip(line.xs, line.ys, strict=True) if math.isfinite(py)]
        if points:
            ends.append(_LineEnd(line.name, colour, x(points[-1][0]), max(y(points[-1][1]), float(TOP))))
            peak_x, peak = max(points, key=lambda point: point[1])
            if peak > y.high * 1.001:
                shown = f"▲ {peak:.3g}" if peak < 1000 else f"▲ {peak:,.0f}"
                middle = _beside(taken, x(peak_x), LETTER / 2 * len(shown))
                parts.append(_text(middle, TOP - 5, shown, anchor="middle", size=11, colour=colour))
    return "".join([*parts, *_labels(ends)])


def _ticks_for(values: Sequence[float], scale: _Scale, *, count: int = 5) -> list[float]:
    """Ticks of an axis; whole numbers if all values are; 1, 2 and 5 of each power of ten on a logarithmic one."""
    if scale.is_log:
        powers = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
        marks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        return [mark for mark in marks if scale.low <= mark <= scale.high]
    are_whole = all(float(value).is_integer() for value in values)
    return ticks(scale.low, scale.high, count=count, is_whole=are_whole)


_Point: TypeAlias = tuple[float, float]


class _LineEnd(NamedTuple):
    name: str
    colour: str
    x: float
    y: float


def _beside(taken: list[tuple[float, float]], wanted: float, half: float) -> float:
    """The middle of a text near where it is wanted, right of the axis and of texts that it would cover."""
    middle = max(wanted, LEFT + half)
    for start, end in sorted(taken):
        if start < middle + half and middle - half < end:
            middle = end + half
    taken.append((middle - half, middle + half))
    return middle


def _labels(ends: Sequence[_LineEnd]) -> Iterator[str]:
    """The names of lines at their right ends, moved apart, with leaders to the ends."""
    ends = sorted(ends, key=lambda end: end.y)
    lowest = HEIGHT - BOTTOM - LABEL_GAP * (len(ends) - 1)
    places: list[float] = []
    for number, end in enumerate(ends):
        least = places[-1] + LABEL_GAP if places else 0.0
        places.append(max(least, min(end.y, lowest + LABEL_GAP * number)))
    for end, place in zip(ends, places, strict=True):
        leader = f"M{end.x + 2:g} {end.y:g}L{WIDTH - RIGHT + 16} {place:g}"
        yield f"<path d='{leader}' stroke='{end.colour}' stroke-opacity='.5' fill='none'/>"
        yield _text(WIDTH - RIGHT + 20, place + 4, end.name, colour=end.colour, weight=600)


def _path(line: ChartLine, x: _Scale, y: _Scale) -> str:
    """One stroke per run of finite points."""
    pairs = list(zip(line.xs, line.ys, strict=True))
    strokes = []
    for is_finite, run in groupby(pairs, key=lambda pair: math.isfinite(pair[1])):
        if not is_finite:
            continue
        points = [(x(px), y(py)) for px, py in run]
        strokes += [_stroke(part, steps=line.steps) for part in _clipped(points, steps=line.steps)]
    return "".join(strokes)


def _stroke(points: list[_Point], *, steps: bool) -> str:
    stroke = f"M{points[0][0]:g} {points[0][1]:g}"
    for px, py in points[1:]:
        stroke += f"H{px:g}V{py:g}" if steps else f"L{px:g} {py:g}"
    return stroke if len(points) > 1 else f"M{points[0][0] - 4:g} {points[0][1]:g}h8"  # a dash for a lone point


def _clipped(points: list[_Point], *, steps: bool) -> Iterator[list[_Point]]:
    """The parts of a line below the upper edge; it ends, and begins again, where it crosses the edge."""
    part: list[_Point] = []
    before: _Point | None = None
    for point in points:
        is_inside = point[1] >= TOP
        if before is not None and is_inside != (before[1] >= TOP):
            share = 1.0 if steps else (TOP - before[1]) / (point[1] - before[1])
            part.append((round(before[0] + share * (point[0] - before[0]), 1), float(TOP)))
            if not is_inside:
                yield part
                part = []
        if is_inside:
            part.append(point)
        before = point
    if part:
        yield part


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, weight: int = 400,
          colour: str = "#333") -> str:  # fmt: skip
    style = f"{FONT} font-size='{size}' font-weight='{weight}' text-anchor='{anchor}' fill='{colour}'"
    return f"<text x='{x:g}' y='{y:g}' {style}>{escape(text)}</text>"
