"""Where publications came from, as the columns of the record that delivers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lavant.broker.federation.frames import LinkPublications
from lavant.broker.protocol.subscriptions import RoutedPublications


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
