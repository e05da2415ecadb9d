"""The data sources on a real Spark: what a log, notifications or subscriptions hold is what their tables show."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from random import Random
from typing import Any, TypeGuard

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.integration.workload import EncryptedWorld, append, expected, filters, rows

from lavant.broker.filters import Filter
from lavant.broker.slices import SliceStore
from lavant.broker.slices.store import slice_of
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.internals.failures import root_cause
from lavant.pipeline.sources import register_sources
from lavant.pipeline.stream.driver import start
from lavant.pipeline.stream.sinks import read_manifests

VALUES: list[Any] = [None, 1, -7, 2**53, 2.5, 3.0, "x", "ä'\"", "", True, False]


@pytest.fixture
def spark(shared_spark: SparkSession) -> SparkSession:
    register_sources(shared_spark)
    return shared_spark


def mixed_log(path: Path, seed: int) -> list[dict[str, Any]]:
    """Attributes of several types, absent ones, and blocks of very different sizes; returns the publications."""
    random = Random(seed)
    names = [["a", "b"], ["b", "c"], ["a", "d", "ä b`c"]]
    made: list[dict[str, Any]] = []
    with LogWriter(path, durable=False, file_bytes_max=20_000) as log:
        for _ in range(12):
            block: list[dict[str, Any]] = []
            for _ in range(random.choice([1, 3, 200])):
                drawn = {name: random.choice(VALUES) for name in random.choice(names)}
                row = {name: value for name, value in drawn.items() if value is not None}
                block.append({"@id": f"p{len(made) + len(block)}", "@payload": random.randbytes(2), **row})
            log.append(PublicationBatch.from_dicts(block).records)
            made += block
    return made


def cause(run: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        run()
    assert "Traceback" not in str(caught.value)
    return root_cause(caught.value)


# ---- reading a log ------------------------------------------------------------------------------------------------


def test_a_log_is_a_table_of_json_in_parts_that_are_read_in_parallel(spark: SparkSession, tmp_path: Path) -> None:
    made = mixed_log(tmp_path / "log", seed=1)
    table = spark.read.format("lavant_log").option("partitionBytes", "4000").load(str(tmp_path / "log"))
    assert table.columns == ["offset", "publication"]
    assert table.rdd.getNumPartitions() > 3
    found = table.collect()
    assert [row.offset for row in found] == list(range(len(made)))
    again = [PublicationBatch.from_dicts([row]).to_dicts()[0] for row in made]
    shown = [{**json.loads(row.publication)} for row in found]
    for row in shown:
        row["@payload"] = base64.b64decode(row["@payload"])
    assert shown == again


def test_a_log_is_a_table_with_a_column_for_each_attribute(spark: SparkSession, tmp_path: Path) -> None:
    made = mixed_log(tmp_path / "log", seed=2)
    given = "offset bigint not null, `@id` string, a bigint, b double, c boolean, d string, none int, `@payload` binary"
    reader = spark.read.format("lavant_log").option("partitionBytes", "4000")
    table = reader.schema(given).load(str(tmp_path / "log")).collect()
    assert [row.offset for row in table] == list(range(len(made)))
    for row, publication in zip(table, made, strict=True):
        a, b, c, d = (publication.get(name) for name in "abcd")
        assert row["@id"] == publication["@id"]
        assert bytes(row["@payload"]) == publication["@payload"]
        assert row.a == (int(a) if _is_number(a) and a == int(a) else None)
        assert row.b == (b if _is_number(b) else None)
        assert row.c == (c if isinstance(c, bool) else None)
        assert (row.d is None) == (d is None)
        if isinstance(d, str):
            assert row.d == d
        assert row.none is None


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def test_the_columns_of_a_log_are_inferred_from_all_its_blocks(spark: SparkSession, tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log", durable=False) as log:
        for block in (
            [{"n": 1, "mixed": 1, "@id": "x"}],
            [{"n": 2, "mixed": "y", "late": 2.5}],
            [{"late": 1, "on": True}],
        ):
            log.append(PublicationBatch.from_dicts(block).records)
    table = spark.read.format("lavant_log").option("rows", "columns").load(str(tmp_path / "log"))
    assert table.dtypes == [
        *[("offset", "bigint"), ("@id", "string"), ("n", "bigint")],
        *[("mixed", "string"), ("late", "double"), ("on", "boolean")],
    ]
    assert [tuple(row) for row in table.collect()] == [
        (0, "x", 1, "1", None, None),
        (1, None, 2, "y", 2.5, None),
        (2, None, None, None, 1.0, True),
    ]


def test_an_attribute_called_offset_needs_another_name_for_the_offsets(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "log", [{"offset": "mine"}])
    reader = spark.read.format("lavant_log").option("rows", "columns")
    assert "give another offsetColumn" in cause(lambda: reader.load(str(tmp_path / "log")))
    table = reader.option("offsetColumn", "at").load(str(tmp_path / "log"))
    assert [row.asDict() for row in table.collect()] == [{"at": 0, "offset": "mine"}]


@pytest.mark.parametrize(("start", "end"), [(0, 0), (499, 501), (7, 1200), (1200, 1200)])
def test_a_range_of_offsets_can_be_read(spark: SparkSession, tmp_path: Path, start: int, end: int) -> None:
    append(tmp_path / "log", rows(1200, seed=3))
    reader = spark.read.format("lavant_log").options(startingOffset=str(start), endingOffset=str(end))
    offsets = [row.offset for row in reader.load(str(tmp_path / "log")).collect()]
    assert offsets == list(range(start, end))


def test_what_cannot_be_read_is_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "log", rows(10, seed=3))
    log = spark.read.format("lavant_log")
    assert "there is no publication log in" in cause(lambda: log.load(str(tmp_path / "nothing")).collect())
    assert "needs a path or URI" in cause(lambda: log.load().collect())
    path = str(tmp_path / "log")
    for options, line in (
        ({"endingOffset": "11"}, "ends at offset 10, asked for 11"),
        ({"startingOffset": "-1"}, "option startingOffset is '-1'; give a number"),
        ({"rows": "xml"}, "option rows is 'xml'; use json or columns"),
        ({"rowsMax": "0"}, "option rowsMax is '0'; give a number, 1 or more"),
    ):
        reader = spark.read.format("lavant_log").options(**options)
        assert line in cause(lambda reader=reader: reader.load(path).collect())
    typed = spark.read.format("lavant_log").schema("offset bigint, price decimal(10, 2)")
    assert "column 'price' of a log cannot be of type decimal(10,2)" in cause(lambda: typed.load(path).collect())


def test_a_log_is_a_stream_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    publications = rows(50, seed=9)
    append(tmp_path / "log", publications)
    source = spark.readStream.format("lavant_log").options(rowsMax="20", startingOffset="5")
    table_of = source.schema("offset bigint, `@id` string, volume bigint").load(str(tmp_path / "log"))
    written = table_of.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = written.trigger(availableNow=True).start(str(tmp_path / "table"))
    query.awaitTermination()
    assert [progress["numInputRows"] for progress in query.recentProgress] == [20, 20, 5]
    table = pq.read_table(tmp_path / "table").sort_by("offset").to_pylist()
    assert [(row["offset"], row["@id"], row["volume"]) for row in table] == [
        (5 + number, each["@id"], each["volume"]) for number, each in enumerate(publications[5:])
    ]


# ---- writing a log ------------------------------------------------------------------------------------------------


def written(log: Path) -> list[dict[str, Any]]:
    reader = LogReader(log)
    return [row for batch in reader.read(0, reader.end()) for row in PublicationBatch(batch.records).to_dicts()]


def leftovers(log: Path) -> list[str]:
    return [path.name for path in (log / "writes").rglob("*") if path.is_file() and path.name != "lock"]


def test_a_table_is_appended_to_a_log_by_columns(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    made = spark.range(1000).selectExpr("id AS n", "CAST(id AS string) AS `@id`", "IF(id % 3 = 0, NULL, id / 4) AS x")
    made.repartition(3).write.format("lavant_log").mode("append").save(str(log))
    spark.range(0).selectExpr("id AS n").write.format("lavant_log").mode("append").save(str(log))
    made.limit(10).write.format("lavant_log").mode("append").save(str(log))
    found = written(log)
    assert len(found) == 1010
    expected_rows = [{"n": n, "@id": str(n)} | ({} if n % 3 == 0 else {"x": n / 4}) for n in range(1000)]
    assert sorted(found[:1000], key=lambda row: int(row["n"])) == expected_rows
    assert leftovers(log) == []
    copied = spark.read.format("lavant_log").load(str(log))
    copied.coalesce(1).sortWithinPartitions("offset").write.format("lavant_log").mode("append").save(
        str(tmp_path / "copy")
    )
    assert written(tmp_path / "copy") == found


def test_a_write_that_fails_appends_nothing(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    append(log, rows(5))
    before = written(log)
    texts = [json.dumps({"n": n}) for n in range(20)]
    table = spark.createDataFrame([(text,) for text in [*texts, "{"]], "publication string").repartition(4)
    writer = table.write.format("lavant_log").mode("append")
    assert "a row is no publication: not JSON" in cause(lambda: writer.save(str(log)))
    assert written(log) == before
    for types, line in (
        ("n date", "column 'n' is of type date"),
        ("n decimal(3, 1)", "column 'n' is of type decimal(3,1)"),
        ("offset bigint", "has no columns for publications"),
    ):
        empty = spark.createDataFrame([], types).write.format("lavant_log").mode("append")
        assert line in cause(lambda empty=empty: empty.save(str(log)))
    overwrite = table.write.format("lavant_log").mode("overwrite")
    assert "only appended to" in cause(lambda: overwrite.save(str(log)))
    wide = spark.createDataFrame([(2**53 + 1,)], "n bigint").write.format("lavant_log").mode("append")
    assert "beyond ±2^53" in cause(lambda: wide.save(str(log)))
    assert written(log) == before
    writer.option("rejected", "drop").save(str(log))
    assert sorted(row["n"] for row in written(log)[5:]) == list(range(20))


def test_a_repeated_batch_of_a_stream_is_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "in", rows(100, seed=3))
    log, checkpoint = tmp_path / "log", tmp_path / "checkpoint"

    def run() -> None:
        source = spark.readStream.format("lavant_log").option("rowsMax", "40").load(str(tmp_path / "in"))
        sink = source.writeStream.format("lavant_log").option("checkpointLocation", str(checkpoint))
        sink.trigger(availableNow=True).start(str(log)).awaitTermination()

    run()
    assert [row["@id"] for row in written(log)] == [f"p{n}" for n in range(100)]
    (checkpoint / "commits" / "2").unlink()  # as if the driver had died between the append and Spark's commit
    run()
    assert [row["@id"] for row in written(log)] == [f"p{n}" for n in range(100)]
    append(tmp_path / "in", rows(130, seed=3)[100:])
    run()
    assert [row["@id"] for row in written(log)] == [f"p{n}" for n in range(130)]
    assert len(leftovers(log)) == 1  # the number of the query's last batch
    shutil.rmtree(checkpoint)  # a new query, whose batches begin at 0 again
    run()
    assert len(written(log)) == 260


# ---- subscriptions ------------------------------------------------------------------------------------------------


def test_a_store_is_a_table_of_subscriptions_with_their_filters(spark: SparkSession, tmp_path: Path) -> None:
    texts = dict(enumerate(filters(400, seed=4)))
    store = SliceStore.create(tmp_path / "store", slices=5)
    store.add(list(texts), list(texts.values()))
    store.remove(range(0, 400, 7))
    reader = spark.read.format("lavant_subscriptions")
    table = reader.load(str(tmp_path / "store"))
    assert table.rdd.getNumPartitions() == 5
    found = {row.id: row for row in table.collect()}
    assert sorted(found) == [id for id in texts if id % 7]
    for id, row in found.items():
        assert Filter.parse(row.filter) == Filter.parse(texts[id])
        assert row.slice == slice_of(np.array([id], np.uint32), 5)[0]
    before = reader.option("version", "1").load(str(tmp_path / "store"))
    assert before.count() == 400


def test_encrypted_subscriptions_have_no_text(spark: SparkSession, tmp_path: Path) -> None:
    world = EncryptedWorld(tmp_path, subscriptions=50, publications=1)
    found = spark.read.format("lavant_subscriptions").load(str(world.store)).collect()
    assert sorted(row.id for row in found) == list(range(50))
    assert {row.filter for row in found} == {None}


# ---- notifications ------------------------------------------------------------------------------------------------


def notification_rows(table: Any) -> list[tuple[Any, ...]]:
    return sorted((row.batch, row.key, row.id, tuple(row.subscriptions), row.rejected) for row in table)


def test_notifications_are_those_of_the_manifests_and_plain_spark_reads_them_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    texts = dict(enumerate(filters(100)))
    SliceStore.create(tmp_path / "store", slices=3).add(list(texts), list(texts.values()))
    append(tmp_path / "log", rows(900, seed=5))
    started: Any = {"log": tmp_path / "log", "subscriptions": tmp_path / "store", "output": tmp_path / "out"}
    start(spark, **started, available_now=True, options={"rowsMax": "300"}).wait()
    place = tmp_path / "out" / "notifications"
    [part] = [part for each in read_manifests(place)[:1] for part in each.parts if part.rows][:1]
    shutil.copy(place / part.name, place / f"part-{9:010d}-orphan.parquet")  # of a batch that never counted
    found = spark.read.format("lavant_notifications").load(str(place)).collect()
    assert {row.id: sorted(row.subscriptions) for row in found} == expected(texts, rows(900, seed=5))
    assert len({row.id for row in found}) == len(found)
    assert {row.batch for row in found} == {0, 1, 2}
    later = spark.read.format("lavant_notifications").option("startingBatch", "2").load(str(place)).collect()
    assert notification_rows(later) == [each for each in notification_rows(found) if each[0] == 2]
    plain = spark.read.parquet(str(place))
    assert plain.count() == len(found) + part.rows
    assert dict(plain.dtypes)["subscriptions"] == "array<bigint>"

    stream = spark.readStream.format("lavant_notifications").option("rowsMax", str(part.rows + 1)).load(str(place))
    sink = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = sink.trigger(availableNow=True).start(str(tmp_path / "copied"))
    query.awaitTermination()
    ends = [json.loads(progress["sources"][0]["endOffset"])["batch"] for progress in query.recentProgress]
    assert ends == [1, 2, 3]
    append(tmp_path / "log", rows(1200, seed=5)[900:])
    start(spark, **started, available_now=True, options={"rowsMax": "300"}).wait()
    sink.trigger(availableNow=True).start(str(tmp_path / "copied")).awaitTermination()
    copied = spark.read.parquet(str(tmp_path / "copied")).collect()
    now = spark.read.format("lavant_notifications").load(str(place)).collect()
    assert notification_rows(copied) == notification_rows(now)
    assert {row.id: sorted(row.subscriptions) for row in now} == expected(texts, rows(1200, seed=5))


def test_a_place_without_notifications_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.read.format("lavant_notifications")
    assert "there are no notifications in" in cause(lambda: reader.load(str(tmp_path)).collect())
    assert "holds no subscriptions" in cause(
        lambda: spark.read.format("lavant_subscriptions").load(str(tmp_path)).collect()
    )
