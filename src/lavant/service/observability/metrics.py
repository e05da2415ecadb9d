"""The metrics of a server, for `/metrics`.

    scrapers ──► text() ──► a rendering that is fresh, or in progress ──► bytes
                               └── made in slices of about a millisecond, between which the event loop runs

With many queues a rendering takes time, so it is made in slices, shared by all scrapers while it is fresh, and bounded:
only the queues with the most messages have series of their own. The sums by namespace include all queues.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from lavant.broker.protocol.queue_config import NAMESPACE_END, SECOND_MS
from lavant.broker.protocol.queues import Described, DescribeQueue, Listed, ListQueues, QueueFigures
from lavant.broker.queues.machine import Queues
from lavant.broker.queues.queue import QueueState
from lavant.service.observability.openmetrics import END, MetricFamily, column, escaped, family_text, head
from lavant.service.runtime.broker_runtime import BrokerRuntime
from lavant.service.runtime.limits import QUEUES_SHOWN_MAX
from lavant.service.storage.stores import RecordStore

SLICE_S = 0.001
"""The longest that rendering blocks the event loop."""
FRESH_S_MAX = 1.0
FRESH_RATIO = 100
"""A rendering is fresh for this many times its own duration, up to `FRESH_S_MAX`: until then scrapers cost at most 1 %
of the time."""

_AT_ONCE = 100
"""Queues summed, or lines written, between two readings of the clock: much less than a slice."""
_PAGE = 1000
_GAUGES = {
    "visible": "Messages that can be received.",
    "in_flight": "Messages that are leased to a consumer.",
    "delayed": "Messages that cannot be received yet.",
}
_COUNTERS = {
    "sent": "Messages sent.",
    "received": "Deliveries of messages.",
    "acknowledged": "Messages acknowledged.",
    "expired": "Messages deleted at the end of their retention period.",
    "returned": "Leases that ran out or were released.",
    "dead_lettered": "Messages moved to the dead-letter queue.",
    "deduplicated": "Messages dropped as duplicates of an earlier one.",
}


FamiliesOf: TypeAlias = Callable[[], Iterable[MetricFamily]]
"""Called for each rendering."""


def queue_names(queues: Queues) -> Iterator[str]:
    """The names of all queues, sorted."""
    after = ""
    while True:
        answer = queues.handle(ListQueues("", after, _PAGE), queues.now_ms)
        assert isinstance(answer, Listed)
        yield from answer.queues
        if len(answer.queues) < _PAGE:
            return
        after = answer.queues[-1]


def figures_of(queues: Queues, name: str) -> QueueFigures:
    answer = queues.handle(DescribeQueue(name), queues.now_ms)
    assert isinstance(answer, Described)
    return answer.figures


class Metrics:
    """Renders the text on request, unless there is a fresh one."""

    def __init__(
        self,
        queues: Queues,
        store: RecordStore,
        service: BrokerRuntime,
        others: Sequence[FamiliesOf] = (),
        *,
        queues_max: int = QUEUES_SHOWN_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`others` provide further families."""
        self.renderings = 0
        """The number of renderings."""
        self._others = others
        self._queues = queues
        self._store = store
        self._service = service
        self._queues_max = queues_max
        self._clock = clock
        self._text = b""
        self._fresh_until_s = float("-inf")
        self._rendering: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """Concurrent callers share one rendering."""
        if self._rendering is None and self._clock() < self._fresh_until_s:
            return self._text
        if self._rendering is None:
            self._rendering = asyncio.get_running_loop().create_task(self._render())
        return await asyncio.shield(self._rendering)  # a cancelled caller does not cancel it for the others

    async def _render(self) -> bytes:
        started_s = self._clock()
        turns = _Turns(self._clock)
        try:
            parts: list[str] = []
            for families in (self._server_families, *self._others):
                for family in families():
                    parts.append(family_text(family))
                    await turns.next()
            parts += [part async for part in self._queue_parts(turns)]
            self._text = await turns.joined(parts)
            self.renderings += 1
            self._fresh_until_s = started_s + min(FRESH_S_MAX, FRESH_RATIO * turns.used_s())
        finally:
            self._rendering = None
        return self._text

    async def _queue_parts(self, turns: _Turns) -> AsyncIterator[str]:
        queues, now_ms = self._queues.all(), self._queues.now_ms
        sums = _Sums()
        depths: list[int] = []
        for some in _in_parts(queues):
            depths += map(sums.add, some)
            await turns.next()
        shown = _deepest(queues, depths, self._queues_max)
        for family in (
            _one("lavant_queues", "gauge", "Queues of all namespaces.", len(queues)),
            _one("lavant_queues_omitted", "gauge", "Queues without series of their own.", len(queues) - len(shown)),
            *sums.families(self._queues_max),
        ):
            yield family_text(family)
            await turns.next()
        labels: list[str] = []
        figures: list[QueueFigures] = []
        for some in _in_parts(shown):
            labels += [f'{{queue="{escaped(queue.name)}"}} ' for queue in some]
            figures += [queue.figures() for queue in some]
            await turns.next()
        for name, kind, help, values_of in _queue_columns(now_ms):
            yield head(f"lavant_queue_{name}", kind, help, _UNITS.get(name, ""))
            sample = f"lavant_queue_{name}_total" if kind == "counter" else f"lavant_queue_{name}"
            for start in range(0, len(labels), _AT_ONCE):
                stop = start + _AT_ONCE
                yield column(sample, labels[start:stop], list(map(values_of, figures[start:stop])))
                await turns.next()

    def _server_families(self) -> list[MetricFamily]:
        service, store = self._service, self._store
        return [
            _one("lavant_requests", "counter", "Requests over all protocols.", service.requests),
            _one("lavant_connections", "gauge", "Connections of the native protocol.", len(service.connections)),
            _one(
                "lavant_waiting_receives",
                "gauge",
                "Receives that wait for a message.",
                service.waiting_total,
            ),
            _one("lavant_access_waiting", "gauge", "Publications that wait to be matched.", service.ingest.waiting),
            _one(
                "lavant_kernels_loaded",
                "gauge",
                "1 if publications are matched by indexes, 0 while a scan stands in.",
                int(not service.ingest.kernels.are_missing),
            ),
            _one("lavant_idempotency_keys", "gauge", "Remembered idempotency keys.", len(service.ingest.keys)),
            _one(
                "lavant_idempotency_keys_evicted",
                "counter",
                "Idempotency keys dropped early because their namespace uses too many.",
                service.ingest.keys.evicted,
            ),
            _one("lavant_journal_records", "counter", "Records of changes, since the journal began.", store.position),
            _one(
                "lavant_journal_staged_bytes",
                "gauge",
                "Bytes of records not being written yet.",
                store.staged_bytes,
            ),
            MetricFamily(
                "lavant_commit_seconds",
                "histogram",
                "Writing and syncing a block of the journal.",
                [({}, store.commit_times)],
                unit="seconds",
            ),
            _one("lavant_storage_full", "gauge", "1 if the disk is full: nothing new is accepted.", int(store.is_full)),
            _one("lavant_stored_bytes", "gauge", "Bodies and attributes of all messages.", self._queues.bytes_held),
            _one(
                "lavant_memory_bytes",
                "gauge",
                "Memory of messages, queues, jobs and subscriptions, as counted for the limit.",
                self._queues.memory_held,
            ),
            _one(
                "lavant_memory_limit_bytes",
                "gauge",
                "Memory limit; beyond it nothing new is accepted.",
                self._queues.limits.memory_max,
            ),
        ]


class _Turns:
    """Yields to the event loop after each slice."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since_s = clock()
        self._used_s = 0.0

    async def next(self) -> None:
        used_s = self._clock() - self._since_s
        if used_s >= SLICE_S:
            self._used_s += used_s
            await asyncio.sleep(0)
            self._since_s = self._clock()

    async def joined(self, parts: list[str]) -> bytes:
        """The whole text, with its end."""
        text = bytearray()
        for part in (*parts, END):
            text += part.encode()
            await self.next()
        return bytes(text)

    def used_s(self) -> float:
        """Time used, without that of other tasks in between."""
        return self._used_s + self._clock() - self._since_s


class _Sums:
    """Sums over the queues of each namespace. Counters of queues are not summed: a counter must not fall, and such a
    sum would with each deleted queue."""

    def __init__(self) -> None:
        self._sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])

    def add(self, queue: QueueState) -> int:
        """Add a queue; returns its number of messages."""
        name, depth = queue.name, len(queue.messages)
        sums = self._sums[name[: name.find(NAMESPACE_END)] if NAMESPACE_END in name else ""]
        sums[0] += 1
        sums[1] += depth - queue.in_flight - queue.delayed
        sums[2] += queue.in_flight
        sums[3] += queue.delayed
        sums[4] += queue.bytes
        return depth

    def families(self, namespaces_max: int) -> Iterator[MetricFamily]:
        """Of the namespaces with the most queues, if there are too many."""
        shown = sorted(self._sums, key=lambda namespace: (-self._sums[namespace][0], namespace))[:namespaces_max]
        yield _one(
            "lavant_namespaces_omitted", "gauge", "Namespaces without sums.", max(0, len(self._sums) - len(shown))
        )
        helps = {"queues": "Queues of a namespace.", **_GAUGES, "bytes": "Bodies and attributes of all messages."}
        for place, (name, help) in enumerate(helps.items()):
            samples = [({"namespace": namespace}, self._sums[namespace][place]) for namespace in shown]
            yield MetricFamily(f"lavant_namespace_{name}", "gauge", help, samples, _UNITS.get(name, ""))


def _one(name: str, kind: str, help: str, value: float) -> MetricFamily:
    return MetricFamily(name, kind, help, [({}, value)])


def _in_parts(queues: list[QueueState]) -> Iterator[list[QueueState]]:
    return (queues[start : start + _AT_ONCE] for start in range(0, len(queues), _AT_ONCE))


def _deepest(queues: list[QueueState], depths: list[int], count: int) -> list[QueueState]:
    """The queues with the most messages, in their original order."""
    if len(queues) <= count:
        return queues
    places = np.sort(np.argpartition(np.negative(depths), count)[:count])
    return [queues[place] for place in places.tolist()]


_UNITS = {"bytes": "bytes", "oldest_age_seconds": "seconds"}
_Column: TypeAlias = tuple[str, str, str, Callable[[QueueFigures], float]]


def _queue_columns(now_ms: int) -> Iterator[_Column]:
    """Name, kind, help text and value of each family."""

    def age_s(figures: QueueFigures) -> float:
        return 0 if figures.oldest_sent_ms is None else (now_ms - figures.oldest_sent_ms) / SECOND_MS

    for field, help in _GAUGES.items():
        yield field, "gauge", help, attrgetter(field)
    yield "bytes", "gauge", "Bodies and attributes of a queue's messages.", attrgetter("bytes")
    yield "oldest_age_seconds", "gauge", "Age of the oldest message, 0 for an empty queue.", age_s
    for field, help in _COUNTERS.items():
        yield field, "counter", help, attrgetter(field)
