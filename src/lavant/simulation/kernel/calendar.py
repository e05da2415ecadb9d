"""The event calendar: actions ordered by virtual time, then priority, then order of entry.

Nothing else decides between two entries, so a run is repeatable. Time is integer microseconds from the start of the
world: links and disks are faster than a millisecond, and sums of integers do not depend on the order of adding.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from lavant.core.errors import InvalidValue, LimitExceeded

FIRST, NORMAL, LAST = 0, 1, 2
"""Priorities within one instant: faults come first, checks come last."""

ENTRIES_MAX = 2_000_000
"""Stops a run that adds entries faster than it removes them, while there is memory left."""

Entry: TypeAlias = tuple[int, int, int, Callable[..., object], tuple[object, ...]]
"""(time_us, priority, number, action, arguments); the number differs, so actions are never compared."""

_CANCELLED_MIN = 64


class Calendar:
    """Actions in the order of (time, priority, number).

    >>> calendar, seen = Calendar(), []
    >>> for time_us, priority, name in [(7, NORMAL, "b"), (7, NORMAL, "c"), (9, FIRST, "d"), (7, FIRST, "a")]:
    ...     entry = calendar.enter(time_us, seen.append, name, priority=priority)
    >>> calendar.run(until_us=10, events_max=100), seen
    (4, ['a', 'b', 'c', 'd'])
    >>> calendar.now_us, calendar.events
    (9, 4)
    """

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        """Number of entries that have happened."""
        self._heap: list[Entry] = []
        self._number = 0
        self._cancelled: set[int] = set()
        """Numbers of cancelled entries in the heap; some may have happened just before."""

    def __len__(self) -> int:
        """The entries to come."""
        return sum(entry[2] not in self._cancelled for entry in self._heap)

    def enter(self, time_us: int, action: Callable[..., object], *arguments: object, priority: int = NORMAL) -> Entry:
        """Call `action(*arguments)` at a time that is not past; returns an entry for `cancel`."""
        if time_us < self.now_us:
            raise InvalidValue(f"an action was entered for {time_us} µs, but it is {self.now_us} µs already")
        self._number += 1
        entry = (time_us, priority, self._number, action, arguments)
        heappush(self._heap, entry)
        if len(self._heap) > ENTRIES_MAX:
            raise LimitExceeded(
                f"the calendar holds more than {ENTRIES_MAX} entries at {self.now_us} µs; "
                "something enters actions faster than they happen"
            )
        return entry

    def cancel(self, entry: Entry) -> None:
        """Also allowed for an entry that has happened or is already cancelled."""
        time_us, _, number, _, _ = entry
        if time_us < self.now_us:
            return
        self._cancelled.add(number)
        if len(self._cancelled) > _CANCELLED_MIN and 2 * len(self._cancelled) > len(self._heap):
            self._heap[:] = [kept for kept in self._heap if kept[2] not in self._cancelled]
            heapify(self._heap)
            self._cancelled.clear()

    def run(self, *, until_us: int, events_max: int, after_each: Callable[[], object] | None = None) -> int:
        """Run up to `events_max` entries that are due by `until_us`, and return their number."""
        heap, cancelled = self._heap, self._cancelled
        events = 0
        try:
            while events < events_max and heap and heap[0][0] <= until_us:
                time_us, _, number, action, arguments = heappop(heap)
                if cancelled and number in cancelled:
                    cancelled.remove(number)
                    continue
                self.now_us = time_us
                events += 1
                action(*arguments)
                if after_each is not None:
                    after_each()
        finally:
            self.events += events
        return events
