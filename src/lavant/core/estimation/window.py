"""One open window of one job type and topic: rows go in by column, sums come out."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.core.estimation.buckets import bucket_of, percentile_bucket
from lavant.core.estimation.columns import TelemetryColumns
from lavant.core.estimation.sums import PERCENTILES, WindowSums, gap_sums, square_sum
from lavant.core.telemetry import ObservationKind


class OpenWindow:
    """What is kept of a window until it closes: counts, and the times of arrivals, because gaps need them in order."""

    def __init__(self) -> None:
        self.rows = 0
        self.arrivals = 0
        self.arrival_times_us: list[NDArray[np.int64]] = []
        self.services = 0
        self.services_failed = 0
        self.service_us_sum = 0
        self.service_us2_sum = 0
        self.responses_failed = 0
        self.response_buckets: Counter[int] = Counter()
        self.tests = 0
        self.matches = 0

    def add(self, rows: TelemetryColumns) -> None:
        """Take rows of this window, of all kinds."""
        self.rows += len(rows.time_us)
        self._add_arrivals(rows.of_kind(ObservationKind.ARRIVAL))
        self._add_services(rows.of_kind(ObservationKind.SERVICE))
        self._add_responses(rows.of_kind(ObservationKind.RESPONSE))
        self._add_matches(rows.of_kind(ObservationKind.MATCH))

    def sums(self, *, window_start_us: int, job_type: str, topic: str) -> WindowSums:
        """The window as integers; it may go on taking rows."""
        span_us, gap_us2_sum = gap_sums(np.concatenate([np.empty(0, np.int64), *self.arrival_times_us]))
        p50, p95, p99 = (percentile_bucket(self.response_buckets, fraction) for fraction in PERCENTILES)
        return WindowSums(
            window_start_us=window_start_us,
            job_type=job_type,
            topic=topic,
            rows=self.rows,
            arrivals=self.arrivals,
            arrival_span_us=span_us,
            gap_us2_sum=gap_us2_sum,
            services=self.services,
            services_failed=self.services_failed,
            service_us_sum=self.service_us_sum,
            service_us2_sum=self.service_us2_sum,
            responses=self.response_buckets.total(),
            responses_failed=self.responses_failed,
            response_p50_bucket=p50,
            response_p95_bucket=p95,
            response_p99_bucket=p99,
            tests=self.tests,
            matches=self.matches,
        )

    def _add_arrivals(self, rows: TelemetryColumns) -> None:
        if rows:
            self.arrivals += int(rows.publications.sum())
            self.arrival_times_us.append(rows.time_us)

    def _add_services(self, rows: TelemetryColumns) -> None:
        if rows:
            self.services += len(rows.time_us)
            self.services_failed += int(rows.failed.sum())
            self.service_us_sum += int(rows.duration_us.sum())
            self.service_us2_sum += square_sum(rows.duration_us)

    def _add_responses(self, rows: TelemetryColumns) -> None:
        if rows:
            self.responses_failed += int(rows.failed.sum())
            buckets, counts = np.unique(bucket_of(rows.duration_us[~rows.failed]), return_counts=True)
            self.response_buckets.update(dict(zip(buckets.tolist(), counts.tolist(), strict=True)))

    def _add_matches(self, rows: TelemetryColumns) -> None:
        if rows:
            pairs = zip(rows.publications.tolist(), rows.subscriptions.tolist(), strict=True)
            self.tests += sum(publications * subscriptions for publications, subscriptions in pairs)
            self.matches += sum(rows.matches.tolist())

    # ---- snapshots --------------------------------------------------------------------------------------------------

    def saved(self, *, window_start_us: int, job_type: str, topic: str) -> SavedWindow:
        times = np.concatenate([np.empty(0, np.int64), *self.arrival_times_us])
        return SavedWindow(
            window_start_us=window_start_us,
            job_type=job_type,
            topic=topic,
            counts=[str(getattr(self, name)) for name in _COUNTS],
            arrival_times_us=times.astype("<i8").tobytes(),
            response_buckets=dict(self.response_buckets),
        )

    @classmethod
    def of_saved(cls, saved: SavedWindow) -> OpenWindow:
        window = cls()
        for name, count in zip(_COUNTS, saved.counts, strict=True):
            setattr(window, name, int(count))
        window.arrival_times_us = [np.frombuffer(saved.arrival_times_us, "<i8").astype(np.int64)]
        window.response_buckets = Counter(saved.response_buckets)
        return window


_COUNTS = (
    *("rows", "arrivals", "services", "services_failed", "service_us_sum", "service_us2_sum"),
    *("responses_failed", "tests", "matches"),
)


class SavedWindow(msgspec.Struct, frozen=True):
    """An open window in a snapshot. Counts are decimal text: squares may need more than MessagePack's 64 bits."""

    window_start_us: int
    job_type: str
    topic: str
    counts: list[str]
    arrival_times_us: bytes
    response_buckets: dict[int, int]
