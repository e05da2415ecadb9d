"""Estimates of windows with known answers, late rows, snapshots, limits."""

from __future__ import annotations

import doctest
import math
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from lavant.core.errors import CorruptSnapshot, InvalidValue, LimitExceeded
from lavant.core.estimation import (
    ESTIMATE_SCHEMA,
    EstimationConfig,
    Estimator,
    ObservedRows,
    WindowEstimate,
    estimate_batch,
)
from lavant.core.telemetry import DURATION_US_MAX, Observation, ObservationKind, Outcome, telemetry_batch

CONFIG = EstimationConfig(window_ms=1000, lateness_ms=500, topics_overall=False)
FOREVER_MS = 2**43


def arrivals(*times_ms: float, **more: Any) -> list[Observation]:
    base: dict[str, Any] = {"kind": ObservationKind.ARRIVAL, "publications": 1, "topic": "A"}
    return [Observation(time_us=round(time_ms * 1000), **(base | more)) for time_ms in times_ms]


def timed(kind: ObservationKind, *durations_us: int, **more: Any) -> list[Observation]:
    return [Observation(time_us=0, kind=kind, topic="A", duration_us=duration, **more) for duration in durations_us]


def estimates(rows: Iterable[Observation], config: EstimationConfig = CONFIG) -> list[WindowEstimate]:
    estimator = Estimator(config)
    estimator.observe(telemetry_batch(list(rows)))
    return estimator.close(FOREVER_MS)


def only(rows: Iterable[Observation]) -> WindowEstimate:
    (estimate,) = estimates(rows)
    return estimate


@pytest.mark.parametrize("name", ["buckets", "sums", "estimates", "estimator"])
def test_the_examples_run(name: str) -> None:
    results = doctest.testmod(import_module(f"lavant.core.estimation.{name}"))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_examples_of_the_page_run() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "telemetry.md"
    results = doctest.testfile(str(page), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0


# ---- figures --------------------------------------------------------------------------------------------------------


def test_regular_arrivals_have_no_variability() -> None:
    estimate = only(arrivals(*range(0, 1000, 10)))
    assert (estimate.arrivals, estimate.arrival_rate_per_s, estimate.arrival_scv) == (100, 100.0, 0.0)


def test_the_variability_of_arrivals_is_that_of_the_gaps_inside_the_window() -> None:
    # Gaps 1, 3, 5 ms: mean 3, sample variance 4.
    assert only(arrivals(100, 101, 104, 109)).arrival_scv == pytest.approx(4 / 9, rel=1e-15)


def test_publications_that_arrive_together_have_gaps_of_zero() -> None:
    # Two at 0 and two at 10 ms: gaps 0, 10, 0.
    together = only([*arrivals(0, publications=2), *arrivals(10, publications=2)])
    assert together == msgspec.structs.replace(only(arrivals(0, 0, 10, 10)), rows=2)
    assert together.arrival_scv == pytest.approx(3.0)


@pytest.mark.parametrize("times_ms", [(5,), (5, 9), (5, 5, 5)])
def test_too_few_gaps_give_no_variability(times_ms: tuple[int, ...]) -> None:
    estimate = only(arrivals(*times_ms))
    assert estimate.arrivals == len(times_ms)
    assert estimate.arrival_scv is None


def test_the_gap_across_a_border_belongs_to_no_window() -> None:
    first, second = estimates(arrivals(0, 1, 3, 999, 1000, 1001, 1003))
    assert first.arrivals == 4
    assert second.arrival_scv == pytest.approx(0.5 / 2.25)


def test_services_give_rate_variability_and_failures() -> None:
    rows = [*timed(ObservationKind.SERVICE, 1000, 3000), *timed(ObservationKind.SERVICE, 5000, outcome=Outcome.FAILED)]
    estimate = only(rows)
    assert (estimate.services, estimate.services_failed) == (3, 1)
    assert estimate.service_rate_per_s == pytest.approx(1000 / 3)
    assert estimate.service_scv == pytest.approx(4 / 9)
    assert estimate.failure_probability == pytest.approx(1 / 3)


def test_services_of_no_length_have_no_rate() -> None:
    estimate = only(timed(ObservationKind.SERVICE, 0, 0))
    assert (estimate.service_rate_per_s, estimate.service_scv) == (None, None)


def test_a_tiny_variability_beside_a_huge_mean_is_exact() -> None:
    # Naive double sums give 0 or worse here: the variance is 10⁻²³ of the squared mean.
    estimate = only(timed(ObservationKind.SERVICE, DURATION_US_MAX, DURATION_US_MAX - 2))
    assert estimate.service_scv == pytest.approx(2 / (DURATION_US_MAX - 1) ** 2, rel=1e-15)


def test_percentiles_are_within_a_128th_of_the_exact_ones() -> None:
    durations = [round(1.013**n * 1000) for n in range(1000)]
    estimate = only(timed(ObservationKind.RESPONSE, *durations))
    exact_ms = [durations[math.ceil(1000 * fraction) - 1] / 1000 for fraction in (0.5, 0.95, 0.99)]
    got_ms = [estimate.response_p50_ms, estimate.response_p95_ms, estimate.response_p99_ms]
    assert got_ms == [pytest.approx(exact, rel=1 / 128) for exact in exact_ms]


def test_failed_responses_are_counted_and_kept_out_of_percentiles() -> None:
    rows = [*timed(ObservationKind.RESPONSE, 100), *timed(ObservationKind.RESPONSE, 10**9, outcome=Outcome.FAILED)]
    estimate = only(rows)
    assert (estimate.responses, estimate.responses_failed, estimate.response_p99_ms) == (1, 1, 0.1)


def test_the_matching_rate_weighs_batches_by_their_tests() -> None:
    base: dict[str, Any] = {"time_us": 0, "kind": ObservationKind.MATCH}
    rows = [
        Observation(**base, publications=10, subscriptions=100, matches=10),
        Observation(**base, publications=1, subscriptions=9000, matches=0),
    ]
    assert only(rows).matching_rate == 0.001
    assert only(rows).matches == 10


def test_a_kind_that_did_not_occur_has_no_figures() -> None:
    estimate = only(arrivals(1))
    assert estimate.arrival_rate_per_s == 1.0
    nothing = ("service_rate_per_s", "failure_probability", "response_p50_ms", "matching_rate")
    assert [getattr(estimate, name) for name in nothing] == [None] * 4


def test_each_job_type_and_topic_has_its_own_estimate_and_each_topic_one_for_all() -> None:
    config = EstimationConfig(window_ms=1000, lateness_ms=0)
    rows = [*arrivals(0, 20, job_type="order"), *arrivals(10, job_type="return"), *arrivals(5, topic="B")]
    found = {(e.job_type, e.topic): e for e in estimates(rows, config)}
    assert {key: e.arrivals for key, e in found.items()} == {
        ("*", "A"): 3,
        ("*", "B"): 1,
        ("", "B"): 1,
        ("order", "A"): 2,
        ("return", "A"): 1,
    }
    assert found["*", "A"].arrival_scv == 0.0


def test_estimates_are_columns_too() -> None:
    batch = estimate_batch(estimates([*arrivals(0, 1, 5), *timed(ObservationKind.SERVICE, 5)]))
    assert batch.schema == ESTIMATE_SCHEMA
    assert [WindowEstimate(**row) for row in batch.to_pylist()] == estimates(
        [*arrivals(0, 1, 5), *timed(ObservationKind.SERVICE, 5)]
    )
    assert estimate_batch([]).num_rows == 0


# ---- windows and late rows ------------------------------------------------------------------------------------------


def test_a_window_closes_when_the_watermark_reaches_its_end() -> None:
    estimator = Estimator(CONFIG)
    estimator.observe(telemetry_batch(arrivals(999.999, 1499.999)))
    assert estimator.watermark_ms == 999
    assert estimator.close(estimator.watermark_ms) == []
    estimator.observe(telemetry_batch(arrivals(1500)))
    closed = estimator.close(estimator.watermark_ms)
    assert [(e.window_start_ms, e.window_end_ms, e.arrivals) for e in closed] == [(0, 1000, 1)]
    assert estimator.close(estimator.watermark_ms) == []


def test_a_row_is_late_when_its_window_is_closed_not_when_the_watermark_has_passed_it() -> None:
    estimator = Estimator(CONFIG)
    estimator.observe(telemetry_batch(arrivals(10, 2900)))  # the watermark is at 2400
    estimator.close(estimator.watermark_ms)
    assert estimator.observe(telemetry_batch(arrivals(1999.999, 2000))) == ObservedRows(
        rows=2, late_rows=1, late_groups=1
    )


def test_rows_are_not_late_before_close_was_called() -> None:
    estimator = Estimator(CONFIG)
    assert estimator.observe(telemetry_batch(arrivals(99_000, 5))).late_rows == 0
    assert estimator.observe(telemetry_batch(arrivals(7))).late_rows == 0
    assert [e.arrivals for e in estimator.close(FOREVER_MS)] == [2, 1]


def test_late_rows_are_counted_by_row_and_by_group() -> None:
    estimator = Estimator(EstimationConfig(window_ms=1000, lateness_ms=0))
    estimator.close(2000)
    late = [*arrivals(1, 2, 1001), *arrivals(3, job_type="order")]
    # Groups: two windows and two job types make 3, and each window over all job types 2 more.
    assert estimator.observe(telemetry_batch(late)) == ObservedRows(rows=4, late_rows=4, late_groups=5)
    estimator.observe(telemetry_batch(arrivals(1, 2000)))
    assert estimator.total == ObservedRows(rows=6, late_rows=5, late_groups=7)
    assert len(estimator.close(FOREVER_MS)) == 2


def test_an_older_watermark_closes_nothing_and_opens_nothing() -> None:
    estimator = Estimator(CONFIG)
    estimator.close(5000)
    assert estimator.close(1000) == []
    assert estimator.observe(telemetry_batch(arrivals(4000))).late_rows == 1


def test_an_empty_batch_changes_nothing() -> None:
    estimator = Estimator(CONFIG)
    before = estimator.snapshot()
    assert estimator.observe(telemetry_batch([])) == ObservedRows()
    assert estimator.snapshot() == before


# ---- limits, bad rows, snapshots ------------------------------------------------------------------------------------


def test_open_windows_have_a_bound_and_a_refused_batch_leaves_no_trace() -> None:
    estimator = Estimator(EstimationConfig(topics_overall=False, rows_open_max=3))
    estimator.observe(telemetry_batch(arrivals(1, 2)))
    before = estimator.snapshot()
    with pytest.raises(LimitExceeded, match="hold 2 rows and 2 more came, at most 3 are allowed; close windows"):
        estimator.observe(telemetry_batch(arrivals(1, 2)))
    assert estimator.snapshot() == before


def test_rows_that_are_no_telemetry_are_refused() -> None:
    with pytest.raises(InvalidValue, match="telemetry lacks the columns"):
        Estimator(CONFIG).observe(pa.RecordBatch.from_arrays([pa.array([1])], names=["x"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window_ms": 0}, "window_ms must lie between 1 and 3000000, got 0; start at"),
        ({"window_ms": 3_000_001}, "window_ms must lie between 1 and 3000000"),
        ({"lateness_ms": -1}, "lateness_ms must lie between 0 and 86400000, got -1; start at"),
        ({"rows_open_max": 0}, "rows_open_max must be positive"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        EstimationConfig(**change)  # type: ignore[arg-type]


def test_the_longest_window_does_not_overflow() -> None:
    config = EstimationConfig(window_ms=3_000_000, topics_overall=False)
    (estimate,) = estimates(arrivals(0, 0, 2_999_999.999), config)
    assert estimate.arrival_scv == pytest.approx(2.0)


def test_a_restored_estimator_goes_on_as_if_nothing_had_happened() -> None:
    first = [
        *arrivals(0, 7, 3),
        *timed(ObservationKind.SERVICE, DURATION_US_MAX, 4),
        *timed(ObservationKind.RESPONSE, 900, 10**6),
    ]
    second = [*arrivals(1, 900, 1700), *timed(ObservationKind.RESPONSE, 5)]
    estimator = Estimator(CONFIG)
    estimator.observe(telemetry_batch(first))
    restored = Estimator.restore(estimator.snapshot())
    for one in (estimator, restored):
        one.observe(telemetry_batch(second))
    assert restored.snapshot() == estimator.snapshot()
    assert restored.total == estimator.total
    assert restored.close(restored.watermark_ms) == estimator.close(estimator.watermark_ms) != []


def test_a_damaged_snapshot_is_refused() -> None:
    snapshot = bytearray(Estimator(CONFIG).snapshot())
    snapshot[-1] ^= 1
    for damaged in (bytes(snapshot), b"", bytes(snapshot[:9])):
        with pytest.raises(CorruptSnapshot, match="damaged"):
            Estimator.restore(damaged)
