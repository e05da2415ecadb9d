"""The shape of encrypted filters: those of one namespace have the same, or the matchers cannot hold them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lavant.broker.filters import CANONICAL_LIMITS, Filter
from lavant.broker.protocol.federation import BrokerMember, RouteEntry, SubscribedRoute
from lavant.broker.protocol.subscriptions import EncryptedFilter
from lavant.broker.subscriptions.validation import tests_of
from lavant.core.errors import InvalidValue

Shape = tuple[int, int]
"""Dimensions, and bytes of the tests."""


class EncryptedShapes:
    """Counts the shapes of all encrypted filters, by namespace."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[Shape]] = {}

    def add(self, entry: RouteEntry) -> None:
        if isinstance(entry, SubscribedRoute) and isinstance(entry.filter, EncryptedFilter):
            self._counts.setdefault(entry.namespace, Counter())[_shape(entry.filter)] += 1

    def remove(self, entry: RouteEntry) -> None:
        if isinstance(entry, SubscribedRoute) and isinstance(entry.filter, EncryptedFilter):
            counts, shape = self._counts[entry.namespace], _shape(entry.filter)
            counts[shape] -= 1
            if not counts[shape]:
                del counts[shape]
            if not counts:
                del self._counts[entry.namespace]

    def check(self, entries: Iterable[RouteEntry]) -> None:
        """Raise if the matchers cannot hold the filter of a neighbour's route."""
        new: dict[str, Shape] = {}
        for entry in entries:
            if isinstance(entry, BrokerMember):
                continue
            if isinstance(entry.filter, str):
                Filter.parse(entry.filter, CANONICAL_LIMITS)
            else:
                tests_of(entry.filter)
                shape = _shape(entry.filter)
                known = next(iter(self._counts.get(entry.namespace, ())), new.setdefault(entry.namespace, shape))
                if shape != known:
                    raise InvalidValue(
                        f"an encrypted subscription of the neighbour in namespace {entry.namespace!r} has {shape[0]} "
                        f"dimensions and {shape[1]} bytes, those of this broker have {known[0]} and {known[1]}; use "
                        "one schema and key for all, or another namespace"
                    )


def _shape(filter: EncryptedFilter) -> Shape:
    return filter.dimensions, len(filter.tests)
