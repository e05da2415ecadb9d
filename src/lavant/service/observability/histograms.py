"""How often something took how long."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts by upper bound.

    >>> histogram = Histogram(bounds=(1.0, 5.0))
    >>> for value in (0.5, 1.0, 3.0, 9.0):
    ...     histogram.add(value)
    >>> list(histogram.cumulative()), histogram.sum
    ([('1.0', 2), ('5.0', 3), ('+Inf', 4)], 13.5)
    """

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        self.sum = 0.0
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def add_all(self, values: NDArray[np.float64]) -> None:
        counts = np.bincount(np.searchsorted(self._bounds, values), minlength=len(self._counts))
        self._counts = [known + more for known, more in zip(self._counts, counts.tolist(), strict=True)]
        self.sum += float(values.sum())

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the seconds that something takes, however it ends."""
        start_s = time.monotonic()
        try:
            yield
        finally:
            self.add(time.monotonic() - start_s)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """How many were at most each bound; the last is all."""
        return zip((*map(str, self._bounds), "+Inf"), accumulate(self._counts), strict=True)
