"""The publication log as a Spark source: replayable offsets, and the publications as JSON.

Lavant's own stream takes from it only the offsets of each micro-batch, because its hosts read the log themselves. Use
it to get the publications as rows, to keep them in a table for instance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from lavant.broker.storage.log import LogReader
from lavant.broker.storage.log.identity import check_log
from lavant.core.identities import UNKNOWN

BATCH_ROWS_MAX = 8192


class LogSource(DataSource):
    """Options: `log`, a directory; `rowsMax`, publications of a batch; `startingOffset`, where a new stream starts."""

    @classmethod
    def name(cls) -> str:
        return "lavant_log"

    def schema(self) -> str:
        return "offset bigint, publication string"

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 - Spark's name
        return LogStreamReader(self.options)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in the driver, except for `read`, which runs in a task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._log = options["log"]
        self._rows_max = int(options.get("rowsMax", str(BATCH_ROWS_MAX)))
        self._start = int(options.get("startingOffset", "0"))
        self._reader: LogReader | None = None
        self._target: int | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._log_end()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._offset(self._start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self._check(start)
        end = self._log_end()
        if not isinstance(limit, ReadAllAvailable):
            end = min(end, start["offset"] + limit.max_rows)  # type: ignore[attr-defined]
        return self._offset(end) if end > start["offset"] else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check(end)
        return [InputPartition((start["offset"], end["offset"], end.get("log", UNKNOWN)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        start, end, identity = partition.value
        for batch in LogReader(Path(self._log), identity).read(start, end):
            offsets = range(batch.first_offset, batch.first_offset + batch.records.num_rows)
            given = [
                msgspec.json.encode({name: value for name, value in row.items() if value is not None}).decode()
                for row in batch.records.to_pylist()
            ]
            yield pa.record_batch({"offset": pa.array(offsets, pa.int64()), "publication": given})

    def _check(self, offset: dict[str, Any]) -> None:
        """Raise if an offset belongs to another log than the present one."""
        check_log(Path(self._log), offset.get("log", UNKNOWN))

    def _open(self) -> LogReader:
        if self._reader is None:
            self._reader = LogReader(Path(self._log))
        return self._reader

    def _offset(self, offset: int) -> dict[str, Any]:
        """With the log's identity, so that a checkpoint does not continue in another log."""
        identity = self._open().identity
        return {"offset": offset} if identity == UNKNOWN else {"offset": offset, "log": identity}

    def _log_end(self) -> int:
        end = self._open().end()
        return end if self._target is None else min(end, self._target)
