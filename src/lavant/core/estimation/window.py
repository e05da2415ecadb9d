"""An open window of one job type and topic, from columns of rows to sums."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from lavant.core.estimation.buckets import bucket_of, percentile_bucket
from lavant.core.estimation.columns import TelemetryColumns
from lavant.core.estimation.sums import PERCENTILES, WindowSums, gap_sums, square_sum
from lavant.core.telemetry import ObservationKind


class OpenWindow:
    """The state of a window until it closes: counts, and the times of arrivals, which gaps need in order."""

    def __init__(self) -> None:
        self._sums = WindowSums()
        """Everything except gaps and percentiles."""
        self._arrival_times_us: list[NDArray[np.int64]] = []
        self._response_buckets: Counter[int] = Counter()

    @property
    def rows(self) -> int:
        return self._sums.rows

    def add(self, rows: TelemetryColumns) -> None:
        """Adds rows of this window, of all kinds."""
        self._sums.rows += len(rows.time_us)
        self._add_arrivals(rows.of_kind(ObservationKind.ARRIVAL))
        self._add_services(rows.of_kind(ObservationKind.SERVICE))
        self._add_responses(rows.of_kind(ObservationKind.RESPONSE))
        self._add_matches(rows.of_kind(ObservationKind.MATCH))

    def sums(self, *, window_start_us: int, job_type: str, topic: str) -> WindowSums:
        """Returns the sums so far; more rows may follow."""
        span_us, gap_us2_sum = gap_sums(self._times_us())
        p50, p95, p99 = (percentile_bucket(self._response_buckets, fraction) for fraction in PERCENTILES)
        return replace(
            self._sums,
            window_start_us=window_start_us,
            job_type=job_type,
            topic=topic,
            arrival_span_us=span_us,
            gap_us2_sum=gap_us2_sum,
            responses=self._response_buckets.total(),
            response_p50_bucket=p50,
            response_p95_bucket=p95,
            response_p99_bucket=p99,
        )

    def _times_us(self) -> NDArray[np.int64]:
        return np.concatenate([np.empty(0, np.int64), *self._arrival_times_us])

    def _add_arrivals(self, rows: TelemetryColumns) -> None:
        if rows:
            self._sums.arrivals += int(rows.publications.sum())
            self._arrival_times_us.append(rows.time_us)

    def _add_services(self, rows: TelemetryColumns) -> None:
        if rows:
            self._sums.services += len(rows.time_us)
            self._sums.services_failed += int(rows.failed.sum())
            self._sums.service_us_sum += int(rows.duration_us.sum())
            self._sums.service_us2_sum += square_sum(rows.duration_us)

    def _add_responses(self, rows: TelemetryColumns) -> None:
        if rows:
            self._sums.responses_failed += int(rows.failed.sum())
            buckets, counts = np.unique(bucket_of(rows.duration_us[~rows.failed]), return_counts=True)
            self._response_buckets.update(dict(zip(buckets.tolist(), counts.tolist(), strict=True)))

    def _add_matches(self, rows: TelemetryColumns) -> None:
        if rows:
            pairs = zip(rows.publications.tolist(), rows.subscriptions.tolist(), strict=True)
            self._sums.tests += sum(publications * subscriptions for publications, subscriptions in pairs)
            self._sums.matches += sum(rows.matches.tolist())

    # ---- snapshots --------------------------------------------------------------------------------------------------

    def saved(self, *, window_start_us: int, job_type: str, topic: str) -> SavedWindow:
        return SavedWindow(
            window_start_us=window_start_us,
            job_type=job_type,
            topic=topic,
            counts=[str(getattr(self._sums, name)) for name in _COUNTS],
            arrival_times_us=self._times_us().astype("<i8").tobytes(),
            response_buckets=dict(self._response_buckets),
        )

    @classmethod
    def of_saved(cls, saved: SavedWindow) -> OpenWindow:
        window = cls()
        for name, count in zip(_COUNTS, saved.counts, strict=True):
            setattr(window._sums, name, int(count))
        window._arrival_times_us = [np.frombuffer(saved.arrival_times_us, "<i8").astype(np.int64)]
        window._response_buckets = Counter(saved.response_buckets)
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
