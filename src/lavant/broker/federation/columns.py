"""Where publications came from, as the columns of the record that delivers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.federation.frames import LinkPublications
from lavant.broker.protocol.subscriptions import RoutedPublications
from lavant.core.errors import InvalidValue


class RelayedFrom(NamedTuple):
    """The way of one publication to this broker."""

    link: str
    number: int
    """On the link."""
    origin: str
    origin_number: int
    hops: int


def relayed_from(batch: LinkPublications, indexes: Sequence[int], link: str) -> list[RelayedFrom]:
    """The ways of some publications of a batch that came over a link."""
    origin_of = np.frombuffer(batch.origin_of, "<u2")[indexes].tolist()
    origin_numbers = np.frombuffer(batch.origin_numbers, "<u8")[indexes].tolist()
    return [
        RelayedFrom(link, batch.first + index, batch.origins[origin], number, batch.hops[index])
        for index, origin, number in zip(indexes, origin_of, origin_numbers, strict=True)
    ]


def routed_columns(
    namespace: str, ways: Sequence[RelayedFrom | None], points: Sequence[bytes] = ()
) -> RoutedPublications:
    """The columns of publications in the order of the fan-out; None for those that were published here."""
    if not any(ways):
        return RoutedPublications(namespace, list(points))
    sources: dict[str, int] = {}
    origins: dict[str, int] = {}
    rows = [
        (0, 0, 0, 0, 0)
        if way is None
        else (
            sources.setdefault(way.link, len(sources) + 1),
            way.number,
            origins.setdefault(way.origin, len(origins) + 1),
            way.origin_number,
            way.hops,
        )
        for way in ways
    ]
    source_of, numbers, origin_of, origin_numbers, hops = zip(*rows, strict=True)
    return RoutedPublications(
        namespace,
        list(points),
        list(sources),
        bytes(source_of),
        np.array(numbers, "<u8").tobytes(),
        list(origins),
        np.array(origin_of, "<u2").tobytes(),
        np.array(origin_numbers, "<u8").tobytes(),
        bytes(hops),
    )


class RoutedColumns:
    """The columns of routed publications as arrays; those that are empty are filled in."""

    def __init__(self, routed: RoutedPublications, count: int) -> None:
        self.source_of = _column("source_of", routed.source_of, "u1", count)
        self.numbers = _column("numbers", routed.numbers, "<u8", count)
        self.origin_of = _column("origin_of", routed.origin_of, "<u2", count)
        self.origin_numbers = _column("origin_numbers", routed.origin_numbers, "<u8", count)
        self.hops = _column("hops", routed.hops, "u1", count)
        self.published = int(np.count_nonzero(self.origin_of == 0))
        """How many were published here."""
        if routed.points and len(routed.points) != count:
            raise InvalidValue(f"{len(routed.points)} points were given for {count} publications")
        if count and (self.source_of.max() > len(routed.sources) or self.origin_of.max() > len(routed.origins)):
            raise InvalidValue("a routed publication names a source or an origin that is not listed")

    def numbered(self, published: int) -> NDArray[np.uint64]:
        """Numbers at their origins: those that were published here get the next ones."""
        if not self.published:
            return self.origin_numbers
        numbers = self.origin_numbers.copy()
        numbers[self.origin_of == 0] = np.arange(published + 1, published + self.published + 1, dtype=np.uint64)
        return numbers


def _column(name: str, data: bytes, kind: str, count: int) -> NDArray[Any]:
    dtype = np.dtype(kind)
    if not data:
        return np.zeros(count, dtype)
    if len(data) != count * dtype.itemsize:
        raise InvalidValue(f"{name} has {len(data)} bytes, which are not {dtype.itemsize} for each of {count} bodies")
    return np.frombuffer(data, dtype)
