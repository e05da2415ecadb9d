"""Exit (EP) into files: the lists of all hosts for a publication become one notification, each batch once.

    notifications/
      batch-0000000007.parquet     rows: key, id, subscriptions, rejected
      batch-0000000007.json        where the batch starts and how many rows it has; written last, never replaced

A batch counts once its manifest exists. If the driver dies before that, the repeated batch writes the same file again;
if it dies after, the repeated batch finds the manifest and writes nothing. So each notification is written once.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lavant.core.errors import IdentityMismatch, InvalidValue
from lavant.core.files import local_path, replace_file
from lavant.core.identities import UNKNOWN, is_other
from lavant.pipeline.stream.exchange import SCHEMA, merge_files


class SinkOrigin(NamedTuple):
    """The origin of notifications: the identities of the log and of the store."""

    log: str = UNKNOWN
    store: str = UNKNOWN


class BatchManifest(msgspec.Struct, frozen=True):
    batch: int
    start: int
    """Offset of the batch's first publication."""
    rows: int
    log: str = UNKNOWN
    store: str = UNKNOWN
    rejected: int = 0
    """Rows of refused publications."""


class Notifications:
    """The exit (EP): one per stream."""

    def __init__(self, path: Path) -> None:
        self._path = local_path(path)
        self._path.mkdir(parents=True, exist_ok=True)

    def check(self, origin: SinkOrigin) -> None:
        """Raise if existing notifications are of another log or other subscriptions."""
        known = sorted(self._path.glob("batch-*.json"))
        if known:
            _check_origin(known[-1], _read(known[-1]), origin)

    def is_done(self, number: int, start: int, origin: SinkOrigin = SinkOrigin()) -> bool:  # noqa: B008 - it is a value
        """Whether an earlier attempt at this batch, which starts at an offset, counts already."""
        manifest = self._manifest(number)
        if not manifest.exists():
            return False
        known = _read(manifest)
        _check_origin(manifest, known, origin)
        if start != known.start:  # the same batch repeated starts at the same offset; another stream's hardly does
            raise InvalidValue(
                f"{manifest} is of a batch that starts at offset {known.start}, this one at {start}: the "
                "directory holds the notifications of another stream; choose another one, or continue with that "
                "stream's checkpoint"
            )
        return True

    def write(self, number: int, start: int, found: list[Path], origin: SinkOrigin = SinkOrigin()) -> None:  # noqa: B008
        """Merge the hosts' lists, and delete their files."""
        merged = merge_files(found)
        if merged.num_rows:
            _write_rows(self._path / f"{_name(number)}.parquet", merged)
        manifest = BatchManifest(number, start, merged.num_rows, origin.log, origin.store, _rejected(merged))
        replace_file(self._manifest(number), [msgspec.json.encode(manifest)])
        for file in found:
            file.unlink(missing_ok=True)

    def _manifest(self, number: int) -> Path:
        return self._path / f"{_name(number)}.json"


def read_manifests(path: Path) -> list[BatchManifest]:
    """The batches that count, in order."""
    return [_read(file) for file in sorted(path.glob("batch-*.json"))]


def read_notifications(path: Path) -> pa.Table:
    """All notifications, in the order of the batches."""
    path = local_path(path)
    tables = [pq.read_table(path / f"{_name(each.batch)}.parquet") for each in read_manifests(path) if each.rows]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def _read(manifest: Path) -> BatchManifest:
    return msgspec.json.decode(manifest.read_bytes(), type=BatchManifest)


def _check_origin(manifest: Path, known: BatchManifest, origin: SinkOrigin) -> None:
    for kind, there, here in (("log", known.log, origin.log), ("store", known.store, origin.store)):
        if is_other(there, here):
            raise IdentityMismatch(
                f"{manifest.parent} holds the notifications of another {kind}: its identity was {there}, this "
                f"one's is {here}; choose another output directory, or put the original {kind} back"
            )


def read_reasons(path: Path) -> list[str]:
    """The distinct reasons why publications were refused."""
    tables = [
        pq.read_table(path / f"{_name(each.batch)}.parquet", columns=["rejected"])
        for each in read_manifests(path)
        if each.rejected
    ]
    return [reason for table in tables for reason in table.column("rejected").drop_null().to_pylist()]


def _rejected(rows: pa.RecordBatch) -> int:
    return int(rows.num_rows - rows.column("rejected").null_count)


def _name(batch: int) -> str:
    return f"batch-{batch:010d}"


def _write_rows(path: Path, merged: pa.RecordBatch) -> None:
    sink = pa.BufferOutputStream()
    # Ids hardly repeat and hardly compress: a dictionary or a codec costs more than all the rest.
    pq.write_table(pa.Table.from_batches([merged]), sink, compression="none", use_dictionary=False)
    # The manifest's own sync of the directory comes after, and covers both names.
    replace_file(path, [memoryview(sink.getvalue())], sync_name=False)
