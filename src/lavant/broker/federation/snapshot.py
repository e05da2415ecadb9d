"""Snapshots of the federation: neighbours with their routes and queues, and the numbers that were received.

FederationHead | (NeighbourPart | RoutesPart … | LinkQueuePart …) … | OriginsPart … | FederationEnd
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from lavant.broker.federation.frames import LinkPublications
from lavant.broker.federation.link_queue import LinkQueue
from lavant.broker.federation.numbers import ReceivedNumbers
from lavant.broker.federation.state import FederationState, Neighbour
from lavant.broker.protocol.federation import RouteEntry
from lavant.broker.queues.snapshot import by_count
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, check_format

FORMAT = 1
ROUTES_A_CHUNK = 1000
BATCHES_A_CHUNK = 32
ORIGINS_A_CHUNK = 32


class _Part(msgspec.Struct, frozen=True, array_like=True):
    pass


class FederationHead(_Part, tag="head", frozen=True):
    format: int
    serial: int
    changes: int
    published: int
    removed: list[str]


class NeighbourPart(_Part, tag="neighbour", frozen=True):
    """The parts up to the next neighbour belong to this one."""

    name: str
    identity: str
    link: str
    serial: int
    number: int
    """The last one of its queue."""
    floor: int
    above: list[int]


class RoutesPart(_Part, tag="routes", frozen=True):
    routes: list[tuple[RouteEntry, int]]
    """With the number of a subscription for the matchers, otherwise 0."""


class LinkQueuePart(_Part, tag="queue", frozen=True):
    batches: list[LinkPublications]


class OriginsPart(_Part, tag="origins", frozen=True):
    origins: list[tuple[str, bytes]]


class FederationEnd(_Part, tag="end", frozen=True):
    neighbours: int


FederationPart: TypeAlias = FederationHead | NeighbourPart | RoutesPart | LinkQueuePart | OriginsPart | FederationEnd

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(FederationPart).decode


def encode(state: FederationState) -> Iterator[bytes]:
    """Nothing for a broker that never had a neighbour."""
    if state.is_empty:
        return
    yield _encode(FederationHead(FORMAT, state.serial, state.changes, state.published, list(state.removed)))
    for each in state.neighbours.values():
        received = each.received
        yield _encode(
            NeighbourPart(
                each.name,
                each.identity,
                each.link,
                each.serial,
                each.queue.number,
                received.floor,
                received.above(),
            )
        )
        for routes in by_count(_numbered(each), ROUTES_A_CHUNK):
            yield _encode(RoutesPart(routes))
        for batches in by_count(each.queue.batches(), BATCHES_A_CHUNK):
            yield _encode(LinkQueuePart(batches))
    for origins in by_count(state.origins.contents(), ORIGINS_A_CHUNK):
        yield _encode(OriginsPart(origins))
    yield _encode(FederationEnd(len(state.neighbours)))


def decode(chunks: Iterable[bytes], state: FederationState) -> None:
    """Fill an empty state; without any chunk it stays empty."""
    parts = _parts_in(chunks)
    head = next(parts, None)
    if head is None:
        return
    if not isinstance(head, FederationHead):
        raise _corrupt("it does not begin with its head")
    check_format("the snapshot of the federation", head.format, FORMAT, oldest=FORMAT)
    neighbours: list[Neighbour] = []
    batches: list[list[LinkPublications]] = []
    ends: list[int] = []
    origins: list[tuple[str, bytes]] = []
    for part in parts:
        if isinstance(part, NeighbourPart):
            neighbour = Neighbour(part.name, part.identity, part.link, part.serial)
            neighbour.received = ReceivedNumbers(part.floor, part.above)
            neighbours.append(neighbour)
            batches.append([])
            ends.append(part.number)
        elif isinstance(part, RoutesPart) and neighbours:
            for entry, number in part.routes:
                neighbours[-1].add_route(entry, number)
        elif isinstance(part, LinkQueuePart) and neighbours:
            batches[-1] += part.batches
        elif isinstance(part, OriginsPart):
            origins += part.origins
        elif isinstance(part, FederationEnd) and part.neighbours == len(neighbours):
            for neighbour, waiting, number in zip(neighbours, batches, ends, strict=True):
                neighbour.queue = LinkQueue(waiting, number)
            state.restore(head.serial, head.changes, head.published, neighbours)
            state.removed = dict.fromkeys(head.removed)
            state.origins.restore(origins)
            return
        else:
            raise _corrupt(f"a part of kind {type(part).__name__} comes after {len(neighbours)} neighbours")
    raise _corrupt("its end is missing")


def _numbered(neighbour: Neighbour) -> Iterator[tuple[RouteEntry, int]]:
    for key, entry in neighbour.routes.items():
        state = neighbour.subscriptions.get(key)
        yield entry, 0 if state is None else state.number


def _parts_in(chunks: Iterable[bytes]) -> Iterator[FederationPart]:
    for place, chunk in enumerate(chunks):
        try:
            yield _decode(chunk)
        except UNDECODABLE as error:
            raise _corrupt(f"chunk {place} cannot be read ({error})") from None


def _corrupt(problem: str) -> CorruptSnapshot:
    return CorruptSnapshot(f"the snapshot of the federation is damaged: {problem}; restore it from a copy")
