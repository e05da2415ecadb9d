"""The schema of telemetry: what is accepted, and what is refused in words."""

from __future__ import annotations

import doctest
from typing import Any

import pyarrow as pa
import pytest

from lavant.core import telemetry
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.telemetry import (
    DURATION_US_MAX,
    PUBLICATIONS_MAX,
    ROWS_OF_A_BATCH_MAX,
    SUBSCRIPTIONS_MAX,
    TELEMETRY_SCHEMA,
    TIME_US_MAX,
    Observation,
    ObservationKind,
    Outcome,
    checked_telemetry,
    telemetry_batch,
)

ARRIVAL: dict[str, Any] = {"kind": ObservationKind.ARRIVAL, "time_us": 7, "publications": 1}
SERVICE: dict[str, Any] = {"kind": ObservationKind.SERVICE, "time_us": 7, "duration_us": 5}
MATCH: dict[str, Any] = {"kind": ObservationKind.MATCH, "time_us": 7, "publications": 2, "subscriptions": 3}


def test_the_examples_run() -> None:
    results = doctest.testmod(telemetry)
    assert results.attempted > 0
    assert results.failed == 0


def test_rows_come_back_from_a_batch_as_they_went_in() -> None:
    rows = [
        Observation(**ARRIVAL, job_type="order", topic="A", host="h1"),
        Observation(**SERVICE, outcome=Outcome.FAILED),
        Observation(**MATCH, matches=6, slice=3),
    ]
    batch = telemetry_batch(rows)
    assert batch.schema == TELEMETRY_SCHEMA
    read = batch.to_pylist()
    assert [row.pop("version") for row in read] == [1, 1, 1]
    assert [Observation(**row) for row in read] == rows


def test_an_empty_batch_is_a_batch() -> None:
    assert telemetry_batch([]).num_rows == 0


def test_columns_may_be_in_another_order_with_others_among_them() -> None:
    batch = telemetry_batch([Observation(**ARRIVAL)])
    names = ["note", *reversed(TELEMETRY_SCHEMA.names)]
    columns = [pa.array(["x"]), *reversed(batch.columns)]
    assert checked_telemetry(pa.RecordBatch.from_arrays(columns, names=names)) == batch


def test_a_column_of_a_narrower_type_is_widened() -> None:
    batch = telemetry_batch([Observation(**ARRIVAL)])
    index = batch.schema.get_field_index("publications")
    assert checked_telemetry(batch.set_column(index, "publications", pa.array([1], pa.int8()))) == batch


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (ARRIVAL | {"kind": "nap"}, "kind must be one of arrival, service, response, match"),
        (SERVICE | {"outcome": "so-so"}, "outcome must be one of ok, failed"),
        (ARRIVAL | {"time_us": -1}, "time_us must lie between 0"),
        (ARRIVAL | {"time_us": TIME_US_MAX + 1}, "time_us must lie between 0"),
        (ARRIVAL | {"duration_us": 5}, "other rows none"),
        (SERVICE | {"duration_us": None}, "services and responses have a duration_us"),
        (SERVICE | {"duration_us": -1}, "duration_us must lie between 0"),
        (SERVICE | {"duration_us": DURATION_US_MAX + 1}, "duration_us must lie between 0"),
        (ARRIVAL | {"outcome": Outcome.FAILED}, "only services and responses fail"),
        (ARRIVAL | {"publications": 0}, "arrivals and matches have publications"),
        (SERVICE | {"publications": 1}, "other rows none"),
        (ARRIVAL | {"publications": -1}, "publications must lie between 0"),
        (ARRIVAL | {"publications": PUBLICATIONS_MAX + 1}, "publications must lie between 0"),
        (MATCH | {"subscriptions": SUBSCRIPTIONS_MAX + 1}, "subscriptions must lie between 0"),
        (ARRIVAL | {"subscriptions": 1}, "only matches have subscriptions"),
        (MATCH | {"matches": 7}, "matches must lie between 0 and publications × subscriptions"),
        (MATCH | {"matches": -1}, "matches must lie between 0 and publications × subscriptions"),
        (ARRIVAL | {"matches": 1}, "matches must lie between 0 and publications × subscriptions"),
        (ARRIVAL | {"job_type": "*"}, "stands for all of them"),
        (ARRIVAL | {"topic": "x" * 129}, "topic has more than 128 characters"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused_by_number(row: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValue, match=f"telemetry row 1: .*{problem}.*the row is"):
        telemetry_batch([Observation(**ARRIVAL), Observation(**row)])


def test_the_largest_values_are_accepted() -> None:
    counts = {"publications": PUBLICATIONS_MAX, "subscriptions": SUBSCRIPTIONS_MAX}
    largest = counts | {"matches": PUBLICATIONS_MAX * SUBSCRIPTIONS_MAX}
    rows = [
        Observation(**SERVICE | {"time_us": TIME_US_MAX, "duration_us": DURATION_US_MAX}),
        Observation(**MATCH | largest),
    ]
    assert telemetry_batch(rows).num_rows == 2


def test_a_value_of_another_type_is_refused_with_the_column() -> None:
    with pytest.raises(InvalidValue, match="telemetry column 'publications' takes int64"):
        telemetry_batch([Observation(**ARRIVAL | {"publications": "many"})])


def test_another_version_is_named_before_its_columns() -> None:
    future = pa.RecordBatch.from_arrays([pa.array([2], pa.int16()), pa.array([1])], names=["version", "weather"])
    with pytest.raises(InvalidValue, match="telemetry is of version 2, this Lavant reads version 1"):
        checked_telemetry(future)


def test_missing_columns_are_named() -> None:
    batch = telemetry_batch([Observation(**ARRIVAL)])
    lacking = batch.drop_columns(["kind", "slice"])
    with pytest.raises(InvalidValue, match="telemetry lacks the columns kind, slice; it has version, time_us"):
        checked_telemetry(lacking)


def test_a_column_that_cannot_be_cast_is_named_with_its_type() -> None:
    batch = telemetry_batch([Observation(**ARRIVAL)])
    odd = batch.set_column(batch.schema.get_field_index("time_us"), "time_us", pa.array(["noon"]))
    with pytest.raises(InvalidValue, match="telemetry column 'time_us' is of type string, expected int64"):
        checked_telemetry(odd)


def test_null_is_refused_where_a_value_must_be() -> None:
    batch = telemetry_batch([Observation(**ARRIVAL)] * 2)
    odd = batch.set_column(batch.schema.get_field_index("topic"), "topic", pa.array(["A", None]))
    with pytest.raises(InvalidValue, match="telemetry column 'topic' is null in row 1"):
        checked_telemetry(odd)


def test_a_batch_has_a_bound() -> None:
    batch = pa.RecordBatch.from_arrays([pa.repeat(1, ROWS_OF_A_BATCH_MAX + 1)], names=["version"])
    with pytest.raises(LimitExceeded, match="at most 1000000 are allowed; split it"):
        checked_telemetry(batch)
