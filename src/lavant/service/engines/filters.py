"""Changes of subscriptions as engines take them: by lane, in order, with filters as matchers take them."""

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
from lavant.broker.protocol.subscriptions import EncryptedFilter, Subscribe, SubscriptionState, Unsubscribe
from lavant.broker.subscriptions.filter_quota import FilterQuota, Filters, NamespaceScheme
from lavant.broker.subscriptions.limits import SubscriptionLimits
from lavant.broker.subscriptions.parsing import ENCRYPTED, PLAIN
from lavant.broker.subscriptions.registry import Added, Change
from lavant.broker.subscriptions.validation import tests_of
from lavant.core.errors import LavantError, LimitExceeded
from lavant.service.engines.interface import Engine, Step


class FilterAdmission:
    """For one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._quota = FilterQuota(engine.lanes_max)

    def prepare(self, subscribes: Iterable[Subscribe]) -> list[Filters | LavantError]:
        """The filters as the engine takes them, or why they cannot be matched."""
        prepared: list[Filters | LavantError] = []
        for request in subscribes:
            try:
                prepared.append(prepared_filter(request.filter))
            except LavantError as error:
                prepared.append(error)
        return prepared

    def problem(
        self, request: Subscribe | Unsubscribe, filters: Filters | LavantError | None, limits: SubscriptionLimits
    ) -> LavantError | None:
        """Why a request is refused: by what `prepare` said, or by what is there; none if it is not."""
        if isinstance(request, Unsubscribe) or filters is None or isinstance(filters, LavantError):
            return filters if isinstance(filters, LavantError) else None
        try:
            self._quota.check(_lane(request), filters, limits)
        except LavantError as error:
            return error
        return None

    def promise(self, subscription: SubscriptionState, filters: Filters) -> None:
        """It was accepted: the next is checked with it, and the engine is going to be told."""
        self._quota.promise(_lane(subscription), filters)

    def tell(self, changes: Sequence[Change], prepared: Mapping[int, Filters]) -> None:
        """The engine learns of changes, and they count. Filters that were prepared are given by number."""
        steps = list(steps_of(changes, prepared))
        self._engine.change(steps)
        for step in steps:
            self._quota.count(step.lane, step.filters, is_removal=step.serials is None)
        self._quota.keep_promises()


def _lane(subscription: Subscribe | SubscriptionState) -> NamespaceScheme:
    return NamespaceScheme(subscription.namespace, scheme_of(subscription.filter))


_T = TypeVar("_T")


def scheme_of(filter: str | EncryptedFilter) -> str:
    return ENCRYPTED if isinstance(filter, EncryptedFilter) else PLAIN


def prepared_filter(filter: str | EncryptedFilter) -> Filters:
    """A filter as matchers take it. Raises if it cannot be matched."""
    return encode_filters([filter]) if isinstance(filter, str) else tests_of(filter)


def steps_of(changes: Sequence[Change], prepared: Mapping[int, Filters]) -> Iterator[Step]:
    """What is to be done, by lane. Filters that were prepared are given by number, the others are made here; no limit
    is applied to those: they were accepted once, maybe by a version with other limits."""
    by_lane: dict[NamespaceScheme, list[Change]] = defaultdict(list)
    for change in changes:
        by_lane[NamespaceScheme(change.subscription.namespace, scheme_of(change.subscription.filter))].append(change)
    for lane, own in by_lane.items():
        for kind, run in groupby(own, key=type):
            alike = list(run)
            done = 0
            for filters in _tables(alike, prepared):
                part = alike[done : done + len(filters)]
                done += len(filters)
                serials = [change.serial for change in part if isinstance(change, Added)] if kind is Added else None
                yield Step(lane, [change.subscription.number for change in part], filters, serials)


def _tables(changes: Sequence[Change], prepared: Mapping[int, Filters]) -> Iterator[Filters]:
    """Of one scheme, one after the other; more than one if they compare more than a table holds."""
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
    """One table of all if that can be, else of each half."""
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
