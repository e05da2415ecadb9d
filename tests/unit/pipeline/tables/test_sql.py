"""What passes through Python in SQL comes back as it was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lavant.pipeline.tables.sql import exact, lavant_matches

HOUR_US = 3_600_000_000


@pytest.fixture(params=["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_timestamps_return_to_spark_as_they_came_in_every_hour_of_a_year(zone: str) -> None:
    """Also in the one that the clock repeats, and inside other types."""
    moment = TimestampType()
    first = 1_767_225_600 * 1_000_000
    for us in range(first, first + 366 * 24 * HOUR_US, HOUR_US // 2):
        assert moment.toInternal(exact(moment.fromInternal(us), moment)) == us, (zone, us)
    nested = StructType(
        [
            StructField("at", moment),
            StructField("all", ArrayType(MapType(StringType(), moment))),
            StructField("wall", TimestampNTZType()),
            StructField("n", LongType()),
        ]
    )
    skipped = datetime(2026, 3, 29, 2, 30)  # in Berlin
    value = (moment.fromInternal(first), [{"a": moment.fromInternal(first)}, None], skipped, None)
    at, all, wall, n = exact(value, nested)
    assert [moment.toInternal(each) for each in (at, all[0]["a"])] == [first, first]
    assert (all[1], wall, n) == (None, skipped, None)
    assert exact(datetime(1, 1, 1), moment) == datetime(1, 1, 1)


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
def test_one_filter_takes_texts_of_either_length_and_rows_without_columns(text: pa.DataType) -> None:
    filters = pa.array(["x > 3", "not exists(x)", None], text)
    row = pa.array([{"x": 5}, {"x": None}, {"x": 5}], pa.struct([("x", pa.int64())]))
    assert lavant_matches(filters, row).to_pylist() == [True, True, None]
    assert lavant_matches(filters, pa.array([{}, {}, {}], pa.struct([]))).to_pylist() == [False, True, None]
