"""The estimator against a plain computation over all rows, in every order and cut of them."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.core.estimation import EstimationConfig, Estimator, SlidingWindow, WindowEstimate
from lavant.core.estimation.buckets import RELATIVE_ERROR_MAX, bucket_of, middle_of
from lavant.core.estimation.sums import square_sum
from lavant.core.telemetry import DURATION_US_MAX, Observation, ObservationKind, Outcome, telemetry_batch

CONFIG = EstimationConfig(window_ms=10, lateness_ms=0, topics_overall=False)
FOREVER_MS = 2**43

times_us = st.integers(0, 40_000)
topics = st.sampled_from(["A", "B"])
durations_us = st.integers(0, DURATION_US_MAX)
outcomes = st.sampled_from(Outcome)
observations = st.one_of(
    st.builds(
        Observation,
        time_us=times_us,
        kind=st.just(ObservationKind.ARRIVAL),
        topic=topics,
        publications=st.integers(1, 3),
    ),
    *(
        st.builds(
            Observation, time_us=times_us, kind=st.just(kind), topic=topics, duration_us=durations_us, outcome=outcomes
        )
        for kind in (ObservationKind.SERVICE, ObservationKind.RESPONSE)
    ),
)


def scv(values: list[int]) -> float | None:
    if len(values) < 2 or sum(values) == 0:
        return None
    exact = [Fraction(value) for value in values]
    return float(statistics.variance(exact) / statistics.mean(exact) ** 2)


def arrival_gaps(rows: list[Observation]) -> list[int]:
    times = sorted(row.time_us for row in rows if row.kind is ObservationKind.ARRIVAL for _ in range(row.publications))
    return [later - earlier for earlier, later in pairwise(times)]


def check(estimate: WindowEstimate, rows: list[Observation]) -> None:
    services = [row.duration_us or 0 for row in rows if row.kind is ObservationKind.SERVICE]
    responses = sorted(
        row.duration_us or 0 for row in rows if row.kind is ObservationKind.RESPONSE and row.outcome is Outcome.OK
    )
    assert estimate.rows == len(rows)
    assert estimate.arrival_scv == scv(arrival_gaps(rows))
    assert estimate.service_scv == scv(services)
    assert estimate.services == len(services)
    assert estimate.responses == len(responses)
    for fraction, got_ms in (
        (0.5, estimate.response_p50_ms),
        (0.95, estimate.response_p95_ms),
        (0.99, estimate.response_p99_ms),
    ):
        if responses:
            exact_us = responses[math.ceil(len(responses) * fraction) - 1]
            assert got_ms == pytest.approx(exact_us / 1000, rel=RELATIVE_ERROR_MAX)
        else:
            assert got_ms is None


@given(rows=st.lists(observations, max_size=60), cut=st.integers(0, 60), random=st.randoms(use_true_random=False))
def test_figures_are_those_of_a_plain_computation_in_any_order_and_cut(
    rows: list[Observation], cut: int, random: object
) -> None:
    groups: dict[tuple[int, str], list[Observation]] = defaultdict(list)
    for row in rows:
        groups[row.time_us // 10_000 * 10, row.topic].append(row)

    straight, shuffled = Estimator(CONFIG), Estimator(CONFIG)
    straight.observe(telemetry_batch(rows))
    mixed = sorted(rows, key=lambda _: random.random())  # type: ignore[attr-defined]
    for part in (mixed[:cut], mixed[cut:]):
        shuffled.observe(telemetry_batch(part))
        shuffled = Estimator.restore(shuffled.snapshot())

    found = straight.close(FOREVER_MS)
    assert [(e.window_start_ms, e.topic) for e in found] == sorted(groups)
    for estimate in found:
        check(estimate, groups[estimate.window_start_ms, estimate.topic])
    assert shuffled.close(FOREVER_MS) == found


@given(batches=st.lists(st.lists(observations, max_size=8), max_size=8))
def test_every_row_is_in_one_estimate_or_late(batches: list[list[Observation]]) -> None:
    estimator = Estimator(CONFIG)
    given_out: list[WindowEstimate] = []
    for batch in batches:
        closed_before = {(e.window_start_ms, e.topic) for e in given_out}
        observed = estimator.observe(telemetry_batch(batch))
        assert observed.late_rows >= sum((row.time_us // 10_000 * 10, row.topic) in closed_before for row in batch)
        given_out += estimator.close(estimator.watermark_ms)
    given_out += estimator.close(FOREVER_MS)
    keys = [(e.window_start_ms, e.topic) for e in given_out]
    assert len(set(keys)) == len(keys)
    assert sum(e.rows for e in given_out) + estimator.total.late_rows == sum(map(len, batches)) == estimator.total.rows


@given(value=st.integers(0, 2**53))
def test_the_middle_of_a_bucket_is_near_every_value_in_it(value: int) -> None:
    bucket = int(bucket_of(np.array([value]))[0])
    assert bucket <= value
    assert abs(middle_of(bucket) - value) <= RELATIVE_ERROR_MAX * value
    assert int(bucket_of(np.array([bucket]))[0]) == bucket


@given(values=st.lists(durations_us, max_size=30))
def test_sums_of_squares_are_exact(values: list[int]) -> None:
    assert square_sum(np.array(values, np.int64)) == sum(value**2 for value in values)


PANE_US = 1000
FIGURES_ALIKE = (
    *("rows", "services", "services_failed", "service_rate_per_s", "service_scv", "failure_probability", "responses"),
    *("matches", "matching_rate"),
)
events = st.lists(
    st.builds(
        Observation,
        time_us=times_us,
        kind=st.sampled_from([ObservationKind.ARRIVAL, ObservationKind.SERVICE, ObservationKind.RESPONSE]),
        topic=st.just("A"),
        publications=st.just(1),
        duration_us=durations_us,
        outcome=outcomes,
    ),
    max_size=40,
).map(lambda rows: sorted(map(event, rows), key=lambda row: row.time_us))


def event(row: Observation) -> Observation:
    """A row with the columns of its kind only; a sliding window counts no responses that failed."""
    if row.kind is ObservationKind.ARRIVAL:
        return Observation(time_us=row.time_us, kind=row.kind, topic=row.topic, publications=1)
    outcome = row.outcome if row.kind is ObservationKind.SERVICE else Outcome.OK
    return Observation(
        time_us=row.time_us, kind=row.kind, topic=row.topic, duration_us=row.duration_us, outcome=outcome
    )


def estimated(rows: list[Observation]) -> WindowEstimate | None:
    """What the estimator says of all these rows."""
    estimator = Estimator(EstimationConfig(window_ms=1000, lateness_ms=0, topics_overall=False))
    estimator.observe(telemetry_batch(rows))
    return next(iter(estimator.close(FOREVER_MS)), None)


@given(events, st.integers(0, 40_000))
def test_a_sliding_window_has_the_figures_of_the_estimator(rows: list[Observation], from_us: int) -> None:
    """Of the same rows; gaps begin at the last arrival before the window."""
    window = SlidingWindow(pane_us=PANE_US)
    for row in rows:
        match row.kind:
            case ObservationKind.ARRIVAL:
                window.add_arrival(row.time_us)
            case ObservationKind.SERVICE:
                window.add_service(row.time_us, row.duration_us or 0, is_ok=row.outcome is Outcome.OK)
            case _:
                window.add_response(row.time_us, row.duration_us or 0)
    figures = window.estimate(from_us=from_us, window_us=1_000_000, topic="A")

    start_us = -(-from_us // PANE_US) * PANE_US  # the first pane that begins there or later
    inside = [row for row in rows if row.time_us >= start_us]
    arrivals = [row for row in rows if row.kind is ObservationKind.ARRIVAL]
    arrivals_inside = [row for row in arrivals if row.time_us >= start_us]
    with_gaps = arrivals[max(len(arrivals) - len(arrivals_inside) - 1, 0) :]
    expected = estimated(inside)
    if expected is None:
        assert (figures.rows, figures.arrivals, figures.services) == (0, 0, 0)
        return
    for name in FIGURES_ALIKE:
        assert getattr(figures, name) == getattr(expected, name), name
    assert figures.arrival_rate_per_s == expected.arrival_rate_per_s
    if arrivals_inside:
        gaps = estimated(with_gaps)
        assert gaps is not None
        assert (figures.arrivals, figures.arrival_scv) == (gaps.arrivals, gaps.arrival_scv)
    responses = [row.duration_us or 0 for row in inside if row.kind is ObservationKind.RESPONSE]
    mean_s = sum(responses) / len(responses) / 1e6 if responses else None
    assert window.sums(from_us=from_us).response_mean_s == mean_s
