"""Latency of a stream, from publishing to the notification in the sink, read from its files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.storage.objects import open_storage
from lavant.pipeline.stream.sinks import read_manifests, read_part


class NotifiedBatch(NamedTuple):
    """A batch in the sink: when it got there, the offsets it notified, and the number of notifications."""

    batch: int
    time_s: float
    offsets: NDArray[np.int64]
    notifications: int


def notified_batches(notifications: str | Path, after: int = -1) -> list[NotifiedBatch]:
    """The batches after number `after`, in order; a batch counts from the moment its manifest exists."""
    storage = open_storage(notifications)
    found: list[NotifiedBatch] = []
    for manifest in read_manifests(storage, after):
        keys = [read_part(storage, part, ["key"]).column("key").to_numpy() for part in manifest.parts]
        offsets = np.concatenate([np.empty(0, np.int64), *keys])
        found.append(NotifiedBatch(manifest.batch, manifest.time_ms / 1000, offsets, manifest.matches))
    return found


def latencies_ms(batches: list[NotifiedBatch], published_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of every publication with a notification; `published_s` is the time of each offset."""
    waits = [(batch.time_s - published_s[batch.offsets]) * 1000 for batch in batches if len(batch.offsets)]
    return np.concatenate(waits) if waits else np.empty(0)
