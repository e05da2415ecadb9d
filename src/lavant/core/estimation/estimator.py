"""The embedded estimator: telemetry goes in, estimates of closed windows come out.

    observe(batch) ──► rows of open windows are added,     close(watermark) ──► windows that end at or before the
                       rows of closed windows are late:                         watermark are closed for good, and
                       counted and dropped                                      their estimates returned

A row is late if its window was closed before its batch came; a row that is only older than the watermark is not late.
This is also Spark's rule: a micro-batch first drops rows of windows that the batches before it have closed,
then closes windows by the watermark that those batches have set. Calling `close(estimator.watermark_ms)` after each
`observe` is what Spark does when it has time for an empty micro-batch after each one with rows.
"""

from __future__ import annotations

import zlib
from collections import Counter

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray

from lavant.core.errors import UNDECODABLE, CorruptSnapshot, LimitExceeded
from lavant.core.estimation.buckets import bucket_of, percentile_bucket
from lavant.core.estimation.columns import GroupKey, TelemetryColumns, columns_of, groups
from lavant.core.estimation.estimates import EstimationConfig, WindowEstimate, estimate
from lavant.core.estimation.sums import PERCENTILES, WindowSums, gap_sums, square_sum
from lavant.core.telemetry import ObservationKind, checked_telemetry


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


_SNAPSHOT_VERSION = 1


class ObservedRows(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one batch, or of all: rows added, late rows, and the number of windows × keys of the late rows.

    `late_groups` corresponds to Spark's `numRowsDroppedByWatermark`: Spark drops groups, not rows.
    """

    rows: int = 0
    late_rows: int = 0
    late_groups: int = 0


class Estimator:
    """Windowed estimates of rates, variabilities, failures and percentiles.

    >>> from lavant.core.telemetry import ObservationKind, Observation, telemetry_batch
    >>> estimator = Estimator(EstimationConfig(window_ms=1000, lateness_ms=0, topics_overall=False))
    >>> times_us = (0, 100_000, 300_000, 1_000_000)
    >>> rows = [Observation(time_us=t, kind=ObservationKind.ARRIVAL, topic="A", publications=1) for t in times_us]
    >>> estimator.observe(telemetry_batch(rows))
    ObservedRows(rows=4, late_rows=0, late_groups=0)
    >>> [(e.topic, e.arrivals, e.arrival_rate_per_s) for e in estimator.close(estimator.watermark_ms)]
    [('A', 3, 3.0)]
    """

    def __init__(self, config: EstimationConfig) -> None:
        self.config = config
        self.total = ObservedRows()
        self._open: dict[GroupKey, OpenWindow] = {}
        self._newest_us = 0
        self._closed_ms = 0

    @property
    def watermark_ms(self) -> int:
        """The time of the newest row minus the lateness, in whole milliseconds, as in Spark."""
        return max(self._newest_us // 1000 - self.config.lateness_ms, 0)

    @property
    def rows_open(self) -> int:
        """Rows of open windows; with `topics_overall` each counts twice."""
        return sum(window.rows for window in self._open.values())

    def observe(self, batch: pa.RecordBatch) -> ObservedRows:
        """Adds a batch of telemetry, as a whole or not at all, and returns how much of it was late."""
        records = checked_telemetry(batch)
        if records.num_rows == 0:
            return ObservedRows()
        self._check_room(records.num_rows)
        columns = columns_of(records)
        window_us = self.config.window_ms * 1000
        late = columns.time_us // window_us * window_us + window_us <= self._closed_ms * 1000
        late_groups = 0
        for key, rows in groups(records, window_us=window_us, topics_overall=self.config.topics_overall):
            if late[rows[0]]:  # all rows of a group are of one window
                late_groups += 1
            else:
                self._open.setdefault(key, OpenWindow()).add(columns.take(rows))
        self._newest_us = max(self._newest_us, int(columns.time_us.max()))
        return self._count(ObservedRows(rows=records.num_rows, late_rows=int(late.sum()), late_groups=late_groups))

    def close(self, watermark_ms: int) -> list[WindowEstimate]:
        """Closes all windows that end at or before the watermark; a watermark older than the last closes nothing.

        Estimates are sorted by window, job type and topic.
        """
        self._closed_ms = max(self._closed_ms, watermark_ms)
        window_us = self.config.window_ms * 1000
        closing = sorted(key for key in self._open if key.window_start_us + window_us <= self._closed_ms * 1000)
        return [
            estimate(
                self._open.pop(key).sums(window_start_us=key.window_start_us, job_type=key.job_type, topic=key.topic),
                window_ms=self.config.window_ms,
            )
            for key in closing
        ]

    def snapshot(self) -> bytes:
        """Returns the whole state, for `restore`."""
        saved = _Snapshot(
            version=_SNAPSHOT_VERSION,
            config=self.config,
            total=self.total,
            newest_us=self._newest_us,
            closed_ms=self._closed_ms,
            windows=[self._open[key].saved(**key._asdict()) for key in sorted(self._open)],
        )
        body = msgspec.msgpack.encode(saved)
        return zlib.crc32(body).to_bytes(4, "big") + body

    @classmethod
    def restore(cls, snapshot: bytes) -> Estimator:
        """Returns the estimator of a snapshot."""
        checksum, body = snapshot[:4], snapshot[4:]
        if len(checksum) < 4 or zlib.crc32(body).to_bytes(4, "big") != checksum:
            raise CorruptSnapshot(f"a snapshot of an estimator ({len(snapshot)} bytes) is damaged; start without it")
        try:
            saved = msgspec.msgpack.decode(body, type=_Snapshot)
        except UNDECODABLE as error:
            raise CorruptSnapshot(f"a snapshot of an estimator is of another format: {error}") from None
        if saved.version != _SNAPSHOT_VERSION:
            raise CorruptSnapshot(
                f"a snapshot of an estimator is of version {saved.version}, expected {_SNAPSHOT_VERSION}"
            )
        estimator = cls(saved.config)
        estimator.total = saved.total
        estimator._newest_us, estimator._closed_ms = saved.newest_us, saved.closed_ms
        for window in saved.windows:
            key = GroupKey(window.window_start_us, window.job_type, window.topic)
            estimator._open[key] = OpenWindow.of_saved(window)
        return estimator

    def _check_room(self, rows: int) -> None:
        if self.rows_open + rows > self.config.rows_open_max:
            raise LimitExceeded(
                f"open windows hold {self.rows_open} rows and {rows} more came, at most {self.config.rows_open_max} "
                "are allowed; close windows more often, shorten window_ms or lateness_ms, or raise rows_open_max"
            )

    def _count(self, observed: ObservedRows) -> ObservedRows:
        self.total = ObservedRows(
            rows=self.total.rows + observed.rows,
            late_rows=self.total.late_rows + observed.late_rows,
            late_groups=self.total.late_groups + observed.late_groups,
        )
        return observed


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    config: EstimationConfig
    total: ObservedRows
    newest_us: int
    closed_ms: int
    windows: list[SavedWindow]
