"""The embedded estimator, Spark on history and Spark on a stream give the same figures for the same telemetry."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lavant.core.estimation import ESTIMATE_SCHEMA, EstimationConfig, Estimator, ObservedRows, WindowEstimate
from lavant.core.telemetry import (
    DURATION_US_MAX,
    Observation,
    ObservationKind,
    Outcome,
    checked_telemetry,
    telemetry_batch,
)
from lavant.pipeline.jobs.telemetry import TelemetryJobConfig, late_groups, run, run_history

CONFIG = EstimationConfig(window_ms=1000, lateness_ms=500)
START_US = 1_700_000_000_000_000
FOREVER_MS = 2**43
WAIT_S_MAX = 120.0
KEYS = [("order", "A"), ("order", "B"), ("return", "A"), ("", "")]


@pytest.fixture
def spark(shared_spark: SparkSession) -> SparkSession:
    return shared_spark


def observations(random: np.random.Generator, *, count: int, from_ms: int, to_ms: int) -> list[Observation]:
    """Rows of all kinds, at times in no order."""
    rows = []
    for _ in range(count):
        time_us = START_US + int(random.integers(from_ms * 1000, to_ms * 1000))
        job_type, topic = KEYS[random.integers(len(KEYS))]
        where: dict[str, Any] = {"time_us": time_us, "job_type": job_type, "topic": topic, "host": "h1"}
        failed = Outcome.FAILED if random.random() < 0.2 else Outcome.OK
        duration_us = int(random.lognormal(10, 2))
        match random.integers(4):
            case 0:
                row = Observation(kind=ObservationKind.ARRIVAL, publications=int(random.integers(1, 4)), **where)
            case 1:
                row = Observation(kind=ObservationKind.SERVICE, duration_us=duration_us, outcome=failed, **where)
            case 2:
                row = Observation(kind=ObservationKind.RESPONSE, duration_us=duration_us, outcome=failed, **where)
            case _:
                row = Observation(
                    kind=ObservationKind.MATCH, publications=10, subscriptions=1000, matches=37, slice=2, **where
                )
        rows.append(row)
    return rows


def write(batch: pa.RecordBatch, directory: Path, number: int) -> None:
    directory.mkdir(exist_ok=True)
    unseen, path = directory / f".{number:03}", directory / f"{number:03}.parquet"
    pq.write_table(pa.Table.from_batches([batch]), unseen)
    # Spark takes files by age, so a file has its age before it has its name: a running query lists them all the time.
    os.utime(unseen, (number, number))
    unseen.rename(path)


def read(directory: Path) -> list[WindowEstimate]:
    """Estimates that Spark wrote, in the order in which the embedded estimator gives them."""
    table = pa.concat_tables([pq.read_table(path) for path in sorted(directory.glob("*.parquet"))])
    assert table.schema.names == ESTIMATE_SCHEMA.names
    estimates = [WindowEstimate(**row) for row in table.to_pylist()]
    return sorted(estimates, key=lambda e: (e.window_start_ms, e.job_type, e.topic))


def wait_for_watermark(query: StreamingQuery, watermark_ms: int) -> None:
    """Until a micro-batch has closed windows by this watermark: `processAllAvailable` does not wait for empty ones."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not any(watermark_ms_of(progress) >= watermark_ms for progress in query.recentProgress):
        assert time.monotonic() < deadline, f"no micro-batch with watermark {watermark_ms}: {query.lastProgress}"
        time.sleep(0.02)


def watermark_ms_of(progress: Any) -> int:
    text = progress["eventTime"].get("watermark", "1970-01-01T00:00:00Z")
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def job(place: Path, **changes: Any) -> TelemetryJobConfig:
    directories = {name: str(place / name) for name in ("source", "output", "checkpoint")}
    return TelemetryJobConfig(estimation=CONFIG, **(directories | changes))


def embedded(batches: list[pa.RecordBatch]) -> list[WindowEstimate]:
    estimator = Estimator(CONFIG)
    for batch in batches:
        estimator.observe(batch)
    return estimator.close(FOREVER_MS)


def test_history_gives_the_figures_of_the_embedded_estimator(spark: SparkSession, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    batches = [telemetry_batch(observations(random, count=1500, from_ms=0, to_ms=4000)) for _ in range(2)]
    # Every number of responses from 1 to 120, because ranks are rounded.
    ranked = [
        Observation(
            time_us=START_US + n,
            kind=ObservationKind.RESPONSE,
            topic=f"n{n}",
            duration_us=int(random.integers(1, 10**6)),
        )
        for n in range(1, 121)
        for _ in range(n)
    ]
    # Squares beyond 64 bits, and values of which the variance is a tiny part of the square.
    huge = [
        Observation(time_us=START_US + n, kind=ObservationKind.SERVICE, topic="huge", duration_us=DURATION_US_MAX - n)
        for n in range(100)
    ]
    batches += [telemetry_batch(ranked), telemetry_batch(huge)]
    for number, batch in enumerate(batches):
        write(batch, tmp_path / "source", number)

    run_history(spark, job(tmp_path))

    expected = embedded(batches)
    assert len(expected) > 4 * 5 + 240
    assert read(tmp_path / "output") == expected  # to the last bit: both divide the same integers


def test_a_stream_gives_the_figures_and_late_counts_of_the_embedded_estimator(
    spark: SparkSession, tmp_path: Path
) -> None:
    random = np.random.default_rng(2)
    spans_ms = [(0, 1800), (300, 2400), (1200, 3900), (0, 4200), (2500, 6000)]  # the fourth has late rows
    batches = [telemetry_batch(observations(random, count=400, from_ms=a, to_ms=b)) for a, b in spans_ms]
    (tmp_path / "source").mkdir()
    estimator, expected, dropped = Estimator(CONFIG), [], 0

    query = run(spark, job(tmp_path, interval_ms=1))
    for number, batch in enumerate(batches):
        write(batch, tmp_path / "source", number)
        query.processAllAvailable()
        estimator.observe(batch)
        wait_for_watermark(query, estimator.watermark_ms)
        expected += estimator.close(estimator.watermark_ms)
    progress = query.recentProgress
    query.stop()

    dropped = sum(late_groups(one) for one in progress)
    assert estimator.total.late_rows > 0
    assert estimator.total == ObservedRows(rows=2000, late_rows=estimator.total.late_rows, late_groups=dropped)
    assert read(tmp_path / "output") == expected

    # What the stream lost is what history has and the stream has not.
    run_history(spark, job(tmp_path, output=str(tmp_path / "history")))
    closed = {e.window_start_ms for e in expected}
    history = [e for e in read(tmp_path / "history") if e.window_start_ms in closed and e.job_type == "*"]
    streamed = [e for e in expected if e.job_type == "*"]
    assert sum(e.rows for e in history) - sum(e.rows for e in streamed) == estimator.total.late_rows


def test_a_stream_that_is_stopped_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    spans_ms = [(0, 1500), (700, 2600), (1500, 5000)]
    batches = [telemetry_batch(observations(random, count=200, from_ms=a, to_ms=b)) for a, b in spans_ms]
    estimator, expected = Estimator(CONFIG), []
    for number, batch in enumerate(batches):
        write(batch, tmp_path / "source", number)

        run(spark, job(tmp_path)).awaitTermination()  # once for each file, from the checkpoint

        estimator = Estimator.restore(estimator.snapshot())
        estimator.observe(batch)
        expected += estimator.close(estimator.watermark_ms)
    assert expected
    assert read(tmp_path / "output") == expected


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("version", pa.array([2], pa.int16()), "this Lavant reads version 1"),
        ("kind", pa.array(["nap"]), "kind must be one of arrival, service, response, match"),
        ("publications", pa.array([0]), "arrivals and matches have publications"),
        ("duration_us", pa.array([5]), "services and responses have a duration_us, other rows none"),
        ("topic", None, "column topic is missing or null"),
    ],
)
def test_a_row_that_the_embedded_estimator_refuses_is_refused_by_spark(
    spark: SparkSession, tmp_path: Path, column: str, value: pa.Array | None, message: str
) -> None:
    table = pa.Table.from_batches(
        [telemetry_batch([Observation(time_us=5, kind=ObservationKind.ARRIVAL, publications=1)])]
    )
    index = table.schema.get_field_index(column)
    table = table.remove_column(index) if value is None else table.set_column(index, column, value)
    (tmp_path / "source").mkdir()
    pq.write_table(table, tmp_path / "source" / "odd.parquet")

    with pytest.raises(ValueError, match="telemetry"):
        checked_telemetry(table.to_batches()[0])
    with pytest.raises(PySparkException, match=message):
        run_history(spark, job(tmp_path))
