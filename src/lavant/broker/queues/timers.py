"""Timers: when each queue next has something due, and periodic sweeps of expired data."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from lavant.broker.queues.in_flight import STALE_MIN
from lavant.broker.queues.queue import QueueState

SWEEP_MS = 10_000
"""The sweep interval."""


class _Sweep(NamedTuple):
    forget: Callable[[int], None]
    held: Callable[[], int]


class Sweeps:
    """Periodic clean-up of everything that is remembered for a time."""

    __slots__ = ("_next_ms", "_sweeps")

    def __init__(self) -> None:
        self._sweeps: list[_Sweep] = []
        self._next_ms = 0

    def add(self, forget: Callable[[int], None], held: Callable[[], int]) -> None:
        """Add a function that forgets what has expired, and one that counts what is held."""
        self._sweeps.append(_Sweep(forget, held))

    def next_ms(self) -> int | None:
        """When to sweep next; None if nothing is held."""
        return self._next_ms if any(sweep.held() for sweep in self._sweeps) else None

    def advance(self, now_ms: int) -> None:
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + SWEEP_MS
            for sweep in self._sweeps:
                sweep.forget(now_ms)


def earliest(*times_ms: int | None) -> int | None:
    """The earliest of the times that are not None.

    >>> earliest(7, None, 3), earliest(None)
    (3, None)
    """
    return min([each for each in times_ms if each is not None], default=None)


class QueueTimers:
    """A heap of times, one for each queue that waits for something, each no later than the queue's own `next_ms`.

    A queue's time is in its `wake_ms`; entries with other times are stale, are skipped, and are dropped when they are
    the majority.
    """

    __slots__ = ("_heap", "_pushes", "_size_max")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, QueueState]] = []
        self._pushes = 0
        """Breaks ties."""
        self._size_max = STALE_MIN

    def schedule(self, queue: QueueState) -> None:
        """Call after every change of a queue."""
        next_ms = queue.next_ms()
        if next_ms is not None and (queue.wake_ms is None or next_ms < queue.wake_ms):
            queue.wake_ms = next_ms
            self._pushes += 1
            heappush(self._heap, (next_ms, self._pushes, queue))
            if len(self._heap) > self._size_max:
                self._tidy()

    def forget(self, queue: QueueState) -> None:
        """Forget a queue that is deleted."""
        queue.wake_ms = None

    def next_ms(self) -> int | None:
        """When the next queue has something due."""
        while self._heap:
            wake_ms, _, queue = self._heap[0]
            if queue.wake_ms == wake_ms == queue.next_ms():
                return wake_ms
            self._drop_first()
        return None

    def may_be_before(self, time_ms: int) -> bool:
        """Whether a queue may have something due before then; cheap, with false positives."""
        return bool(self._heap) and self._heap[0][0] < time_ms

    def advance(self, now_ms: int) -> list[str]:
        """Advance all queues that have something due until now, and return their names."""
        advanced = []
        while self._heap and self._heap[0][0] <= now_ms:
            wake_ms, _, queue = self._heap[0]
            if queue.wake_ms == wake_ms:
                queue.advance(now_ms)
                advanced.append(queue.name)
            self._drop_first()
        return advanced

    def _drop_first(self) -> None:
        wake_ms, _, queue = heappop(self._heap)
        if queue.wake_ms == wake_ms:
            queue.wake_ms = None
            self.schedule(queue)

    def _tidy(self) -> None:
        # By queue, because one can have two entries with the same time.
        good = {id(entry[2]): entry for entry in self._heap if entry[2].wake_ms == entry[0]}
        self._heap = list(good.values())
        heapify(self._heap)
        self._size_max = 2 * len(self._heap) + STALE_MIN
