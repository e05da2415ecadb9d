"""Sums of what happened within a sliding window, kept in panes of equal length: old panes go, new ones come.

`lavant.core.estimation` has windows that are cut by the clock and closed when all rows are in. A control loop cannot
wait for that: it wants the last so many seconds, at any moment. So panes hold the same sums, of integers, and figures
come from the same `estimate`.
"""

from __future__ import annotations

from collections import deque

from lavant.core.estimation import WindowEstimate, WindowSums, estimate

PANES_MAX = 600


class Pane:
    """The sums of one pane; times in µs."""

    __slots__ = (
        *("arrivals", "gaps", "gaps_us", "gaps_us2"),
        *("services", "failed", "service_us", "service_us2"),
        *("responses", "responses_us"),
    )

    def __init__(self) -> None:
        self.arrivals = self.gaps = self.gaps_us = self.gaps_us2 = 0
        self.services = self.failed = self.service_us = self.service_us2 = 0
        self.responses = self.responses_us = 0

    def add(self, other: Pane) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class SlidingWindow:
    """Of one job type, or one topic.

    >>> panes = SlidingWindow(pane_us=1_000_000)
    >>> for time_us in (0, 400_000, 1_200_000):
    ...     panes.arrived(time_us)
    >>> panes.total(from_us=0).arrivals, panes.total(from_us=1_000_000).arrivals
    (3, 1)
    """

    def __init__(self, *, pane_us: int) -> None:
        self._pane_us = pane_us
        self._panes: deque[tuple[int, Pane]] = deque(maxlen=PANES_MAX)
        self._last_us: int | None = None

    def arrived(self, now_us: int) -> None:
        pane = self._pane(now_us)
        pane.arrivals += 1
        if self._last_us is not None:
            gap_us = now_us - self._last_us
            pane.gaps += 1
            pane.gaps_us += gap_us
            pane.gaps_us2 += gap_us * gap_us
        self._last_us = now_us

    def served(self, now_us: int, duration_us: int, *, is_ok: bool) -> None:
        pane = self._pane(now_us)
        pane.services += 1
        pane.failed += not is_ok
        pane.service_us += duration_us
        pane.service_us2 += duration_us * duration_us

    def responded(self, now_us: int, duration_us: int) -> None:
        pane = self._pane(now_us)
        pane.responses += 1
        pane.responses_us += duration_us

    def total(self, *, from_us: int) -> Pane:
        """Of all panes that begin at `from_us` or later."""
        total = Pane()
        for start_us, pane in reversed(self._panes):
            if start_us < from_us:
                break
            total.add(pane)
        return total

    def _pane(self, now_us: int) -> Pane:
        start_us = now_us - now_us % self._pane_us
        if not self._panes or self._panes[-1][0] < start_us:
            self._panes.append((start_us, Pane()))
        return self._panes[-1][1]


def figures(total: Pane, *, window_ms: int, job_type: str = "", topic: str = "") -> WindowEstimate:
    """What the sums say."""
    sums = WindowSums(
        window_start_us=0,
        job_type=job_type,
        topic=topic,
        rows=total.arrivals + total.services + total.responses,
        arrivals=total.gaps + 1 if total.gaps else total.arrivals,
        arrival_span_us=total.gaps_us,
        gap_us2_sum=total.gaps_us2,
        services=total.services,
        services_failed=total.failed,
        service_us_sum=total.service_us,
        service_us2_sum=total.service_us2,
    )
    return estimate(sums, window_ms=window_ms)
