"""Where things are on a drawn page: shapes of places and transitions, arcs between them, and room for inscriptions."""

from __future__ import annotations

import math
import re

import msgspec

PLACE_RX, PLACE_RY = 62.0, 26.0
BOX_W, BOX_H = 128.0, 44.0
LINE_H, CHAR_W = 12.0, 6.05
"""Of the font of inscriptions."""

WRAP = 30
STEPS = 24
CELL = (230.0, 150.0)
"""Distance between nodes without a position."""

MARKING_LINES, MARKING_WIDTH = 4, 44
"""Lines of a marking that are drawn, and characters of a line."""
BENDS = (0.0, *(side * by for by in (28.0, 46.0, 70.0, 100.0, 140.0, 190.0, 250.0, 320.0) for side in (1, -1)))
"""How far an arc leaves the straight line, from the first to the last resort, if a node is in its way."""

Point = tuple[float, float]


class Box(msgspec.Struct, frozen=True):
    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        """The area that both cover."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return wide * high if wide > 0 and high > 0 else 0.0

    def grown(self, by: float) -> Box:
        return Box(self.left - by, self.top - by, self.right + by, self.bottom + by)

    def holds(self, point: Point) -> bool:
        return self.left <= point[0] <= self.right and self.top <= point[1] <= self.bottom


def box_at(centre: Point, width: float, height: float) -> Box:
    x, y = centre
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def text_size(lines: list[str]) -> tuple[float, float]:
    return max(map(len, lines), default=0) * CHAR_W + 4, len(lines) * LINE_H + 2


def wrap(text: str, width: int = WRAP) -> list[str]:
    """Break an inscription into lines, after commas and before operators.

    >>> wrap("msgs + [Msg(id=sent.id, AT=sent.AT, IT=time())]", 24)
    ['msgs + [Msg(id=sent.id,', 'AT=sent.AT, IT=time())]']
    """
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line] if line else lines


def wrap_marking(text: str, width: int = WRAP) -> list[str]:
    """Break a marking into lines after its terms, and leave out what is more than a few lines.

    >>> wrap_marking('1`(1,"COL")++1`(2,"OUR")++1`(3,"ED ")')
    ['1`(1,"COL")++1`(2,"OUR")++', '1`(3,"ED ")']
    """
    lines = [""]
    for term in re.findall(r".+?(?:\++(?=\d+`)|$)", text):
        if lines[-1] and len(lines[-1]) + len(term) > width:
            lines.append("")
        lines[-1] += term
    if len(lines) > MARKING_LINES:
        lines = [*lines[: MARKING_LINES - 1], "…"]
    return [line if len(line) <= MARKING_WIDTH else f"{line[: MARKING_WIDTH - 1]}…" for line in lines]


def place_edge(centre: Point, towards: Point) -> Point:
    """Where a line to the centre of a place meets its ellipse."""
    dx, dy = towards[0] - centre[0], towards[1] - centre[1]
    scale = math.hypot(dx / PLACE_RX, dy / PLACE_RY) or 1.0
    return centre[0] + dx / scale, centre[1] + dy / scale


def box_edge(centre: Point, towards: Point) -> Point:
    """Where a line to the centre of a transition meets its rectangle."""
    dx, dy = towards[0] - centre[0], towards[1] - centre[1]
    scale = max(abs(dx) / (BOX_W / 2), abs(dy) / (BOX_H / 2)) or 1.0
    return centre[0] + dx / scale, centre[1] + dy / scale


def bend(start: Point, end: Point, by: float) -> Point:
    """The control point of a curve that leaves the straight line by so much, to its left."""
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1.0
    return x - dy / length * by * 2, y + dx / length * by * 2


def on_curve(start: Point, control: Point, end: Point, t: float) -> Point:
    a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t * t
    return a * start[0] + b * control[0] + c * end[0], a * start[1] + b * control[1] + c * end[1]


def around(start: Point, end: Point, nodes: list[Box], by: float) -> float:
    """The bend of an arc with which it meets the fewest of these nodes; `by` if it meets none so."""
    near = [node.grown(4) for node in nodes]

    def met(bent: float) -> int:
        control = bend(start, end, bent)
        points = [on_curve(start, control, end, step / STEPS) for step in range(STEPS + 1)]
        return sum(any(node.holds(point) for point in points) for node in near)

    return min((by + more for more in BENDS), key=met)


def free_spot(curve: tuple[Point, Point, Point], size: tuple[float, float], taken: list[Box]) -> Box:
    """Room for an inscription: near the middle of its arc, where it covers least of what is drawn."""
    start, control, end = curve
    best, least = box_at(on_curve(start, control, end, 0.5), *size), math.inf
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1.0
    normal = (-dy / length, dx / length)
    reach = abs(normal[0]) * size[0] / 2 + abs(normal[1]) * size[1] / 2
    around = Box(
        min(start[0], end[0], control[0]),
        min(start[1], end[1], control[1]),
        max(start[0], end[0], control[0]),
        max(start[1], end[1], control[1]),
    ).grown(max(size) + 40)
    near = [other.grown(2) for other in taken if other.overlap(around)]
    for t in (0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73, 0.2, 0.8):
        x, y = on_curve(start, control, end, t)
        for away in (reach + 4, -reach - 4, reach + 18, -reach - 18, reach + 34, -reach - 34):
            spot = box_at((x + normal[0] * away, y + normal[1] * away), *size)
            cost = sum(spot.overlap(other) for other in near) + abs(t - 0.5) * 20 + abs(away) * 0.3
            if cost < least:
                best, least = spot, cost
    return best


def layered(nodes: list[str], arcs: list[tuple[str, str]]) -> dict[str, Point]:
    """Positions for nodes that have none: in columns, each node behind the first of those that lead to it."""
    column: dict[str, int] = {}
    for root in nodes:
        waiting = [(root, 0)] if root not in column else []
        while waiting:
            node, at = waiting.pop(0)
            if node not in column:
                column[node] = at
                waiting += [(target, at + 1) for source, target in arcs if source == node]
    rows: dict[int, int] = {}
    found = {}
    for node in nodes:
        row = rows[column[node]] = rows.get(column[node], -1) + 1
        found[node] = (column[node] * CELL[0], row * CELL[1])
    return found
