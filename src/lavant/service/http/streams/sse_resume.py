"""Resumes event streams: remembers what they sent, and acknowledges it when a client reconnects with its last event id.

A client of server-sent events cannot acknowledge. When its stream breaks, unacknowledged messages return to the queue.
A client that reconnects names its last event in `Last-Event-ID`: it has all events up to it, which need not come again.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

from lavant.broker.protocol.queues import Receipt

REMEMBERED_S = 60.0
STREAMS_MAX = 4000
"""The number of ended streams to remember; the oldest are forgotten first."""


class SentEvent(Protocol):
    """The messages that a stream has sent."""

    @property
    def unacknowledged(self) -> OrderedDict[int, Receipt]:
        """By number, in the order in which they were sent."""
        ...


class SseResume:
    """Streams by queue: open ones, and those that ended within `REMEMBERED_S`."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._by_queue: dict[str, list[SentEvent]] = {}
        self._ended: deque[tuple[float, str, SentEvent]] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))

    def opened(self, queue: str, stream: SentEvent) -> None:
        self._forget()
        self._by_queue.setdefault(queue, []).append(stream)

    def ended(self, queue: str, stream: SentEvent) -> None:
        self._ended.append((self._clock_s(), queue, stream))
        self._forget()

    def had(self, queue: str, number: int) -> list[Receipt]:
        """Receipts of the messages that the same stream sent, up to and including this one."""
        for stream in self._by_queue.get(queue, ()):
            if number in stream.unacknowledged:
                return _until(stream.unacknowledged, number)
        return []

    def _forget(self) -> None:
        late_s = self._clock_s() - REMEMBERED_S
        while self._ended and (self._ended[0][0] < late_s or len(self._ended) > STREAMS_MAX):
            _, queue, stream = self._ended.popleft()
            streams = self._by_queue[queue]
            streams.remove(stream)
            if not streams:
                del self._by_queue[queue]


def _until(sent: OrderedDict[int, Receipt], number: int) -> list[Receipt]:
    receipts = []
    for each, receipt in sent.items():
        receipts.append(receipt)
        if each == number:
            break
    return receipts
