"""Settings of Spark that users may choose otherwise: the stream finds the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.workload import append, expected, filters, notified, rows

from lavant.broker.slices import SliceStore
from lavant.pipeline.stream.driver import start

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
