"""Telemetry files that a server wrote: the Spark job and the embedded estimator read them, and agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from tests.integration.frames import FrameClient
from tests.integration.serving import Served

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Acknowledge, CreateQueue, Receive, Send, SendEntry
from lavant.broker.protocol.subscriptions import Publish, Subscribe
from lavant.core.estimation import EstimationConfig, Estimator, WindowEstimate
from lavant.core.telemetry import checked_telemetry
from lavant.pipeline.jobs.telemetry import TelemetryJobConfig, run_history

CONFIG = EstimationConfig(window_ms=3_000_000, lateness_ms=0, topics_overall=False)
FOREVER_MS = 2**43


def use(server: Served) -> None:
    """20 messages sent by two, received by four, acknowledged one by one; 6 publications, each for one subscriber."""
    with FrameClient(server.port) as client:
        client.ask(CreateQueue("orders", QueueConfig()))
        client.ask(Subscribe("a > 2", "large"))
        for _ in range(10):
            client.ask(Send("orders", [SendEntry(b"x")] * 2))
        for _ in range(5):
            for delivery in client.ask(Receive("orders", 4)).deliveries:
                client.ask(Acknowledge("orders", [delivery.receipt]))
        client.ask(Publish([b'{"a": %d}' % number for number in range(6)]))
        assert len(client.drain("large")) == 3


def test_spark_and_the_estimator_read_what_a_server_wrote(shared_spark: SparkSession, tmp_path: Path) -> None:
    written = tmp_path / "telemetry"
    with Served(None, "--telemetry", str(written)) as server:
        use(server)
        assert server.stop() == 0
    table = pa.concat_tables([pq.read_table(path) for path in sorted(written.glob("telemetry-*.parquet"))])
    estimator = Estimator(CONFIG)
    estimator.observe(checked_telemetry(table.combine_chunks().to_batches()[0]))
    embedded = estimator.close(FOREVER_MS)

    job = TelemetryJobConfig(
        source=str(written), output=str(tmp_path / "out"), checkpoint=str(tmp_path / "check"), estimation=CONFIG
    )
    run_history(shared_spark, job)
    rows = pa.concat_tables([pq.read_table(path) for path in (tmp_path / "out").glob("*.parquet")]).to_pylist()
    spark = sorted((WindowEstimate(**row) for row in rows), key=lambda e: (e.window_start_ms, e.job_type, e.topic))
    assert spark == embedded

    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for e in embedded:  # a border of windows may lie between
        counts[e.topic].update(arrivals=e.arrivals, services=e.services, responses=e.responses)
    assert dict(counts) == {
        "@access": Counter(arrivals=6, services=0, responses=0),
        "@match": Counter(arrivals=0, services=1, responses=0),
        "large": Counter(arrivals=3, services=3, responses=3),
        "orders": Counter(arrivals=20, services=20, responses=20),
    }
    assert [e.matching_rate for e in embedded if e.topic == "@match"] == [0.5]
