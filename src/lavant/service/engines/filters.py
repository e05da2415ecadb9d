"""Filters for engines: parsed, checked against the quota of their namespace, and batched by scope in order.

`FilterAdmission.prepare` and `apply` take long and belong into the engine's thread; its other methods are quick and
may be called in the loop while neither of those two runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from lavant.broker.filters import Filter
from lavant.broker.filters.limits import NO_LIMITS
from lavant.broker.matching.encrypted.values import EncryptedFilters
from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.matching.plain.table import FilterTable
from lavant.broker.protocol.subscriptions import (
    EncryptedFilter,
    Subscribe,
    SubscriptionRequest,
    SubscriptionState,
    Unsubscribe,
    UpdateSubscription,
)
from lavant.broker.subscriptions.filter_quota import FilterQuota, Filters, NamespaceScheme
from lavant.broker.subscriptions.limits import SubscriptionLimits
from lavant.broker.subscriptions.parsing import ENCRYPTED, PLAIN
from lavant.broker.subscriptions.registry import Added, Change
from lavant.broker.subscriptions.validation import tests_of
from lavant.core.errors import LavantError, LimitExceeded
from lavant.service.engines.interface import ChangeBatch, Engine


class FilterAdmission:
    """Checks and counts the filters of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._quota = FilterQuota(engine.scopes_max)

    def prepare(self, requests: Iterable[Subscribe | UpdateSubscription]) -> list[Filters | LavantError]:
        """Parse filters; an error says why one cannot be matched."""
        prepared: list[Filters | LavantError] = []
        for request in requests:
            try:
                prepared.append(prepared_filter(request.filter))
            except LavantError as error:
                prepared.append(error)
        return prepared

    def problem(
        self,
        request: SubscriptionRequest,
        filters: Filters | LavantError | None,
        replaced: SubscriptionState | None,
        limits: SubscriptionLimits,
    ) -> LavantError | None:
        """Why a request is refused: the result of `prepare`, or the quota. None if it is accepted. An update frees what
        the filter of the `replaced` subscription uses."""
        if isinstance(request, Unsubscribe) or filters is None or isinstance(filters, LavantError):
            return filters if isinstance(filters, LavantError) else None
        scope = _scope(request)
        freed = None if replaced is None or _scope(replaced) != scope else _known_filter(replaced.filter)
        try:
            self._quota.check(scope, filters, limits, freed)
        except LavantError as error:
            return error
        return None

    def promise(self, subscription: SubscriptionState, filters: Filters) -> None:
        """Count an accepted subscription before the engine has it, so that the next check includes it."""
        self._quota.promise(_scope(subscription), filters)

    def apply(self, changes: Sequence[Change], prepared: Mapping[int, Filters]) -> None:
        """Apply changes to the engine and count them. `prepared` holds parsed filters by number."""
        batches = list(change_batches(changes, prepared))
        self._engine.change(batches)
        for batch in batches:
            if batch.is_counted:
                self._quota.count(batch.scope, batch.filters, is_removal=batch.serials is None)
        self._quota.keep_promises()


def _scope(subscription: Subscribe | UpdateSubscription | SubscriptionState) -> NamespaceScheme:
    return NamespaceScheme(subscription.namespace, scheme_of(subscription.filter))


_T = TypeVar("_T")


def scheme_of(filter: str | EncryptedFilter) -> str:
    return ENCRYPTED if isinstance(filter, EncryptedFilter) else PLAIN


def prepared_filter(filter: str | EncryptedFilter) -> Filters:
    """Encode a filter for matchers. Raises if it cannot be matched."""
    return encode_filters([filter]) if isinstance(filter, str) else tests_of(filter)


def _known_filter(filter: str | EncryptedFilter) -> Filters:
    """Encode a filter that was accepted once, maybe by a version with other limits."""
    return encode_filters([Filter.parse(filter, NO_LIMITS)]) if isinstance(filter, str) else tests_of(filter)


def change_batches(changes: Sequence[Change], prepared: Mapping[int, Filters]) -> Iterator[ChangeBatch]:
    """Group changes by scope. `prepared` holds encoded filters by number; others are encoded here without limits,
    because they were accepted once, maybe by a version with other limits."""
    by_scope: dict[NamespaceScheme, list[Change]] = defaultdict(list)
    for change in changes:
        by_scope[NamespaceScheme(change.subscription.namespace, scheme_of(change.subscription.filter))].append(change)
    for scope, own in by_scope.items():
        for (kind, is_counted), run in groupby(own, key=_kind):
            alike = list(run)
            done = 0
            for filters in _tables(alike, prepared):
                part = alike[done : done + len(filters)]
                done += len(filters)
                serials = [change.serial for change in part if isinstance(change, Added)] if kind is Added else None
                yield ChangeBatch(scope, [change.subscription.number for change in part], filters, serials, is_counted)


def _kind(change: Change) -> tuple[type[Change], bool]:
    """Changes of one kind go together. Encrypted filters of neighbours count, since all in a scope have one shape."""
    subscription = change.subscription
    return type(change), not subscription.is_route or isinstance(subscription.filter, EncryptedFilter)


def _tables(changes: Sequence[Change], prepared: Mapping[int, Filters]) -> Iterator[Filters]:
    """Tables of one scheme, in order; several if the filters exceed a table."""
    filters = [change.subscription.filter for change in changes]
    if isinstance(filters[0], EncryptedFilter):
        yield EncryptedFilters.concatenate([tests_of(each) for each in filters if isinstance(each, EncryptedFilter)])
        return
    ready = [prepared.get(change.subscription.number) for change in changes]
    tables = [table for table in ready if isinstance(table, FilterTable)]
    if len(tables) == len(changes):
        yield from _in_parts(FilterTable.concatenate, tables)
    else:
        parsed = [Filter.parse(each, NO_LIMITS) for each in filters if isinstance(each, str)]
        yield from _in_parts(encode_filters, parsed)


def _in_parts(make: Callable[[Sequence[_T]], FilterTable], values: Sequence[_T]) -> Iterator[FilterTable]:
    """One table if possible, otherwise one for each half, recursively."""
    try:
        table = make(values)
    except LimitExceeded:
        if len(values) == 1:
            raise
        middle = len(values) // 2
        yield from _in_parts(make, values[:middle])
        yield from _in_parts(make, values[middle:])
    else:
        yield table
