"""Exit (EP) into files: the lists of all hosts for a publication become one notification, each batch once.

    notifications/
      batch-0000000007.parquet     rows: key, id, subscriptions, rejected
      batch-0000000007.json        where the batch starts and how many rows it has; written last, never replaced

A batch counts once its manifest is there. If the driver dies before that, the repeated batch writes the same file
again; if it dies after, the repeated batch finds the manifest and writes nothing. So nobody is notified twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lavant.core.errors import InvalidValue
from lavant.core.files import replace_file
from lavant.pipeline.exchange import SCHEMA, merge_files


class Manifest(msgspec.Struct, frozen=True):
    batch: int
    start: int
    """Offset of the batch's first publication."""
    rows: int


@dataclass
class Found(WriterCommitMessage):
    """What the hosts of a task left in the exchange, for the batch that starts at an offset."""

    files: list[str]
    start: int


class NotificationSink(DataSource):
    """Options: `path`, and `exchange`, where the hosts left what they found."""

    @classmethod
    def name(cls) -> str:
        return "lavant_notifications"

    def streamWriter(self, schema: StructType, overwrite: bool) -> NotificationWriter:  # noqa: N802 - Spark's name
        return NotificationWriter(self.options)


class NotificationWriter(DataSourceStreamArrowWriter):
    """The exit is where a batch is committed: it waits for all hosts there anyway, and a stage less is 50 ms less."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = Path(options["path"])
        self._exchange = Path(options["exchange"])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Found:
        """In each host's task: hand on the names of its files."""
        rows = [row for batch in iterator for row in batch.to_pylist()]
        return Found([row["file"] for row in rows], min((row["start"] for row in rows), default=-1))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """In the driver: merge the hosts' lists, unless an earlier try of this batch has done so."""
        found = _files(messages)
        start = min((m.start for m in messages if m is not None and m.start >= 0), default=-1)
        manifest = self._path / f"{_name(batchId)}.json"
        if manifest.exists():
            _refuse_another_stream(manifest, start)
        else:
            self._path.mkdir(parents=True, exist_ok=True)
            merged = merge_files([self._exchange / name for name in found])
            if merged.num_rows:
                _write_rows(self._path / f"{_name(batchId)}.parquet", merged)
            replace_file(manifest, [msgspec.json.encode(Manifest(batchId, start, merged.num_rows))])
        self._forget(found)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._forget(_files(messages))

    def _forget(self, names: list[str]) -> None:
        for name in names:
            (self._exchange / name).unlink(missing_ok=True)


def read_manifests(path: Path) -> list[Manifest]:
    """The batches that count, in their order."""
    return [msgspec.json.decode(file.read_bytes(), type=Manifest) for file in sorted(path.glob("batch-*.json"))]


def read_notifications(path: Path) -> pa.Table:
    """Everything that was notified, in the order of the batches."""
    tables = [pq.read_table(path / f"{_name(each.batch)}.parquet") for each in read_manifests(path) if each.rows]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def _name(batch: int) -> str:
    return f"batch-{batch:010d}"


def _refuse_another_stream(path: Path, start: int) -> None:
    """The same batch repeated starts where it did; another stream's batch of that number hardly does."""
    known = msgspec.json.decode(path.read_bytes(), type=Manifest)
    if start not in (-1, known.start):
        raise InvalidValue(
            f"{path} is of a batch that starts at offset {known.start}, this one at {start}: the directory holds the "
            "notifications of another stream; choose another one, or go on with that stream's checkpoint"
        )


def _files(messages: list[Any]) -> list[str]:
    return [name for message in messages if message is not None for name in message.files]


def _write_rows(path: Path, merged: pa.RecordBatch) -> None:
    sink = pa.BufferOutputStream()
    # Ids hardly repeat and hardly compress: a dictionary or a codec costs more than all the rest.
    pq.write_table(pa.Table.from_batches([merged]), sink, compression="none", use_dictionary=False)
    # The manifest's own sync of the directory comes after, and covers both names.
    replace_file(path, [memoryview(sink.getvalue())], sync_name=False)
