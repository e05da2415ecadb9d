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

    def __init__(self, last: int) -> None:
        """`last` is the number of the last message that was there before: when those were sent is not known."""
        self._last: Integers = np.array([last], np.int64)
        self._times: Integers = np.array([UNKNOWN], np.int64)

    def add(self, last: Integers, times: Integers) -> None:
        """Ascending; what sent nothing new says what the one before says."""
        is_new = np.diff(last, prepend=self._last[-1]) > 0
        self._last = np.concatenate([self._last, last[is_new]])[-SENT_MAX:]
        self._times = np.concatenate([self._times, times[is_new]])[-SENT_MAX:]
        if len(self._last) == SENT_MAX:
            self._times[0] = UNKNOWN  # of all before, too

    def of(self, numbers: Integers) -> Integers:
        """A message that a job sent since has a larger number than all, and is not known either."""
        places = np.searchsorted(self._last, numbers)
        known = places < len(self._last)
        return np.where(known, self._times[np.where(known, places, 0)], UNKNOWN)


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
