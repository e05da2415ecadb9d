"""The log as the source of a stream: a row for each publication; the first row of a task has their number and the
checked block, the others are empty.

Spark counts the rows, so a query's progress, listeners and web interface show the publications; the block carries them,
in columns, past Spark's rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from lavant.broker.storage.log import LogReader
from lavant.broker.storage.log.blocks import LogBatch
from lavant.broker.storage.objects import open_storage
from lavant.core.identities import UNKNOWN
from lavant.pipeline.cluster.assignment import ACCESS_SLICES
from lavant.pipeline.internals.worker_errors import stream_reader, with_refusals_in_one_line
from lavant.pipeline.operators.access import AccessBlock, encode_range
from lavant.pipeline.operators.tasks import MatchTask
from lavant.pipeline.sources.log import LogStreamReader
from lavant.pipeline.stream.log_ranges import BatchRange, RangeClient, match_assigned
from lavant.pipeline.stream.small_batches import ROWS_MAX, SMALL_MATCHES_MAX, AccessedBlock, BatchPlan, match_small

ACCESS_ROWS_MIN = 2048
"""Publications of an access task, if there are so many; a task costs more than a few thousand rows."""

WAIT_S = 0.1
"""For something new; a stream that is told to stop waits no longer than this."""
POLL_S = 0.004
REMOTE_POLL_S = 0.05
"""Of an object store, where each look is a request."""


@with_refusals_in_one_line
class BlockSource(DataSource):
    """Options: those of `lavant_log`, the `scheme`, the file of the `plan` of batches, and `travel` if tasks cannot
    read the log themselves.
    """

    @classmethod
    def name(cls) -> str:
        return "lavant_blocks"

    def schema(self) -> str:
        return "publications bigint, block binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return stream_reader(lambda: BlockStreamReader(self.options))


@with_refusals_in_one_line
class BlockStreamReader(LogStreamReader):
    """Each partition is an access task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._scheme = options["scheme"]
        self._plan = Path(options["plan"])
        self._travels = options.get("travel") == "true"
        self._poll_s = POLL_S if open_storage(self._options.place).path("any") is not None else REMOTE_POLL_S
        self._is_planned = "rowsmax" not in {name.lower() for name in options}  # Spark's names have no case

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(ROWS_MAX) if self._is_planned else super().getDefaultReadLimit()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Waits for a moment if nothing is new: Spark would ask again at once, which costs a fifth of a core."""
        plan = BatchPlan.load(self._plan)
        if self._is_planned and isinstance(limit, ReadMaxRows):
            limit = super().getDefaultReadLimit() if plan is None else ReadMaxRows(plan.rows_max)
        reached = {**start, "offset": _position(plan, start)}
        give_up_s = time.monotonic() + WAIT_S
        while True:
            latest = super().latestOffset(reached, limit)
            if latest != reached:
                return latest
            if self._target is not None or time.monotonic() >= give_up_s:
                return start
            time.sleep(self._poll_s)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check(end)
        plan = BatchPlan.load(self._plan)
        first, last, identity = _position(plan, start), end["offset"], end.get("log", UNKNOWN)
        if first == last:
            return []
        if plan is not None and plan.dispatcher is not None and last - first <= plan.small_rows_max:
            tasks = len(plan.hosts)
            range_ = AccessRange(first, last, (first, last), identity, dispatcher=plan.dispatcher, all_tasks=tasks)
            return [InputPartition((number, *range_)) for number in range(tasks)]
        small = [] if plan is None else plan.tasks(last - first)
        if small:
            content = self._content(first, last) if self._travels else None
            matches_max = SMALL_MATCHES_MAX // len(small)
            ranges = [
                AccessRange(first, last, shown, identity, content, msgspec.msgpack.encode(tasks), matches_max)
                for tasks, shown in zip(small, pairwise(_bounds(first, last, len(small))), strict=True)
            ]
        else:
            bounds = _bounds(first, last, min(ACCESS_SLICES, max(1, (last - first) // ACCESS_ROWS_MIN)))
            ranges = [
                AccessRange(low, high, (low, high), identity, self._content(low, high) if self._travels else None)
                for low, high in pairwise(bounds)
            ]
        return [InputPartition((number, *each)) for number, each in enumerate(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        number, *values = partition.value
        range_ = AccessRange(*values)
        if range_.dispatcher is not None:
            yield from self._follow(number, range_, range_.dispatcher)
            return
        if range_.content is None:
            batches: Iterator[LogBatch] = _log(self._options.place, range_.log).read(range_.start, range_.end)
        else:
            batches = (LogBatch(first, _from_stream(data)) for first, data in range_.content)
        block = encode_range(self._scheme, range_.log, range_.start, batches, slice=number)
        if range_.tasks is None:
            accessed = AccessedBlock(block)
        else:
            accessed = match_small(
                msgspec.msgpack.decode(range_.tasks, type=list[MatchTask]), block, range_.matches_max
            )
        low, high = range_.shown
        yield _rows(high - low, accessed)

    def _follow(self, number: int, range_: AccessRange, dispatcher: str) -> Iterator[pa.RecordBatch]:
        """Match the ranges that the driver assigns; the rows come when it has no more."""
        log = _log(self._options.place, range_.log)
        done = AccessBlock(range_.start, 0, range_.log, [], [], number)
        with RangeClient(dispatcher, BatchRange(range_.start, range_.end, range_.all_tasks)) as ranges:
            while (assigned := ranges.next()) is not None:
                batches = log.read(assigned.start, assigned.end)
                block = encode_range(self._scheme, range_.log, assigned.start, batches, slice=number)
                ranges.report(match_assigned(assigned, block))
                done = msgspec.structs.replace(done, count=done.count + block.count)
        if done.count:
            yield _rows(done.count, AccessedBlock(done, is_done=True))

    def _content(self, start: int, end: int) -> list[tuple[int, bytes]]:
        return [(batch.first_offset, _to_stream(batch.records)) for batch in self._open().read(start, end)]


class AccessRange(NamedTuple):
    """What an access task reads."""

    start: int
    end: int
    shown: tuple[int, int]
    """The offsets of its rows. The tasks of a small batch read the same range and show a part of it each, so that Spark
    counts every publication once.
    """
    log: str
    """Identity of the log."""
    content: list[tuple[int, bytes]] | None = None
    """The publications, if the task cannot read the log."""
    tasks: bytes | None = None
    """The match tasks that it does at once, if the batch is small."""
    matches_max: int = 0
    """That it may find for them."""
    dispatcher: str | None = None
    """Where it asks for ranges, if the batch follows the log."""
    all_tasks: int = 1
    """That do so."""


def _position(plan: BatchPlan | None, offset: dict[str, Any]) -> int:
    """Where the next batch starts, if Spark says here."""
    start: int = offset["offset"]
    return start if plan is None else max(start, plan.position)


def _rows(count: int, accessed: AccessedBlock) -> pa.RecordBatch:
    numbers = pa.array([count], pa.int64()), pa.nulls(count - 1, pa.int64())
    blocks = pa.array([msgspec.msgpack.encode(accessed)], pa.binary()), pa.nulls(count - 1, pa.binary())
    return pa.record_batch({"publications": pa.concat_arrays(numbers), "block": pa.concat_arrays(blocks)})


def _bounds(start: int, end: int, tasks: int) -> list[int]:
    bounds: list[int] = np.linspace(start, end, tasks + 1).astype(np.int64).tolist()
    return bounds


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
