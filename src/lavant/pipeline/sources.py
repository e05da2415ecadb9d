"""The publication log as a Spark source: access (AP) without a shuffle, and match (M) where it is read.

A micro-batch is a stretch of the log. Every host gets one task, whose partition says what to do: which stretch, which
slices, which version of the subscriptions. The publications themselves do not pass through Spark: each host reads them
from the log, and what comes out of the source is where it left its finds. Version and placement are taken once for
each batch, by the driver, so all tasks of a batch agree.
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
from lavant.broker.slices import SliceReader
from lavant.core.errors import InvalidValue
from lavant.pipeline.stages import FOUND_SQL, Reference, match_log

BATCH_ROWS_MAX = 8192


class Assignment(msgspec.Struct, frozen=True):
    """Which slices each host matches."""

    hosts: tuple[tuple[int, ...], ...]

    @classmethod
    def even(cls, slices: int, hosts: int) -> Assignment:
        """Slices dealt out in turn."""
        if hosts < 1:
            raise InvalidValue(f"there must be at least one host, got {hosts}")
        return cls(tuple(tuple(range(host, slices, hosts)) for host in range(min(hosts, slices))))


class ReferencePartition(InputPartition):
    def __init__(self, reference: Reference) -> None:
        super().__init__(tuple(reference))


class LogSource(DataSource):
    """Options: `log`, `store` and `exchange`, directories that all hosts reach; `hosts`, or `placement`, a file that
    the manager replaces; `rowsMax`, publications of a batch; `probes`, a directory for what tasks measured."""

    @classmethod
    def name(cls) -> str:
        return "lavant_log"

    def schema(self) -> str:
        return FOUND_SQL

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 - Spark's name
        return LogStreamReader(self.options)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in the driver, but for `read`, which runs in each host's task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._log = options["log"]
        self._store = options["store"]
        self._hosts = int(options.get("hosts", "1"))
        self._placement = options.get("placement")
        self._rows_max = int(options.get("rowsMax", str(BATCH_ROWS_MAX)))
        self._start = int(options.get("startingOffset", "0"))
        self._exchange = options["exchange"]
        self._probes = options.get("probes", "")
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
        if start["offset"] == end["offset"]:
            return []
        store = SliceReader(Path(self._store))
        version = store.version().number
        assignment = self._current_assignment(store.settings.slices)
        return [
            ReferencePartition(
                Reference(
                    self._log,
                    self._store,
                    version,
                    host,
                    ",".join(map(str, slices)),
                    start["offset"],
                    end["offset"],
                    self._exchange,
                    self._probes,
                )
            )
            for host, slices in enumerate(assignment.hosts)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Match (M), in the host's task: where the log is read, so that no publication passes through Spark."""
        return match_log(Reference(*partition.value))

    def _log_end(self) -> int:
        if self._reader is None:
            self._reader = LogReader(Path(self._log))
        end = self._reader.end()
        return end if self._target is None else min(end, self._target)

    def _current_assignment(self, slices: int) -> Assignment:
        if self._placement is None:
            return Assignment.even(slices, self._hosts)
        return msgspec.json.decode(Path(self._placement).read_bytes(), type=Assignment)
