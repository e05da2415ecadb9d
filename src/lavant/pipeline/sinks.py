"""Exit (EP) into files: the lists of all hosts for a publication become one notification, each batch once.

    notifications/
      batch-0000000007.json        the batch's files; written last, and never replaced
      part-….parquet               rows: key, id, subscriptions, rejected

What a task writes counts only once a manifest names it. A batch that is repeated after a failure finds the manifest of
its first success and drops what it wrote again, so nobody is notified twice.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lavant.broker.matching.container import sync_directory
from lavant.pipeline.exchange import SCHEMA, merge_files


class Manifest(msgspec.Struct, frozen=True):
    batch: int
    files: tuple[str, ...]
    rows: int


@dataclass
class Written(WriterCommitMessage):
    file: str
    rows: int
    consumed: list[str]
    """Files of the exchange that nobody needs once the batch counts."""


class NotificationSink(DataSource):
    """Options: `path`, and `exchange`, where the hosts left what they found."""

    @classmethod
    def name(cls) -> str:
        return "lavant_notifications"

    def streamWriter(self, schema: StructType, overwrite: bool) -> NotificationWriter:  # noqa: N802 - Spark's name
        return NotificationWriter(self.options)


class NotificationWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = options["path"]
        self._exchange = options["exchange"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In each task, as exit point: one file, synced, under a name that nobody else uses."""
        exchange = Path(self._exchange)
        files = [exchange / name for batch in iterator for name in batch.column("file").to_pylist()]
        merged = merge_files(files)
        if not merged.num_rows:
            return Written("", 0, [file.name for file in files])
        directory = Path(self._path)
        directory.mkdir(parents=True, exist_ok=True)
        name = f"part-{uuid.uuid4().hex}.parquet"
        with (directory / name).open("wb") as file:
            # Ids hardly repeat within a file: a dictionary of them costs more than all the rest.
            pq.write_table(pa.Table.from_batches([merged]), file, compression="lz4", use_dictionary=False)
            file.flush()
            os.fsync(file.fileno())
        return Written(name, merged.num_rows, [file.name for file in files])

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """In the driver: the manifest makes the files count, unless an earlier try of this batch has done so."""
        directory = Path(self._path)
        directory.mkdir(parents=True, exist_ok=True)
        written = [message for message in messages if message is not None and message.file]
        manifest = directory / f"batch-{batchId:010d}.json"
        if manifest.exists():
            _delete(directory, written)
        else:
            _publish(manifest, batchId, written)
        for message in messages:
            for name in message.consumed if message is not None else ():
                (Path(self._exchange) / name).unlink(missing_ok=True)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        _delete(Path(self._path), [message for message in messages if message is not None and message.file])


def read_manifests(path: Path) -> list[Manifest]:
    """The batches that count, in their order."""
    return [msgspec.json.decode(file.read_bytes(), type=Manifest) for file in sorted(path.glob("batch-*.json"))]


def read_notifications(path: Path) -> pa.Table:
    """Everything that was notified, in the order of the batches."""
    tables = [pq.read_table(path / name) for manifest in read_manifests(path) for name in manifest.files]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def _publish(manifest: Path, batch: int, written: list[Written]) -> None:
    content = Manifest(batch, tuple(message.file for message in written), sum(message.rows for message in written))
    temporary = manifest.with_suffix(".partial")
    with temporary.open("wb") as file:
        file.write(msgspec.json.encode(content))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(manifest)
    sync_directory(manifest.parent)


def _delete(directory: Path, written: list[Any]) -> None:
    for message in written:
        (directory / message.file).unlink(missing_ok=True)
