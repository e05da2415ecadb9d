"""A journal gives positions, writes what is staged as one block, fills segments, and has all of it again."""

from __future__ import annotations

import pytest
from tests.unit.broker.storage.journal.journals import ID, SMALL, commit, contents, exhaust, fill, keep_up, opened

from lavant.broker.storage.disks import MemoryDisk
from lavant.broker.storage.journal import Journal, JournalConfig
from lavant.broker.storage.journal.manifest import is_segment
from lavant.core.errors import InvalidValue, LimitExceeded, StorageFull


def numbered(first: int, count: int, size: int = 20) -> list[bytes]:
    return [b"%d:" % number + b"x" * size for number in range(first, first + count)]


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_a_new_journal_is_empty(disk: MemoryDisk) -> None:
    journal, records = opened(disk)
    assert (records, journal.position, journal.durable) == ([], 0, 0)
    assert disk.names() == ["manifest", "segment-0000000001"]


def test_positions_count_from_one_over_the_journals_life(disk: MemoryDisk) -> None:
    journal, _ = opened(disk)
    assert [journal.stage(b"a"), journal.stage(b"b")] == [1, 2]
    commit(journal, disk, [])
    journal, _ = opened(disk)
    assert (journal.durable, journal.stage(b"c")) == (2, 3)


def test_nothing_can_be_staged_before_the_old_records_were_read(disk: MemoryDisk) -> None:
    journal, _ = Journal.open(disk, SMALL)
    with pytest.raises(AssertionError, match="read the recovered records"):
        journal.stage(b"a")
    assert journal.upkeep() is None


def test_all_that_is_staged_is_one_block(disk: MemoryDisk) -> None:
    journal, _ = opened(disk)
    keep_up(journal, disk)
    assert journal.begin() is None
    journal.stage(b"a")
    journal.stage(b"b")
    write = journal.begin()
    assert write is not None
    assert (write.name, write.offset, write.last) == ("segment-0000000001", 0, 2)
    journal.stage(b"c")
    assert journal.begin() is None, "one write at a time"
    assert journal.durable == 0
    assert journal.finish(write) == 2
    following = journal.begin()
    assert following is not None
    assert (following.offset, following.last) == (len(write.data), 3)


def test_what_was_not_written_is_not_there(disk: MemoryDisk) -> None:
    journal, _ = opened(disk)
    commit(journal, disk, [b"a"])
    journal.stage(b"b")
    assert journal.begin() is not None
    assert contents(disk) == [b"a"]


def test_records_over_many_segments_come_back_in_order(disk: MemoryDisk) -> None:
    journal, _ = opened(disk)
    records = numbered(1, 60, size=300)
    for record in records:
        commit(journal, disk, [record])
    assert len([name for name in disk.names() if name.startswith("segment")]) == 9
    journal, found = opened(disk)
    assert found == records
    commit(journal, disk, [b"more"])
    assert contents(disk) == [*records, b"more"]


def test_large_groups_are_cut_into_blocks_of_bounded_size(disk: MemoryDisk) -> None:
    config = JournalConfig(segment_bytes=8192, block_bytes_max=1024)
    journal, _ = opened(disk, config)
    records = numbered(1, 100)
    for record in records:
        journal.stage(record)
    sizes = []
    keep_up(journal, disk)
    while (write := journal.begin()) is not None:
        sizes.append(len(write.data))
        disk.write(write.name, write.offset, write.data)
        journal.finish(write)
        keep_up(journal, disk)
    assert max(sizes) <= 1024
    assert journal.staged_bytes == 0
    assert contents(disk, config) == records


def test_no_segment_is_passed_over_for_more_than_one_holds(disk: MemoryDisk) -> None:
    journal, _ = opened(disk)
    records = numbered(1, 100, size=200)
    commit(journal, disk, records)
    used = [name for name in disk.names() if name.startswith("segment")][:-1]
    assert all(disk.read(name, 0, 1) != b"\0" for name in used)
    assert contents(disk) == records


def test_a_record_larger_than_a_block_is_a_block_of_its_own(disk: MemoryDisk) -> None:
    config = JournalConfig(segment_bytes=8192, block_bytes_max=512)
    journal, _ = opened(disk, config)
    records = [b"a", b"l" * 5000, b"b"]
    commit(journal, disk, records)
    assert contents(disk, config) == records


def test_a_record_that_fits_into_no_segment_is_refused_and_the_largest_that_fits_is_not(disk: MemoryDisk) -> None:
    journal, _ = opened(disk)
    largest = b"x" * SMALL.record_bytes_max
    with pytest.raises(LimitExceeded, match=r"a record has 3585 bytes, a segment of 4096 bytes holds at most 3584"):
        journal.stage(largest + b"x")
    commit(journal, disk, [b"a", largest, b"b"])
    assert contents(disk) == [b"a", largest, b"b"]


def test_staged_bytes_are_those_that_are_not_on_their_way(disk: MemoryDisk) -> None:
    journal, _ = opened(disk)
    keep_up(journal, disk)
    journal.stage(b"abc")
    journal.stage(b"de")
    assert journal.staged_bytes == 5
    journal.begin()
    assert journal.staged_bytes == 0


GROWING = JournalConfig(segment_bytes=65_536, first_segment_bytes=4096)


def sizes(disk: MemoryDisk) -> list[int]:
    return [len(disk.read(name)) for name in disk.names() if is_segment(name)]


def test_segments_grow_with_use(disk: MemoryDisk) -> None:
    journal, _ = opened(disk, GROWING)
    keep_up(journal, disk)
    assert sizes(disk) == [4096, 16_384]
    records = numbered(1, 400, size=400)
    commit(journal, disk, records)
    assert sizes(disk) == [4096, 16_384, *4 * [65_536]]
    assert contents(disk, GROWING) == records


def test_a_record_larger_than_the_spare_gets_a_segment_that_holds_it(disk: MemoryDisk) -> None:
    journal, _ = opened(disk, GROWING)
    keep_up(journal, disk)
    records = [b"a", b"l" * GROWING.record_bytes_max, b"b"]
    commit(journal, disk, records)
    assert contents(disk, GROWING) == records


def test_a_small_journal_that_is_full_can_still_be_exhausted(disk: MemoryDisk) -> None:
    disk.capacity_bytes = 4096 + 1024
    journal, _ = opened(disk, GROWING)
    fill(journal, disk)
    assert not journal.is_exhausted
    exhaust(journal, disk)


def test_segments_of_another_size_are_used_up_and_new_ones_have_the_size_that_is_set(disk: MemoryDisk) -> None:
    journal, _ = opened(disk)
    records = [b"a" * 3000]
    commit(journal, disk, records)
    larger = JournalConfig(segment_bytes=16384)
    journal, _ = opened(disk, larger)
    records.append(b"b" * 10_000)  # fits neither into what is left nor into the spare
    commit(journal, disk, records[1:])
    assert contents(disk, larger) == records
    assert len(disk.read(disk.names()[-1])) == 16384


def test_an_upkeep_is_asked_for_once(disk: MemoryDisk) -> None:
    journal, _ = opened(disk)
    upkeep = journal.upkeep()
    assert upkeep is not None
    assert (upkeep.create, upkeep.size_bytes) == ("segment-0000000002", 4096)
    assert journal.upkeep() is None
    disk.create("segment-0000000002", 4096)
    journal.finish_upkeep(upkeep)
    assert journal.upkeep() is None


def test_without_a_spare_a_block_waits_for_it_and_nobody_says_that_the_disk_is_full(disk: MemoryDisk) -> None:
    journal, _ = opened(disk)
    for _ in range(2):
        journal.stage(b"x" * 3000)
        write = journal.begin()
        if write is not None:
            disk.write(write.name, write.offset, write.data)
            journal.finish(write)
    assert (journal.durable, journal.position, journal.is_full) == (1, 2, False)
    keep_up(journal, disk)
    assert commit(journal, disk, []) == 2


def test_no_room_for_a_new_journal_is_an_error() -> None:
    with pytest.raises(StorageFull):
        Journal.open(MemoryDisk(capacity_bytes=4000), SMALL)
    with pytest.raises(StorageFull):
        Journal.open(MemoryDisk(capacity_bytes=10), SMALL)


def full_journal(room_segments: int) -> tuple[Journal, MemoryDisk]:
    """A journal on a disk for so many segments, filled until it says so."""
    disk = MemoryDisk(capacity_bytes=4096 * room_segments + 2000)
    journal, _ = opened(disk)
    fill(journal, disk)
    return journal, disk


def test_a_full_disk_is_known_while_a_whole_segment_is_left_in_reserve() -> None:
    journal, disk = full_journal(3)
    held = journal.durable
    assert not journal.is_exhausted
    for _ in range(6):
        commit(journal, disk, [b"ack"])
    assert journal.durable == held + 6
    assert contents(disk) == [b"s" * 400] * held + [b"ack"] * 6


def test_a_journal_without_any_room_is_exhausted_and_what_is_staged_waits() -> None:
    journal, disk = full_journal(3)
    exhaust(journal, disk)
    held = journal.durable
    commit(journal, disk, [b"waits"])
    assert (journal.durable, journal.position) == (held, held + 1)
    assert len(contents(disk)) == held


def test_as_many_records_as_fit_go_into_the_reserve() -> None:
    journal, disk = full_journal(2)
    held = journal.durable
    commit(journal, disk, [b"r" * 300] * 30)
    assert held < journal.durable < journal.position
    assert contents(disk)[held:] == [b"r" * 300] * (journal.durable - held)


def test_room_is_asked_for_again_only_when_told_and_then_everything_goes_on() -> None:
    journal, disk = full_journal(3)
    exhaust(journal, disk)
    commit(journal, disk, [b"waits"])
    disk.capacity_bytes = None
    assert journal.upkeep() is None
    assert journal.is_full
    journal.retry()
    keep_up(journal, disk)
    assert not journal.is_full
    assert not journal.is_exhausted
    commit(journal, disk, [])
    assert journal.durable == journal.position
    assert contents(disk)[-1] == b"waits"


def test_a_disk_with_room_for_the_segment_and_not_for_the_manifest_keeps_neither(disk: MemoryDisk) -> None:
    journal, _ = opened(disk)
    disk.capacity_bytes = sum(len(disk.read(name)) for name in disk.names()) + 4096
    keep_up(journal, disk)
    assert journal.is_full
    assert disk.names() == ["manifest", "segment-0000000001"]


def test_a_full_disk_does_not_keep_a_journal_from_being_opened() -> None:
    journal, disk = full_journal(3)
    held = journal.durable
    disk.capacity_bytes = 0
    journal, records = opened(disk)
    assert len(records) == held
    assert commit(journal, disk, [b"ack"]) == held + 1
    assert journal.is_full


def test_two_journals_have_the_ids_they_were_given(disk: MemoryDisk) -> None:
    opened(disk)
    assert b'"journal_id":%d' % ID in disk.read("manifest")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"segment_bytes": 0}, "segment_bytes must be a multiple of 512, at least 4096, got 0"),
        ({"segment_bytes": 4097}, "got 4097"),
        ({"block_bytes_max": 511}, "block_bytes_max must be at least 512, got 511"),
        ({"compaction_bytes_min": -1}, "compaction_bytes_min must not be negative, got -1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, int], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        JournalConfig(**settings)  # type: ignore[arg-type]
