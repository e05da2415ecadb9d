"""Filter quota: how many distinct features the filters of a namespace may have, decided when a filter arrives.

The features of a plain filter are the attributes it compares, with their types; that of an encrypted one is its shape.
They are counted by namespace and scheme. Matchers accept any filters, in as many segments as they need, so neither the
number of slices nor a later restart changes what is accepted:

    check ──► Subscribe is applied ──► promise ──► (all of a batch) ──► count, once the engine has it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple, TypeAlias

from lavant.broker.matching.encrypted.values import EncryptedFilters
from lavant.broker.matching.plain.table import FilterTable
from lavant.broker.subscriptions.limits import SubscriptionLimits
from lavant.core.errors import InvalidValue, QuotaExceeded

Filters: TypeAlias = FilterTable | EncryptedFilters


class NamespaceScheme(NamedTuple):
    namespace: str
    scheme: str


class FilterQuota:
    """Counts the features of existing filters. With `scopes_max`, only so many scopes may have subscriptions."""

    def __init__(self, scopes_max: int | None = None) -> None:
        self._scopes_max = scopes_max
        self._counts: dict[NamespaceScheme, Counter[Hashable]] = {}
        self._promised: dict[NamespaceScheme, set[Hashable]] = {}

    def check(
        self, scope: NamespaceScheme, filters: Filters, limits: SubscriptionLimits, freed: Filters | None = None
    ) -> None:
        """Raise if these filters add features to a scope that has enough, once those that are `freed` have gone.
        Existing filters may exceed the limit."""
        known, promised = self._counts.get(scope), self._promised.get(scope, set())
        scopes = len(self._counts.keys() | self._promised.keys())
        if known is None and not promised and self._scopes_max is not None and scopes >= self._scopes_max:
            raise QuotaExceeded(
                f"there are subscriptions in {scopes} namespaces and schemes, which is the Spark engine's limit; use "
                "fewer namespaces, or another server"
            )
        held: Mapping[Any, int] = {} if known is None else known
        if freed is not None:
            going = _features(freed)
            held = {feature: count for feature, count in held.items() if count > going.get(feature, 0)}
        new = {feature for feature in _features(filters) if feature not in held and feature not in promised}
        if not new:
            return
        before = len(held) + sum(feature not in held for feature in promised)
        if isinstance(filters, EncryptedFilters):
            if before:
                raise _other_shape(filters, next(iter(held), next(iter(promised), None)))
        elif before + len(new) > limits.namespace_attributes_max:
            raise QuotaExceeded(
                f"the filters of this namespace compare {before} attributes and types, with this one "
                f"{before + len(new)}, at most {limits.namespace_attributes_max} are allowed; use attribute names "
                "that others use, or another namespace"
            )

    def promise(self, scope: NamespaceScheme, filters: Filters) -> None:
        """The filters were accepted and will be counted."""
        self._promised.setdefault(scope, set()).update(_features(filters))

    def count(self, scope: NamespaceScheme, filters: Filters, *, is_removal: bool) -> None:
        """The filters were added or removed."""
        counts = self._counts.setdefault(scope, Counter())
        for feature, count in _features(filters).items():
            left = counts[feature] + (-count if is_removal else count)
            if left > 0:
                counts[feature] = left
            else:
                del counts[feature]
        if is_removal and not counts:
            del self._counts[scope]

    def keep_promises(self) -> None:
        """Everything promised has been counted."""
        self._promised.clear()


def _features(filters: Filters) -> Mapping[Any, int]:
    """Each feature with the number of filters that have it."""
    if isinstance(filters, EncryptedFilters):
        return {(filters.tests_each, filters.dimensions): len(filters)}
    return filters.dimension_counts()


def _other_shape(filters: EncryptedFilters, known: object) -> InvalidValue:
    assert isinstance(known, tuple)
    return InvalidValue(
        f"an encrypted filter has {filters.tests_each} tests of {filters.dimensions} dimensions, but those of "
        f"this namespace have {known[0]} tests of {known[1]}; use one schema and key for all, or another namespace"
    )
