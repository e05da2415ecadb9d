"""Values of columns as attributes, where Spark and Arrow differ."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lavant.core.errors import InvalidValue
from lavant.pipeline.tables.columns import timestamps


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "1970-01-01 00:00:00.25"),
        ("Z", "1970-01-01 00:00:00.25"),
        ("GMT+3", "1970-01-01 03:00:00.25"),
        ("UTC-01:30", "1969-12-31 22:30:00.25"),
        ("+5", "1970-01-01 05:00:00.25"),
        ("Asia/Kolkata", "1970-01-01 05:30:00.25"),
    ],
)
def test_times_are_texts_in_any_time_zone_of_spark(zone: str, text: str) -> None:
    column, refused = timestamps("at", pa.array([250_000, None], pa.timestamp("us", zone)))
    assert (column.to_pylist(), refused) == ([text, None], {})


def test_a_time_zone_that_arrow_does_not_know_is_one_line() -> None:
    with pytest.raises(InvalidValue, match=r"the time zone 'PST' .*; set spark\.sql\.session\.timeZone to a region"):
        timestamps("at", pa.array([0], pa.timestamp("us", "PST")))
