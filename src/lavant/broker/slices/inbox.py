"""What has come to a slice: the timestamp vector, and what waits to be processed.

e-StreamHub, Section IV-A: links number what they carry, a slice remembers for each upstream the last number that it has
processed (its *timestamp vector*), and there is one queue for each upstream. Links may reorder and repeat: a number
that is in the vector or in the queue already is dropped, one that comes before its predecessors waits for them.

Each queue holds `WINDOW` items. Senders have at most as many unacknowledged on a link, so the queue of a slice that
processes what comes never overflows. That of a slice which is not active yet may: it drops the oldest, which the active
slice has most likely processed; and if not, it is not acknowledged, and comes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from lavant.core.ids import SliceId

WINDOW = 1024
"""Items that may be under way on one link."""

T = TypeVar("T")


class Inbox(Generic[T]):
    """
    >>> inbox = Inbox()
    >>> [inbox.put("AP:0", number, f"item {number}") for number in (2, 1, 1)]
    [True, True, False]
    >>> inbox.take("AP:0"), inbox.take("AP:0"), inbox.take("AP:0")
    ((1, 'item 1'), (2, 'item 2'), None)
    >>> inbox.vector
    {'AP:0': 2}
    """

    def __init__(self, vector: Mapping[SliceId, int] | None = None) -> None:
        self.vector: dict[SliceId, int] = {} if vector is None else dict(vector)
        self._waiting: dict[SliceId, dict[int, T]] = {}

    def put(self, upstream: SliceId, sequence: int, item: T) -> bool:
        """Keep an item until it is taken; false if it is known already."""
        waiting = self._waiting.setdefault(upstream, {})
        if sequence <= self.vector.get(upstream, 0) or sequence in waiting:
            return False
        waiting[sequence] = item
        if len(waiting) > WINDOW:
            del waiting[min(waiting)]
        return True

    def take(self, upstream: SliceId) -> tuple[int, T] | None:
        """The next item of this upstream with its number, if it has come; from now on it is in the vector."""
        sequence = self.vector.get(upstream, 0) + 1
        waiting = self._waiting.get(upstream)
        if waiting is None or sequence not in waiting:
            return None
        self.vector[upstream] = sequence
        return sequence, waiting.pop(sequence)

    def upstreams(self) -> list[SliceId]:
        """Those that something waits of, in a fixed order."""
        return sorted(upstream for upstream, waiting in self._waiting.items() if waiting)

    def advance(self, vector: Mapping[SliceId, int]) -> None:
        """Have this vector, and forget what it contains: the state that came with it knows of it."""
        self.vector = dict(vector)
        for upstream, waiting in self._waiting.items():
            seen = self.vector.get(upstream, 0)
            self._waiting[upstream] = {number: item for number, item in waiting.items() if number > seen}

    def items(self) -> Iterator[tuple[SliceId, int, T]]:
        """All that waits, with its upstream and number, in a fixed order."""
        for upstream in sorted(self._waiting):
            for sequence, item in sorted(self._waiting[upstream].items()):
                yield upstream, sequence, item

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))
