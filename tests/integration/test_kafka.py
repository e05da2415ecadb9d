"""Streams from topic to topic, through Spark's connector and a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.bare_cluster import BareCluster
from tests.integration.kafka import CONNECTOR, PASSWORD, USER, KafkaBroker, KafkaRecord, require_kafka
from tests.integration.workload import expected, filters, rows

from lavant.broker.slices import SliceStore
from lavant.broker.storage.log import LogReader
from lavant.core.errors import FailedStream, InvalidValue, MissingComponent
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.sources import register_sources
from lavant.pipeline.sources.kafka import KafkaTopic
from lavant.pipeline.sources.kafka.runner import TopicStreamResult, stream_topics

TEXTS = dict(enumerate(filters(300)))
PATIENCE_S = 600.0
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username={user!r} password={password!r};"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    require_kafka()
    node = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    node.start()
    yield node
    node.kill()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    SliceStore.create(tmp_path / "subscriptions", slices=4).add(list(TEXTS), list(TEXTS.values()))
    return tmp_path / "subscriptions"


def run(spark: SparkSession, store: Path, input: str, output: str, **more: Any) -> TopicStreamResult:
    return stream_topics(
        spark,
        subscriptions=str(store),
        input=KafkaTopic.parse(input),
        output=KafkaTopic.parse(output),
        work=store.parent / "work",
        available_now=True,
        **more,
    )


def publications(count: int, seed: int) -> list[tuple[bytes | None, bytes]]:
    """Keyed and unkeyed records; the id is in the value, as the key, or both."""
    random = Random(seed)
    made: list[tuple[bytes | None, bytes]] = []
    for row in rows(count, seed):
        id = row.pop("@id")
        key = None if random.random() < 0.3 else str(id).encode()
        made.append((key, json.dumps(row if key and random.random() < 0.5 else {**row, "@id": id}).encode()))
    return made


def notified(records: list[KafkaRecord]) -> dict[str, list[int]]:
    """By publication; a publication's repeated notifications must be the same."""
    found: dict[str, list[int]] = {}
    for record in records:
        value = json.loads(record.value or b"")
        ids = sorted(value["subscriptions"])
        assert found.setdefault(value["id"], ids) == ids
    return found


def check_order(records: list[KafkaRecord], *, repeats: bool) -> int:
    """In each partition of the output, those of one partition of the input ascend; returns how many are repeated."""
    last: dict[tuple[int, int], int] = {}
    seen: set[tuple[int, int]] = set()
    repeated = 0
    for record in records:
        value = json.loads(record.value or b"")
        origin = (value["partition"], value["offset"])
        if origin in seen:
            repeated += 1
            continue
        seen.add(origin)
        place = (record.partition, value["partition"])
        assert last.get(place, -1) < value["offset"]
        last[place] = value["offset"]
    assert repeats or repeated == 0
    return repeated


def test_every_publication_of_a_topic_is_notified_in_order(
    shared_spark: SparkSession, broker: KafkaBroker, store: Path
) -> None:
    input, output = broker.make_topic("quotes"), broker.make_topic("wanted", partitions=2)
    broker.send("quotes", publications(2000, seed=3))
    result = run(shared_spark, store, input, output, options={"maxOffsetsPerTrigger": "700"})
    found = broker.read("wanted")
    check_order(found, repeats=False)
    assert notified(found) == expected(TEXTS, rows(2000, seed=3))
    assert (result.records, result.notifications, result.rejected) == (2000, len(found), 0)
    assert result.batches >= 3
    sent = {(each.partition, each.offset): each for each in broker.read("quotes")}
    for record in found:
        value = json.loads(record.value or b"")
        origin = sent[value["partition"], value["offset"]]
        assert value["topic"] == "quotes"
        assert json.loads(origin.value or b"").get("@id", value["id"]) == value["id"]
        assert record.key == (origin.key if origin.key is not None else f"quotes-{origin.partition}".encode())
    again = run(shared_spark, store, input, output)
    assert again.records == 0
    assert len(broker.read("wanted")) == len(found)


def test_what_is_no_publication_goes_to_a_topic_of_its_own(
    shared_spark: SparkSession, broker: KafkaBroker, store: Path
) -> None:
    input, output = broker.make_topic("poisoned", 1), broker.make_topic("sane", 1)
    broker.make_topic("refused", 1)
    bad = [b"{", b"[1]", b'{"price": [1]}', b'{"price": 9007199254740993}', None, b"\xff", b'{"@payload": "!"}']
    good = publications(50, seed=5)
    broker.send("poisoned", [*good, *((b"bad", value) for value in bad)])
    result = run(shared_spark, store, input, output, rejected_topic="refused")
    assert notified(broker.read("sane")) == expected(TEXTS, rows(50, seed=5))
    refused = [json.loads(each.value or b"") for each in broker.read("refused")]
    assert [each["offset"] for each in refused] == list(range(50, 57))
    assert all(each["rejected"] and "subscriptions" not in each for each in refused)
    assert "beyond ±2^53" in refused[3]["rejected"]
    assert (result.rejected, result.records) == (7, 57)


def test_a_secured_broker_takes_options_and_nothing_shows_them(
    shared_spark: SparkSession, broker: KafkaBroker, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broker.make_topic("secret", 1)
    broker.make_topic("told", 1)
    broker.send("secret", publications(20, seed=6))
    input, output = (f"kafka://{broker.secured_servers}/{topic}" for topic in ("secret", "told"))
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    right = options | {"sasl.jaas.config": JAAS.format(user=USER, password=PASSWORD)}
    wrong = options | {"sasl.jaas.config": JAAS.format(user=USER, password="another-pass-word")}
    with pytest.raises(FailedStream) as caught:
        run(shared_spark, store, input, output, options=wrong)
    assert "uthentication failed" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert run(shared_spark, store, input, output, options=right).records == 20
    assert notified(broker.read("told")) == expected(TEXTS, rows(20, seed=6))
    shown = capfd.readouterr()
    for secret in (PASSWORD, "another-pass-word"):
        assert secret not in f"{caught.value} {shown.out} {shown.err}"


def test_a_work_directory_belongs_to_one_stream(shared_spark: SparkSession, broker: KafkaBroker, store: Path) -> None:
    input, output, other = (broker.make_topic(name, 1) for name in ("one", "two", "three"))
    run(shared_spark, store, input, output)
    with pytest.raises(InvalidValue, match="its output was two, now it is three"):
        run(shared_spark, store, input, other)
    with pytest.raises(InvalidValue, match="both input and output"):
        run(shared_spark, store, input, input)
    assert broker.read("three") == []


def test_a_topic_or_a_broker_that_is_not_there_is_one_line(
    shared_spark: SparkSession, broker: KafkaBroker, store: Path
) -> None:
    output = broker.make_topic("elsewhere", 1)
    with pytest.raises(FailedStream, match="UnknownTopicOrPartition") as caught:
        run(shared_spark, store, f"kafka://{broker.servers}/nothing", output)
    assert "\n" not in str(caught.value)
    with pytest.raises(MissingComponent, match=r"no Kafka broker answers at 127\.0\.0\.1:1 "):
        run(shared_spark, store, "kafka://127.0.0.1:1/nothing", output)


def test_a_topic_can_be_copied_into_a_log(shared_spark: SparkSession, broker: KafkaBroker, tmp_path: Path) -> None:
    broker.make_topic("kept")
    made = publications(200, seed=9)
    broker.send("kept", [*made, (None, b"{")])
    register_sources(shared_spark)
    records = shared_spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.servers)
    records = records.options(subscribe="kept", startingOffsets="earliest", maxOffsetsPerTrigger="90")
    texts = records.load().selectExpr("CAST(value AS string) AS publication")
    sink = texts.writeStream.format("lavant_log").options(
        rejected="drop", checkpointLocation=str(tmp_path / "checkpoint")
    )
    sink.trigger(availableNow=True).start(str(tmp_path / "log")).awaitTermination()
    log = LogReader(tmp_path / "log")
    found = [row for batch in log.read(0, log.end()) for row in PublicationBatch(batch.records).to_dicts()]
    texts_found = sorted(json.dumps({k: v for k, v in row.items() if v != ""}, sort_keys=True) for row in found)
    assert texts_found == sorted(json.dumps(json.loads(value), sort_keys=True) for _, value in made)


class TopicStream:
    """`lavant stream` in a process of its own, whose driver's files the executors do not see."""

    def __init__(self, input: str, output: str, directory: Path) -> None:
        self._directory = directory
        lines = [json.dumps({"id": id, "filter": text}) for id, text in TEXTS.items()]
        (directory / "subscriptions.jsonl").write_text("\n".join(lines))
        places = ["--subscriptions", "subscriptions.jsonl", "--work", "work", "--input", input, "--output", output]
        self._command = [str(Path(sys.executable).with_name("lavant")), "stream", *places]
        self._environment = {**os.environ, "LAVANT_KAFKA_JARS": str(CONNECTOR)}

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        with (self._directory / "stream.log").open("wb") as log:
            return subprocess.Popen(
                [*self._command, *more],
                cwd=self._directory,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def log(self) -> str:
        return (self._directory / "stream.log").read_text(errors="replace")


def test_nothing_is_lost_whoever_is_killed(broker: KafkaBroker, bare: BareCluster, elsewhere: Path) -> None:
    """A Python worker, an executor with its consumers and producers, and the driver, while batches are written."""
    directory = elsewhere / "kafka"
    directory.mkdir()
    input, output = broker.make_topic("flow"), broker.make_topic("flown")
    made = publications(6000, seed=8)
    broker.send("flow", made[:4500])
    stream = TopicStream(input, output, directory)
    small = ("--conf", "spark.executor.memory=600m", "--conf", "spark.executor.cores=1")
    process = stream.start("--master", bare.url, *small, "--kafka-option", "maxOffsetsPerTrigger=300")

    def until(records: int) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while (found := len(broker.read("flown"))) < records:
            assert process.poll() is None, stream.log()
            assert time.monotonic() < deadline, stream.log()
            time.sleep(0.05)
        return found

    try:
        seen = until(1)
        bare.kill_python_worker()
        seen = until(seen + 300)
        bare.kill_executor()
        until(seen + 300)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # Python and Java at once
        process.wait()
    assert len(notified(broker.read("flown"))) < len(expected(TEXTS, rows(6000, seed=8)))
    broker.send("flow", made[4500:])
    again = stream.start("--master", "local[2]", "--available-now")
    assert again.wait(PATIENCE_S) == 0, stream.log()
    found = broker.read("flown")
    assert notified(found) == expected(TEXTS, rows(6000, seed=8))
    check_order(found, repeats=True)
    for worker in bare.workers:
        assert not worker.sees(directory / "work")
