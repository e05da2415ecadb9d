"""Limits the number of messages and the time, for several workers together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lavant.client.arguments import check_count
from lavant.core.seconds import check_seconds

NO_LIMIT = "; leave it out for no limit"


class ReceiveQuota:
    """Call `claim` before you ask for a message, and `give_back` if none came.

    >>> quota = ReceiveQuota(count=2, timeout_s=None)
    >>> quota.claim(), quota.claim(), quota.claim()
    (True, True, False)
    """

    def __init__(self, count: int | None, timeout_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        if count is not None:
            check_count("count", count, 1, hint=NO_LIMIT)
        if timeout_s is not None:
            check_seconds("timeout_s", timeout_s, hint=NO_LIMIT)
        self.claimed = 0
        self._count = count
        self._clock = clock
        self._end_s = None if timeout_s is None else clock() + timeout_s
        self._lock = threading.Lock()

    def claim(self) -> bool:
        with self._lock:
            if self._count is not None and self.claimed >= self._count:
                return False
            self.claimed += 1
            return True

    def give_back(self) -> None:
        with self._lock:
            self.claimed -= 1

    def left_s(self) -> float | None:
        """The time that is left; None without a limit."""
        return None if self._end_s is None else max(0.0, self._end_s - self._clock())
