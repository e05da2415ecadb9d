"""Settings of Spark that users may choose otherwise: streams, tables and sources find the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.workload import append, expected, filters, notified, rows

from lavant.broker.slices import SliceStore
from lavant.pipeline.sources import register_sources
from lavant.pipeline.stream.driver import start
from lavant.pipeline.tables import match, register

TEXTS = dict(enumerate(filters(100)))
PUBLICATIONS = rows(600, seed=8)


@pytest.fixture
def store(tmp_path: Path) -> SliceStore:
    made = SliceStore.create(tmp_path / "subscriptions", slices=4)
    made.add(list(TEXTS), list(TEXTS.values()))
    append(tmp_path / "log", PUBLICATIONS)
    return made


def test_checkpoints_may_have_another_format(shared_spark: SparkSession, store: SliceStore, tmp_path: Path) -> None:
    shared_spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    try:
        for _ in range(2):  # the second time it continues, and finds nothing more
            options = {"rowsMax": "250"}
            log, subscriptions = tmp_path / "log", tmp_path / "subscriptions"
            running = start(
                shared_spark,
                log=log,
                subscriptions=subscriptions,
                output=tmp_path / "out",
                available_now=True,
                options=options,
            )
            running.wait()
            assert running.position == len(PUBLICATIONS)
    finally:
        shared_spark.conf.unset("spark.sql.streaming.offsetLog.formatVersion")
    assert notified(tmp_path / "out" / "notifications") == expected(TEXTS, PUBLICATIONS)


def test_arrow_may_have_large_types_and_compress(shared_spark: SparkSession, store: SliceStore, tmp_path: Path) -> None:
    settings = {
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.execution.arrow.compression.codec": "zstd",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    }
    log, copy = str(tmp_path / "log"), str(tmp_path / "copy")
    for key, value in settings.items():
        shared_spark.conf.set(key, value)
    try:
        register(shared_spark)
        register_sources(shared_spark)
        table = shared_spark.read.format("lavant_log").option("rows", "columns").load(log)
        rows = table.selectExpr("*", "cast(`@id` as binary) `@payload`").coalesce(1)
        rows.write.format("lavant_log").mode("append").save(copy)
        copied = shared_spark.read.format("lavant_log").option("rows", "columns").load(copy)
        assert {bytes(row["@payload"]).decode() == row["@id"] for row in copied.collect()} == {True}
        start(shared_spark, log=copy, subscriptions=store.directory, output=tmp_path / "out", available_now=True).wait()
        matched = [match(table, store.directory, groups=groups, explode=True).count() for groups in (None, 3)]
        held = table.where("lavant_matches('symbol like ''Y%''', struct(*))").count()
    finally:
        for key in settings:
            shared_spark.conf.unset(key)
    wanted = expected(TEXTS, PUBLICATIONS)
    assert notified(tmp_path / "out" / "notifications") == wanted
    assert matched == [sum(map(len, wanted.values()))] * 2
    assert held == sum(row["symbol"].startswith("Y") for row in PUBLICATIONS)


def test_a_java_that_does_not_start_is_one_line_wherever_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "subs.jsonl").write_text('{"id": 1, "filter": "x > 1"}\n')
    (tmp_path / "pubs.jsonl").write_text('{"x": 2}\n')
    arguments = ["--subscriptions", "subs.jsonl", "--input", "pubs.jsonl", "--output", "out", "--driver-memory", "1"]
    ended = subprocess.run(
        [Path(sys.executable).with_name("lavant"), "stream", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (7, "")
    [line] = ended.stderr.splitlines()
    assert line.startswith("lavant: Spark's Java process did not start: Too small maximum heap; details: ")
    assert not (tmp_path / "out").exists()
