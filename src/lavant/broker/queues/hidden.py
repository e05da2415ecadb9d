"""The messages that are hidden, delayed or in flight, by the time at which they become visible.

A heap from which nothing is taken but its top: when a message is acknowledged, or its time changes, its old entry stays
behind, is passed over when its turn comes, and is thrown out when such entries are the most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

from lavant.broker.queues.message import Message

NUMBER_BITS = 64
_NUMBER = (1 << NUMBER_BITS) - 1
STALE_MIN = 64
"""So many entries that mean nothing any more are not worth tidying up."""


class Hidden:
    """Ordered by (visible_ms, number). The messages are those of the queue; one that is gone is in here no more."""

    __slots__ = ("_heap", "_messages")

    def __init__(self, messages: Mapping[int, Message]) -> None:
        self._messages = messages
        # One integer an entry, visible_ms << NUMBER_BITS | number: smaller and faster to compare than a pair.
        self._heap: list[int] = []

    def __len__(self) -> int:
        """Entries, those that mean nothing any more included."""
        return len(self._heap)

    def add(self, message: Message) -> None:
        heappush(self._heap, message.visible_ms << NUMBER_BITS | message.number)

    def due(self, now_ms: int) -> Iterator[Message]:
        """Those whose time has come, one after the other; who takes one must set its `visible_ms`."""
        heap = self._heap
        end = (now_ms + 1) << NUMBER_BITS
        while heap and heap[0] < end:
            message = self._meant_by(heappop(heap))
            if message is not None:
                yield message

    def next_ms(self) -> int | None:
        """When the next one becomes visible."""
        heap = self._heap
        while heap and self._meant_by(heap[0]) is None:
            heappop(heap)
        return heap[0] >> NUMBER_BITS if heap else None

    def tidy(self, hidden: int) -> None:
        """Throw out what means nothing any more, if it is the most. `hidden` messages really are hidden."""
        if len(self._heap) > 2 * hidden + STALE_MIN:
            # Two entries can be equal, when a message's time was changed to and fro: one is enough.
            self._heap = sorted({entry for entry in self._heap if self._meant_by(entry) is not None})

    def _meant_by(self, entry: int) -> Message | None:
        message = self._messages.get(entry & _NUMBER)
        return message if message is not None and message.visible_ms == entry >> NUMBER_BITS else None
