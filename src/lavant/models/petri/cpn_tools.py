"""Export to the files of CPN Tools (`.cpn`, format 6), so that you can open a net in the tool that the paper used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree as Xml

from lavant.core.errors import InvalidValue
from lavant.models.petri.drawing import positions
from lavant.models.petri.language.colours import (
    Bool,
    ColourSet,
    Enumeration,
    Int,
    ListOf,
    Product,
    Real,
    RecordOf,
    Token,
    Unit,
    show_marking,
)
from lavant.models.petri.language.ml_source import ml_function, ml_names, ml_of, ml_putting, ml_taking, ml_value
from lavant.models.petri.net import IN, IN_OUT, OUT, P_HIGH, P_LOW, P_NORMAL, Net, Page, Place, Substitution, Transition

_HEAD = """<?xml version="1.0" encoding="iso-8859-1"?>
<!DOCTYPE workspaceElements PUBLIC "-//CPN//DTD CPNXML 1.0//EN" "http://cpntools.org/DTD/6/cpn.dtd">
"""
_TOOL = {"tool": "CPN Tools", "version": "4.0.1"}
_PORTS = {IN: "In", OUT: "Out", IN_OUT: "I/O"}
_PRIORITIES = {P_HIGH: "P_HIGH", P_NORMAL: "P_NORMAL", P_LOW: "P_LOW"}


def cpn_file(net: Net) -> str:
    """The text of a `.cpn` file. Its references are checked before it is returned."""
    net.flatten()
    ml_names(net.scope)
    root = _Export(net).root()
    check_references(root)
    Xml.indent(root)
    return _HEAD + Xml.tostring(root, encoding="unicode") + "\n"


def check_references(root: Xml.Element) -> None:
    """Refuse a file with a reference to nothing, an arc between pages, or a name that CPN Tools cannot read."""
    elements = [each for each in root.iter() if "id" in each.attrib]
    ids = {each.attrib["id"]: each for each in elements}
    if len(ids) != len(elements):
        raise InvalidValue("two elements have the same id")
    for page in root.iter("page"):
        own = {each.attrib["id"]: each.tag for each in page if "id" in each.attrib}
        for arc in page.iter("arc"):
            ends = {tag: arc.find(tag) for tag in ("transend", "placeend")}
            for (tag, end), kind in zip(ends.items(), ("trans", "place"), strict=True):
                if end is None or own.get(end.attrib["idref"]) != kind:
                    raise InvalidValue(f"arc {arc.attrib['id']}: its {tag} is no {kind} of its page")
        for text in page.iter("text"):
            if re.search(r"\s\n", text.text or "") or (text.text or "") != (text.text or "").strip():
                raise InvalidValue(f"{text.text!r} has blanks at the end of a line; CPN Tools cannot read that")
    references = [
        (e.tag, e.attrib[n]) for e in root.iter() for n in ("idref", "subpage", "page", "trans") if n in e.attrib
    ]
    for element in root.iter("subst"):
        references += [("subst", each) for each in re.findall(r"[^(),]+", element.attrib["portsock"])]
    for tag, reference in references:
        if reference not in ids:
            raise InvalidValue(f"{tag} refers to {reference}, which does not exist")


class _Export:
    def __init__(self, net: Net) -> None:
        self.net = net
        self._count = 1_000
        self.pages = {name: self._id() for name in net.pages}
        self.places = {(page.name, name): self._id() for page in net.pages.values() for name in page.places}
        self.transitions = {
            (page.name, name): self._id()
            for page in net.pages.values()
            for name in (*page.transitions, *page.substitutions)
        }

    def _id(self) -> str:
        self._count += 1
        return f"ID{self._count}"

    def root(self) -> Xml.Element:
        root = Xml.Element("workspaceElements")
        Xml.SubElement(root, "generator", _TOOL | {"format": "6"})
        net = Xml.SubElement(root, "cpnet")
        declared = Xml.SubElement(net, "globbox")
        for title, declare in (("Standard priorities", self._priorities), ("Declarations", self._declarations)):
            block = Xml.SubElement(declared, "block", {"id": self._id()})
            Xml.SubElement(block, "id").text = title
            declare(block)
        for page in self.net.pages.values():
            self._page(net, page)
        for name, members in self._fusion().items():
            fusion = Xml.SubElement(net, "fusion", {"id": self._id(), "name": name})
            for member in members:
                Xml.SubElement(fusion, "fusion_elm", {"idref": member})
        instances = Xml.SubElement(net, "instances")
        top = next(iter(self.net.pages.values()))
        self._instance(Xml.SubElement(instances, "instance", {"id": self._id(), "page": self.pages[top.name]}), top)
        options = Xml.SubElement(net, "options")
        option = Xml.SubElement(options, "option", {"name": "realtimestamp"})
        Xml.SubElement(Xml.SubElement(option, "value"), "boolean").text = "true"
        Xml.SubElement(net, "binders")
        Xml.SubElement(net, "monitorblock", {"name": "Monitors"})
        Xml.SubElement(net, "IndexNode", {"expanded": "true"})
        return root

    def _priorities(self, block: Xml.Element) -> None:
        """CPN Tools writes these into every file, and knows them from there only."""
        for number, name in _PRIORITIES.items():
            self._ml(block, f"val {name} = {number};")

    def _ml(self, block: Xml.Element, line: str) -> None:
        element = Xml.SubElement(block, "ml", {"id": self._id()})
        element.text = line
        Xml.SubElement(element, "layout").text = line

    def _declarations(self, block: Xml.Element) -> None:
        scope = self.net.scope
        for colour in scope.colours.values():
            element = Xml.SubElement(block, "color", {"id": self._id()})
            Xml.SubElement(element, "id").text = colour.name
            if colour.timed:
                Xml.SubElement(element, "timed")
            element.append(_colour(colour))
            timed = " timed" if colour.timed else ""
            Xml.SubElement(element, "layout").text = f"colset {colour.name} = {colour.declaration()}{timed};"
        for name, colour in scope.variables.items():
            element = Xml.SubElement(block, "var", {"id": self._id()})
            Xml.SubElement(Xml.SubElement(element, "type"), "id").text = colour.name
            Xml.SubElement(element, "id").text = name
            Xml.SubElement(element, "layout").text = f"var {name}: {colour.name};"
        lines = [f"val {name} = {ml_value(value)};" for name, value in scope.values.items()]
        lines += [ml_function(function) for function in scope.functions.values()]
        for line in lines:
            self._ml(block, line)

    def _page(self, net: Xml.Element, page: Page) -> None:
        element = Xml.SubElement(net, "page", {"id": self.pages[page.name]})
        Xml.SubElement(element, "pageattr", {"name": page.name})
        at = positions(self.net, page)
        for place in page.places.values():
            self._place(element, page, place, _flip(at["place", place.name]))
        for transition in page.transitions.values():
            self._transition(element, page, transition, _flip(at["transition", transition.name]))
        for substitution in page.substitutions.values():
            self._substitution(element, page, substitution, _flip(at["transition", substitution.name]))
        for place_name, transition_name, orientation, text in self._arcs(page):
            self._arc(element, (page.name, place_name), (page.name, transition_name), orientation, text)
        Xml.SubElement(element, "constraints")

    def _place(self, parent: Xml.Element, page: Page, place: Place, at: tuple[float, float]) -> None:
        element = Xml.SubElement(parent, "place", {"id": self.places[page.name, place.name]})
        _attributes(element, at, place.name)
        Xml.SubElement(element, "ellipse", {"w": "124.0", "h": "52.0"})
        Xml.SubElement(element, "token", {"x": "-10.0", "y": "0.0"})
        if place.fusion is not None:
            self._text(element, "fusioninfo", at, "", name=place.fusion)
        if place.port is not None:
            self._text(element, "port", (at[0] - 50, at[1] - 28), "", type=_PORTS[place.port])
        self._text(element, "type", (at[0] + 60, at[1] - 32), place.colour.name)
        tokens = list(self._initial(place))
        if any(token.time is not None for token in tokens):
            tokens = [Token(token.value, token.time or 0.0) for token in tokens]
        shown = show_marking(place.colour, tokens)
        self._text(element, "initmark", (at[0] + 60, at[1] + 32), shown)

    def _initial(self, place: Place) -> tuple[Token, ...]:
        """All members of a fusion set have one initial marking, in CPN Tools each of them."""
        members = (each for page in self.net.pages.values() for each in page.places.values())
        fused = (each.initial for each in members if each.fusion == place.fusion and each.initial)
        return place.initial if place.fusion is None else next(fused, ())

    def _transition(self, parent: Xml.Element, page: Page, transition: Transition, at: tuple[float, float]) -> None:
        element = self._box(parent, page, transition.name, at)
        guard = f"[{ml_of(transition.guard)}]" if transition.guard is not None else ""
        self._text(element, "cond", (at[0] - 60, at[1] + 34), guard)
        for arc in transition.arcs:
            if transition.delay is not None and arc.reads and page.places[arc.place].colour.timed:
                where = f"page {page.name!r}, transition {transition.name!r}"
                raise InvalidValue(
                    f"{where}: CPN Tools would delay the tokens that it reads from {arc.place!r}, too; "
                    f"put the delay `{transition.delay_text}` at the arcs that put tokens"
                )
        delay = f"@+{ml_of(transition.delay)}" if transition.delay is not None else ""
        self._text(element, "time", (at[0] + 60, at[1] + 34), delay)
        self._text(element, "code", (at[0] + 60, at[1] - 48), _code(transition))
        priority = _PRIORITIES.get(transition.priority, ml_value(transition.priority))
        self._text(element, "priority", (at[0] - 60, at[1] - 34), "" if priority == "P_NORMAL" else priority)

    def _substitution(self, parent: Xml.Element, page: Page, given: Substitution, at: tuple[float, float]) -> None:
        element = self._box(parent, page, given.name, at)
        pairs = (
            f"({self.places[given.page, port]},{self.places[page.name, socket]})"
            for port, socket in given.sockets.items()
        )
        subst = Xml.SubElement(element, "subst", {"subpage": self.pages[given.page], "portsock": "".join(pairs)})
        self._text(subst, "subpageinfo", (at[0], at[1] - 26), None, name=given.page)

    def _box(self, parent: Xml.Element, page: Page, name: str, at: tuple[float, float]) -> Xml.Element:
        element = Xml.SubElement(parent, "trans", {"id": self.transitions[page.name, name], "explicit": "false"})
        _attributes(element, at, name)
        Xml.SubElement(element, "box", {"w": "128.0", "h": "44.0"})
        Xml.SubElement(element, "binding", {"x": "7.0", "y": "-3.0"})
        return element

    def _arcs(self, page: Page) -> Iterator[tuple[str, str, str, str]]:
        scope = self.net.scope
        for transition in page.transitions.values():
            for arc in transition.arcs:
                colour = page.places[arc.place].colour
                if arc.puts is not None:
                    yield arc.place, transition.name, "TtoP", ml_putting(arc.puts)
                else:
                    way = "BOTHDIR" if arc.reads else "PtoT"
                    yield arc.place, transition.name, way, ml_taking(arc.text, scope, colour)
        ways = {IN: "PtoT", OUT: "TtoP", IN_OUT: "BOTHDIR"}
        for substitution in page.substitutions.values():
            below = self.net.pages[substitution.page]
            for port, socket in substitution.sockets.items():
                yield socket, substitution.name, ways[below.places[port].port or IN_OUT], ""

    def _arc(
        self, parent: Xml.Element, place: tuple[str, str], transition: tuple[str, str], orientation: str, text: str
    ) -> None:
        element = Xml.SubElement(parent, "arc", {"id": self._id(), "orientation": orientation, "order": "1"})
        _attributes(element, (0.0, 0.0), None)
        Xml.SubElement(element, "arrowattr", {"headsize": "1.2", "currentcyckle": "2"})
        Xml.SubElement(element, "transend", {"idref": self.transitions[transition]})
        Xml.SubElement(element, "placeend", {"idref": self.places[place]})
        self._text(element, "annot", (0.0, 0.0), text)

    def _text(self, parent: Xml.Element, tag: str, at: tuple[float, float], text: str | None, **more: str) -> None:
        element = Xml.SubElement(parent, tag, {"id": self._id(), **more})
        _attributes(element, at, None)
        if text is not None and not more:
            Xml.SubElement(element, "text", _TOOL).text = text

    def _fusion(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for page in self.net.pages.values():
            for place in page.places.values():
                if place.fusion is not None:
                    found.setdefault(place.fusion, []).append(self.places[page.name, place.name])
        return found

    def _instance(self, element: Xml.Element, page: Page) -> None:
        for substitution in page.substitutions.values():
            trans = self.transitions[page.name, substitution.name]
            below = Xml.SubElement(element, "instance", {"id": self._id(), "trans": trans})
            self._instance(below, self.net.pages[substitution.page])


def _attributes(element: Xml.Element, at: tuple[float, float], text: str | None) -> None:
    Xml.SubElement(element, "posattr", {"x": f"{at[0]:.6f}", "y": f"{at[1]:.6f}"})
    Xml.SubElement(element, "fillattr", {"colour": "White", "pattern": "", "filled": "false"})
    Xml.SubElement(element, "lineattr", {"colour": "Black", "thick": "1", "type": "Solid"})
    Xml.SubElement(element, "textattr", {"colour": "Black", "bold": "false"})
    if text is not None:
        Xml.SubElement(element, "text").text = text


def _flip(at: tuple[float, float]) -> tuple[float, float]:
    """In CPN Tools, y grows upwards."""
    return at[0], -at[1]


def _colour(colour: ColourSet) -> Xml.Element:
    kinds = {Unit: "unit", Bool: "bool", Int: "int", Real: "real", Enumeration: "enum", Product: "product"}
    element = Xml.Element({**kinds, RecordOf: "record", ListOf: "list"}.get(type(colour), "string"))
    if isinstance(colour, Int) and colour.between is not None:
        bounds = Xml.SubElement(element, "with")
        for bound in colour.between:
            Xml.SubElement(bounds, "ml").text = colour.show(bound)
    elif isinstance(colour, Enumeration):
        for name in colour.names:
            Xml.SubElement(element, "id").text = name
    elif isinstance(colour, RecordOf):
        for name, part in colour.fields:
            field = Xml.SubElement(element, "recordfield")
            Xml.SubElement(field, "id").text = name
            Xml.SubElement(field, "id").text = part.name
    else:
        for part in colour.parts():
            Xml.SubElement(element, "id").text = part.name
    return element


def _code(transition: Transition) -> str:
    """The action as a code segment."""
    if not transition.action:
        return ""
    drawn = [name for name, _ in transition.action]
    used = sorted({each for _, expression in transition.action for each in expression.names} - set(drawn))
    values = " ".join(f"val {name} = {ml_of(expression)}" for name, expression in transition.action)
    result = f"({', '.join(drawn)})" if len(drawn) > 1 else drawn[0]
    given = f"input ({', '.join(used)});\n" if used else ""
    return f"{given}output ({', '.join(drawn)});\naction\nlet {values} in {result} end;"
