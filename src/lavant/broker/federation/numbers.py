"""Numbers of publications that were received: on a link, each exactly once; of an origin, the latest.

On a link numbers have no gaps, but publications are recorded out of order if one has to wait: a floor and the numbers
above it are exact. The window of an origin keeps its latest numbers only. It drops second copies, which come over
another path while two joins race and close a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

WINDOW = 2048
"""Numbers of one origin that are remembered."""
ORIGINS_MAX = 1024
"""Origins that are remembered; the one that was silent for longest is forgotten first."""

Numbers = NDArray[np.uint64]


class ReceivedNumbers:
    """
    >>> received = ReceivedNumbers()
    >>> received.add([1, 3])
    >>> received.floor, 2 in received, 3 in received
    (1, False, True)
    >>> received.add([2])
    >>> received.floor
    3
    """

    def __init__(self, floor: int = 0, above: Iterable[int] = ()) -> None:
        self.floor = floor
        """All numbers up to this one were received."""
        self._above = set(above)

    def __contains__(self, number: int) -> bool:
        return number <= self.floor or number in self._above

    def __len__(self) -> int:
        """How many were received."""
        return self.floor + len(self._above)

    def add(self, numbers: Iterable[int]) -> None:
        floor, above = self.floor, self._above
        for number in numbers:
            if number == floor + 1 and not above:
                floor = number
            elif number > floor:
                above.add(number)
        while above and floor + 1 in above:
            floor += 1
            above.remove(floor)
        self.floor = floor

    def above(self) -> list[int]:
        return sorted(self._above)


class OriginWindows:
    """The latest numbers of each origin: number n is in slot n modulo the size of the window."""

    def __init__(self) -> None:
        self._slots: dict[str, Numbers] = {}

    def seen(self, origin: str, numbers: Numbers) -> NDArray[np.bool_]:
        """Which of these were received; one that is too old to tell counts as new."""
        slots = self._slots.get(origin)
        if slots is None:
            return np.zeros(len(numbers), np.bool_)
        found: NDArray[np.bool_] = slots[numbers % np.uint64(WINDOW)] == numbers
        return found

    def add(self, origin: str, numbers: Numbers) -> None:
        slots = self._slots.pop(origin, None)
        if slots is None:
            slots = np.zeros(WINDOW, np.uint64)
            while len(self._slots) >= ORIGINS_MAX:
                del self._slots[next(iter(self._slots))]
        self._slots[origin] = slots  # the last in order is the latest that was heard of
        np.maximum.at(slots, numbers % np.uint64(WINDOW), numbers)

    def contents(self) -> list[tuple[str, bytes]]:
        """In order of use; numbers are little endian."""
        return [(origin, slots.astype("<u8").tobytes()) for origin, slots in self._slots.items()]

    def restore(self, contents: Iterable[tuple[str, bytes]]) -> None:
        self._slots = {origin: np.frombuffer(slots, "<u8").astype(np.uint64) for origin, slots in contents}
