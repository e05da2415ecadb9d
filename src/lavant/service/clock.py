"""The server's time: milliseconds that never go back, whatever happens to the clock on the wall."""

from __future__ import annotations

import time
from collections.abc import Callable

NANOSECONDS_PER_MS = 1_000_000


class Clock:
    """Starts at the wall's time, or at the latest time that the queues have seen if that is later; then only runs on.

    A wall clock that is set back while the server is down must not let leases last longer: time goes on from where
    it was. One that jumps while the server runs does not matter at all.

    >>> steady = iter([5_000_000, 5_000_000, 12_000_000])
    >>> clock = Clock(recovered_ms=2000, wall_ns=lambda: 1_000_000_000, steady_ns=lambda: next(steady))
    >>> clock.now_ms(), clock.now_ms()
    (2000, 2007)
    """

    def __init__(
        self,
        recovered_ms: int = 0,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._steady_ns = steady_ns
        self._ahead_ms = max(wall_ns() // NANOSECONDS_PER_MS, recovered_ms) - steady_ns() // NANOSECONDS_PER_MS

    def now_ms(self) -> int:
        return self._steady_ns() // NANOSECONDS_PER_MS + self._ahead_ms

    def seconds_until(self, time_ms: int) -> float:
        """For a timer that must not fire before `time_ms`."""
        return max(0, (time_ms - self._ahead_ms) * NANOSECONDS_PER_MS - self._steady_ns()) / 1e9
