"""`lavant_log`: a publication log as a table, read and written as a batch or as a stream.

>>> spark.read.format("lavant_log").load("log")                                               # doctest: +SKIP
>>> spark.read.format("lavant_log").option("rows", "columns").load("log")                     # doctest: +SKIP
>>> spark.readStream.format("lavant_log").schema("offset bigint, price double").load("log")   # doctest: +SKIP

Option           Meaning                                                          Default
---------------  ---------------------------------------------------------------  ---------------------
rows             `json` or `columns`; a schema with other columns means these     json
startingOffset   where a batch or a new stream starts                             the log's first
endingOffset     where a batch ends; that publication is not in it                the log's end
rowsMax          publications of a micro-batch                                    8192
partitionBytes   about how many bytes of the log a task reads                     32 MiB
offsetColumn     name of the column of offsets, if an attribute is called offset  offset
rejected         writing: `fail` or `drop`, for rows that are no publications     fail
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from lavant.broker.storage.log import LogReader
from lavant.core.errors import InvalidValue
from lavant.core.identities import UNKNOWN
from lavant.pipeline.internals.worker_errors import stream_reader, with_refusals_in_one_line
from lavant.pipeline.sources.log_rows import OFFSET, column_schema, json_schema, rows_of
from lavant.pipeline.sources.log_writer import LogBatchWriter, LogStreamWriter
from lavant.pipeline.sources.options import check_visible, count_option, place_of

BATCH_ROWS_MAX = 8192
PARTITION_BYTES = 32 << 20
BLOCKS_INFERRED_MAX = 256
"""Blocks from whose columns a schema is inferred; of a log with more, as many at even distances."""


@with_refusals_in_one_line
class LogSource(DataSource):
    """Rows of `offset` and `publication`, or of `offset` and a column for each attribute."""

    @classmethod
    def name(cls) -> str:
        return "lavant_log"

    def schema(self) -> str | StructType:
        form, offset = self.options.get("rows", "json"), self.options.get("offsetColumn", OFFSET)
        if form == "json":
            return json_schema(offset)
        if form != "columns":
            raise InvalidValue(f"option rows is {form!r}; use json or columns")
        return column_schema(_schemas(existing_log(place_of(self.options, self.name()))), offset)

    def reader(self, schema: StructType) -> LogBatchReader:
        return LogBatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return stream_reader(lambda: LogStreamReader(self.options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> LogBatchWriter:
        return LogBatchWriter(self.options, schema, overwrite, self.name())

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:  # noqa: N802 - Spark's name
        return LogStreamWriter(self.options, schema, overwrite, self.name())


class LogOptions:
    """What both readers take from the options."""

    def __init__(self, options: Mapping[str, str], schema: StructType | None = None) -> None:
        self.place = place_of(options, LogSource.name())
        self.offset_column = options.get("offsetColumn", OFFSET)
        self.schema = schema if schema is not None else json_schema(self.offset_column)
        self.form = options.get("rows")
        self.start = count_option(options, "startingOffset")
        self.end = count_option(options, "endingOffset")
        rows_max, partition_bytes = count_option(options, "rowsMax", 1), count_option(options, "partitionBytes")
        self.rows_max = rows_max if rows_max is not None else BATCH_ROWS_MAX
        self.partition_bytes = partition_bytes if partition_bytes is not None else PARTITION_BYTES
        rows_of(self.schema, self.offset_column, self.form)  # raises, before anything is read, if it cannot be

    def partitions(self, reader: LogReader, start: int, end: int) -> list[InputPartition]:
        """Ranges of whole blocks, of about `partition_bytes` each; at least one, as Spark demands."""
        ends, size = [], 0
        for block in reader.blocks(start, end):
            size += block.length
            if size >= self.partition_bytes:
                ends.append(min(end, block.first_offset + block.publications))
                size = 0
        if not ends or ends[-1] < end:
            ends.append(end)
        starts = [start, *ends[:-1]]
        return [InputPartition((first, last, reader.identity)) for first, last in zip(starts, ends, strict=True)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, in a task."""
        start, end, identity = partition.value
        if start == end:  # a log that a stream waits for need not exist
            return
        check_visible(self.place)
        rows = rows_of(self.schema, self.offset_column, self.form)
        for batch in LogReader(self.place, identity).read(start, end):
            yield rows(batch.first_offset, batch.records)


@with_refusals_in_one_line
class LogBatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = LogOptions(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        reader = existing_log(self._options.place)
        start, end = self._options.start, self._options.end
        end = end if end is not None else reader.end()
        start = start if start is not None else reader.start()
        return self._options.partitions(reader, start, max(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.read(partition)


@with_refusals_in_one_line
class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in the driver, except for `read`, which runs in a task."""

    def __init__(self, options: Mapping[str, str], schema: StructType | None = None) -> None:
        self._options = LogOptions(options, schema)
        if self._options.end is not None:
            raise InvalidValue("a stream has no endingOffset; use trigger(availableNow=True), or read a batch")
        self._reader: LogReader | None = None
        self._target: int | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._log_end()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        start = self._options.start
        return self._offset(start if start is not None else self._open().start())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._options.rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self._check(start)
        end = self._log_end()
        if not isinstance(limit, ReadAllAvailable):
            end = min(end, start["offset"] + limit.max_rows)  # type: ignore[attr-defined]
        return self._offset(end) if end > start["offset"] else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check(end)
        return self._options.partitions(self._open(), start["offset"], end["offset"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.read(partition)

    def _check(self, offset: dict[str, Any]) -> None:
        """Raise if an offset belongs to another log than the present one."""
        LogReader(self._options.place, offset.get("log", UNKNOWN)).identity  # noqa: B018 - which checks it

    def _open(self) -> LogReader:
        if self._reader is None:
            self._reader = LogReader(self._options.place)
        return self._reader

    def _offset(self, offset: int) -> dict[str, Any]:
        """With the log's identity, so that a checkpoint does not continue in another log."""
        identity = self._open().identity
        return {"offset": offset} if identity == UNKNOWN else {"offset": offset, "log": identity}

    def _log_end(self) -> int:
        end = self._open().end()
        return end if self._target is None else min(end, self._target)


def existing_log(place: str) -> LogReader:
    """A reader of a log, which a stream may wait for but a batch cannot."""
    reader = LogReader(place)
    if reader.identity == UNKNOWN and reader.end() == 0:
        raise InvalidValue(f"there is no publication log in {place}")
    return reader


def _schemas(reader: LogReader) -> Iterator[pa.Schema]:
    starts = [block.first_offset for block in reader.blocks(reader.start(), reader.end())]
    if len(starts) > BLOCKS_INFERRED_MAX:
        chosen = np.linspace(0, len(starts) - 1, BLOCKS_INFERRED_MAX).astype(int)
        starts = [starts[number] for number in chosen]
    for start in starts:
        for batch in reader.read(start, start + 1):
            yield batch.records.schema
