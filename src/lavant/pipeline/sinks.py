"""Exit (EP) into files: the lists of all hosts for a publication become one notification, each batch once.

    notifications/
      batch-0000000007.parquet     rows: key, id, subscriptions, rejected
      batch-0000000007.json        where the batch starts and how many rows it has; written last, never replaced

A batch counts once its manifest is there. If the driver dies before that, the repeated batch writes the same file
again; if it dies after, the repeated batch finds the manifest and writes nothing. So nobody is notified twice.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from lavant.core.errors import InvalidValue
from lavant.core.files import replace_file
from lavant.pipeline.exchange import SCHEMA, merge_files


class Manifest(msgspec.Struct, frozen=True):
    batch: int
    start: int
    """Offset of the batch's first publication."""
    rows: int


class Exit:
    """The exit (EP), for `foreachBatch`: Spark calls it in the driver with what the hosts' tasks will find.

    It waits for all hosts there anyway, and merging in a process that is warm costs less than a stage or a writer's own
    process would.
    """

    def __init__(self, notifications: Path, exchange: Path) -> None:
        self._path = notifications
        self._exchange = exchange
        notifications.mkdir(parents=True, exist_ok=True)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Run the batch's tasks, which is when they find something, and notify."""
        rows = batch.collect()
        self.notify([row["file"] for row in rows], min((row["start"] for row in rows), default=-1), number)

    def notify(self, found: list[str], start: int, number: int) -> None:
        """Merge the hosts' lists of the batch that starts at an offset, unless an earlier try of it has done so."""
        files = [self._exchange / name for name in found]
        manifest = self._path / f"{_name(number)}.json"
        if manifest.exists():
            _refuse_another_stream(manifest, start)
        else:
            merged = merge_files(files)
            if merged.num_rows:
                _write_rows(self._path / f"{_name(number)}.parquet", merged)
            replace_file(manifest, [msgspec.json.encode(Manifest(number, start, merged.num_rows))])
        for file in files:
            file.unlink(missing_ok=True)


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


def _write_rows(path: Path, merged: pa.RecordBatch) -> None:
    sink = pa.BufferOutputStream()
    # Ids hardly repeat and hardly compress: a dictionary or a codec costs more than all the rest.
    pq.write_table(pa.Table.from_batches([merged]), sink, compression="none", use_dictionary=False)
    # The manifest's own sync of the directory comes after, and covers both names.
    replace_file(path, [memoryview(sink.getvalue())], sync_name=False)
