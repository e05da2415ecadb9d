"""When the time of an attempt, or of a whole job, is up.

A heap from which nothing is taken but its top: when a task is done, or its worker gets more time, the old entry stays
behind, is passed over when its turn comes, and is thrown out when such entries are the most.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

TASK_BITS, JOB_BITS = 8, 56
THE_JOB = (1 << TASK_BITS) - 1
"""Instead of a task's place: the time of the job itself."""
STALE_MIN = 64
"""So many entries that mean nothing any more are not worth tidying up."""


class Timers:
    """Ordered by (time, job, task). `deadline_of` tells when the time of a task, or a job, is up; None if never."""

    __slots__ = ("_deadline_of", "_heap", "_size_max")

    def __init__(self, deadline_of: Callable[[int, int], int | None]) -> None:
        self._deadline_of = deadline_of
        # One integer an entry, time << 64 | job << 8 | task: smaller and faster to compare than a triple.
        self._heap: list[int] = []
        self._size_max = STALE_MIN

    def __len__(self) -> int:
        """Entries, those that mean nothing any more included."""
        return len(self._heap)

    def add(self, deadline_ms: int, job: int, task: int) -> None:
        heap = self._heap
        heappush(heap, (deadline_ms << JOB_BITS | job) << TASK_BITS | task)
        if len(heap) > self._size_max:
            # Two entries can be equal, when a task's time was changed to and fro: one is enough.
            self._heap = list({entry for entry in heap if self._is_meant(entry)})
            heapify(self._heap)
            self._size_max = 2 * len(self._heap) + STALE_MIN

    def next_ms(self) -> int | None:
        """When the next time is up."""
        heap = self._heap
        while heap:
            if self._is_meant(heap[0]):
                return heap[0] >> (JOB_BITS + TASK_BITS)
            heappop(heap)
        return None

    def pop(self) -> tuple[int, int]:
        """Whose time that is: job and task. Call `next_ms` before."""
        return _whose(heappop(self._heap))

    def _is_meant(self, entry: int) -> bool:
        return self._deadline_of(*_whose(entry)) == entry >> (JOB_BITS + TASK_BITS)


def _whose(entry: int) -> tuple[int, int]:
    return entry >> TASK_BITS & (1 << JOB_BITS) - 1, entry & THE_JOB
