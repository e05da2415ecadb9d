"""The messages that are hidden, delayed or in flight, by the time at which they become visible.

Those whose time comes next are in a heap. The others wait in buckets of some milliseconds each, in no order, and their
number is all that is kept there; when the heap is used up, the next bucket becomes the heap. So there can be millions
that are far away, as long as few are near.

Nothing is taken out but the first: when a message is acknowledged, or its time changes, its old entry stays behind, is
passed over when its turn comes, and is thrown out when such entries are the most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from lavant.broker.queues.message import Message

NUMBER_BITS = 64
_NUMBER = (1 << NUMBER_BITS) - 1
BUCKET_BITS = 7
"""A bucket holds the messages of 128 ms: so few that sorting them holds nobody up."""
STALE_MIN = 64
"""So many entries that mean nothing any more are not worth tidying up."""


class InFlight:
    """Ordered by (visible_ms, number). The messages are those of the queue; one that is gone is in here no more."""

    __slots__ = ("_buckets", "_far", "_messages", "_near", "_near_end", "_size")

    def __init__(self, messages: Mapping[int, Message]) -> None:
        self._messages = messages
        # One integer an entry, visible_ms << NUMBER_BITS | number: smaller and faster to compare than a pair.
        self._near: list[int] = []
        self._near_end = 0
        """The first bucket that is not near: what comes into one before it goes into the heap."""
        self._far: dict[int, list[int]] = {}
        """Numbers of messages, by bucket."""
        self._buckets: list[int] = []
        """A heap of those that are far."""
        self._size = 0

    def __len__(self) -> int:
        """Entries, those that mean nothing any more included."""
        return self._size

    def add(self, messages: Sequence[Message], visible_ms: int) -> None:
        """Messages that are all hidden until then."""
        self._size += len(messages)
        bucket = visible_ms >> BUCKET_BITS
        if bucket < self._near_end:
            for message in messages:
                heappush(self._near, _entry(message))
            return
        numbers = [message.number for message in messages]
        if bucket in self._far:
            self._far[bucket] += numbers
        else:
            self._far[bucket] = numbers
            heappush(self._buckets, bucket)

    def due(self, now_ms: int) -> Iterator[Message]:
        """Those whose time has come, one after the other; who takes one must set its `visible_ms`."""
        while (first := self._first()) is not None and first.visible_ms <= now_ms:
            self._drop_first()
            yield first

    def next_ms(self) -> int | None:
        """When the next one becomes visible."""
        first = self._first()
        return None if first is None else first.visible_ms

    def tidy(self, hidden: int) -> None:
        """Throw out what means nothing any more, if it is the most. `hidden` messages really are hidden."""
        if self._size <= 2 * hidden + STALE_MIN:
            return
        # Two entries can be equal, when a message's time was changed to and fro: one is enough.
        self._near = sorted({entry for entry in self._near if self._meant_by(entry) is not None})
        kept = {bucket: self._still_in(bucket) for bucket in self._far}
        self._far = {bucket: [message.number for message in messages] for bucket, messages in kept.items() if messages}
        self._buckets = sorted(self._far)
        self._size = len(self._near) + sum(map(len, self._far.values()))

    def _first(self) -> Message | None:
        while True:
            while self._near:
                message = self._meant_by(self._near[0])
                if message is not None:
                    return message
                self._drop_first()
            if not self._buckets:
                return None
            self._approach(heappop(self._buckets))

    def _drop_first(self) -> None:
        heappop(self._near)
        self._size -= 1

    def _approach(self, bucket: int) -> None:
        """The next bucket becomes the heap, which is empty."""
        self._near = [_entry(message) for message in self._still_in(bucket)]
        heapify(self._near)
        self._near_end = bucket + 1
        self._size += len(self._near) - len(self._far.pop(bucket))

    def _still_in(self, bucket: int) -> list[Message]:
        """The messages that a bucket means, each once."""
        found = map(self._messages.get, dict.fromkeys(self._far[bucket]))
        return [each for each in found if each is not None and each.visible_ms >> BUCKET_BITS == bucket]

    def _meant_by(self, entry: int) -> Message | None:
        message = self._messages.get(entry & _NUMBER)
        return message if message is not None and message.visible_ms == entry >> NUMBER_BITS else None


def _entry(message: Message) -> int:
    return message.visible_ms << NUMBER_BITS | message.number
