"""The shape of encrypted filters: those of one namespace have the same, or the matchers cannot hold them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lavant.broker.filters import CANONICAL_LIMITS, Filter
from lavant.broker.protocol.federation import BrokerMember, RouteEntry, SubscribedRoute
from lavant.broker.protocol.subscriptions import EncryptedFilter
from lavant.broker.subscriptions.validation import tests_of

Shape = tuple[int, int]
"""Dimensions, and bytes of the tests."""


class EncryptedShapes:
    """Counts the shapes of all encrypted filters, by namespace."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[Shape]] = {}
        self.ended = 0
        """How often the last filter of a shape ended in a namespace: others may fit now."""

    def add(self, entry: RouteEntry) -> None:
        if isinstance(entry, SubscribedRoute) and isinstance(entry.filter, EncryptedFilter):
            self._counts.setdefault(entry.namespace, Counter())[_shape(entry.filter)] += 1

    def remove(self, entry: RouteEntry) -> None:
        if isinstance(entry, SubscribedRoute) and isinstance(entry.filter, EncryptedFilter):
            counts, shape = self._counts[entry.namespace], _shape(entry.filter)
            counts[shape] -= 1
            if not counts[shape]:
                del counts[shape]
                self.ended += 1
            if not counts:
                del self._counts[entry.namespace]

    def unfit(self, entries: Iterable[RouteEntry]) -> list[SubscribedRoute]:
        """The encrypted subscriptions among a neighbour's routes that the matchers cannot hold now. Raises if a filter
        cannot be held at all."""
        found: list[SubscribedRoute] = []
        new: dict[str, Shape] = {}
        for entry in entries:
            if isinstance(entry, BrokerMember):
                continue
            if isinstance(entry.filter, str):
                Filter.parse(entry.filter, CANONICAL_LIMITS)
                continue
            tests_of(entry.filter)
            shape = _shape(entry.filter)
            known = next(iter(self._counts.get(entry.namespace, ())), None)
            if shape != (new.setdefault(entry.namespace, shape) if known is None else known):
                assert isinstance(entry, SubscribedRoute)
                found.append(entry)
        return found


def _shape(filter: EncryptedFilter) -> Shape:
    return filter.dimensions, len(filter.tests)
