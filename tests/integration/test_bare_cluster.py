"""The cluster whose machines share no disk is one: executors see nothing of the driver's files, nor of each other's."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.fs
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.integration.bare_cluster import BareCluster
from tests.integration.object_store import ObjectStore
from tests.integration.workload import filters, rows

import lavant
from lavant.broker.filters import Filter
from lavant.broker.slices import SliceStore
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.core.errors import InvalidValue, MissingComponent
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.cluster.assignment import ANYWHERE
from lavant.pipeline.internals.executors import Executors
from lavant.pipeline.internals.failures import root_cause
from lavant.pipeline.internals.stages import PlacedTask, run_tasks
from lavant.pipeline.session import spark_session
from lavant.pipeline.sources import register_sources
from lavant.pipeline.sources.kafka import KafkaTopic, match_topic
from lavant.pipeline.tables import match

pytestmark = pytest.mark.usefixtures("credentials")


@pytest.fixture(scope="module")
def spark(bare: BareCluster) -> Iterator[SparkSession]:
    session = spark_session(bare.url, "lavant-bare", spark_executor_cores="1", spark_executor_memory="600m")
    yield session
    session.stop()


def on_each(spark: SparkSession, bare: BareCluster, payload: bytes, work: Callable[[bytes], Any]) -> list[Any]:
    executors = Executors(spark)
    while not executors.request(len(bare.workers)):
        time.sleep(0.1)
    places = [executors.location(id) for id in executors.ids()]
    tasks = [PlacedTask(place or ANYWHERE, payload) for place in places]
    found = run_tasks(spark.sparkContext, tasks, lambda data: msgspec.msgpack.encode(work(data)), "test")
    return [msgspec.msgpack.decode(each) for each in found]


def test_executors_see_their_own_files_and_none_of_the_drivers(
    bare: BareCluster, spark: SparkSession, elsewhere: Path, tmp_path: Path
) -> None:
    (elsewhere / "log").touch()
    (tmp_path / "log").touch()
    paths = [str(path) for path in (elsewhere, tmp_path, Path(__file__), Path(lavant.__file__ or ""))]

    def look(payload: bytes) -> tuple[str, str, list[bool]]:
        Path(tempfile.gettempdir(), "left").touch()
        listed = [os.path.exists(path) and (not os.path.isdir(path) or bool(os.listdir(path))) for path in paths]
        return socket.gethostname(), tempfile.gettempdir(), listed

    seen = sorted(on_each(spark, bare, b"", look))
    assert [each[0] for each in seen] == ["worker-0", "worker-1"]
    assert [each[2] for each in seen] == [[False, False, False, True]] * 2
    first, second = bare.workers
    assert (first.directory / "tmp" / "left").exists()
    assert first.sees(first.directory / "tmp" / "left")
    assert not first.sees(second.directory)
    assert not Path(tempfile.gettempdir(), "left").exists()


def test_executors_reach_the_object_store(bare: BareCluster, spark: SparkSession, objects: ObjectStore) -> None:
    with closing(objects.client()) as client:
        client.put_object(Bucket="lavant", Key="greeting", Body=b"hello")

    def fetch(uri: bytes) -> bytes:
        files, path = pyarrow.fs.FileSystem.from_uri(uri.decode())
        with files.open_input_file(path) as file:
            return bytes(file.read())

    assert on_each(spark, bare, objects.uri("greeting").encode(), fetch) == [b"hello"] * 2


def test_executors_and_python_workers_can_be_killed(bare: BareCluster, spark: SparkSession) -> None:
    numbers = spark.sparkContext.parallelize(range(100), 2)
    assert numbers.sum() == 4950
    killed = bare.kill_python_worker()
    assert numbers.sum() == 4950
    assert killed not in bare.python_workers()
    killed = bare.kill_executor()
    assert numbers.sum() == 4950
    assert killed not in bare.executors()


def test_tables_are_matched_by_executors_that_see_nothing_of_the_driver(
    spark: SparkSession, objects: ObjectStore, elsewhere: Path
) -> None:
    filters = {number: f"volume > {number}" for number in range(0, 40, 10)}
    SliceStore.create(elsewhere / "subscriptions", slices=2).add(list(filters), list(filters.values()))
    SliceStore.create(objects.uri("tables/subscriptions"), slices=2).add(list(filters), list(filters.values()))
    events = spark.createDataFrame([(n, n) for n in range(0, 60, 5)], "event int, volume int").repartition(4)
    alerts = spark.createDataFrame(list(filters.items()), "id int, filter string")
    expected = {n: [bound for bound in filters if n > bound] for n in range(5, 60, 5)}
    places: list[tuple[Any, int]] = [
        (elsewhere / "subscriptions", 1),
        (objects.uri("tables/subscriptions"), 1),
        (alerts, 2),
    ]
    for subscriptions, groups in places:
        matched = match(events, subscriptions, groups=groups).collect()
        assert {row.event: sorted(row.subscriptions) for row in matched} == expected
    stream = spark.readStream.format("rate").load().selectExpr("value volume")
    with pytest.raises(InvalidValue, match="executors do not reach"):
        match(stream, elsewhere / "subscriptions")


def test_data_sources_work_on_an_object_store_and_say_so_where_a_path_cannot(
    spark: SparkSession, objects: ObjectStore, elsewhere: Path
) -> None:
    register_sources(spark)
    signed = {
        name: objects.uri(name).replace("s3://", "s3://tests:secret@") for name in ("log", "copy", "subscriptions")
    }
    publications = rows(300, seed=4)
    for place in (signed["log"], elsewhere / "a-log"):
        with LogWriter(place) as log:
            for first in range(0, 300, 60):
                log.append(PublicationBatch.from_dicts(publications[first : first + 60]).records)
    reader = spark.read.format("lavant_log").option("partitionBytes", "3000")
    table = reader.schema("offset bigint, `@id` string, symbol string, volume bigint").load(signed["log"])
    assert table.rdd.getNumPartitions() > 2
    assert [row["@id"] for row in table.collect()] == [row["@id"] for row in publications]
    table.write.format("lavant_log").mode("append").save(signed["copy"])
    copied = LogReader(signed["copy"])
    assert copied.end() == 300
    texts = dict(enumerate(filters(40)))
    SliceStore.create(signed["subscriptions"], slices=2).add(list(texts), list(texts.values()))
    found = spark.read.format("lavant_subscriptions").load(signed["subscriptions"]).collect()
    assert {row.id: Filter.parse(row.filter) for row in found} == {id: Filter.parse(each) for id, each in texts.items()}

    hidden = spark.read.format("lavant_log").load(str(elsewhere / "a-log"))
    with pytest.raises(PySparkException) as caught:
        hidden.collect()
    assert f"does not see {elsewhere / 'a-log'}, a path of the driver's machine; give a URI" in root_cause(caught.value)
    table.limit(50).write.format("lavant_log").mode("append").save(str(elsewhere / "a-log"))  # through the driver
    assert LogReader(elsewhere / "a-log").end() == 350


def test_without_the_kafka_connector_one_line_says_how_to_get_it(spark: SparkSession, elsewhere: Path) -> None:
    SliceStore.create(elsewhere / "unread", slices=1)
    with socket.create_server(("127.0.0.1", 0)) as broker:
        topics = [KafkaTopic(f"127.0.0.1:{broker.getsockname()[1]}", name) for name in ("in-vain", "out-vain")]
        with pytest.raises(MissingComponent) as caught:
            match_topic(spark, topics[0], str(elsewhere / "unread"), topics[1], checkpoint=str(elsewhere / "vain"))
    line = str(caught.value)
    assert "Spark has no Kafka connector; get org.apache.spark:spark-sql-kafka-0-10_2.13:" in line
    assert "LAVANT_KAFKA_JARS" in line
    assert "\n" not in line
