"""Latency of a stream, from publishing to the notification in the sink, read from its files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lavant.pipeline.stream.sinks import read_manifests


class NotifiedBatch(NamedTuple):
    """A batch in the sink: when it got there, the offsets it notified, and the number of notifications."""

    batch: int
    time_s: float
    offsets: NDArray[np.int64]
    notifications: int


def notified_batches(notifications: Path, after: int = -1) -> list[NotifiedBatch]:
    """The batches after number `after`, in order; a batch counts from the moment its manifest exists."""
    found: list[NotifiedBatch] = []
    for manifest in read_manifests(notifications):
        if manifest.batch <= after:
            continue
        path = notifications / f"batch-{manifest.batch:010d}.json"
        offsets, sent = np.empty(0, np.int64), 0
        if manifest.rows:
            table = pq.read_table(path.with_suffix(".parquet"), columns=["key", "subscriptions"])
            offsets = table.column("key").to_numpy()
            sent = sum(len(chunk.flatten()) for chunk in table.column("subscriptions").chunks)
        found.append(NotifiedBatch(manifest.batch, path.stat().st_mtime, offsets, sent))
    return found


def latencies_ms(batches: list[NotifiedBatch], published_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of every publication with a notification; `published_s` is the time of each offset."""
    waits = [(batch.time_s - published_s[batch.offsets]) * 1000 for batch in batches if len(batch.offsets)]
    return np.concatenate(waits) if waits else np.empty(0)
