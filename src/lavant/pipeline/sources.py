"""The publication log as a Spark source: offsets that can be replayed, and the publications as JSON.

A stream of Lavant's own takes from it only how far each micro-batch goes, because its hosts read the log themselves.
Whoever wants the publications as rows, to keep them in a table for instance, reads them here.
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

from lavant.broker.log import LogReader

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
    """Runs in the driver, but for `read`, which runs in a task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._log = options["log"]
        self._rows_max = int(options.get("rowsMax", str(BATCH_ROWS_MAX)))
        self._start = int(options.get("startingOffset", "0"))
        self._reader: LogReader | None = None
        self._target: int | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._log_end()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"offset": self._start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        end = self._log_end()
        if not isinstance(limit, ReadAllAvailable):
            end = min(end, start["offset"] + limit.max_rows)  # type: ignore[attr-defined]
        return {"offset": max(end, start["offset"])}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition((start["offset"], end["offset"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        start, end = partition.value
        for slab in LogReader(Path(self._log)).read(start, end):
            offsets = range(slab.first_offset, slab.first_offset + slab.records.num_rows)
            given = [
                msgspec.json.encode({name: value for name, value in row.items() if value is not None}).decode()
                for row in slab.records.to_pylist()
            ]
            yield pa.record_batch({"offset": pa.array(offsets, pa.int64()), "publication": given})

    def _log_end(self) -> int:
        if self._reader is None:
            self._reader = LogReader(Path(self._log))
        end = self._reader.end()
        return end if self._target is None else min(end, self._target)
