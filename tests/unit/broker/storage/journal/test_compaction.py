"""Snapshots hold what was folded; compaction drops what they include, and hurts nothing when it cannot be done."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.broker.storage.journal.journals import (
    ID,
    SMALL,
    commit,
    compacted,
    contents,
    exhaust,
    fill,
    fold,
    keep_up,
    opened,
)
from tests.unit.broker.storage.journal.torn_disk import TornDisk

from lavant.broker.storage.disks import MemoryDisk
from lavant.broker.storage.journal import Journal, JournalConfig, apply_upkeep, compact
from lavant.broker.storage.journal.manifest import JournalManifest, snapshot_name
from lavant.broker.storage.journal.snapshots import read_snapshot, snapshot_parts
from lavant.core.errors import CorruptJournal, InvalidValue, LimitExceeded, StorageFull

RECORDS = [b"%d " % number + b"r" * 400 for number in range(20)]
WITH_SNAPSHOT = JournalManifest(journal_id=ID, snapshot=9)


def journal_of(disk: MemoryDisk, records: list[bytes], config: JournalConfig = SMALL) -> Journal:
    journal, _ = opened(disk, config)
    for record in records:
        commit(journal, disk, [record])
    return journal


def segments(disk: MemoryDisk) -> list[int]:
    return [int(name[-10:]) for name in disk.names() if name.startswith("segment")]


def put_snapshot(disk: MemoryDisk, chunks: list[bytes]) -> None:
    disk.replace(snapshot_name(9), snapshot_parts(chunks, journal_id=ID, position=9))


@pytest.mark.parametrize("chunks", [[], [b"a"], [b"a" * 100_000, b"b", b"\0" * 1000]])
def test_chunks_come_back(chunks: list[bytes]) -> None:
    disk = MemoryDisk()
    put_snapshot(disk, chunks)
    assert list(read_snapshot(disk, WITH_SNAPSHOT, SMALL)) == chunks


def test_empty_chunks_are_left_out() -> None:
    disk = MemoryDisk()
    put_snapshot(disk, [b"", b"a", b"", b"b", b""])
    assert list(read_snapshot(disk, WITH_SNAPSHOT, SMALL)) == [b"a", b"b"]


def test_a_chunk_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lavant.broker.storage.journal.snapshots.CHUNK_BYTES_MAX", 10)
    with pytest.raises(LimitExceeded, match="a chunk of a snapshot has 11 bytes, at most 10 are allowed"):
        put_snapshot(MemoryDisk(), [b"x" * 11])


def test_any_flipped_bit_in_a_snapshot_is_noticed() -> None:
    disk = TornDisk()
    put_snapshot(disk, [b"alpha", b"beta" * 10])
    for position in range(len(disk.read(snapshot_name(9)))):
        for bit in range(8):
            disk.flip(snapshot_name(9), position, bit)
            with pytest.raises(CorruptJournal, match="snapshot-00000000000000000009 is damaged at byte"):
                list(read_snapshot(disk, WITH_SNAPSHOT, SMALL))
            disk.flip(snapshot_name(9), position, bit)


def test_a_snapshot_that_ends_early_or_late_is_noticed() -> None:
    disk = MemoryDisk()
    put_snapshot(disk, [b"alpha", b"beta" * 10])
    whole = disk.read(snapshot_name(9))
    for length in range(len(whole)):
        disk.replace(snapshot_name(9), [whole[:length]])
        with pytest.raises(CorruptJournal, match="restore the file from a copy"):
            list(read_snapshot(disk, WITH_SNAPSHOT, SMALL))
    disk.replace(snapshot_name(9), [whole, b"x"])
    with pytest.raises(CorruptJournal, match=f"damaged at byte {len(whole)}: something follows its end"):
        list(read_snapshot(disk, WITH_SNAPSHOT, SMALL))


def test_two_chunks_that_changed_places_are_noticed() -> None:
    disk = MemoryDisk()
    put_snapshot(disk, [b"alpha", b"gamma"])
    whole = disk.read(snapshot_name(9))
    start, frame = 28, 8 + 5
    swapped = whole[:start] + whole[start + frame : start + 2 * frame] + whole[start : start + frame]
    disk.replace(snapshot_name(9), [swapped + whole[start + 2 * frame :]])
    with pytest.raises(CorruptJournal, match="the checksum differs"):
        list(read_snapshot(disk, WITH_SNAPSHOT, SMALL))


def test_a_snapshot_of_another_journal_or_position_is_noticed() -> None:
    disk = MemoryDisk()
    for journal_id, position in ((ID + 1, 9), (ID, 8)):
        disk.replace(snapshot_name(9), snapshot_parts([b"a"], journal_id=journal_id, position=position))
        with pytest.raises(CorruptJournal, match="byte 0: no snapshot of this journal begins there"):
            list(read_snapshot(disk, WITH_SNAPSHOT, SMALL))


def test_compaction_keeps_every_record_and_drops_the_segments_it_has_folded() -> None:
    disk = MemoryDisk()
    journal = journal_of(disk, RECORDS)
    assert segments(disk) == [1, 2, 3, 4]
    compacted(journal, disk)
    assert segments(disk) == [3, 4]
    assert journal.sealed_bytes == 0
    assert contents(disk) == RECORDS


def test_what_comes_while_a_snapshot_is_made_is_kept() -> None:
    disk = MemoryDisk()
    journal = journal_of(disk, RECORDS)
    size = compact(disk, 13, fold, SMALL)
    later = [b"later %d" % number for number in range(10)]
    for record in later:
        commit(journal, disk, [record])
    journal.adopt(13, size)
    keep_up(journal, disk)
    assert segments(disk) == [2, 3, 4, 5], "the second holds records behind the snapshot"
    assert contents(disk) == [*RECORDS, *later]


@pytest.mark.parametrize("upto", [1, 2, 3, 4, 5])
def test_a_snapshot_may_end_within_a_block(upto: int) -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    records = [b"%d" % number for number in range(5)]
    commit(journal, disk, records)
    journal.adopt(upto, compact(disk, upto, fold, SMALL))
    keep_up(journal, disk)
    journal, found = opened(disk)
    assert found == records
    if upto < 5:
        compacted(journal, disk)
    assert contents(disk) == records


@pytest.mark.parametrize("upto", range(1, 21))
def test_no_segment_goes_that_has_a_record_behind_the_snapshot(upto: int) -> None:
    disk = MemoryDisk()
    journal = journal_of(disk, RECORDS)
    journal.adopt(upto, compact(disk, upto, fold, SMALL))
    keep_up(journal, disk)
    assert segments(disk)[0] == 1 + min(upto // 8, 2), "eight records fit into a segment, and the third is in use"
    assert contents(disk) == RECORDS


def test_snapshot_upon_snapshot_holds_everything() -> None:
    disk = MemoryDisk()
    journal, _ = opened(disk)
    for turn in range(6):
        for record in RECORDS:
            commit(journal, disk, [b"%d" % turn + record])
        compacted(journal, disk)
        if turn % 2:
            journal, _ = opened(disk)
    assert contents(disk) == [b"%d" % turn + record for turn in range(6) for record in RECORDS]
    assert [name for name in disk.names() if name.startswith("snapshot")] == [snapshot_name(120)]
    assert len(segments(disk)) <= 3


def test_compaction_is_wanted_when_the_sealed_segments_are_larger_than_the_bound_and_the_snapshot() -> None:
    disk = MemoryDisk()
    config = JournalConfig(segment_bytes=4096, compaction_bytes_min=8000)
    journal = journal_of(disk, RECORDS[:17], config)
    assert (journal.sealed_bytes, journal.wants_compaction) == (8192, True)
    upto = journal.durable
    journal.adopt(upto, compact(disk, upto, fold, config))
    assert not journal.wants_compaction, "one is made already"
    keep_up(journal, disk)
    snapshot_bytes = len(disk.read(snapshot_name(17)))
    for record in RECORDS:
        commit(journal, disk, [record])
        assert journal.wants_compaction == (journal.sealed_bytes > max(8000, snapshot_bytes))


def test_a_full_disk_wants_compaction_as_soon_as_that_can_help() -> None:
    disk = MemoryDisk(capacity_bytes=4 * 4096)
    config = JournalConfig(segment_bytes=4096)
    journal = journal_of(disk, RECORDS[:7], config)
    assert not journal.wants_compaction
    fill(journal, disk)
    held = journal.durable
    assert journal.wants_compaction

    def forget(chunks: object, records: object) -> list[bytes]:
        return [b"nothing is left"]

    journal.adopt(held, compact(disk, held, forget, config))
    keep_up(journal, disk)
    assert not journal.is_full
    assert not journal.wants_compaction


def test_an_exhausted_journal_wants_compaction_although_no_segment_would_go() -> None:
    """The last snapshot was as large as the segments were; the next need not be."""
    disk = MemoryDisk()
    config = JournalConfig(segment_bytes=4096)
    journal = journal_of(disk, RECORDS[:17], config)
    journal.adopt(17, compact(disk, 17, fold, config))
    upkeep = journal.upkeep()
    assert upkeep is not None
    apply_upkeep(disk, upkeep)
    journal.finish_upkeep(upkeep)
    disk.remove("segment-0000000004")  # as if there had been no room for the spare
    disk.replace("manifest", [msgspec.structs.replace(upkeep.manifest, last_segment=3).encode()])
    disk.capacity_bytes = sum(len(disk.read(name)) for name in disk.names()) + 1000
    journal, _ = opened(disk, config)
    commit(journal, disk, [b"ack"])
    assert journal.is_full
    assert not journal.wants_compaction
    exhaust(journal, disk)
    assert journal.sealed_bytes == 0
    assert journal.wants_compaction
    journal.adopt(journal.durable, compact(disk, journal.durable, lambda chunks, records: [b"little"], config))
    keep_up(journal, disk)
    assert not journal.is_full, "there is room for a segment where the old snapshot was"


def test_no_room_for_a_snapshot_hurts_nothing() -> None:
    disk = MemoryDisk()
    journal = journal_of(disk, RECORDS)
    before = disk.names()
    disk.capacity_bytes = 0
    with pytest.raises(StorageFull):
        compact(disk, 20, fold, SMALL)
    assert disk.names() == before
    assert commit(journal, disk, [b"more"]) == 21
    assert contents(disk) == [*RECORDS, b"more"]


def test_no_room_for_the_manifest_leaves_the_old_one_in_use_until_there_is() -> None:
    disk = MemoryDisk()
    journal = journal_of(disk, RECORDS)
    journal.adopt(20, compact(disk, 20, fold, SMALL))
    disk.capacity_bytes = 0
    keep_up(journal, disk)
    assert not journal.is_full, "there is a spare"
    assert segments(disk) == [1, 2, 3, 4]
    assert contents(TornDisk.of(disk)) == RECORDS
    disk.capacity_bytes = None
    journal.retry()
    keep_up(journal, disk)
    assert segments(disk) == [3, 4]
    assert contents(disk) == RECORDS


def test_damage_is_noticed_while_folding() -> None:
    disk = TornDisk()
    journal_of(disk, RECORDS)
    disk.flip("segment-0000000002", 600, 1)
    with pytest.raises(CorruptJournal, match="segment-0000000002 is damaged at byte 512"):
        compact(disk, 20, fold, SMALL)
    disk.flip("segment-0000000002", 600, 1)
    disk.cut("segment-0000000003", 1536, 2048)
    with pytest.raises(CorruptJournal, match="the journal ends at record 19, and record 20 was confirmed"):
        compact(disk, 20, fold, SMALL)
    assert not [name for name in disk.names() if name.startswith("snapshot")]


def test_what_is_beyond_the_position_is_not_even_looked_at() -> None:
    """It may be half written at this moment."""
    disk = TornDisk()
    journal_of(disk, RECORDS)
    disk.flip("segment-0000000003", 1600, 1)
    assert compact(disk, 19, fold, SMALL) > 0


def test_compaction_without_a_use_is_refused() -> None:
    disk = MemoryDisk()
    with pytest.raises(InvalidValue, match="there is no journal in /d to compact"):
        compact(disk, 1, fold, JournalConfig(directory="/d"))
    journal = journal_of(disk, RECORDS)
    for position in (0, 21):
        with pytest.raises(InvalidValue, match=f"a snapshot up to record {position} cannot be used"):
            journal.adopt(position, 1)
    compacted(journal, disk)
    with pytest.raises(InvalidValue, match="the snapshot already includes record 20, requested was 20"):
        compact(disk, 20, fold, SMALL)


def test_files_left_by_a_crash_are_cleaned_up_and_others_are_not() -> None:
    disk = MemoryDisk()
    journal = journal_of(disk, RECORDS)
    compacted(journal, disk)
    disk.create("segment-0000000001", 4096)
    disk.create("segment-0000000005", 100)
    disk.replace(snapshot_name(5), [b"old"])
    disk.replace(snapshot_name(50), [b"never used"])
    disk.replace("notes.txt", [b"somebody's"])
    assert contents(disk) == RECORDS
    assert disk.names() == ["manifest", "notes.txt", "segment-0000000003", "segment-0000000004", snapshot_name(20)]
