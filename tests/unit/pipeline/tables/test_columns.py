"""Values of columns as attributes, where Spark and Arrow differ."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lavant.broker.slices import SliceStore
from lavant.core.errors import InvalidValue
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.tables.columns import TableAttribute, timestamps
from lavant.pipeline.tables.tasks import TableMatcher


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


BEYOND: dict[str, pa.Array] = {
    "decimal": pa.array([Decimal(10**30 + 1), None], pa.decimal128(38, 0)),
    "date": pa.array([3_000_000, None], pa.int32()).cast(pa.date32()),
    "timestamp": pa.array([-(10**17), None], pa.timestamp("us", "UTC")),
    "bigint": pa.array([2**53 + 1, None], pa.int64()),
    "double": pa.array([float("nan"), None], pa.float64()),
    "array": pa.array([[1], None], pa.list_(pa.int64())),
}
"""Values that filters cannot compare, and none."""
NUMBERS = ("decimal", "bigint", "double")


@pytest.mark.parametrize("type", list(BEYOND))
def test_only_a_value_that_filters_compare_refuses_its_row(tmp_path: Path, type: str) -> None:
    """A streaming table knows its filters in its tasks only, so all of its columns are there."""
    attributes = [TableAttribute(name, (name,), is_comparable=type != "array") for name in ("odd", "idle")]
    rows = pa.RecordBatch.from_pydict({"odd": BEYOND[type], "idle": BEYOND[type]})

    def found(*texts: str) -> list[Any]:
        store = SliceStore.create(tmp_path / f"{len(list(tmp_path.iterdir()))}", slices=2)
        store.add(range(len(texts)), list(texts))
        place = SlicePlace(store.storage.address, store.settings.identity, "plain")
        matches = TableMatcher(place, attributes).match(rows)
        ids = iter(matches.ids.to_pylist())
        return [
            matches.rejected.get(row, sorted(next(ids) for _ in range(count)))
            for row, count in enumerate(matches.counts.tolist())
        ]

    assert found("true", "x > 3") == [[0], [0]]
    assert found("exists(odd)", "not exists(odd)") == [[0], [1]]
    compared = "odd > 3" if type in NUMBERS else "odd > 'a'"
    of_another_kind = "odd > 'a'" if type in NUMBERS else "odd > 3"
    reason, none = found(compared, "exists(odd)", "not exists(odd)")
    assert "'odd'" in reason
    assert none == [2]
    if type != "array":
        assert found(of_another_kind, "odd = true", "exists(odd)") == [[2], []]
