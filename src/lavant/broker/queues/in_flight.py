"""Hidden messages, delayed or in flight, ordered by the time at which they become visible.

The next ones are in a heap. Later ones wait unsorted in buckets of 128 ms that hold only their numbers; when the heap
is empty, the next bucket becomes the heap. So millions of distant messages are cheap as long as few are near.

Only the first is ever removed: when a message is acknowledged, or its time changes, the old entry stays, is skipped at
its turn, and is dropped when most entries are stale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from lavant.broker.queues.message import Message

NUMBER_BITS = 64
_NUMBER = (1 << NUMBER_BITS) - 1
BUCKET_BITS = 7
"""A bucket spans 128 ms: small enough that sorting it delays nothing."""
STALE_MIN = 64
"""Fewer stale entries than this are not worth removing."""


class InFlight:
    """Ordered by (visible_ms, number). The messages are the queue's; removed ones are skipped."""

    __slots__ = ("_buckets", "_far", "_messages", "_near", "_near_end", "_size")

    def __init__(self, messages: Mapping[int, Message]) -> None:
        self._messages = messages
        # One integer per entry, visible_ms << NUMBER_BITS | number: smaller and faster to compare than a pair.
        self._near: list[int] = []
        self._near_end = 0
        """The first bucket not in the heap; entries before it go into the heap."""
        self._far: dict[int, list[int]] = {}
        """Numbers of messages, by bucket."""
        self._buckets: list[int] = []
        """A heap of buckets not yet loaded."""
        self._size = 0

    def __len__(self) -> int:
        """Entries, including stale ones."""
        return self._size

    def add(self, messages: Sequence[Message], visible_ms: int) -> None:
        """Add messages that are hidden until `visible_ms`."""
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
        """Yield the messages whose time has come, one by one; the caller must set `visible_ms` of each."""
        while (first := self._first()) is not None and first.visible_ms <= now_ms:
            self._drop_first()
            yield first

    def next_ms(self) -> int | None:
        """When the next message becomes visible."""
        first = self._first()
        return None if first is None else first.visible_ms

    def tidy(self, hidden: int) -> None:
        """Remove stale entries if they are the majority; `hidden` is the number of messages that really are hidden."""
        if self._size <= 2 * hidden + STALE_MIN:
            return
        # Two entries can be equal if a message's time was changed back: keep one.
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
        """Turn the next bucket into the heap, which is empty."""
        self._near = [_entry(message) for message in self._still_in(bucket)]
        heapify(self._near)
        self._near_end = bucket + 1
        self._size += len(self._near) - len(self._far.pop(bucket))

    def _still_in(self, bucket: int) -> list[Message]:
        """The messages still in a bucket, each once."""
        found = map(self._messages.get, dict.fromkeys(self._far[bucket]))
        return [each for each in found if each is not None and each.visible_ms >> BUCKET_BITS == bucket]

    def _meant_by(self, entry: int) -> Message | None:
        message = self._messages.get(entry & _NUMBER)
        return message if message is not None and message.visible_ms == entry >> NUMBER_BITS else None


def _entry(message: Message) -> int:
    return message.visible_ms << NUMBER_BITS | message.number
