"""Sums over a sliding window, kept in panes of equal length: new panes are appended, old ones dropped.

`Estimator` closes windows that are cut by the clock once all their rows are in. A control loop cannot wait for that: it
needs the most recent seconds at any moment. The sums are the same `WindowSums`, the figures come from the same
`estimate`; only the first gap differs, which here begins at the last arrival before the window.
"""

from __future__ import annotations

import math
from collections import deque

from msgspec.structs import replace

from lavant.core.estimation.estimates import WindowEstimate, estimate
from lavant.core.estimation.sums import WindowSums

PANES_MAX = 600
EXPECTED_MIN = 2.0
"""The normal approximation underestimates the variance of Poisson counts below this."""


class SlidingWindow:
    """Events of one job type or one topic, added in order of time.

    >>> window = SlidingWindow(pane_us=1_000_000)
    >>> for time_us in (0, 400_000, 1_200_000):
    ...     window.add_arrival(time_us)
    >>> window.sums(from_us=0).arrivals, window.sums(from_us=1_000_000).arrivals
    (3, 1)
    """

    def __init__(self, *, pane_us: int) -> None:
        self._pane_us = pane_us
        self._panes: deque[tuple[int, WindowSums]] = deque(maxlen=PANES_MAX)
        self._last_us: int | None = None
        self._first_us = 0
        """The start of the pane of the very first arrival, which ends no gap."""

    def add_arrival(self, time_us: int) -> None:
        pane = self._pane(time_us)
        if self._last_us is None:
            self._first_us, self._last_us = self._panes[-1][0], time_us
        pane.add_arrival(time_us - self._last_us)
        self._last_us = time_us

    def add_service(self, time_us: int, duration_us: int, *, is_ok: bool) -> None:
        self._pane(time_us).add_service(duration_us, is_ok=is_ok)

    def add_response(self, time_us: int, duration_us: int) -> None:
        self._pane(time_us).add_response(duration_us)

    def sums(self, *, from_us: int) -> WindowSums:
        """The sums of all panes that begin at `from_us` or later, the gap that crosses their start included."""
        total = WindowSums()
        for start_us, pane in reversed(self._panes):
            if start_us < from_us:
                break
            total.merge(pane)
        return total

    def estimate(self, *, from_us: int, window_us: int, job_type: str = "", topic: str = "") -> WindowEstimate:
        """The figures since `from_us`, with rates over `window_us`. `arrivals` is one more than there are gaps."""
        total = self.sums(from_us=from_us)
        rate_per_s = total.arrivals * 1e6 / window_us
        if total.arrivals and max(from_us, self._panes[0][0]) > self._first_us:
            total.arrivals += 1  # the one that begins the first gap
        total.job_type, total.topic = job_type, topic
        return replace(estimate(total, window_ms=window_us // 1000), arrival_rate_per_s=rate_per_s)

    def rate_change(
        self, *, since_us: int, recent_from_us: int, now_us: int, standard_errors: float
    ) -> tuple[float, float] | None:
        """The arrival rates per second before and since `recent_from_us`, if they differ by more than chance allows.

        The difference of two Poisson counts has the sum of their variances.
        """
        before_us, recent_us = recent_from_us - since_us, now_us - recent_from_us
        recent = self.sums(from_us=recent_from_us).arrivals
        before = self.sums(from_us=since_us).arrivals - recent
        expected = before * recent_us / before_us
        error = math.sqrt(max(expected, EXPECTED_MIN) * (1.0 + recent_us / before_us))
        if abs(recent - expected) <= standard_errors * error:
            return None
        return before * 1e6 / before_us, recent * 1e6 / recent_us

    def _pane(self, time_us: int) -> WindowSums:
        start_us = time_us - time_us % self._pane_us
        if not self._panes or self._panes[-1][0] < start_us:
            self._panes.append((start_us, WindowSums()))
        return self._panes[-1][1]
