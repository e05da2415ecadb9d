"""The hierarchy of a net, resolved: one flat net in which ports are their sockets and fusion sets are one place."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lavant.core.errors import InvalidValue
from lavant.models.petri.language.colours import ColourSet, Token, alike
from lavant.models.petri.language.expressions import Scope
from lavant.models.petri.language.inscriptions import Multiset, TokenPattern
from lavant.models.petri.net import IN, OUT, Net, Page, Transition

INSTANCES_MAX = 10_000
"""Instances of pages in one net."""


class FlatPlace(msgspec.Struct, frozen=True):
    name: str
    colour: ColourSet
    initial: tuple[Token, ...]


class FlatTransition(msgspec.Struct, frozen=True):
    """A transition with the indexes of its places."""

    name: str
    transition: Transition
    takes: tuple[tuple[int, TokenPattern], ...]
    reads: tuple[tuple[int, TokenPattern], ...]
    puts: tuple[tuple[int, Multiset], ...]


class FlatNet(msgspec.Struct, frozen=True):
    """All instances of all pages. Names are `Page'Name`, with a number if a page has several instances."""

    name: str
    scope: Scope
    places: tuple[FlatPlace, ...]
    transitions: tuple[FlatTransition, ...]
    index: dict[str, int]
    """Places by each of their names: a port has that of its socket, too."""

    def place(self, name: str) -> int:
        return _find(name, self.index, "place")

    def transition(self, name: str) -> int:
        return _find(name, {each.name: at for at, each in enumerate(self.transitions)}, "transition")


def _find(name: str, index: dict[str, int], kind: str) -> int:
    """By the full name, or by the part after the apostrophe if only one has it."""
    if name in index:
        return index[name]
    found = sorted({at for each, at in index.items() if each.partition("'")[2] == name})
    if len(found) != 1:
        why = "is ambiguous" if found else "does not exist"
        raise InvalidValue(f"{kind} {name!r} {why}; there are {', '.join(sorted(index))}")
    return found[0]


def flatten(net: Net) -> FlatNet:
    if not net.pages:
        raise InvalidValue(f"net {net.name!r} has no page")
    flattening = _Flattening(net)
    top = next(iter(net.pages.values()))
    for place in top.places.values():
        if place.port is not None:
            raise InvalidValue(f"page {top.name!r}, place {place.name!r}: a port on the top page has no socket")
    flattening.instance(top, {}, ())
    unused = [name for name in net.pages if name not in flattening.instances]
    if unused:
        raise InvalidValue(f"page {unused[0]!r} belongs to no substitution transition, and is not the top page")
    return flattening.result()


class _Flattening:
    def __init__(self, net: Net) -> None:
        self.net = net
        self.places: list[FlatPlace] = []
        self.transitions: list[FlatTransition] = []
        self.index: dict[str, int] = {}
        self.fusion: dict[str, int] = {}
        self.instances: dict[str, int] = {}

    def instance(self, page: Page, ports: dict[str, int], above: tuple[str, ...]) -> None:
        if page.name in above:
            raise InvalidValue(f"page {page.name!r} contains itself: {' > '.join((*above, page.name))}")
        number = self.instances[page.name] = self.instances.get(page.name, 0) + 1
        if sum(self.instances.values()) > INSTANCES_MAX:
            raise InvalidValue(f"the net has more than {INSTANCES_MAX:,} instances of pages")
        prefix = page.name if number == 1 else f"{page.name}({number})"
        local = dict(self._places(page, ports, prefix))
        for transition in page.transitions.values():
            self._check_ports(page, transition)
            self.transitions.append(_flat(transition, f"{prefix}'{transition.name}", local))
        for substitution in page.substitutions.values():
            where = f"page {page.name!r}, substitution transition {substitution.name!r}"
            below = self.net.pages.get(substitution.page)
            if below is None:
                raise InvalidValue(f"{where}: there is no page {substitution.page!r}")
            sockets = dict(_sockets(page, below, substitution.sockets, local, where))
            self.instance(below, sockets, (*above, page.name))

    def _places(self, page: Page, ports: dict[str, int], prefix: str) -> Iterator[tuple[str, int]]:
        for place in page.places.values():
            if place.port is not None:
                at = ports[place.name]
            elif place.fusion is not None and place.fusion in self.fusion:
                at = self.fusion[place.fusion]
                self._check_fusion(page, place.name, place.fusion, self.places[at])
            else:
                at = len(self.places)
                self.places.append(FlatPlace(f"{prefix}'{place.name}", place.colour, place.initial))
                if place.fusion is not None:
                    self.fusion[place.fusion] = at
            self.index[f"{prefix}'{place.name}"] = at
            yield place.name, at

    def _check_fusion(self, page: Page, name: str, fusion: str, first: FlatPlace) -> None:
        place = page.places[name]
        where = f"page {page.name!r}, place {name!r}"
        if place.colour.timed != first.colour.timed or not alike(first.colour, place.colour):
            raise InvalidValue(
                f"{where}: fusion set {fusion!r} has colour set {first.colour.name}, not {place.colour.name}"
            )
        if place.initial not in ((), first.initial):
            raise InvalidValue(f"{where}: fusion set {fusion!r} has another initial marking at {first.name}")

    def _check_ports(self, page: Page, transition: Transition) -> None:
        for arc in transition.arcs:
            port = page.places[arc.place].port
            if (port == IN and arc.puts is not None) or (port == OUT and arc.takes is not None):
                does = "puts into" if arc.puts is not None else "takes from"
                raise InvalidValue(
                    f"page {page.name!r}, transition {transition.name!r}: {does} {arc.place!r}, which is an {port} port"
                )

    def result(self) -> FlatNet:
        return FlatNet(self.net.name, self.net.scope, tuple(self.places), tuple(self.transitions), self.index)


def _sockets(
    page: Page, below: Page, given: dict[str, str], local: dict[str, int], where: str
) -> Iterator[tuple[str, int]]:
    ports = {place.name: place for place in below.places.values() if place.port is not None}
    for name in given:
        if name not in ports:
            known = ", ".join(ports) or "none"
            raise InvalidValue(f"{where}: page {below.name!r} has no port {name!r}; it has {known}")
    for name, port in ports.items():
        if name not in given:
            raise InvalidValue(f"{where}: port {name!r} of page {below.name!r} has no socket")
        socket = page.places[given[name]]
        if socket.port in (IN, OUT) and port.port != socket.port:
            raise InvalidValue(
                f"{where}: port {name!r} of page {below.name!r} is an {port.port} port, "
                f"but its socket {socket.name!r} is an {socket.port} port itself"
            )
        if socket.colour.timed != port.colour.timed or not alike(socket.colour, port.colour):
            raise InvalidValue(
                f"{where}: port {name!r} has colour set {port.colour.name}, "
                f"but its socket {socket.name!r} has {socket.colour.name}"
            )
        yield name, local[given[name]]


def _flat(transition: Transition, name: str, local: dict[str, int]) -> FlatTransition:
    arcs = transition.arcs
    return FlatTransition(
        name,
        transition,
        takes=tuple((local[a.place], each) for a in arcs if not a.reads for each in a.takes or ()),
        reads=tuple((local[a.place], each) for a in arcs if a.reads for each in a.takes or ()),
        puts=tuple((local[a.place], a.puts) for a in arcs if a.puts is not None),
    )
