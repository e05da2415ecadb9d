"""Windows of estimation, and the figures of one window from its sums: rates, variabilities, failures, percentiles.

For n values with sum S and sum of squares Q the squared coefficient of variation, variance over squared mean, is
n (nQ − S²) / ((n − 1) S²), with the sample variance (n − 1). Numerator and denominator are integers, and Python divides
integers with one rounding, so a figure is the double nearest to the true value, even where nQ − S² cancels.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from lavant.core.errors import InvalidValue
from lavant.core.estimation.buckets import middle_of
from lavant.core.estimation.sums import WindowSums

WINDOW_MS_MAX = 3_000_000
"""Fifty minutes: the squared gaps between arrivals of a window, in µs², then always fit 63 bits."""
LATENESS_MS_MAX = 24 * 3600 * 1000


class EstimationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Windows are [k · window_ms, (k + 1) · window_ms), counted from 1970.

    A window closes when a row arrives that is `lateness_ms` younger than its end. With `topics_overall` there is also
    an estimate for each topic over all job types, because the variability of merged arrivals cannot be computed from
    that of the parts. `rows_open_max` bounds the rows of open windows in the embedded estimator.
    """

    window_ms: int = 10_000
    lateness_ms: int = 5_000
    topics_overall: bool = True
    rows_open_max: int = 5_000_000

    def __post_init__(self) -> None:
        if not 1 <= self.window_ms <= WINDOW_MS_MAX:
            raise InvalidValue(
                f"window_ms must lie between 1 and {WINDOW_MS_MAX}, got {self.window_ms}; "
                "start at a window that holds about a hundred arrivals"
            )
        if not 0 <= self.lateness_ms <= LATENESS_MS_MAX:
            raise InvalidValue(
                f"lateness_ms must lie between 0 and {LATENESS_MS_MAX}, got {self.lateness_ms}; "
                "start at twice the interval in which hosts write telemetry"
            )
        if self.rows_open_max < 1:
            raise InvalidValue(f"rows_open_max must be positive, got {self.rows_open_max}")


class WindowEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements in [window_start_ms, window_end_ms) for a job type at a topic.

    None means too few rows: no service, or fewer than two gaps between arrivals. The job type "*" stands for all of
    them. A window without rows has no estimate: its arrival rate is 0.
    """

    window_start_ms: int
    window_end_ms: int
    job_type: str
    topic: str
    rows: int
    arrivals: int
    arrival_rate_per_s: float
    """Arrivals over the length of the window."""
    arrival_scv: float | None
    """Squared coefficient of variation of the times between arrivals."""
    services: int
    services_failed: int
    service_rate_per_s: float | None
    """Services that one server completes in a second, including failed ones, which also keep it busy."""
    service_scv: float | None
    failure_probability: float | None
    responses: int
    responses_failed: int
    response_p50_ms: float | None
    """Percentiles of responses that did not fail; at most 1/128 from the exact ones."""
    response_p95_ms: float | None
    response_p99_ms: float | None
    matches: int
    matching_rate: float | None
    """Matches for each pair of a publication and a subscription."""


_NULLABLE = (
    *("arrival_scv", "service_rate_per_s", "service_scv", "failure_probability", "matching_rate"),
    *("response_p50_ms", "response_p95_ms", "response_p99_ms"),
)


def _arrow_type(name: str) -> pa.DataType:
    if name in ("job_type", "topic"):
        return pa.string()
    return pa.float64() if name in (*_NULLABLE, "arrival_rate_per_s") else pa.int64()


ESTIMATE_SCHEMA = pa.schema(
    [pa.field(name, _arrow_type(name), nullable=name in _NULLABLE) for name in WindowEstimate.__struct_fields__]
)


def estimate(sums: WindowSums, *, window_ms: int) -> WindowEstimate:
    """Computes the figures of a window from its sums.

    >>> sums = WindowSums(window_start_us=0, job_type="", topic="A", rows=3, arrivals=3, arrival_span_us=30,
    ...                   gap_us2_sum=500)
    >>> figures = estimate(sums, window_ms=1000)
    >>> figures.arrival_rate_per_s, round(figures.arrival_scv, 4)
    (3.0, 0.2222)
    """
    start_ms = sums.window_start_us // 1000
    return WindowEstimate(
        window_start_ms=start_ms,
        window_end_ms=start_ms + window_ms,
        job_type=sums.job_type,
        topic=sums.topic,
        rows=sums.rows,
        arrivals=sums.arrivals,
        arrival_rate_per_s=sums.arrivals * 1000 / window_ms,
        arrival_scv=_scv(sums.arrivals - 1, sums.arrival_span_us, sums.gap_us2_sum),
        services=sums.services,
        services_failed=sums.services_failed,
        service_rate_per_s=_ratio(sums.services * 1_000_000, sums.service_us_sum),
        service_scv=_scv(sums.services, sums.service_us_sum, sums.service_us2_sum),
        failure_probability=_ratio(sums.services_failed, sums.services),
        responses=sums.responses,
        responses_failed=sums.responses_failed,
        response_p50_ms=_milliseconds(sums.response_p50_bucket),
        response_p95_ms=_milliseconds(sums.response_p95_bucket),
        response_p99_ms=_milliseconds(sums.response_p99_bucket),
        matches=sums.matches,
        matching_rate=_ratio(sums.matches, sums.tests),
    )


def estimate_batch(estimates: Sequence[WindowEstimate]) -> pa.RecordBatch:
    """Returns estimates by column, ready for a Parquet file."""
    columns = [
        pa.array([getattr(estimate, field.name) for estimate in estimates], field.type) for field in ESTIMATE_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ESTIMATE_SCHEMA)


def _scv(count: int, total: int, square_total: int) -> float | None:
    if count < 2 or total == 0:
        return None
    return count * (count * square_total - total * total) / ((count - 1) * total * total)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _milliseconds(bucket: int | None) -> float | None:
    return None if bucket is None else middle_of(bucket) / 1000
