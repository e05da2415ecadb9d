"""`lavant_notifications`: the notifications of a log stream as a table, read as a batch or as a stream.

>>> spark.read.format("lavant_notifications").load("out/notifications")            # doctest: +SKIP
>>> spark.readStream.format("lavant_notifications").load("out/notifications")      # doctest: +SKIP

It reads the parts that manifests name, and no others: each notification once, and only of batches that count. A stream
takes new manifests as they come, in whole batches; its offset is the number of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from lavant.broker.storage.objects import open_storage
from lavant.core.errors import IdentityMismatch, InvalidValue
from lavant.pipeline.internals.worker_errors import stream_reader, with_refusals_in_one_line
from lavant.pipeline.operators.parts import Part
from lavant.pipeline.sources.options import check_schema, check_visible, count_option, place_of
from lavant.pipeline.stream.sinks import BatchManifest, read_manifests, read_part

BATCH_ROWS_MAX = 65_536
SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("key", pa.int64()),
        ("id", pa.string()),
        ("subscriptions", pa.list_(pa.field("element", pa.int64()))),
        ("rejected", pa.string()),
    ]
)
ROWS_AT_ONCE = 4096


@with_refusals_in_one_line
class NotificationSource(DataSource):
    """Options: `startingBatch`, and for streams `rowsMax`, about how many rows a micro-batch has."""

    @classmethod
    def name(cls) -> str:
        return "lavant_notifications"

    def schema(self) -> str:
        return "batch bigint, key bigint, id string, subscriptions array<bigint>, rejected string"

    def reader(self, schema: StructType) -> NotificationBatchReader:
        check_schema(schema, self.schema(), self.name())
        return NotificationBatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return stream_reader(lambda: self._stream_reader(schema))

    def _stream_reader(self, schema: StructType) -> NotificationStreamReader:
        check_schema(schema, self.schema(), self.name())
        return NotificationStreamReader(self.options)


class NotificationOptions:
    """What both readers take from the options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.place = place_of(options, NotificationSource.name())
        start, rows_max = count_option(options, "startingBatch"), count_option(options, "rowsMax", 1)
        self.start = start if start is not None else 0
        self.rows_max = rows_max if rows_max is not None else BATCH_ROWS_MAX

    def partitions(self, manifests: Sequence[BatchManifest]) -> list[InputPartition]:
        """One for each part; at least one, as Spark demands."""
        parts = [(each.batch, part.name) for each in manifests for part in each.parts if part.rows]
        return [InputPartition(part) for part in parts] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        batch, name = partition.value
        check_visible(self.place)
        table = read_part(open_storage(self.place), Part(name))
        for rows in table.combine_chunks().to_batches(ROWS_AT_ONCE):
            number = pa.array(np.full(rows.num_rows, batch, np.int64))
            yield pa.RecordBatch.from_arrays([number, *rows.cast(pa.schema(list(SCHEMA)[1:])).columns], schema=SCHEMA)


@with_refusals_in_one_line
class NotificationBatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = NotificationOptions(options)

    def partitions(self) -> Sequence[InputPartition]:
        manifests = read_manifests(self._options.place, self._options.start - 1)
        if not manifests and not read_manifests(self._options.place):
            raise InvalidValue(f"there are no notifications in {open_storage(self._options.place).uri}")
        return self._options.partitions(manifests)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.read(partition)


@with_refusals_in_one_line
class NotificationStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in the driver, except for `read`, which runs in a task.

    An offset is `{"batch": 7, "log": …, "store": …}`: the next batch, and the identities of the stream that wrote the
    one before, so that a checkpoint does not continue in the notifications of another stream.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = NotificationOptions(options)
        self._manifests: list[BatchManifest] = []
        """Those not yet read, in order."""
        self._target: int | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        manifests = read_manifests(self._options.place)
        self._target = manifests[-1].batch if manifests else -1

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"batch": self._options.start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._options.rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        manifests = self._from(start["batch"])
        if self._target is not None:
            manifests = [each for each in manifests if each.batch <= self._target]
        if not isinstance(limit, ReadAllAvailable):
            rows = accumulate(each.rows for each in manifests)
            within = sum(end <= limit.max_rows for end in rows)  # type: ignore[attr-defined]
            manifests = manifests[: max(1, within)]
        if not manifests:
            return start
        last = manifests[-1]
        _check(start, last)
        return {"batch": last.batch + 1, "log": last.log, "store": last.store}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        manifests = [each for each in self._from(start["batch"]) if each.batch < end["batch"]]
        for each in manifests:
            _check(end, each)
        if [each.batch for each in manifests] != list(range(start["batch"], end["batch"])):
            place = open_storage(self._options.place).uri
            raise InvalidValue(f"{place} lacks manifests of batches {start['batch']} to {end['batch'] - 1}")
        return self._options.partitions(manifests)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.read(partition)

    def _from(self, batch: int) -> list[BatchManifest]:
        """The manifests from a batch on; those already known are not read again."""
        known = [each for each in self._manifests if each.batch >= batch]
        if known and known[0].batch != batch:  # a batch is repeated
            known = []
        self._manifests = known + read_manifests(self._options.place, known[-1].batch if known else batch - 1)
        return self._manifests


def _check(offset: dict[str, Any], manifest: BatchManifest) -> None:
    known = msgspec.structs.asdict(manifest)
    for kind in ("log", "store"):
        if kind in offset and offset[kind] != known[kind]:
            raise IdentityMismatch(
                f"the notifications are of another {kind} than before: its identity was {offset[kind]} and is "
                f"{known[kind]}; start the query with a new checkpoint"
            )
