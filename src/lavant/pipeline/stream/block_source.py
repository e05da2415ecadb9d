"""The log as the source of a stream: a row for each publication, and the checked block beside the first row.

Spark counts the rows, so a query's progress, listeners and web interface show the publications; the block carries them,
in columns, past Spark's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from lavant.broker.storage.log import LogReader
from lavant.broker.storage.log.blocks import LogBatch
from lavant.core.identities import UNKNOWN
from lavant.pipeline.cluster.assignment import ACCESS_SLICES
from lavant.pipeline.operators.access import encode_range
from lavant.pipeline.sources.log import LogStreamReader

ACCESS_ROWS_MIN = 2048
"""Publications of an access task, if there are so many; a task costs more than a few thousand rows."""


class BlockSource(DataSource):
    """Options: those of `lavant_log`, the `scheme`, and `travel` if tasks cannot read the log themselves."""

    @classmethod
    def name(cls) -> str:
        return "lavant_blocks"

    def schema(self) -> str:
        return "offset bigint, block binary"

    def streamReader(self, schema: StructType) -> BlockStreamReader:  # noqa: N802 - Spark's name
        return BlockStreamReader(self.options)


class BlockStreamReader(LogStreamReader):
    """Each partition is an access task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._scheme = options["scheme"]
        self._travels = options.get("travel") == "true"

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check(end)
        first, last, identity = start["offset"], end["offset"], end.get("log", UNKNOWN)
        if first == last:
            return []
        tasks = min(ACCESS_SLICES, max(1, (last - first) // ACCESS_ROWS_MIN))
        bounds = np.linspace(first, last, tasks + 1).astype(np.int64).tolist()
        return [
            InputPartition((number, low, high, identity, self._content(low, high) if self._travels else None))
            for number, (low, high) in enumerate(pairwise(bounds))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        number, start, end, identity, content = partition.value
        if content is None:
            batches: Iterator[LogBatch] = _log(self._options.place, identity).read(start, end)
        else:
            batches = (LogBatch(first, _from_stream(data)) for first, data in content)
        block = encode_range(self._scheme, identity, start, batches, slice=number)
        encoded = pa.array([msgspec.msgpack.encode(block), *[None] * (end - start - 1)], pa.binary())
        yield pa.record_batch({"offset": pa.array(np.arange(start, end)), "block": encoded})

    def _content(self, start: int, end: int) -> list[tuple[int, bytes]]:
        return [(batch.first_offset, _to_stream(batch.records)) for batch in self._open().read(start, end)]


@lru_cache(maxsize=64)
def _log(place: str, identity: str) -> LogReader:
    """Kept open by the worker, so that each batch looks only for what is new."""
    return LogReader(place, identity)


def _to_stream(records: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_batch(records)
    return bytes(sink.getvalue())


def _from_stream(data: bytes) -> pa.RecordBatch:
    return next(iter(pa.ipc.open_stream(data)))
