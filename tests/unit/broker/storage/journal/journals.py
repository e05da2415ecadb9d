"""Journals for tests: appending, reading back, and a fold that forgets nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lavant.broker.storage.journal import Disk, Journal, JournalConfig, apply_upkeep, compact
from lavant.core.errors import StorageFull

SMALL = JournalConfig(segment_bytes=4096, compaction_bytes_min=0)
ID = 0x0123456789ABCDEF


def opened(disk: Disk, config: JournalConfig = SMALL) -> tuple[Journal, list[bytes]]:
    """The journal, and all records that it holds: those in the snapshot, then those behind it."""
    journal, recovered = Journal.open(disk, config, new_id=ID)
    in_snapshot = [] if recovered.chunks is None else [chunk[1:] for chunk in recovered.chunks]
    assert len(in_snapshot) == recovered.position
    records = [*in_snapshot, *recovered.records]
    assert journal.position == journal.durable == len(records)
    return journal, records


def contents(disk: Disk, config: JournalConfig = SMALL) -> list[bytes]:
    return opened(disk, config)[1]


def commit(journal: Journal, disk: Disk, records: Iterable[bytes]) -> int:
    """Stage, write and sync, with upkeep as it is due; returns the position up to which all is durable."""
    for record in records:
        journal.stage(record)
    while journal.durable < journal.position:
        write = journal.begin()
        if write is not None:
            disk.write(write.name, write.offset, write.data)
            disk.sync(write.name)
            journal.finish(write)
        if not keep_up(journal, disk) and write is None:
            assert journal.is_full, "it goes on unless the disk is full"
            break
    return journal.durable


def keep_up(journal: Journal, disk: Disk) -> bool:
    """Whether anything was done."""
    has_done = False
    while (upkeep := journal.upkeep()) is not None:
        try:
            apply_upkeep(disk, upkeep)
        except StorageFull:
            journal.refuse_upkeep(upkeep)
        else:
            journal.finish_upkeep(upkeep)
            has_done = True
    return has_done


def fill(journal: Journal, disk: Disk) -> None:
    """Until the journal says that it is full."""
    for _ in range(1000):
        if journal.is_full:
            return
        commit(journal, disk, [b"s" * 400])
    raise AssertionError("it is never full")


def exhaust(journal: Journal, disk: Disk) -> None:
    """Until there is no room for anything."""
    for _ in range(1000):
        if journal.is_exhausted:
            return
        commit(journal, disk, [b"ack"])
    raise AssertionError("it is never exhausted")


def fold(chunks: Iterator[bytes] | None, records: Iterator[bytes]) -> Iterator[bytes]:
    """A snapshot with every record in it; a mark before each, since a chunk is never empty."""
    if chunks is not None:
        yield from chunks
    for record in records:
        yield b"." + record


def compacted(journal: Journal, disk: Disk, config: JournalConfig = SMALL) -> None:
    upto = journal.durable
    journal.adopt(upto, compact(disk, upto, fold, config))
    keep_up(journal, disk)
