"""Compaction: folds the snapshot and the records after it into a new snapshot, while the journal keeps running.

Only records that were durable before are read, and those never change. Then the journal adopts the new snapshot and
drops the segments that it includes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TypeAlias

from lavant.broker.storage.journal.config import DEFAULT, JournalConfig
from lavant.broker.storage.journal.disk import Disk
from lavant.broker.storage.journal.files import read_manifest
from lavant.broker.storage.journal.manifest import JournalManifest, snapshot_name
from lavant.broker.storage.journal.segment_reader import SegmentReader
from lavant.broker.storage.journal.snapshots import read_snapshot, snapshot_parts
from lavant.core.errors import CorruptJournal, InvalidValue

Fold: TypeAlias = Callable[[Iterator[bytes] | None, Iterator[bytes]], Iterable[bytes]]
"""From the chunks of a snapshot, if any, and the records after it to the chunks of the next snapshot."""


def compact(disk: Disk, upto: int, fold: Fold, config: JournalConfig = DEFAULT) -> int:
    """Write a snapshot that includes everything up to record `upto`, and return its size in bytes, for `adopt`.

    Raises `StorageFull` if there is no space for it; the journal is then unchanged.
    """
    manifest = read_manifest(disk, config)
    if manifest is None:
        raise InvalidValue(f"there is no journal{config.directory and ' in ' + config.directory} to compact")
    if upto <= manifest.snapshot_position():
        raise InvalidValue(f"the snapshot already includes record {manifest.snapshot_position()}, requested was {upto}")
    chunks = None if manifest.snapshot is None else read_snapshot(disk, manifest, config)
    folded = fold(chunks, _records(disk, manifest, upto, config))
    return write_snapshot(disk, folded, journal_id=manifest.journal_id, position=upto)


def write_snapshot(disk: Disk, chunks: Iterable[bytes], *, journal_id: int, position: int) -> int:
    """Write a snapshot of these chunks, and return its size in bytes. For callers that have the state in memory.

    Raises `StorageFull` if there is no space for it; the journal is then unchanged.
    """
    size = 0

    def parts() -> Iterator[bytes]:
        nonlocal size
        for part in snapshot_parts(chunks, journal_id=journal_id, position=position):
            size += len(part)
            yield part

    disk.replace(snapshot_name(position), parts())
    return size


def _records(disk: Disk, manifest: JournalManifest, upto: int, config: JournalConfig) -> Iterator[bytes]:
    after = manifest.snapshot_position()
    wanted = upto - after
    blocks = SegmentReader(disk, manifest, config).read(after)
    got = 0
    for record in islice(chain.from_iterable(blocks), wanted):
        got += 1
        yield record
    if got < wanted:
        raise CorruptJournal(
            f"{config.directory or 'the journal'} ends at record {after + got}, and record {upto} was confirmed; "
            "restore the segments from a copy"
        )
