"""`match` on tables: every row has a result of its own, beside its own columns, and it is the one that a scan finds."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from lavant.broker.filters import Filter
from lavant.broker.matching import EncryptedMatcher
from lavant.broker.slices import SliceStore
from lavant.core.errors import InvalidValue
from lavant.pipeline.tables import indexes, match, register
from lavant.pipeline.tables import subscriptions as sources
from lavant.simulation.workloads.synthetic import EncryptedWorkload

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
    "struct<a:int,b:string>": [Row(a=1, b="x"), Row(a=None, b=None)],
}
SCHEMA = "event {}, symbol string, volume bigint, price double, far bigint, idle map<string,int>"


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
            random.choice([None, {}, {"a": 1}]),
        )
        for _ in range(random.randrange(1, 60))
    ]


def wanted_by(
    row: tuple[Any, ...], filters: dict[Any, str], compared: str = "volume > price between"
) -> list[Any] | None:
    """The subscriptions that a scan finds; None if the row is refused for a value of those that are `compared`."""
    _, symbol, volume, price, far, _ = row
    if "volume" in compared and volume is not None and abs(volume) > WIDE:
        return None
    if "price between" in compared and price is not None and math.isnan(price):
        return None
    given = {"symbol": symbol, "volume": volume, "price": price, "far": far}
    present = {name: value for name, value in given.items() if value is not None}
    present |= {"far": 0} if far is not None else {}  # a number, whatever it is
    return [id for id, text in filters.items() if Filter.parse(text).matches(present)]


def scanned(rows: list[tuple[Any, ...]], filters: dict[Any, str], *, left: bool, explode: bool) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        wanted = wanted_by(row, filters)
        if explode:
            matched = [(row, id, False) for id in wanted or ()]
            others = [(row, None, wanted is None)] if wanted is None or (left and not wanted) else []
            found.update(map(repr, [*matched, *others]))
        elif wanted is None or wanted or left:
            found[repr((row, sorted(wanted or []), wanted is None))] += 1
    return found


def results(matched: DataFrame, *, explode: bool = False) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in matched.collect():
        *columns, subscriptions, rejected = row
        ids = subscriptions if explode else sorted(subscriptions)
        found[repr((tuple(columns), ids, bool(rejected)))] += 1
    return found


@pytest.mark.parametrize("type", list(IDS))
def test_every_row_has_the_result_that_a_scan_finds(shared_spark: SparkSession, store: SliceStore, type: str) -> None:
    """Without a shuffle and in groups, as lists and as rows, with and without what matches nothing."""
    random = Random(type)
    rows = table(random, type)
    frame = shared_spark.createDataFrame(rows, SCHEMA.format(type)).repartition(random.randrange(1, 4))
    for groups in (None, random.choice([2, 3])):
        left, explode = random.choice([False, True]), random.choice([False, True])
        matched = match(frame, store.directory, how="left" if left else "inner", explode=explode, groups=groups)
        assert [(f.name, f.dataType) for f in matched.schema.fields[:-2]] == [
            (f.name, f.dataType) for f in frame.schema.fields
        ]
        expected = scanned(rows, FILTERS, left=left, explode=explode)
        assert results(matched, explode=explode) == expected, (groups, left, explode)


@pytest.mark.parametrize("type", list(IDS))
def test_subscriptions_come_from_a_table_with_ids_of_any_type(shared_spark: SparkSession, type: str) -> None:
    random = Random(f"{type} ids")
    rows = table(random, "string")
    frame = shared_spark.createDataFrame(rows, SCHEMA.format("string"))
    texts = [*FILTERS.values(), *random.choices(list(FILTERS.values()), k=8)]  # equal filters, equal ids, no id
    ids = [random.choice([None, *IDS[type]]) for _ in texts]
    subscriptions = shared_spark.createDataFrame(list(zip(ids, texts, strict=True)), f"id {type}, filter string")
    for groups in (None, 3):
        matched = match(frame, subscriptions, explode=True, how="left", groups=groups)
        assert matched.schema["subscription"].dataType == subscriptions.schema["id"].dataType
        expected: Counter[str] = Counter()
        for row in rows:
            wanted = wanted_by(row, dict(enumerate(texts)))
            for number in wanted or ():
                expected[repr((row, ids[number], False))] += 1
            if not wanted:
                expected[repr((row, None, wanted is None))] += 1
        assert results(matched, explode=True) == expected


def test_items_of_a_list_are_nullable_where_the_ids_are(shared_spark: SparkSession, store: SliceStore) -> None:
    frame = shared_spark.createDataFrame([(50,)], "volume int")
    texts = [(1, "volume > 3")]
    for schema, is_nullable in (("id int, filter string", True), ("id int not null, filter string", False)):
        matched = match(frame, shared_spark.createDataFrame(texts, schema))
        assert matched.schema["subscriptions"].dataType.containsNull is is_nullable  # type: ignore[attr-defined]
    assert not match(frame, store.directory).schema["subscriptions"].dataType.containsNull  # type: ignore[attr-defined]


def test_a_table_is_indexed_once_and_found_again_by_its_content(
    shared_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = shared_spark.createDataFrame([(50,), (5,)], "volume int")
    texts = [(number, f"volume > {number}") for number in range(40)]
    shared_spark.createDataFrame(texts, "id int, filter string").createOrReplaceTempView("alerts")
    first = match(frame, "alerts").collect()
    monkeypatch.setattr(Filter, "parse", lambda text: pytest.fail(f"parsed again: {text}"))
    assert match(frame, "alerts").collect() == first
    shuffled = shared_spark.createDataFrame(texts[::-1], "id int, filter string").repartition(3)
    assert match(frame, shuffled).collect() == first
    renamed = shuffled.withColumnsRenamed({"id": "name", "filter": "text"})
    assert match(frame, renamed, id="name", filter="text").collect() == first
    with pytest.raises(pytest.fail.Exception, match="parsed again"):
        match(frame, shuffled.withColumn("id", shuffled.id + 1))


def test_an_index_that_was_deleted_is_an_error_that_says_so(
    shared_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "INDEXES_MAX", 1)
    frame = shared_spark.createDataFrame([(50,)], "volume int")
    one, two = (
        shared_spark.createDataFrame([(1, text)], "id int, filter string") for text in ("volume > 1", "volume > 2")
    )
    planned = match(frame, one)
    match(frame, two)
    with pytest.raises(PySparkException, match=r"the index lavant-\w+-0.index is gone.*call match\(\) again") as caught:
        planned.collect()
    said = str(caught.value).strip().splitlines()
    assert said[-1].startswith("lavant.core.errors.MissingComponent: the index ")
    assert len(said) == 2, "Spark's own line, and the reason"
    assert match(frame, one).count() == 1


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            [("a7", "symbol = IBM")],
            "subscription 'a7': expected a value after '=', found 'IBM'.* is 'symbol = IBM'",
        ),
        ([("ok", "volume > 1"), (None, "volume >")], "subscription None: "),
        ([("none", None)], r"subscription 'none' has no filter \(NULL\); leave it out"),
    ],
)
def test_a_filter_that_does_not_parse_is_one_line_with_its_id(
    shared_spark: SparkSession, rows: list[Any], problem: str
) -> None:
    frame = shared_spark.createDataFrame([(50,)], "volume int")
    with pytest.raises(InvalidValue, match=problem) as raised:
        match(frame, shared_spark.createDataFrame(rows, "id string, filter string"))
    assert "\n" not in str(raised.value)


def test_the_plan_shows_how_rows_and_index_meet(
    shared_spark: SparkSession, store: SliceStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = shared_spark.createDataFrame([(50,)], "volume int")
    match(frame, store.directory).explain()
    plan = capsys.readouterr().out
    assert "lavant_match_whole_index" in plan
    assert "Exchange" not in plan
    match(frame, store.directory, groups=2).explain()
    assert "lavant_match_slice_group" in capsys.readouterr().out
    monkeypatch.setattr(sources, "INDEX_BYTES_MAX", 1)
    store.add([99], ["volume > 99"])
    match(frame, store.directory).explain()
    assert "lavant_match_slice_group" in capsys.readouterr().out


def test_only_the_columns_that_filters_compare_go_to_python(
    shared_spark: SparkSession, store: SliceStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared_spark.range(9).selectExpr("id volume", "id `a.b`", "map(id, id) wide").write.parquet(
        str(tmp_path / "events")
    )
    frame = shared_spark.read.parquet(str(tmp_path / "events"))
    matched = match(frame, store.directory).select("`a.b`", "subscriptions")
    matched.explain()
    plan = capsys.readouterr().out
    assert "ArrowEvalPython [lavant_match_whole_index(volume#" in plan
    assert "ReadSchema: struct<volume:bigint,a.b:bigint>" in plan
    assert {row["a.b"]: row.subscriptions for row in matched.collect()} == {number: [2] for number in range(9)}


# ---- types ----------------------------------------------------------------------------------------------------------

TYPED: dict[str, tuple[list[Any], list[str]]] = {
    "timestamp": (
        [
            datetime(2026, 1, 2),
            datetime(2026, 1, 2, 3, 4, 5),
            datetime(2026, 1, 2, 3, 4, 5, 250_000),
            datetime(1850, 1, 1),
        ],
        ["2026-01-02 03:04:05", "2026-01-02 03:04:05.25", "2026-01-02 00:00:00", "2026", "1000"],
    ),
    "timestamp_ntz": (
        [
            datetime(2026, 10, 25, 2, 30),
            datetime(2026, 10, 25, 2, 30, 0, 1),
            datetime(9999, 12, 31, 23, 59, 59, 999_999),
        ],
        ["2026-10-25 02:30:00", "2026-10-25 02:30:00.000001", "9999"],
    ),
    "date": ([date(2026, 1, 2), date(1969, 12, 31), date(9999, 12, 31)], ["2026-01-02", "1969-12-31", "2026-01"]),
}


@pytest.mark.parametrize("type", list(TYPED))
@pytest.mark.parametrize("zone", ["UTC-03:30", "Europe/Berlin", "America/St_Johns"])
def test_times_compare_like_the_text_that_spark_casts_them_to(shared_spark: SparkSession, type: str, zone: str) -> None:
    values, bounds = TYPED[type]
    before = str(shared_spark.conf.get("spark.sql.session.timeZone"))
    shared_spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = shared_spark.createDataFrame([(n, v) for n, v in enumerate([None, *values])], f"n int, at {type}")
        texts = [f"at {sign} '{bound}'" for bound in bounds for sign in ("<", "<=", "=", ">=", ">", "!=")]
        subscriptions = shared_spark.createDataFrame([(text, text) for text in texts], "id string, filter string")
        matched = {(row.n, row.subscription) for row in match(frame, subscriptions, explode=True).collect()}
        as_text = frame.selectExpr("n", "cast(at as string) at")
        assert matched == {(row.n, text) for text in texts for row in as_text.where(text).collect()}
    finally:
        shared_spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize(("precision", "scale"), [(10, 2), (15, 0), (20, 10), (38, 18), (38, 0), (38, 30)])
def test_decimals_compare_exactly_or_are_refused(shared_spark: SparkSession, precision: int, scale: int) -> None:
    random = Random(precision * 100 + scale)
    near = [Decimal(random.randrange(10 ** random.randrange(1, min(precision, 15) + 1))) for _ in range(20)]
    values = [(unit + step).scaleb(-scale) for unit in near for step in (-1, 0, 1)]
    wide = [Decimal(WIDE), Decimal(WIDE + 1), Decimal(10**17 + 1), Decimal("12345678.5")]
    values += [value for value in wide if abs(value) < 10 ** (precision - scale)]
    frame = shared_spark.createDataFrame([(value,) for value in values], f"amount decimal({precision},{scale})")
    bounds = [format(value, "f") for value in values[1::3] if len(value.as_tuple().digits) <= 15]
    texts = [f"amount {sign} {bound}" for bound in bounds for sign in ("<=", "=", ">")]
    subscriptions = shared_spark.createDataFrame([(text, text) for text in texts], "id string, filter string")
    refused = 0
    for row in match(frame, subscriptions, how="left").collect():
        held = {
            "<=": lambda a, b: a <= b,
            "=": lambda a, b: a == b,
            ">": lambda a, b: a > b,
        }
        if row.rejected is not None:
            refused += 1
            assert f"decimal {row.amount} of attribute 'amount' has more than 15 significant digits" in row.rejected
            continue
        exact = {text for text in texts if held[text.split()[1]](row.amount, Decimal(text.split()[2]))}
        assert set(row.subscriptions) == exact
    beyond = [v for v in values if v in (WIDE + 1, 10**17 + 1)]
    assert refused == len(beyond)


def test_fields_of_structs_are_attributes_and_other_types_only_exist(shared_spark: SparkSession) -> None:
    frame = shared_spark.sql(
        "select named_struct('price', 5D, 'at', named_struct('hour', 3)) quote, map('a', 1) extra, array(1) list"
    )
    texts = ["quote.price > 3", "quote.at.hour = 3", "exists(extra)", "exists(quote)", "exists(list.x)", "exists(none)"]
    subscriptions = shared_spark.createDataFrame([(text, text) for text in texts], "id string, filter string")
    [row] = match(frame, subscriptions).collect()
    assert sorted(row.subscriptions) == sorted(texts[:4])
    assert row.quote.at.hour == 3
    for column, type in (("extra", r"map<string,int>"), ("list", r"array<int>"), ("quote", r"struct<.*>")):
        odd = shared_spark.createDataFrame([(1, f"{column} > 3")], "id int, filter string")
        with pytest.raises(InvalidValue, match=f"filters compare column '{column}', which is of type {type}; cast it"):
            match(frame, odd)


@pytest.mark.parametrize("groups", [None, 2])
def test_rows_keep_columns_of_types_that_python_does_not_know(shared_spark: SparkSession, groups: int | None) -> None:
    frame = shared_spark.sql(
        "select 5 volume, interval 1 year y, make_interval(1, 2, 3) c, date'12000-01-01' d, "
        "parse_json('[1]') v, array(interval 1 month) a, named_struct('b', timestamp'-0044-03-15 00:00:00') s"
    )
    texts = ["volume > 3", "exists(y) and exists(s.b)", "volume < 9", "exists(d)"]
    subscriptions = shared_spark.createDataFrame([(text, text) for text in texts], "id string, filter string")
    names = [f"string({name})" for name in ("y", "c", "d", "a", "s")] + ["to_json(v)"]
    matched = match(frame, subscriptions, groups=groups)
    [row] = matched.selectExpr("sort_array(subscriptions) subscriptions", "rejected", *names).collect()
    assert tuple(row) == (sorted(texts), None, *frame.selectExpr(*names).first())  # type: ignore[misc]


def test_a_wide_integer_refuses_its_row_only_where_a_filter_compares_it(
    shared_spark: SparkSession, store: SliceStore
) -> None:
    frame = shared_spark.createDataFrame([(WIDE + 1, 50)], "far bigint, volume int")
    assert [sorted(row.subscriptions) for row in match(frame, store.directory).collect()] == [[1, 5, 7]]
    store.add([8], ["far > 1"])
    [refused] = match(frame, store.directory).collect()
    assert (refused.far, refused.subscriptions) == (WIDE + 1, [])
    assert "integer 9007199254740993 of attribute 'far' is beyond ±2^53" in refused.rejected
    store.remove([8])
    assert [sorted(row.subscriptions) for row in match(frame, store.directory).collect()] == [[1, 5, 7]]


def test_encrypted_publications_are_matched_in_their_column(shared_spark: SparkSession, tmp_path: Path) -> None:
    workload = EncryptedWorkload(subscriptions=300)
    store = SliceStore.create(tmp_path / "secret", scheme="encrypted", slices=3)
    store.add(np.arange(300), workload.filters())
    batch = workload.publications(40)
    matcher = EncryptedMatcher()
    matcher.add(np.arange(300), workload.filters())
    rows = [(n, point) for n, point in enumerate(batch.points.tolist())]
    frame = shared_spark.createDataFrame([*rows, (40, None)], "n int, `@point` array<double>")
    expected = {n: sorted(matcher.match(batch).of(n).tolist()) for n in range(40)}
    for groups in (None, 2):
        matched = {row.n: row for row in match(frame, store.directory, how="left", groups=groups).collect()}
        assert matched.pop(40).rejected == "an encrypted publication has no vector"
        assert {n: sorted(row.subscriptions) for n, row in matched.items()} == expected
    with pytest.raises(InvalidValue, match="are encrypted, so the table needs a column '@point'"):
        match(frame.select("n"), store.directory)


# ---- streams, names, many matches -----------------------------------------------------------------------------------


def test_a_streaming_table_follows_its_store(shared_spark: SparkSession, store: SliceStore, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = pa.table({"event": [None, None, WIDE + 1, WIDE + 1], "volume": [50] * 4})
    frame = shared_spark.readStream.schema("event bigint, volume bigint").parquet(str(tmp_path / "in"))
    for name in ("first", "second"):
        pq.write_table(rows, tmp_path / "in" / f"{name}.parquet")
        written = match(frame, store.directory).writeStream.format("memory").queryName("followed")
        query = written.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        query.awaitTermination(120)
        store.add([100], ["event > 5"]) if name == "first" else None
    seen = shared_spark.sql("select * from followed").collect()
    assert len(seen) == 8
    assert sum(row.rejected is not None for row in seen) == 4  # `event` is compared now


def test_names_that_the_result_needs_are_refused(shared_spark: SparkSession, store: SliceStore) -> None:
    taken = shared_spark.createDataFrame([(1, 50)], "Rejected int, volume int")
    with pytest.raises(InvalidValue, match="a column 'Rejected' already, which the result adds; rename it"):
        match(taken, store.directory)
    twice = shared_spark.createDataFrame([(1, 50)], "volume int, n int").toDF("volume", "volume")
    with pytest.raises(InvalidValue, match="two columns 'volume'"):
        match(twice, store.directory)
    rate = shared_spark.readStream.format("rate").load()
    with pytest.raises(InvalidValue, match="the subscriptions are a streaming DataFrame, and they are read once"):
        match(taken.select("volume"), rate.selectExpr("value id", "'volume > 1' filter"))
    with pytest.raises(InvalidValue, match=r"'nothing' is neither a slice store .* nor a table"):
        match(taken.select("volume"), "nothing")
    with pytest.raises(InvalidValue, match=r"need one column 'id', and have volume; name theirs with id="):
        match(taken.select("volume"), taken.select("volume"))


def test_any_other_name_may_be_in_both_tables(shared_spark: SparkSession) -> None:
    frame = shared_spark.createDataFrame([(1, 2, 50)], "lavant_found int, Lavant_Found_ int, volume int")
    alerts = shared_spark.createDataFrame([(7, "volume > 3")], "`a.``b` int, `the filter` string")
    [row] = match(frame, alerts, id="a.`b", filter="the filter").collect()
    assert tuple(row) == (1, 2, 50, [7], None)


def test_ids_that_spark_cannot_collect_are_one_line(shared_spark: SparkSession) -> None:
    alerts = shared_spark.sql("SELECT interval '1' year id, 'volume > 3' filter")
    with pytest.raises(InvalidValue, match=r"ids of type interval year cannot leave Spark: .*; cast 'id' to string"):
        match(shared_spark.range(1), alerts)


def test_rows_with_many_matches_leave_in_several_batches(shared_spark: SparkSession) -> None:
    subscriptions = shared_spark.range(3000).selectExpr("id", "concat('volume > ', id) filter")
    frame = shared_spark.range(1000).selectExpr("cast(id + 2500 as int) volume").coalesce(1)
    counts = match(frame, subscriptions).selectExpr("volume", "size(subscriptions) n", "subscriptions").collect()
    assert {row.volume: row.n for row in counts} == {volume: min(volume, 3000) for volume in range(2500, 3500)}
    assert all(set(row.subscriptions) == set(range(row.n)) for row in counts)


# ---- SQL ------------------------------------------------------------------------------------------------------------


def test_sql_finds_what_match_finds(shared_spark: SparkSession, store: SliceStore) -> None:
    rows = table(Random("sql"), "decimal(38,0)")
    frame = shared_spark.createDataFrame(rows, SCHEMA.format("decimal(38,0)")).repartition(2)
    frame.createOrReplaceTempView("rows_of_sql")
    register(shared_spark, {"named": store.directory})
    for name in ("named", str(store.directory)):
        for explode in (False, True):
            by_name = f"events => TABLE(rows_of_sql), subscriptions => '{name}', explode => true"
            arguments = by_name if explode else f"TABLE(rows_of_sql), '{name}'"
            query = f"SELECT * FROM lavant_match({arguments})"
            found = shared_spark.sql(query)
            assert found.schema == match(frame, store.directory, explode=explode).schema
            assert results(found, explode=explode) == scanned(rows, FILTERS, left=False, explode=explode)


def test_one_filter_is_a_function_of_sql(shared_spark: SparkSession) -> None:
    rows = table(Random("scalar"), "string")
    frame = shared_spark.createDataFrame(rows, SCHEMA.format("string")).repartition(2)
    frame.createOrReplaceTempView("rows_of_scalar")
    register(shared_spark)
    for number, text in FILTERS.items():
        quoted = text.replace("'", "''")
        asked = shared_spark.sql(f"SELECT *, lavant_matches('{quoted}', struct(*)) held FROM rows_of_scalar")
        expected: Counter[str] = Counter()
        for row in rows:
            wanted = wanted_by(row, {number: text}, compared=text)
            expected[repr((row, None if wanted is None else bool(wanted)))] += 1
        assert Counter(repr((tuple(row)[:-1], row.held)) for row in asked.collect()) == expected
    by_row = (
        "SELECT lavant_matches(f, struct(v)) FROM VALUES ('v > 3', 5), ('v > 3', 1), (NULL, 5), ('v < 2', 1) t(f, v)"
    )
    assert sorted(str(row[0]) for row in shared_spark.sql(by_row).collect()) == ["False", "None", "True", "True"]
