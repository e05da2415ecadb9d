"""What streams have sent lately: a client that connects anew says what it had last, and that much is acknowledged.

A stream of server-sent events has one way only. When it breaks, whatever was not acknowledged returns to the queue. A
client that comes back says in `Last-Event-ID` which event it had last, so it had all that were sent before it as well,
and these need not come once more.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

from lavant.broker.protocol.queues import Receipt

REMEMBERED_S = 60.0
STREAMS_MAX = 4000
"""More, and the oldest are forgotten early."""


class SentEvent(Protocol):
    """What a stream has sent."""

    @property
    def unacknowledged(self) -> OrderedDict[int, Receipt]:
        """By number, in the order in which they were sent."""
        ...


class SseResume:
    """Streams by queue: those that are open, and those that ended not long ago."""

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
        """Receipts of what was sent on the stream that sent this message, up to and with it."""
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
