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

from lavant.core.estimation import EstimationConfig, Estimator, WindowEstimate
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
