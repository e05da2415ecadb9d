"""Which routes each neighbour should hold of this broker: derived from local clients and from what neighbours told.

    source: local clients, or a neighbour
        members, advertisements ──► every other neighbour
        subscriptions           ──► every other neighbour whose advertisements intersect them

A route that another one covers is not told, and equal routes are told once. If one that covers others ends, those that
it uncovers are told in the same update, so that no publication falls in between. Encrypted filters cannot be compared:
they go to every other neighbour, equal ones once.

After A. K. Y. Cheung, Dynamic Load Balancing in Distributed Content-based Publish/Subscribe, section 2.1.2.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import count, islice

import msgspec

from lavant.broker.federation.routes.filter_index import FilterIndex
from lavant.broker.federation.routes.known_filters import KnownFilter, KnownFilters
from lavant.broker.federation.routes.tables import RouteTable, differing, is_empty, key_of
from lavant.broker.filters import CoverForest, CoveringChange, Filter, intersects
from lavant.broker.filters.limits import NO_LIMITS
from lavant.broker.protocol.federation import (
    ANY_NAMESPACE,
    AdvertisedRoute,
    BrokerMember,
    RouteEntry,
    SubscribedRoute,
)
from lavant.broker.protocol.subscriptions import EncryptedFilter
from lavant.core.ids import SubscriptionId

LOCAL = ""
"""The source of local clients; neighbours have names."""
ANYTHING = AdvertisedRoute(ANY_NAMESPACE, "true")


PARSED_MAX = 1 << 16
"""Parsed texts that are remembered: many subscriptions have the same."""
ENTRIES_A_FRAME = 1000
"""Routes in one update."""
BYTES_A_FRAME = 1 << 20
"""Likewise: encrypted filters, and long lists, have many bytes each."""
ROUTES_A_STEP = 100
"""Routes that are derived at once: some milliseconds."""


class RoutesChange(msgspec.Struct, frozen=True):
    """For a neighbour: what to add to its table, the keys to remove, and the buckets to replace as a whole."""

    added: list[RouteEntry]
    removed: list[bytes]
    buckets: list[int]

    def parts(self) -> Iterator[RoutesChange]:
        """Updates of a bounded size: additions first, so that nothing is uncovered in between."""
        small = len(self.added) + len(self.removed) <= ENTRIES_A_FRAME and _bytes_of(self.added) <= BYTES_A_FRAME
        if self.buckets or (small and (self.added or self.removed)):
            yield self
            return
        part: list[RouteEntry] = []
        size = 0
        for entry in self.added:
            more = _bytes_of([entry])
            if part and (len(part) == ENTRIES_A_FRAME or size + more > BYTES_A_FRAME):
                yield RoutesChange(part, [], [])
                part, size = [], 0
            part.append(entry)
            size += more
        if part:
            yield RoutesChange(part, [], [])
        for start in range(0, len(self.removed), ENTRIES_A_FRAME):
            yield RoutesChange([], self.removed[start : start + ENTRIES_A_FRAME], [])


def _bytes_of(entries: Iterable[RouteEntry]) -> int:
    """About the size of routes in a frame."""
    return sum(
        sum(map(len, each.path))
        if isinstance(each, BrokerMember)
        else len(each.filter)
        if isinstance(each.filter, str)
        else len(each.filter.tests)
        for each in entries
    )


class Outgoing:
    """The routes that one neighbour should hold, and how they changed since they were last taken."""

    def __init__(self) -> None:
        self.table = RouteTable()
        self._pending: dict[bytes, RouteEntry | None] = {}
        self._subscriptions: dict[str, CoverForest] = defaultdict(CoverForest)
        self._advertisements: dict[str, CoverForest] = defaultdict(CoverForest)
        self._encrypted: Counter[SubscribedRoute] = Counter()
        self._filters: dict[SubscriptionId, Filter] = {}
        """Of all that was offered. Printing takes as long as parsing, so only what is told becomes a text."""
        self._anything = 0
        """Sources behind which anything may be published."""
        self._heard: dict[str, FilterIndex[Filter]] = {}
        """Advertisements of the neighbour, by namespace."""
        self._hears_anything = False
        self._waiting: dict[SubscriptionId, tuple[str, KnownFilter]] = {}
        """Subscriptions, with their namespaces, that are offered step by step."""

    # ── what changed ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_busy(self) -> bool:
        """Whether subscriptions wait to be offered."""
        return bool(self._waiting)

    def step(self, count: int) -> int:
        """Offer up to so many of the subscriptions that wait; returns how many."""
        offered = list(islice(self._waiting.items(), count))
        for id, (namespace, known) in offered:
            del self._waiting[id]
            self._offer(self._subscriptions, namespace, known, SubscribedRoute)
        return len(offered)

    def take(self) -> RoutesChange | None:
        """The changes since the last call; None without any."""
        if not self._pending:
            return None
        pending, self._pending = self._pending, {}
        added = [entry for entry in pending.values() if entry is not None]
        return RoutesChange(added, [key for key, entry in pending.items() if entry is None], [])

    def mend(self, digests: bytes) -> Iterator[RoutesChange]:
        """How to mend the neighbour's table, of which these are the digests. Changes since the last `take` are in it.

        All that is missing is added before anything is removed, so that nothing is uncovered in between.
        """
        self._pending = {}
        buckets = differing(digests, self.table.digests())
        yield from RoutesChange(self.table.entries_in(buckets), [], []).parts()
        for bucket in buckets:
            if not is_empty(digests, bucket):
                yield RoutesChange(self.table.entries_in([bucket]), [], [bucket])

    def tell(self, entry: RouteEntry) -> None:
        key = self.table.add(entry)
        if key is not None and self._pending.pop(key, entry) is not None:
            self._pending[key] = entry

    def retract(self, entry: RouteEntry) -> None:
        key = key_of(entry)
        if self.table.remove(key) is not None and self._pending.pop(key, None) is None:
            self._pending[key] = None

    @property
    def covered(self) -> int:
        """Subscriptions and advertisements that need not be told, because others cover them."""
        return sum(each.covered for each in (*self._subscriptions.values(), *self._advertisements.values()))

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, namespace: str, known: KnownFilter) -> None:
        if self._intersects(namespace, known.filter):
            self._offer(self._subscriptions, namespace, known, SubscribedRoute)

    def unsubscribe(self, namespace: str, known: KnownFilter) -> None:
        self._withdraw(self._subscriptions, namespace, known, SubscribedRoute)

    def subscribe_encrypted(self, entry: SubscribedRoute) -> None:
        self._encrypted[entry] += 1
        self.tell(entry)

    def unsubscribe_encrypted(self, entry: SubscribedRoute) -> None:
        self._encrypted[entry] -= 1
        if not self._encrypted[entry]:
            del self._encrypted[entry]
            self.retract(entry)

    # ── advertisements of others ──────────────────────────────────────────────────────────────────────────────────────

    def advertise(self, namespace: str, known: KnownFilter) -> None:
        self._offer(self._advertisements, namespace, known, AdvertisedRoute)

    def unadvertise(self, namespace: str, known: KnownFilter) -> None:
        self._withdraw(self._advertisements, namespace, known, AdvertisedRoute)

    def advertise_anything(self, sources: int) -> None:
        """So many more sources (or fewer) may publish anything, which covers every other advertisement."""
        before, self._anything = self._anything, self._anything + sources
        if bool(before) == bool(self._anything):
            return
        roots = [
            AdvertisedRoute(namespace, str(self._filters[id]))
            for namespace, advertised in self._advertisements.items()
            for id in advertised.roots()
        ]
        if self._anything:
            self.tell(ANYTHING)
            for entry in roots:
                self.retract(entry)
        else:
            for entry in roots:
                self.tell(entry)
            self.retract(ANYTHING)

    # ── advertisements of the neighbour ───────────────────────────────────────────────────────────────────────────────

    def hear(self, namespace: str, filter: Filter, known: Iterable[KnownFilter]) -> None:
        """The neighbour advertises; `known` are the subscriptions from elsewhere that this may intersect."""
        self._heard.setdefault(namespace, FilterIndex()).add(filter, filter)
        for each in known:
            if each.id not in self._filters and intersects(filter, each.filter):
                self._waiting[each.id] = namespace, each

    def unhear(self, namespace: str, filter: Filter, known: Iterable[KnownFilter]) -> None:
        self._heard[namespace].remove(filter)
        if not self._heard[namespace]:
            del self._heard[namespace]
        for each in known:
            if intersects(filter, each.filter) and not self._intersects(namespace, each.filter):
                self._withdraw(self._subscriptions, namespace, each, SubscribedRoute)

    def hear_anything(self, namespaces: Iterable[tuple[str, Iterable[KnownFilter]]], *, is_heard: bool) -> None:
        """The neighbour begins, or ceases, to advertise anything."""
        self._hears_anything = is_heard
        for namespace, known in namespaces:
            for each in known:
                if is_heard and each.id not in self._filters:
                    self._waiting[each.id] = namespace, each
                elif not is_heard and not self._intersects(namespace, each.filter):
                    self._withdraw(self._subscriptions, namespace, each, SubscribedRoute)

    # ── covering ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _intersects(self, namespace: str, filter: Filter) -> bool:
        if self._hears_anything:
            return True
        heard = self._heard.get(namespace)
        return heard is not None and any(intersects(each, filter) for each in heard.may_intersect(filter))

    def _offer(
        self,
        sets: dict[str, CoverForest],
        namespace: str,
        known: KnownFilter,
        kind: type[SubscribedRoute] | type[AdvertisedRoute],
    ) -> None:
        if known.id in self._filters:
            return
        self._filters[known.id] = known.filter
        change = sets[namespace].add(known.id, known.filter)
        self._apply(change, namespace, kind)

    def _withdraw(
        self,
        sets: dict[str, CoverForest],
        namespace: str,
        known: KnownFilter,
        kind: type[SubscribedRoute] | type[AdvertisedRoute],
    ) -> None:
        if known.id not in self._filters:
            self._waiting.pop(known.id, None)
            return
        covering = sets[namespace]
        was_told = covering.is_root(known.id)
        change = covering.remove(known.id)
        self._apply(change, namespace, kind)
        del self._filters[known.id]
        if not len(covering):
            del sets[namespace]
        stands_for_it = any(self._filters[id] == known.filter for id in change.uncovered)
        if was_told and not stands_for_it:
            self.retract(kind(namespace, str(known.filter)))

    def _apply(
        self, change: CoveringChange, namespace: str, kind: type[SubscribedRoute] | type[AdvertisedRoute]
    ) -> None:
        if kind is AdvertisedRoute and self._anything:
            return
        for id in change.uncovered:
            self.tell(kind(namespace, str(self._filters[id])))
        for id in change.covered:
            self.retract(kind(namespace, str(self._filters[id])))


class Router:
    """Keeps the outgoing routes of all neighbours."""

    def __init__(self) -> None:
        self.outgoing: dict[str, Outgoing] = {}
        self._ids = count(1)
        self._subscriptions: dict[str, KnownFilters] = defaultdict(partial(KnownFilters, self._ids))
        self._advertisements: dict[str, KnownFilters] = defaultdict(partial(KnownFilters, self._ids))
        self._encrypted: Counter[tuple[str, SubscribedRoute]] = Counter()
        self._anything: Counter[str] = Counter()
        """By source: how often it advertises anything."""
        self._members: dict[str, dict[bytes, BrokerMember]] = {}
        """By source, as they are told to others."""
        self._deferred: dict[Hashable, tuple[str, RouteEntry]] = {}

    # ── step by step ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_busy(self) -> bool:
        """Whether `step` has something to do: what neighbours should hold is not complete."""
        return bool(self._deferred) or any(outgoing.is_busy for outgoing in self.outgoing.values())

    def defer(self, key: Hashable, source: str, entry: RouteEntry) -> None:
        """Add a route in one of the next steps."""
        self._deferred[key] = source, entry

    def cancel(self, key: Hashable) -> bool:
        """Whether the route was still deferred; it is not added."""
        return self._deferred.pop(key, None) is not None

    def step(self, routes: int = ROUTES_A_STEP) -> None:
        """Process up to so many deferred routes."""
        deferred = list(islice(self._deferred.items(), routes))
        for key, (source, entry) in deferred:
            del self._deferred[key]
            self.add(source, entry)
        left = routes - len(deferred)
        for outgoing in self.outgoing.values():
            left -= outgoing.step(left)

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_neighbour(self, name: str) -> None:
        """A new neighbour, of which nothing is known yet."""
        outgoing = self.outgoing[name] = Outgoing()
        for members in self._members.values():
            for member in members.values():
                outgoing.tell(member)
        outgoing.advertise_anything(len(self._anything))
        for namespace, advertised in self._advertisements.items():
            for known in advertised:
                outgoing.advertise(namespace, known)
        for _, entry in self._encrypted:
            outgoing.subscribe_encrypted(entry)

    def remove_neighbour(self, name: str) -> None:
        """Call it when all its routes were removed."""
        del self.outgoing[name]

    def add(self, source: str, entry: RouteEntry) -> None:
        match entry:
            case BrokerMember():
                self._members.setdefault(source, {})[key_of(entry)] = entry
                for outgoing in self._others(source):
                    outgoing.tell(entry)
            case AdvertisedRoute():
                self._advertise(source, entry)
            case SubscribedRoute(namespace, EncryptedFilter()):
                self._encrypted[source, entry] += 1
                if self._encrypted[source, entry] == 1:
                    for outgoing in self._others(source):
                        outgoing.subscribe_encrypted(entry)
            case SubscribedRoute(namespace, str(text)):
                known = self._subscriptions[namespace].add(source, _parse(text))
                if known is not None:
                    for outgoing in self._others(source):
                        outgoing.subscribe(namespace, known)

    def remove(self, source: str, entry: RouteEntry) -> None:
        match entry:
            case BrokerMember():
                del self._members[source][key_of(entry)]
                for outgoing in self._others(source):
                    outgoing.retract(entry)
            case AdvertisedRoute():
                self._unadvertise(source, entry)
            case SubscribedRoute(namespace, EncryptedFilter()):
                self._encrypted[source, entry] -= 1
                if not self._encrypted[source, entry]:
                    del self._encrypted[source, entry]
                    for outgoing in self._others(source):
                        outgoing.unsubscribe_encrypted(entry)
            case SubscribedRoute(namespace, str(text)):
                filters = self._subscriptions[namespace]
                known = filters.remove(source, _parse(text))
                if not len(filters):
                    del self._subscriptions[namespace]
                if known is not None:
                    for outgoing in self._others(source):
                        outgoing.unsubscribe(namespace, known)

    def _advertise(self, source: str, entry: AdvertisedRoute) -> None:
        if entry.namespace == ANY_NAMESPACE:
            self._anything[source] += 1
            if self._anything[source] > 1:
                return
            for outgoing in self._others(source):
                outgoing.advertise_anything(1)
            if source in self.outgoing:
                self.outgoing[source].hear_anything(self._from_elsewhere(source), is_heard=True)
            return
        known = self._advertisements[entry.namespace].add(source, _parse(entry.filter))
        if known is None:
            return
        for outgoing in self._others(source):
            outgoing.advertise(entry.namespace, known)
        if source in self.outgoing:
            elsewhere = self._near(source, entry.namespace, known.filter)
            self.outgoing[source].hear(entry.namespace, known.filter, elsewhere)

    def _unadvertise(self, source: str, entry: AdvertisedRoute) -> None:
        if entry.namespace == ANY_NAMESPACE:
            self._anything[source] -= 1
            if self._anything[source]:
                return
            del self._anything[source]
            for outgoing in self._others(source):
                outgoing.advertise_anything(-1)
            if source in self.outgoing:
                self.outgoing[source].hear_anything(self._from_elsewhere(source), is_heard=False)
            return
        filters = self._advertisements[entry.namespace]
        known = filters.remove(source, _parse(entry.filter))
        if not len(filters):
            del self._advertisements[entry.namespace]
        if known is None:
            return
        for outgoing in self._others(source):
            outgoing.unadvertise(entry.namespace, known)
        if source in self.outgoing:
            elsewhere = self._near(source, entry.namespace, known.filter)
            self.outgoing[source].unhear(entry.namespace, known.filter, elsewhere)

    def _others(self, source: str) -> Iterator[Outgoing]:
        return (outgoing for name, outgoing in self.outgoing.items() if name != source)

    def _near(self, source: str, namespace: str, filter: Filter) -> list[KnownFilter]:
        """Subscriptions of a namespace that come from other sources, and that an advertisement may intersect."""
        known = self._subscriptions[namespace].may_intersect(filter) if namespace in self._subscriptions else []
        return [each for each in known if each.source != source]

    def _from_elsewhere(self, source: str) -> Iterator[tuple[str, list[KnownFilter]]]:
        """By namespace, all subscriptions that come from other sources."""
        for namespace, filters in self._subscriptions.items():
            yield namespace, [known for known in filters if known.source != source]


@lru_cache(maxsize=PARSED_MAX)
def _parse(text: str) -> Filter:
    """A filter that was accepted somewhere."""
    return Filter.parse(text, NO_LIMITS)
