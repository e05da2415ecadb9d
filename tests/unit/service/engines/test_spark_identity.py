"""The Spark engine's logs belong to the journal that says how far they count."""

from __future__ import annotations

from pathlib import Path

import pytest

from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.storage.log import LogWriter
from lavant.broker.subscriptions.log_offsets import LogOffset, LogOffsets
from lavant.core.errors import IdentityMismatch
from lavant.core.publications.batch import PublicationBatch
from lavant.service.engines.spark.engine import SparkEngine


def owing() -> LogOffsets:
    lanes = LogOffsets(QueueCounters())
    lanes.restore([("plain", LogOffset(accepted=2, delivered=0))])
    return lanes


def engine(directory: Path, identity: bytes) -> SparkEngine:
    return SparkEngine(directory, owing(), slices=2, identity=identity)


def test_a_log_of_another_server_is_not_delivered(tmp_path: Path) -> None:
    log = tmp_path / "plain" / "log"
    with LogWriter(log) as writer:  # as servers wrote them before there were identities
        writer.append(PublicationBatch.from_dicts([{"a": 1}, {"a": 2}]).records)
    (log / "log.json").unlink()
    engine(tmp_path, b"one").close()
    again = engine(tmp_path, b"one")
    [stretch] = again.work(0)
    assert stretch.log_identity
    assert stretch.subscriptions_identity
    again.close()
    with pytest.raises(IdentityMismatch, match="belongs to another owner"):
        engine(tmp_path, b"two")
