"""The local engine: access, match and exit slices in this process, the match slices on all cores.

Each namespace has slices of its own for each scheme, so its publications are never matched in another. The matchers'
kernels release the GIL: match slices run in parallel threads, and in parallel with the event loop.

Every slice processes every publication, and for one or a few of them that is most of the work. So there are no more
slices than cores: with plain filters, the event loop needs a core of its own, because the matches keep it busy; with
encrypted ones it has little to do.

Index maintenance runs in a thread of its own: when subscriptions have not changed for a while, segments are merged.

    engine        change ── change ────────────────── publish: takes effect ──►
                     └ changed ─┘                       ▲
    maintenance                  (quiet) merges ────────┘

It never delays matching, and takes a small share of the time, however many subscriptions there are.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any, TypeAlias

import numpy as np

from lavant.broker.matching.encrypted.values import EncryptedBatch
from lavant.broker.matching.interface import Ids, Matches
from lavant.broker.slices import (
    SINK,
    Emit,
    MatchSlice,
    SliceDelivery,
    SliceLayout,
    SliceNotification,
    SlicePublish,
    SliceRefusal,
    SliceSubscribe,
    SliceUnsubscribe,
    make_slices,
)
from lavant.broker.slices.values import Content
from lavant.broker.subscriptions.parsing import ENCRYPTED, PLAIN
from lavant.broker.subscriptions.routing import FanOutBatch, QueueRoutes
from lavant.core.errors import InvalidValue
from lavant.core.ids import SliceId
from lavant.core.publications.row_batch import RowBatch
from lavant.service.engines.interface import ChangeBatch, EngineBatch, Retired

QUIET_S = 0.5
"""Time without changes before merging: while many subscriptions arrive, it would only waste the processor."""
REST = 20
"""Pause after merging, as a multiple of its duration: its share stays small under constant changes."""

TakeEffect: TypeAlias = Callable[[], None]


class IndexMaintenance:
    """`merge` does the work in the thread; the engine calls its results between two of its own calls."""

    def __init__(self, merge: Callable[[], Iterable[TakeEffect]], *, quiet_s: float = QUIET_S) -> None:
        self._merge = merge
        self._quiet_s = quiet_s
        self._ready: deque[TakeEffect] = deque()
        self._changed, self._closed = Event(), Event()
        self._thread: Thread | None = None

    def changed(self) -> None:
        """Subscriptions were added or removed."""
        self._changed.set()
        if self._thread is None:
            self._thread = Thread(target=self._work, name="index-maintenance", daemon=True)
            self._thread.start()

    def take_effect(self) -> None:
        """Called by the engine when it is idle."""
        while self._ready:
            self._ready.popleft()()

    def close(self) -> None:
        self._closed.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            self._changed.wait()
            while self._changed.is_set():
                self._changed.clear()
                if self._closed.wait(self._quiet_s):
                    return
            started_s = time.monotonic()
            for take_effect in self._merge():
                self._ready.append(take_effect)
            if self._closed.wait(REST * (time.monotonic() - started_s)):
                return


SOURCE = SliceId("service")
SLICES_MAX = 8
ALONE_BELOW = 32
"""Smaller batches are matched in one thread: waking others would take longer."""


class LocalEngine:
    """Matches in this process."""

    waits = False
    scopes_max: int | None = None

    def __init__(self, slices: int | None = None, *, quiet_s: float = QUIET_S) -> None:
        self._layouts = _layouts(os.cpu_count() or 1) if slices is None else _layouts(slices, loop=0)
        most = max(layout.match for layout in self._layouts.values())
        self._threads = ThreadPoolExecutor(max(1, most - 1), thread_name_prefix="match")
        self._namespaces: dict[str, _Namespace] = {}
        self._maintenance = IndexMaintenance(self._merges, quiet_s=quiet_s)

    def change(self, batches: Sequence[ChangeBatch]) -> None:
        for batch in batches:
            name = batch.scope.namespace
            namespace = self._namespaces.get(name)
            if namespace is None:
                namespace = self._namespaces[name] = _Namespace(self._layouts, self._threads)
            namespace.change(batch)
            if not len(namespace.routes):
                del self._namespaces[name]
        self._maintenance.changed()

    def retire(self) -> list[Retired]:
        """A namespace is dropped with its last subscription, and has no log."""
        return []

    def check_room(self, namespace: str) -> None:
        """Nothing waits here: the ingest queue has its own bound."""

    def publish(self, batch: EngineBatch) -> list[FanOutBatch]:
        self._maintenance.take_effect()
        namespace = self._namespaces.get(batch.namespace)
        return [FanOutBatch.nothing(len(batch.publications))] if namespace is None else namespace.publish(batch)

    def close(self) -> None:
        self._maintenance.close()
        self._threads.shutdown()

    def _merges(self) -> Iterator[TakeEffect]:
        for namespace in list(self._namespaces.values()):
            yield from namespace.merges()


def _layouts(cores: int, *, loop: int = 1) -> dict[str, SliceLayout]:
    """Layouts by scheme; `loop` cores are left to the event loop.

    >>> [layout.match for cores in (1, 2, 4) for layout in _layouts(cores).values()]
    [1, 1, 1, 2, 3, 4]
    """
    slices = {PLAIN: max(1, cores - loop), ENCRYPTED: cores}
    return {scheme: SliceLayout(match=min(count, SLICES_MAX), schemes=(scheme,)) for scheme, count in slices.items()}


class _Namespace:
    """The slices of one namespace, and the queues of its subscriptions."""

    def __init__(self, layouts: Mapping[str, SliceLayout], threads: ThreadPoolExecutor) -> None:
        self.routes = QueueRoutes()
        self._slices = {scheme: _Slices(scheme, layout, threads) for scheme, layout in layouts.items()}

    def change(self, batch: ChangeBatch) -> None:
        scheme, numbers = batch.scope.scheme, np.array(batch.numbers, np.uint32)
        if batch.serials is None:
            self._slices[scheme].send(SliceUnsubscribe(scheme, numbers))
            for number in batch.numbers:
                self.routes.remove(number)
        else:
            self.add(scheme, numbers, batch.filters)
            for number, serial in zip(batch.numbers, batch.serials, strict=True):
                self.routes.add(number, serial)

    def merges(self) -> Iterator[TakeEffect]:
        for slices in self._slices.values():
            yield from slices.merges()

    def publish(self, batch: EngineBatch) -> list[FanOutBatch]:
        content = [publication.content for publication in batch.publications]
        return self.match(batch.scheme, _points_of(content) if batch.scheme == ENCRYPTED else RowBatch(content))

    def match(self, scheme: str, columns: Any) -> list[FanOutBatch]:
        return list(self.routes.fan_out(self._slices[scheme].match(columns)))

    def add(self, scheme: str, numbers: Ids, filters: Any) -> None:
        self._slices[scheme].send(SliceSubscribe(scheme, numbers, filters))


class _Slices:
    """The slices of one scheme, connected by calls."""

    def __init__(self, scheme: str, layout: SliceLayout, threads: ThreadPoolExecutor) -> None:
        self._scheme = scheme
        self._layout = layout
        self._threads = threads
        self._slices = make_slices(layout)
        self._sent = 0

    def merges(self) -> Iterator[TakeEffect]:
        for slice in self._match_slices():
            yield from slice.joining()

    def send(self, content: Content) -> None:
        for emit in self._to_access(content):
            refused = self._deliver(self._layout.access_slices[0], emit)
            if refused:
                raise InvalidValue(refused[0].reason)

    def match(self, columns: Any) -> Matches:
        """Run match slices in threads, the first one in this thread; the exit slice merges their matches."""
        access = self._layout.access_slices[0]
        first, *others = self._to_access(SlicePublish(self._scheme, columns))
        if len(columns) < ALONE_BELOW:
            found = [found for emit in (first, *others) for found in self._deliver(access, emit)]
        else:
            under_way = [self._threads.submit(self._deliver, access, emit) for emit in others]
            found = [*self._deliver(access, first), *(emit for each in under_way for emit in each.result())]
        for emit, upstream in zip(found, self._layout.match_slices, strict=True):
            for result in self._deliver(upstream, emit):
                assert result.to == SINK
                assert isinstance(result.content, SliceNotification)
                return result.content.matches
        raise AssertionError("the last list completes the batch")

    def _match_slices(self) -> Iterator[MatchSlice]:
        return (slice for slice in self._slices.values() if isinstance(slice, MatchSlice))

    def _to_access(self, content: Content) -> list[Any]:
        self._sent += 1
        access = self._slices[self._layout.access_slices[0]]
        effects = access.handle(SliceDelivery(SOURCE, self._sent, content), now_ms=0)
        for effect in effects:
            if isinstance(effect, SliceRefusal):
                raise InvalidValue(effect.reason)
        return effects

    def _deliver(self, upstream: SliceId, emit: Emit) -> list[Any]:
        return self._slices[emit.to].handle(SliceDelivery(upstream, emit.sequence, emit.content), now_ms=0)


def _points_of(points: list[list[float]]) -> EncryptedBatch:
    """Points of one dimension, as admission ensures."""
    return EncryptedBatch(np.array(points, np.float64))
