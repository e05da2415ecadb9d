"""Filters of subscriptions as matchers take them, for all engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from lavant.broker.matching.encrypted.values import EncryptedFilters
from lavant.broker.matching.plain.encode import encode_filters
from lavant.broker.matching.plain.table import FilterTable
from lavant.broker.subscriptions.accepting import ENCRYPTED, PLAIN
from lavant.broker.subscriptions.commands import EncryptedFilter
from lavant.broker.subscriptions.registry import Change
from lavant.broker.subscriptions.validation import tests_of

Filters: TypeAlias = FilterTable | EncryptedFilters


def scheme_of(filter: str | EncryptedFilter) -> str:
    return ENCRYPTED if isinstance(filter, EncryptedFilter) else PLAIN


def prepared_filter(filter: str | EncryptedFilter) -> Filters:
    return encode_filters([filter]) if isinstance(filter, str) else tests_of(filter)


def filters_of(changes: Sequence[Change], prepared: Mapping[int, Filters]) -> Filters:
    """Of one scheme: those that were prepared, or all made now, as after a restart."""
    ready = [prepared.get(change.subscription.number) for change in changes]
    filters = [change.subscription.filter for change in changes]
    if isinstance(filters[0], EncryptedFilter):
        return EncryptedFilters.concatenate([tests_of(each) for each in filters if isinstance(each, EncryptedFilter)])
    tables = [table for table in ready if isinstance(table, FilterTable)]
    if len(tables) == len(changes):
        return FilterTable.concatenate(tables)
    return encode_filters([each for each in filters if isinstance(each, str)])
