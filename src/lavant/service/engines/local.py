"""The local engine: access, match and exit slices in this process, the match slices on all cores.

Each namespace has slices of its own for each scheme, so what is published in one is never even looked at in another.
The matchers' kernels release the GIL: match slices run beside each other in threads, and beside the event loop.

Every slice looks at every publication, and for one or a few of them that is most of the work. So there are no more
slices than find a core: with plain filters, the event loop needs one of its own, as what they find keeps it busy; with
encrypted ones it has little to do.
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
from lavant.service.engines.interface import EngineBatch, Retired, Step

QUIET_S = 0.5
"""So long nothing must have changed: whoever subscribes many does not want the processor to be busy with the first."""
REST = 20
"""How many times as long as it took it rests: where changes come all the time, the share of it stays small."""

TakeEffect: TypeAlias = Callable[[], None]


class IndexMaintenance:
    """`joining` does the work in the thread, and gives what the engine has to call, between two of its own calls."""

    def __init__(self, joining: Callable[[], Iterable[TakeEffect]], *, quiet_s: float = QUIET_S) -> None:
        self._joining = joining
        self._quiet_s = quiet_s
        self._ready: deque[TakeEffect] = deque()
        self._changed, self._closed = Event(), Event()
        self._thread: Thread | None = None

    def changed(self) -> None:
        """Subscriptions came or went."""
        self._changed.set()
        if self._thread is None:
            self._thread = Thread(target=self._work, name="engine-upkeep", daemon=True)
            self._thread.start()

    def take_effect(self) -> None:
        """To be called by the engine when it does nothing else."""
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
            for take_effect in self._joining():
                self._ready.append(take_effect)
            if self._closed.wait(REST * (time.monotonic() - started_s)):
                return


SOURCE = SliceId("service")
SLICES_MAX = 8
ALONE_BELOW = 32
"""Fewer publications are matched in one thread: waking others would take longer."""


class LocalEngine:
    """Matches in this process."""

    waits = False
    lanes_max: int | None = None

    def __init__(self, slices: int | None = None, *, quiet_s: float = QUIET_S) -> None:
        self._layouts = _layouts(os.cpu_count() or 1) if slices is None else _layouts(slices, loop=0)
        most = max(layout.match for layout in self._layouts.values())
        self._threads = ThreadPoolExecutor(max(1, most - 1), thread_name_prefix="match")
        self._namespaces: dict[str, _Namespace] = {}
        self._upkeep = IndexMaintenance(self._joining, quiet_s=quiet_s)

    def change(self, steps: Sequence[Step]) -> None:
        for step in steps:
            name = step.lane.namespace
            namespace = self._namespaces.get(name)
            if namespace is None:
                namespace = self._namespaces[name] = _Namespace(self._layouts, self._threads)
            namespace.change(step)
            if not len(namespace.routes):
                del self._namespaces[name]
        self._upkeep.changed()

    def retire(self) -> list[Retired]:
        """A namespace goes with its last subscription, and leaves nothing."""
        return []

    def check_room(self, namespace: str) -> None:
        """Nothing waits here: what stands in the line is bounded there."""

    def publish(self, batch: EngineBatch) -> list[FanOutBatch]:
        self._upkeep.take_effect()
        namespace = self._namespaces.get(batch.namespace)
        return [FanOutBatch.nothing(len(batch.publications))] if namespace is None else namespace.publish(batch)

    def close(self) -> None:
        self._upkeep.close()
        self._threads.shutdown()

    def _joining(self) -> Iterator[TakeEffect]:
        for namespace in list(self._namespaces.values()):
            yield from namespace.joining()


def _layouts(cores: int, *, loop: int = 1) -> dict[str, SliceLayout]:
    """By scheme; the event loop needs so many of the cores.

    >>> [layout.match for cores in (1, 2, 4) for layout in _layouts(cores).values()]
    [1, 1, 1, 2, 3, 4]
    """
    slices = {PLAIN: max(1, cores - loop), ENCRYPTED: cores}
    return {scheme: SliceLayout(match=min(count, SLICES_MAX), schemes=(scheme,)) for scheme, count in slices.items()}


class _Namespace:
    """The slices of one namespace, and the queues that what they find goes to."""

    def __init__(self, layouts: Mapping[str, SliceLayout], threads: ThreadPoolExecutor) -> None:
        self.routes = QueueRoutes()
        self._slices = {scheme: _Slices(scheme, layout, threads) for scheme, layout in layouts.items()}

    def change(self, step: Step) -> None:
        scheme, numbers = step.lane.scheme, np.array(step.numbers, np.uint32)
        if step.serials is None:
            self._slices[scheme].send(SliceUnsubscribe(scheme, numbers))
            for number in step.numbers:
                self.routes.remove(number)
        else:
            self.add(scheme, numbers, step.filters)
            for number, serial in zip(step.numbers, step.serials, strict=True):
                self.routes.add(number, serial)

    def joining(self) -> Iterator[TakeEffect]:
        for slices in self._slices.values():
            yield from slices.joining()

    def publish(self, batch: EngineBatch) -> list[FanOutBatch]:
        content = [publication.content for publication in batch.publications]
        return self.match(batch.scheme, _points_of(content) if batch.scheme == ENCRYPTED else RowBatch(content))

    def match(self, scheme: str, columns: Any) -> list[FanOutBatch]:
        return list(self.routes.fan_out(self._slices[scheme].match(columns)))

    def add(self, scheme: str, numbers: Ids, filters: Any) -> None:
        self._slices[scheme].send(SliceSubscribe(scheme, numbers, filters))


class _Slices:
    """Those of one scheme, joined by calls."""

    def __init__(self, scheme: str, layout: SliceLayout, threads: ThreadPoolExecutor) -> None:
        self._scheme = scheme
        self._layout = layout
        self._threads = threads
        self._slices = make_slices(layout)
        self._sent = 0

    def joining(self) -> Iterator[TakeEffect]:
        for slice in self._match_slices():
            yield from slice.joining()

    def send(self, content: Content) -> None:
        for emit in self._to_access(content):
            refused = self._deliver(self._layout.access_slices[0], emit)
            if refused:
                raise InvalidValue(refused[0].reason)

    def match(self, columns: Any) -> Matches:
        """M slices in threads, the first one in this; what they find meets at the exit."""
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
    """All of one length, as `Access` gives them."""
    return EncryptedBatch(np.array(points, np.float64))
