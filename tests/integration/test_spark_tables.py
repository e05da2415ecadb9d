"""`match` on tables: every row has a result of its own, with its own id, and it is the one that a scan finds."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lavant.broker.filters import Filter
from lavant.broker.slices import SliceStore
from lavant.core.errors import InvalidValue
from lavant.pipeline.matching import match

WIDE = 2**53
FILTERS = {
    1: "volume > 40",
    2: "volume <= 10 or symbol = 'IBM'",
    3: "price between 2.5 and 7.5",
    4: "symbol like 'Y%' and not exists(price)",
    5: "exists(far)",
    6: "volume = 9007199254740992",
    7: "not (volume < 30)",
}
IDS: dict[str, list[Any]] = {
    "string": ["a", "b", "", "ä" * 200],
    "bigint": [0, 1, WIDE + 1, WIDE + 2, -(2**63), 2**63 - 1],
    "double": [1.5, math.inf, -0.0],
    "timestamp": [datetime(2026, 1, 2, 3, 4, 5, 6), datetime(1970, 1, 1)],
    "decimal(38,0)": [Decimal(10**37), Decimal(WIDE + 1)],
    "binary": [b"\x00\xff", b""],
    "array<bigint>": [[1, WIDE + 1], []],
    "boolean": [True, False],
}


@pytest.fixture
def store(tmp_path: Path) -> SliceStore:
    made = SliceStore.create(tmp_path / "subscriptions", slices=3)
    made.add(list(FILTERS), list(FILTERS.values()))
    return made


def table(random: Random, type: str) -> list[tuple[Any, ...]]:
    """Ids repeat and are null; numbers are null, wide or none at all."""
    volumes = [None, *range(0, 60, 5), WIDE, WIDE, -WIDE, WIDE + 1, WIDE + 2, -(2**63)]
    return [
        (
            random.choice([None, *IDS[type]]),
            random.choice([None, "IBM", "YHOO", "x"]),
            random.choice(volumes),
            random.choice([None, 1.0, 5.0, 5.0, math.nan]),
            random.choice([None, 3, WIDE + 1, 2**63 - 1]),
            random.choice([None, 1.0, math.nan, math.inf]),
        )
        for _ in range(random.randrange(1, 60))
    ]


def scanned(row: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Id, subscriptions, and whether it is refused; None where nobody wants it."""
    id, symbol, volume, price, far, _ = row  # of the last, no filter says anything
    if (volume is not None and abs(volume) > WIDE) or (price is not None and math.isnan(price)):
        return repr(id), (), True
    given = {"symbol": symbol, "volume": volume, "price": price, "far": far}
    present = {name: value for name, value in given.items() if value is not None}
    present |= {"far": 0} if far is not None else {}  # a number, whatever it is
    wanted = tuple(number for number, text in FILTERS.items() if Filter.parse(text).matches(present))
    return (repr(id), wanted, False) if wanted else None


def results(matched: DataFrame) -> Counter[tuple[Any, ...]]:
    rows = matched.collect()
    assert len({row.key for row in rows}) == len(rows)
    return Counter(
        (repr(row.id), tuple(sorted(row.subscriptions)), row.rejected is not None and bool(row.rejected))
        for row in rows
    )


@pytest.mark.parametrize("type", list(IDS))
def test_every_row_has_the_result_that_a_scan_finds(shared_spark: SparkSession, store: SliceStore, type: str) -> None:
    random = Random(type)
    rows = table(random, type)
    schema = f"event {type}, symbol string, volume bigint, price double, far bigint, idle double"
    frame = shared_spark.createDataFrame(rows, schema).repartition(random.randrange(1, 4))
    matched = match(frame, store.directory, id="event")
    assert matched.schema["id"].dataType == frame.schema["event"].dataType
    expected = Counter(result for row in rows if (result := scanned(row)) is not None)
    assert results(matched) == expected


def test_three_events_without_an_id_are_three_rows(shared_spark: SparkSession, store: SliceStore) -> None:
    rows = [(None, 50), (None, 50), (None, 45), ("twice", 50), ("twice", 5)]
    frame = shared_spark.createDataFrame(rows, "event string, volume int")
    assert results(match(frame, store.directory, id="event")) == Counter(
        {("None", (1, 7), False): 3, ("'twice'", (1, 7), False): 1, ("'twice'", (2,), False): 1}
    )
    assert len(match(frame, store.directory).collect()) == 5


def test_a_wide_integer_refuses_its_row_only_where_a_filter_compares_it(
    shared_spark: SparkSession, store: SliceStore
) -> None:
    frame = shared_spark.createDataFrame([(WIDE + 1, 50)], "far bigint, volume int")
    assert results(match(frame, store.directory, id="far")) == Counter({(str(WIDE + 1), (1, 5, 7), False): 1})
    store.add([8], ["far > 1"])
    [refused] = match(frame, store.directory, id="far").collect()
    assert (refused.id, refused.subscriptions) == (WIDE + 1, [])
    assert "integer 9007199254740993 of attribute 'far' is beyond ±2^53" in refused.rejected
    store.remove([8])
    assert results(match(frame, store.directory, id="far")) == Counter({(str(WIDE + 1), (1, 5, 7), False): 1})


def test_a_streaming_table_needs_no_id_and_may_repeat_them(
    shared_spark: SparkSession, store: SliceStore, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(
        pa.table({"event": [None, None, WIDE + 1, WIDE + 1], "volume": [50] * 4}), tmp_path / "in" / "a.parquet"
    )
    frame = shared_spark.readStream.schema("event bigint, volume bigint").parquet(str(tmp_path / "in"))
    for name, id in (("named", "event"), ("unnamed", None)):
        written = match(frame, store.directory, id=id).writeStream.format("memory").queryName(name)
        query = written.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        query.awaitTermination(120)
    named = shared_spark.sql("select * from named").collect()
    assert Counter(row.id for row in named) == Counter({None: 2, WIDE + 1: 2})
    assert shared_spark.sql("select * from unnamed").count() == 4


def test_columns_that_no_row_could_have_are_refused_at_once(shared_spark: SparkSession, store: SliceStore) -> None:
    odd = shared_spark.createDataFrame([(1, 50)], "`@row` int, volume int")
    with pytest.raises(InvalidValue, match=r"'@row' starts with '@'.*rename the column"):
        match(odd, store.directory)
    assert results(match(odd, store.directory, id="@row")) == Counter({("1", (1, 7), False): 1})
    twice = shared_spark.createDataFrame([(1, 50)], "volume int, n int").toDF("volume", "volume")
    with pytest.raises(InvalidValue, match="several columns 'volume' for the ids"):
        match(twice, store.directory, id="volume")
