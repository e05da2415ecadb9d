"""Filter quota: what the filters of one namespace may be together, decided when one comes and never later.

Each filter has features: a plain one the attributes it compares and their types, an encrypted one its shape. A *lane*,
that is one namespace and scheme, may have so many different ones. Matchers take whatever they are given, in as many
segments as it needs, so neither the number of slices nor a later start decides what is accepted:

    check ──► Subscribe is carried out ──► promise ──► (all of a batch) ──► count, once the engine knows of it
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


class Lane(NamedTuple):
    namespace: str
    scheme: str


class FilterQuota:
    """Counts the features of what is there. With `lanes_max`, no more lanes than that get subscriptions."""

    def __init__(self, lanes_max: int | None = None) -> None:
        self._lanes_max = lanes_max
        self._counts: dict[Lane, Counter[Hashable]] = {}
        self._promised: dict[Lane, set[Hashable]] = {}

    def check(self, lane: Lane, filters: Filters, limits: SubscriptionLimits) -> None:
        """Raise if these filters bring something new to a lane that has enough. What is there already may be more."""
        known, promised = self._counts.get(lane), self._promised.get(lane, set())
        lanes = len(self._counts.keys() | self._promised.keys())
        if known is None and not promised and self._lanes_max is not None and lanes >= self._lanes_max:
            raise QuotaExceeded(
                f"there are subscriptions in {lanes} namespaces and schemes, which is the Spark engine's limit; use "
                "fewer namespaces, or another server"
            )
        held: Mapping[Any, int] = {} if known is None else known
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
                f"{before + len(new)}, and at most {limits.namespace_attributes_max} may be; use attribute names that "
                "others use, or another namespace"
            )

    def promise(self, lane: Lane, filters: Filters) -> None:
        """They were accepted, and are going to be counted."""
        self._promised.setdefault(lane, set()).update(_features(filters))

    def count(self, lane: Lane, filters: Filters, *, is_removal: bool) -> None:
        """They are there now, or gone."""
        counts = self._counts.setdefault(lane, Counter())
        for feature, count in _features(filters).items():
            left = counts[feature] + (-count if is_removal else count)
            if left > 0:
                counts[feature] = left
            else:
                del counts[feature]
        if is_removal and not counts:
            del self._counts[lane]

    def keep_promises(self) -> None:
        """All that was promised is counted."""
        self._promised.clear()


def _features(filters: Filters) -> Mapping[Any, int]:
    """Each with how many of the filters have it."""
    if isinstance(filters, EncryptedFilters):
        return {(filters.tests_each, filters.dimensions): len(filters)}
    return filters.dimension_counts()


def _other_shape(filters: EncryptedFilters, known: object) -> InvalidValue:
    assert isinstance(known, tuple)
    return InvalidValue(
        f"an encrypted filter has {filters.tests_each} tests of {filters.dimensions} dimensions, and those of this "
        f"namespace have {known[0]} tests of {known[1]}; use one schema and key for all, or another namespace"
    )
