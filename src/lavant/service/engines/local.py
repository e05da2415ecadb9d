"""The local engine: access, match and exit slices in this process, the match slices on all cores.

Each namespace has slices of its own, so what is published in one is never even looked at in another. The matchers'
kernels release the GIL: match slices run beside each other in threads, and beside the server's event loop.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import numpy as np

from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.broker.matching.interface import Matches
from lavant.broker.matching.plain.table import FilterTable
from lavant.broker.slices import (
    SINK,
    Delivery,
    Emit,
    Layout,
    MatchSlice,
    Notification,
    Publish,
    Refused,
    Subscribe,
    Unsubscribe,
    make_slices,
)
from lavant.broker.slices.values import Content
from lavant.broker.subscriptions.accepting import ENCRYPTED, PLAIN
from lavant.broker.subscriptions.commands import EncryptedFilter
from lavant.broker.subscriptions.registry import Added, Change
from lavant.broker.subscriptions.routing import Piece, Routes
from lavant.core.errors import InvalidValue
from lavant.core.ids import SliceId
from lavant.core.row_batches import RowBatch
from lavant.service.engines.filters import Filters, filters_of, prepared_filter, scheme_of
from lavant.service.engines.interface import Batch
from lavant.service.engines.upkeep import QUIET_S, TakeEffect, Upkeep

SOURCE = SliceId("service")
SLICES_MAX = 8
ALONE_BELOW = 32
"""Fewer publications are matched in one thread: waking others would take longer."""


class LocalEngine:
    """Matches in this process."""

    waits = False

    def __init__(self, slices: int | None = None, *, quiet_s: float = QUIET_S) -> None:
        count = min(os.cpu_count() or 1, SLICES_MAX) if slices is None else slices
        self._layout = Layout(match=count)
        self._threads = ThreadPoolExecutor(max(1, count - 1), thread_name_prefix="match")
        self._namespaces: dict[str, _Namespace] = {}
        self._upkeep = Upkeep(self._joining, quiet_s=quiet_s)

    def prepare(self, namespace: str, filter: str | EncryptedFilter) -> Filters:
        filters = prepared_filter(filter)
        self._namespace(namespace).check(filters)
        return filters

    def change(self, changes: Sequence[Change], prepared: Mapping[int, Filters]) -> None:
        by_namespace: dict[str, list[Change]] = defaultdict(list)
        for change in changes:
            by_namespace[change.subscription.namespace].append(change)
        for namespace, own in by_namespace.items():
            self._namespace(namespace).change(own, prepared)
        self._upkeep.changed()

    def check_room(self, namespace: str) -> None:
        """Nothing waits here: what stands in the line is bounded there."""

    def publish(self, batch: Batch) -> list[Piece]:
        self._upkeep.take_effect()
        return self._namespace(batch.namespace).publish(batch)

    def warm_up(self) -> None:
        """Have kernels compiled, or loaded if they were before, in the background: the first who asks need not wait."""
        self._threads.submit(_warm_up, self._layout, self._threads)

    def close(self) -> None:
        self._upkeep.close()
        self._threads.shutdown()

    def _joining(self) -> Iterator[TakeEffect]:
        for namespace in list(self._namespaces.values()):
            yield from namespace.joining()

    def _namespace(self, name: str) -> _Namespace:
        found = self._namespaces.get(name)
        if found is None:
            found = self._namespaces[name] = _Namespace(self._layout, self._threads)
        return found


def _warm_up(layout: Layout, threads: ThreadPoolExecutor) -> None:
    """Match something with slices that nobody else has."""
    slices = _Namespace(layout, threads)
    slices._send(Subscribe(PLAIN, np.arange(2, dtype=np.uint32), ["a > 0 and b = 'x'", "b like 'x%'"]))
    slices._send(Subscribe(ENCRYPTED, np.arange(1, dtype=np.uint32), EncryptedFilters(np.ones((1, 8, 5)))))
    slices._routes.add(0, 1)
    for columns in (RowBatch([{"a": 1, "b": "x"}]), EncryptedBatch(np.ones((1, 5)))):
        scheme = PLAIN if isinstance(columns, RowBatch) else ENCRYPTED
        list(slices._routes.spread(slices._match(scheme, columns)))


class _Namespace:
    """The slices of one namespace, joined by calls."""

    def __init__(self, layout: Layout, threads: ThreadPoolExecutor) -> None:
        self._slices = make_slices(layout)
        self._layout = layout
        self._threads = threads
        self._sent = 0
        self._routes = Routes()

    def check(self, filters: Filters) -> None:
        scheme = PLAIN if isinstance(filters, FilterTable) else ENCRYPTED
        for slice in self._slices.values():
            if isinstance(slice, MatchSlice):
                slice.check(scheme, filters)

    def change(self, changes: Sequence[Change], prepared: Mapping[int, Filters]) -> None:
        """Runs of additions and of removals go to the slices together: one by one would cost far more."""
        for _, run in groupby(changes, key=type):
            self._change_alike(list(run), prepared)

    def joining(self) -> Iterator[TakeEffect]:
        for slice in self._slices.values():
            if isinstance(slice, MatchSlice):
                yield from slice.joining()

    def publish(self, batch: Batch) -> list[Piece]:
        content = [publication.content for publication in batch.publications]
        columns = _points_of(content) if batch.scheme == ENCRYPTED else RowBatch(content)
        return list(self._routes.spread(self._match(batch.scheme, columns)))

    def _change_alike(self, changes: Sequence[Change], prepared: Mapping[int, Filters]) -> None:
        by_scheme: dict[str, list[Change]] = defaultdict(list)
        for change in changes:
            by_scheme[scheme_of(change.subscription.filter)].append(change)
        for scheme, own in by_scheme.items():
            numbers = np.array([change.subscription.number for change in own], np.uint32)
            if isinstance(own[0], Added):
                self._send(Subscribe(scheme, numbers, filters_of(own, prepared)))
            else:
                self._send(Unsubscribe(scheme, numbers))
        for change in changes:
            if isinstance(change, Added):
                self._routes.add(change.subscription.number, change.serial)
            else:
                self._routes.remove(change.subscription.number)

    def _send(self, content: Content) -> None:
        for emit in self._to_access(content):
            refused = self._deliver(self._layout.access_slices[0], emit)
            if refused:
                raise InvalidValue(refused[0].reason)

    def _match(self, scheme: str, columns: Any) -> Matches:
        """M slices in threads, the first one in this; what they find meets at the exit."""
        access = self._layout.access_slices[0]
        first, *others = self._to_access(Publish(scheme, columns))
        if len(columns) < ALONE_BELOW:
            found = [found for emit in (first, *others) for found in self._deliver(access, emit)]
        else:
            under_way = [self._threads.submit(self._deliver, access, emit) for emit in others]
            found = [*self._deliver(access, first), *(emit for each in under_way for emit in each.result())]
        for emit, upstream in zip(found, self._layout.match_slices, strict=True):
            for result in self._deliver(upstream, emit):
                assert result.to == SINK
                assert isinstance(result.content, Notification)
                return result.content.matches
        raise AssertionError("the last list completes the batch")

    def _to_access(self, content: Content) -> list[Any]:
        self._sent += 1
        access = self._slices[self._layout.access_slices[0]]
        effects = access.handle(Delivery(SOURCE, self._sent, content), now_ms=0)
        for effect in effects:
            if isinstance(effect, Refused):
                raise InvalidValue(effect.reason)
        return effects

    def _deliver(self, upstream: SliceId, emit: Emit) -> list[Any]:
        return self._slices[emit.to].handle(Delivery(upstream, emit.sequence, emit.content), now_ms=0)


def _points_of(points: list[list[float]]) -> EncryptedBatch:
    """All of one length, as `Access` gives them."""
    return EncryptedBatch(np.array(points, np.float64))
