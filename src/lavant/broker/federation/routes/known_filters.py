"""The filters that a broker knows of its clients and of its neighbours: equal ones of one source are one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lavant.broker.federation.routes.filter_index import FilterIndex
from lavant.broker.filters import Filter
from lavant.core.ids import SubscriptionId


class KnownFilter(msgspec.Struct, gc=False):
    """A filter of one source; `users` subscriptions or advertisements have it."""

    id: SubscriptionId
    source: str
    filter: Filter
    users: int


class KnownFilters:
    """The plain filters of one namespace, by source."""

    def __init__(self, ids: Iterator[int]) -> None:
        self._ids = ids
        self._known: dict[tuple[str, Filter], KnownFilter] = {}
        self._index: FilterIndex[tuple[str, Filter]] | None = None
        """Made when a neighbour advertises something in particular."""

    def __iter__(self) -> Iterator[KnownFilter]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def add(self, source: str, filter: Filter) -> KnownFilter | None:
        """None if this source has it already."""
        known = self._known.get((source, filter))
        if known is not None:
            known.users += 1
            return None
        known = self._known[source, filter] = KnownFilter(SubscriptionId(next(self._ids)), source, filter, 1)
        if self._index is not None:
            self._index.add((source, filter), filter)
        return known

    def remove(self, source: str, filter: Filter) -> KnownFilter | None:
        """None if this source still has it."""
        known = self._known[source, filter]
        known.users -= 1
        if known.users:
            return None
        if self._index is not None:
            self._index.remove((source, filter))
        return self._known.pop((source, filter))

    def may_intersect(self, filter: Filter) -> list[KnownFilter]:
        """Those that this filter may intersect, the oldest first."""
        if self._index is None:
            self._index = FilterIndex()
            for key in self._known:
                self._index.add(key, key[1])
        return sorted((self._known[key] for key in self._index.may_intersect(filter)), key=lambda known: known.id)
