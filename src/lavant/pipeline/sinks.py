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

from lavant.core.files import replace_file
from lavant.pipeline.exchange import SCHEMA, merge_files


class Manifest(msgspec.Struct, frozen=True):
    batch: int
    files: tuple[str, ...]
    rows: int


@dataclass
class Found(WriterCommitMessage):
    """What the hosts of a task left in the exchange."""

    files: list[str]


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
        return Found([name for batch in iterator for name in batch.column("file").to_pylist()])

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """In the driver: merge the hosts' lists, unless an earlier try of this batch has done so."""
        found = _files(messages)
        manifest = self._path / f"batch-{batchId:010d}.json"
        if not manifest.exists():
            self._path.mkdir(parents=True, exist_ok=True)
            merged = merge_files([self._exchange / name for name in found])
            content = Manifest(batchId, _write_part(self._path, merged), merged.num_rows)
            replace_file(manifest, [msgspec.json.encode(content)])
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
    tables = [pq.read_table(path / name) for manifest in read_manifests(path) for name in manifest.files]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def _files(messages: list[Any]) -> list[str]:
    return [name for message in messages if message is not None for name in message.files]


def _write_part(directory: Path, merged: pa.RecordBatch) -> tuple[str, ...]:
    if not merged.num_rows:
        return ()
    name = f"part-{uuid.uuid4().hex}.parquet"
    with (directory / name).open("wb") as file:
        # Ids hardly repeat and hardly compress: a dictionary or a codec costs more than all the rest.
        pq.write_table(pa.Table.from_batches([merged]), file, compression="none", use_dictionary=False)
        file.flush()
        os.fsync(file.fileno())
    return (name,)
