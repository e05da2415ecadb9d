"""Compaction is wanted only if there is a record that the snapshot does not include."""

from __future__ import annotations

from tests.unit.broker.storage.journal.journals import SMALL, commit, compacted, keep_up, opened

from lavant.broker.storage.disks import MemoryDisk


def test_a_full_journal_whose_sealed_segment_is_in_the_snapshot_waits_for_the_next_record() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk, SMALL)
    commit(journal, disk, [b"r" * 3000])
    compacted(journal, disk)
    disk.capacity_bytes = sum(len(disk.read(name)) for name in disk.names())
    journal.stage(b"r" * 3000)
    write = journal.begin()
    assert write is not None
    assert write.offset == 0  # it goes into the spare, so the segment before is sealed
    keep_up(journal, disk)
    assert journal.is_full
    assert journal.sealed_bytes > 0
    assert not journal.wants_compaction
    disk.write(write.name, write.offset, write.data)
    disk.sync(write.name)
    journal.finish(write)
    assert journal.wants_compaction
