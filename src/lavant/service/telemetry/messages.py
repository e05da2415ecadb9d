"""When messages were sent and received, by their numbers; columns in, columns out.

Messages are numbered as they are sent, over all queues. So one entry for each request that sent some says when each of
them was sent, and that of a message is found by bisection. When a message was received is kept in a ring of slots by
number, until it is acknowledged, or another message far behind needs its slot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lavant.service.telemetry.rows import Integers

UNKNOWN = -1
"""In place of a time."""
SENT_MAX = 1 << 20
SLOTS = 1 << 20


class SentTimes:
    """Messages with numbers up to `last[i]`, and above the one before, were sent at `times[i]`."""

    def __init__(self, last: int, most: int = SENT_MAX) -> None:
        """`last` is the number of the last message that was there before: when those were sent is not known."""
        self._most = most
        self._last: Integers = np.empty(2 * most, np.int64)
        self._times: Integers = np.empty(2 * most, np.int64)
        self._last[0], self._times[0] = last, UNKNOWN
        self._count = 1

    def add(self, last: Integers, times: Integers) -> None:
        """Ascending, and no more than are kept; what sent nothing new says what the one before says."""
        assert len(last) <= self._most
        is_new = np.diff(last, prepend=self._last[self._count - 1]) > 0
        last, times = last[is_new], times[is_new]
        end = self._count + len(last)
        if end > len(self._last):
            self._forget()
            end = self._count + len(last)
        self._last[self._count : end] = last
        self._times[self._count : end] = times
        self._count = end

    def of(self, numbers: Integers) -> Integers:
        """A message that a job sent since has a larger number than all, and is not known either."""
        places = np.searchsorted(self._last[: self._count], numbers)
        known = places < self._count
        return np.where(known, self._times[np.where(known, places, 0)], UNKNOWN)

    def _forget(self) -> None:
        """All but the latest, which move to the front: seldom, so it costs little for each that is added."""
        start, kept = max(0, self._count - self._most), min(self._count, self._most)
        self._last[:kept], self._times[:kept] = self._last[start : self._count], self._times[start : self._count]
        self._times[0] = UNKNOWN  # of all before, too
        self._count = kept


class ReceivedTimes:
    """A slot for each of the last million numbers or so."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = slots
        self._number: Integers = np.zeros(slots, np.int64)
        """Whose slot it is; messages are numbered from 1."""
        self._times: Integers = np.zeros(slots, np.int64)
        self._first: NDArray[np.int32] = np.zeros(slots, np.int32)

    def put(self, numbers: Integers, times: Integers) -> None:
        slots = numbers % self._slots
        self._number[slots] = numbers
        self._times[slots] = times

    def pop(self, numbers: Integers) -> Integers:
        """Each is known once."""
        slots = numbers % self._slots
        order = np.arange(len(numbers), dtype=np.int32)
        self._first[slots[::-1]] = order[::-1]
        known = (self._number[slots] == numbers) & (self._first[slots] == order)
        times = np.where(known, self._times[slots], UNKNOWN)
        self._number[slots[known]] = 0
        return times
