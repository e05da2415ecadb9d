"""Pages of a net as SVG: places, transitions, arcs with their inscriptions, and a marking if you give one."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import msgspec

from lavant.core.errors import InvalidValue
from lavant.models.petri.geometry import (
    BOX_H,
    BOX_W,
    LINE_H,
    PLACE_RX,
    PLACE_RY,
    STEPS,
    Box,
    Point,
    around,
    bend,
    box_at,
    box_edge,
    free_spot,
    layered,
    on_curve,
    place_edge,
    text_size,
    wrap,
    wrap_marking,
)
from lavant.models.petri.language.colours import show_marking
from lavant.models.petri.net import IN, IN_OUT, OUT, P_NORMAL, Net, Page, Place

MARGIN = 30.0
NAME_W, NAME_MAX = 114.0, 16
"""Room for the name of a node, and how many characters fit."""

_STYLE = """
text { font: 10px 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #222; }
.name { font: bold 11px 'DejaVu Sans', Helvetica, Arial, sans-serif; text-anchor: middle; }
.colour { font-style: italic; fill: #555; }
.initial { fill: #1b5e20; }
.tag { font: 9px 'DejaVu Sans', Helvetica, Arial, sans-serif; text-anchor: middle; fill: #0d47a1; }
.guard { fill: #8a3b00; }
.node { fill: #fff; stroke: #222; stroke-width: 1.4; }
.arc { fill: none; stroke: #333; stroke-width: 1.1; }
.portbox { fill: #e3f2fd; stroke: #0d47a1; stroke-width: .8; }
.count { fill: #66bb6a; stroke: #1b5e20; stroke-width: .8; }
.marking { fill: #e8f5e9; stroke: #66bb6a; stroke-width: .8; }
"""


class DrawnArc(msgspec.Struct, frozen=True):
    """An arc between a place and a transition; the arrow points to either, or both."""

    place: str
    transition: str
    text: str
    to_transition: bool
    to_place: bool


class Drawing(msgspec.Struct, frozen=True):
    """The SVG of a page, where its texts and nodes are, and the points of its arcs, by place and transition."""

    svg: str
    boxes: dict[str, Box]
    arcs: list[tuple[str, str, list[Point]]]


def draw(net: Net, page: str, marking: Mapping[str, str] | None = None) -> Drawing:
    """Draw a page. A marking maps places to their tokens, as text."""
    if page not in net.pages:
        raise InvalidValue(f"net {net.name!r} has no page {page!r}; it has {', '.join(net.pages)}")
    return _Page(net, net.pages[page], marking).draw()


def arcs_of(net: Net, page: Page) -> list[DrawnArc]:
    """The arcs of a page. What a transition takes from a place and puts back as it was is one arc with two arrows."""
    arcs = []
    for transition in page.transitions.values():
        puts = {arc.place: arc.text for arc in transition.arcs if arc.puts is not None}
        takes = {arc.place: arc.text for arc in transition.arcs if arc.takes is not None}
        for arc in transition.arcs:
            if arc.reads or (arc.takes is not None and puts.get(arc.place) == arc.text):
                arcs.append(DrawnArc(arc.place, transition.name, arc.text, True, True))
            elif arc.takes is not None or takes.get(arc.place) != arc.text:
                is_put = arc.puts is not None
                arcs.append(DrawnArc(arc.place, transition.name, arc.text, not is_put, is_put))
    for substitution in page.substitutions.values():
        below = net.pages.get(substitution.page)
        for port, socket in substitution.sockets.items():
            kind = below.places[port].port if below is not None and port in below.places else IN_OUT
            arcs.append(DrawnArc(socket, substitution.name, "", kind in (IN, IN_OUT), kind in (OUT, IN_OUT)))
    return arcs


def positions(net: Net, page: Page) -> dict[tuple[str, str], Point]:
    """Where places and transitions are: as given, or in columns if one of them has no position."""
    nodes = [("place", each.name, each.at) for each in page.places.values()]
    nodes += [("transition", each.name, each.at) for each in page.transitions.values()]
    nodes += [("transition", each.name, each.at) for each in page.substitutions.values()]
    given = {(kind, name): at for kind, name, at in nodes if at is not None}
    if len(given) == len(nodes):
        return given
    arcs = []
    for arc in arcs_of(net, page):
        ends = (f"place {arc.place}", f"transition {arc.transition}")
        arcs += [ends] if arc.to_transition else []
        arcs += [ends[::-1]] if arc.to_place else []
    found = layered([f"{kind} {name}" for kind, name, _ in nodes], arcs)
    return {(kind, name): found[f"{kind} {name}"] for kind, name, _ in nodes}


class _Page:
    def __init__(self, net: Net, page: Page, marking: Mapping[str, str] | None) -> None:
        self.net, self.page, self.marking = net, page, marking
        self.at = positions(net, page)
        self.parts: list[str] = []
        self.boxes: dict[str, Box] = {}
        self.lines: list[Box] = []
        self.paths: list[tuple[str, str, list[Point]]] = []

    def draw(self) -> Drawing:
        for name in self.page.places:
            self._claim(f"place {name}", box_at(self.at["place", name], 2 * PLACE_RX, 2 * PLACE_RY))
        for name in (*self.page.transitions, *self.page.substitutions):
            self._claim(f"transition {name}", box_at(self.at["transition", name], BOX_W, BOX_H))
        for name, given in self.page.substitutions.items():
            x, y = self.at["transition", name]
            self._claim(f"page of {name}", box_at((x, y + BOX_H / 2 + 4), 7.0 * len(given.page), 13))
        curves = self._arcs()
        for place in self.page.places.values():
            self._place(place)
        self._transitions()
        for number, (arc, curve) in enumerate(curves):
            self._inscribe(number, arc, curve)
        return Drawing(self._svg(), self.boxes, self.paths)

    def _claim(self, what: str, box: Box) -> None:
        self.boxes[what] = box

    def _arcs(self) -> list[tuple[DrawnArc, tuple[Point, Point, Point]]]:
        arcs, drawn = arcs_of(self.net, self.page), []
        for arc in arcs:
            twice = sum(each.place == arc.place and each.transition == arc.transition for each in arcs) > 1
            place, box = self.at["place", arc.place], self.at["transition", arc.transition]
            ends = (f"place {arc.place}", f"transition {arc.transition}")
            nodes = [node for name, node in self.boxes.items() if name not in (*ends, f"page of {arc.transition}")]
            by = around(place, box, nodes, (18.0 if arc.to_place else -18.0) if twice else 0.0)
            control = bend(place, box, by)
            start, end = place_edge(place, control), box_edge(box, control)
            heads = 'marker-end="url(#head)"' if arc.to_transition else ""
            heads += ' marker-start="url(#head)"' if arc.to_place else ""
            path = f"M{_pair(start)} Q{_pair(control)} {_pair(end)}" if by else f"M{_pair(start)} L{_pair(end)}"
            self.parts.append(f'<path class="arc" d="{path}" {heads}/>')
            points = [on_curve(start, control, end, step / STEPS) for step in range(STEPS + 1)]
            self.lines += [box_at(point, 3, 3) for point in points]
            self.paths.append((arc.place, arc.transition, points))
            drawn.append((arc, (start, control, end)))
        return drawn

    def _place(self, place: Place) -> None:
        x, y = self.at["place", place.name]
        self.parts.append(f'<ellipse class="node" cx="{x:g}" cy="{y:g}" rx="{PLACE_RX:g}" ry="{PLACE_RY:g}"/>')
        self._name((x, y + 4), place.name)
        self._near(f"colour of {place.name}", [place.colour.name], "colour", (x, y), below=True)
        if place.initial:
            shown = show_marking(place.colour, list(place.initial))
            self._near(f"initial marking of {place.name}", wrap_marking(shown), "initial", (x, y), below=False)
        tag = {IN: "In", OUT: "Out", IN_OUT: "I/O"}.get(place.port or "", place.fusion or "")
        if tag:
            width = max(24.0, 7.0 * len(tag))
            box = box_at((x - PLACE_RX + 16, y + PLACE_RY + 3), width, 13)
            self.parts.append(_rect(box, "portbox"))
            self._text((x - PLACE_RX + 16, y + PLACE_RY + 6.5), tag, "tag")
            self._claim(f"tag of {place.name}", box)
        if self.marking is not None and self.marking.get(place.name):
            self._tokens(place.name, self.marking[place.name], (x, y))

    def _tokens(self, name: str, shown: str, at: Point) -> None:
        counts = [part.lstrip("+").partition("`")[0] for part in shown.split("++")]
        count = sum(int(each) for each in counts if each.isdigit())
        spot = (at[0] + PLACE_RX - 8, at[1] - PLACE_RY + 2)
        self.parts.append(f'<circle class="count" cx="{spot[0]:g}" cy="{spot[1]:g}" r="9"/>')
        self._text((spot[0], spot[1] + 3.5), str(count), "tag")
        lines = wrap_marking(shown)
        width, height = text_size(lines)
        box = self._free(Box(spot[0] + 12, spot[1] - 6, spot[0] + 12 + width, spot[1] - 6 + height))
        self.parts.append(_rect(box, "marking"))
        self._lines(f"marking of {name}", lines, "initial", box)

    def _transitions(self) -> None:
        for name in self.page.substitutions:
            x, y = self.at["transition", name]
            self.parts.append(_rect(box_at((x, y), BOX_W, BOX_H), "node"))
            self.parts.append(_rect(box_at((x, y), BOX_W - 8, BOX_H - 8), "node"))
            self._name((x, y + 4), name)
            self.parts.append(_rect(self.boxes[f"page of {name}"], "portbox"))
            self._text((x, y + BOX_H / 2 + 7.5), self.page.substitutions[name].page, "tag")
        for transition in self.page.transitions.values():
            x, y = self.at["transition", transition.name]
            self.parts.append(_rect(box_at((x, y), BOX_W, BOX_H), "node"))
            self._name((x, y + 4), transition.name)
            above = wrap(f"[{transition.guard_text}]") if transition.guard_text else []
            above += wrap(f"@+{transition.delay_text}") if transition.delay_text else []
            above += [f"P={transition.priority}"] if transition.priority != P_NORMAL else []
            below = [line for part in transition.action_text.split(";") for line in wrap(part.strip(), 40)]
            for what, lines, is_below in (("guard", above, False), ("action", below, True)):
                if any(lines):
                    self._beside(f"{what} of {transition.name}", lines, (x, y), below=is_below)

    def _near(self, what: str, lines: list[str], kind: str, at: Point, *, below: bool) -> None:
        """Text at the upper or lower right of a place, or where there is room."""
        width, height = text_size(lines)
        left = at[0] + PLACE_RX * 0.45
        top = at[1] + PLACE_RY - 1 if below else at[1] - PLACE_RY - height + 1
        self._lines(what, lines, kind, self._free(Box(left, top, left + width, top + height)))

    def _beside(self, what: str, lines: list[str], at: Point, *, below: bool) -> None:
        width, height = text_size(lines)
        left = at[0] - BOX_W / 2
        top = at[1] + BOX_H / 2 + 3 if below else at[1] - BOX_H / 2 - height - 3
        self._lines(what, lines, "guard", self._free(Box(left, top, left + width, top + height)))

    def _free(self, wanted: Box) -> Box:
        """The wanted box, moved a little if something is there."""
        width, height = wanted.right - wanted.left, wanted.bottom - wanted.top
        aside = (0, 14, -14, 30, -width * 0.6, -width)
        moves = [(dx, dy) for dy in (0, -8, 8, -20, 20, -34, -48, 34, 48) for dx in aside]
        region = wanted.grown(width + 40)
        weighted = [(other, 5.0) for other in self.boxes.values() if other.overlap(region)]
        weighted += [(line, 1.0) for line in self.lines if line.overlap(region)]

        def cost(move: tuple[float, float]) -> float:
            left, top = wanted.left + move[0], wanted.top + move[1]
            box = Box(left, top, left + width, top + height)
            covered = sum(weight * box.overlap(other) for other, weight in weighted)
            return covered + (abs(move[0]) + abs(move[1])) * 0.2

        dx, dy = min(moves, key=cost)
        return Box(wanted.left + dx, wanted.top + dy, wanted.left + dx + width, wanted.top + dy + height)

    def _inscribe(self, number: int, arc: DrawnArc, curve: tuple[Point, Point, Point]) -> None:
        if not arc.text:
            return
        lines = wrap(arc.text)
        box = free_spot(curve, text_size(lines), [*self.boxes.values(), *self.lines])
        self._lines(f"inscription {number} of {arc.place} and {arc.transition}", lines, "", box)

    def _lines(self, what: str, lines: list[str], kind: str, box: Box) -> None:
        for at, line in enumerate(lines):
            self._text((box.left + 2, box.top + (at + 1) * LINE_H - 2), line, kind)
        self._claim(what, box)

    def _name(self, at: Point, name: str) -> None:
        """The name of a node, set tighter if it is long."""
        fit = f' textLength="{NAME_W:g}" lengthAdjust="spacingAndGlyphs"' if len(name) > NAME_MAX else ""
        self._text(at, name, "name", fit)

    def _text(self, at: Point, text: str, kind: str, fit: str = "") -> None:
        attribute = (f' class="{kind}"' if kind else "") + fit
        self.parts.append(f'<text{attribute} x="{at[0]:g}" y="{at[1]:g}" xml:space="preserve">{escape(text)}</text>')

    def _svg(self) -> str:
        boxes = [*self.boxes.values(), *self.lines] or [box_at((0, 0), BOX_W, BOX_H)]
        left, top = min(b.left for b in boxes) - MARGIN, min(b.top for b in boxes) - MARGIN
        width = max(b.right for b in boxes) + MARGIN - left
        height = max(b.bottom for b in boxes) + MARGIN - top
        head = (
            '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
            'orient="auto-start-reverse"><path d="M0 1 L9 5 L0 9 z" fill="#333"/></marker>'
        )
        body = "\n".join(self.parts)
        paper = f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" fill="#fff"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}">\n<title>{escape(self.page.name)}</title>\n'
            f"<style>{_STYLE}</style>\n<defs>{head}</defs>\n{paper}\n{body}\n</svg>\n"
        )


def _pair(point: Point) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"


def _rect(box: Box, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{box.left:g}" y="{box.top:g}" '
        f'width="{box.right - box.left:g}" height="{box.bottom - box.top:g}"/>'
    )
