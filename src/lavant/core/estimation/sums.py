"""The integers that the rows of a window are reduced to; they do not depend on order or partitions."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray


class WindowSums(msgspec.Struct, kw_only=True):
    """The sufficient statistics of one window, job type and topic.

    Gaps lie between arrivals inside the window, sorted by time; a gap that crosses a border belongs to no window.
    `arrivals` publications have `arrivals - 1` gaps; those at the same instant are 0.
    """

    window_start_us: int = 0
    job_type: str = ""
    topic: str = ""
    rows: int = 0
    arrivals: int = 0
    arrival_span_us: int = 0
    """From the first to the last arrival."""
    gap_us2_sum: int = 0
    services: int = 0
    services_failed: int = 0
    service_us_sum: int = 0
    service_us2_sum: int = 0
    responses: int = 0
    responses_failed: int = 0
    response_p50_bucket: int | None = None
    response_p95_bucket: int | None = None
    response_p99_bucket: int | None = None
    tests: int = 0
    """Publications × subscriptions, of each match."""
    matches: int = 0
    response_us_sum: int = 0
    """Of sliding windows only; others have percentiles."""

    @property
    def response_mean_s(self) -> float | None:
        return self.response_us_sum / self.responses / 1e6 if self.responses else None

    def add_arrival(self, gap_us: int) -> None:
        """Count one arrival, `gap_us` after the one before."""
        self.rows += 1
        self.arrivals += 1
        self.arrival_span_us += gap_us
        self.gap_us2_sum += gap_us * gap_us

    def add_service(self, duration_us: int, *, is_ok: bool) -> None:
        self.rows += 1
        self.services += 1
        self.services_failed += not is_ok
        self.service_us_sum += duration_us
        self.service_us2_sum += duration_us * duration_us

    def add_response(self, duration_us: int) -> None:
        """Count the response of one job that did not fail."""
        self.rows += 1
        self.responses += 1
        self.response_us_sum += duration_us

    def merge(self, other: WindowSums) -> None:
        """Add the counts and sums of another window; percentiles cannot be added."""
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_ADDED = (
    *("rows", "arrivals", "arrival_span_us", "gap_us2_sum"),
    *("services", "services_failed", "service_us_sum", "service_us2_sum"),
    *("responses", "responses_failed", "response_us_sum", "tests", "matches"),
)

PERCENTILES = (0.5, 0.95, 0.99)


def gap_sums(times_us: NDArray[np.int64]) -> tuple[int, int]:
    """Returns the span of the times, in any order, and the sum of the squared gaps between them.

    >>> gap_sums(np.array([10, 0, 30]))
    (30, 500)
    """
    if times_us.size == 0:
        return 0, 0
    gaps = np.diff(np.sort(times_us))
    return int(gaps.sum()), int(np.dot(gaps, gaps))


def square_sum(values: NDArray[np.int64]) -> int:
    """Returns the exact sum of squares, however large."""
    if values.size and int(values.max()) ** 2 * values.size >= 2**63:
        return sum(value * value for value in values.tolist())
    return int(np.dot(values, values))
