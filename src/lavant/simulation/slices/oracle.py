"""The oracle of expected notifications: each batch once, to exactly those whose filters match it at its position.

Every source uses one access slice, so its own order is the order in which that slice accepts: for a source's
publications, its own subscriptions are those of its past. For other sources there is no such order, but one fact holds:
once a publication of a source has been notified, all match slices have the subscriptions that it sent before. So others
see the newest version of a subscription in force then, or any later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from lavant.broker.filters import Filter
from lavant.broker.slices.values import BatchId, SliceNotification
from lavant.simulation.kernel import World

ONCE = "each batch is notified once"
RIGHT = "each publication reaches exactly those who want it"
Row = dict[str, int]


class OracleVersion(NamedTuple):
    """A subscription from a position in its source's order on; no text where it was removed."""

    place: int
    text: str | None


class OraclePublication(msgspec.Struct, frozen=True):
    source: int
    place: int
    scheme: str
    rows: list[Row]
    in_force: tuple[int, ...]
    """How far the order of each source was in force for all when this was sent."""


class Oracle:
    """The history of all sources."""

    def __init__(self, world: World, sources: int) -> None:
        self._world = world
        self._places = [0] * sources
        self._in_force = [0] * sources
        self._batches = [0] * sources
        self._versions: dict[tuple[str, int], tuple[int, list[OracleVersion]]] = {}
        """By scheme and id: the owning source, and the versions."""
        self._outstanding: dict[BatchId, OraclePublication] = {}
        self._notified: set[BatchId] = set()

    def subscribed(self, source: int, scheme: str, texts: dict[int, str]) -> None:
        place = self._next_place(source)
        for id, text in texts.items():
            self._version(source, scheme, id, OracleVersion(place, text))

    def unsubscribed(self, source: int, scheme: str, ids: Sequence[int]) -> None:
        place = self._next_place(source)
        for id in ids:
            self._version(source, scheme, id, OracleVersion(place, None))

    def published(self, source: int, scheme: str, rows: list[Row]) -> None:
        self._batches[source] += 1
        published = OraclePublication(source, self._next_place(source), scheme, rows, tuple(self._in_force))
        self._outstanding[BatchId(source, self._batches[source])] = published
        self._world.count("batches published")

    def notified(self, notification: SliceNotification) -> None:
        """Check a notification when it comes."""
        id = notification.publications.id
        published = self._outstanding.pop(id, None)
        if published is None:
            what = "a second time" if id in self._notified else "and was not published"
            self._world.violated(ONCE, f"{id} was notified {what}")
        self._notified.add(id)
        self._world.count("batches notified")
        for row, values in enumerate(published.rows):
            self._check(id, published, row, values, notification.matches.of(row).tolist())
        self._in_force[published.source] = max(self._in_force[published.source], published.place)

    def outstanding(self) -> str | None:
        """What is wrong if everything should have been notified."""
        if not self._outstanding:
            return None
        first = min(self._outstanding)
        return f"{first} was published and never notified, and {len(self._outstanding) - 1} more"

    def _check(self, id: BatchId, published: OraclePublication, row: int, values: Row, found: list[int]) -> None:
        if len(set(found)) < len(found):
            self._world.violated(RIGHT, f"row {row} of {id} reaches a subscriber twice: {sorted(found)}")
        self._world.count("notifications", len(found))
        for (scheme, subscription), (source, versions) in self._versions.items():
            if scheme == published.scheme:
                wanted = {_matches(text, **values) for text in self._candidates(source, versions, published)}
                if (subscription in found) not in wanted:
                    texts = self._candidates(source, versions, published)
                    self._world.violated(
                        RIGHT,
                        f"row {row} of {id}, {values}, {'reaches' if subscription in found else 'does not reach'} "
                        f"subscription {subscription} of source {source}: {texts}",
                    )
        strangers = set(found) - {subscription for scheme, subscription in self._versions if scheme == published.scheme}
        if strangers:
            self._world.violated(RIGHT, f"row {row} of {id} reaches {sorted(strangers)}, which do not exist")

    def _candidates(self, source: int, versions: list[OracleVersion], published: OraclePublication) -> list[str | None]:
        """The possible versions of a subscription for this publication."""
        if source == published.source:
            return [_last(versions, published.place)]
        in_force = published.in_force[source]
        return [_last(versions, in_force), *(version.text for version in versions if version.place > in_force)]

    def _next_place(self, source: int) -> int:
        self._places[source] += 1
        return self._places[source]

    def _version(self, source: int, scheme: str, id: int, version: OracleVersion) -> None:
        self._versions.setdefault((scheme, id), (source, []))[1].append(version)


def _last(versions: list[OracleVersion], place: int) -> str | None:
    return next((version.text for version in reversed(versions) if version.place <= place), None)


@cache
def _filter(text: str) -> Filter:
    return Filter.parse(text)


def _matches(text: str | None, **row: Any) -> bool:
    return text is not None and _filter(text).matches(row)
