"""A damaged journal is refused in clear words, and left as it is; what a crash tore off the end is cut off."""

from __future__ import annotations

import pytest
from tests.unit.broker.storage.journal.journals import ID, SMALL, commit, compacted, contents, opened
from tests.unit.broker.storage.journal.torn_disk import TornDisk

from lavant.broker.storage.journal import SECTOR_BYTES, Journal, JournalConfig
from lavant.broker.storage.journal.blocks import encode_block
from lavant.core.errors import CorruptJournal

FIRST, SECOND = "segment-0000000001", "segment-0000000002"
RECORDS = [b"%d " % number + b"r" * 400 for number in range(20)]


@pytest.fixture
def disk() -> TornDisk:
    """20 blocks of one sector each: 8 in the first segment, 8 in the second, 4 in the third, and a spare."""
    disk = TornDisk()
    journal, _ = opened(disk)
    for record in RECORDS:
        commit(journal, disk, [record])
    return disk


def files(disk: TornDisk) -> dict[str, bytes]:
    return {name: disk.read(name) for name in disk.names()}


def refusal(disk: TornDisk, config: JournalConfig = SMALL) -> str:
    """Why the journal is refused; nothing is changed by that."""
    before = files(disk)
    with pytest.raises(CorruptJournal) as caught:
        contents(disk, config)
    assert files(disk) == before
    return str(caught.value)


@pytest.mark.parametrize("byte", [0, 9, 13, 20, 30, 36, 42, 47, 48, 60, 300])
@pytest.mark.parametrize("block", [0, 3, 7])
def test_a_damaged_block_in_the_middle_is_refused_with_the_place_and_what_to_do(
    disk: TornDisk, block: int, byte: int
) -> None:
    disk.flip(SECOND, block * SECTOR_BYTES + byte, 0)
    later = "at byte 0 of segment-0000000003" if block == 7 else f"at byte {512 * block + 512}"
    assert refusal(disk, JournalConfig(directory="/data", segment_bytes=4096)) == (
        f"/data/{SECOND} is damaged at byte {block * SECTOR_BYTES}: record {8 + block + 1} should begin there, and "
        f"later ones are {later}; restore the file from a copy"
    )


def test_a_block_of_which_nothing_is_left_is_noticed_by_those_behind_it(disk: TornDisk) -> None:
    disk.cut(SECOND, 1024, 1536)
    assert refusal(disk).startswith(f"{SECOND} is damaged at byte 1024: record 11 should begin there, and later ones")


def test_a_segment_of_which_the_end_is_zeros_is_noticed_by_the_next(disk: TornDisk) -> None:
    disk.cut(SECOND, 1024, 4096)
    assert refusal(disk) == (
        "segment-0000000003 is damaged at byte 0: record 17 stands where 11 should; "
        "restore this file and those before it from a copy"
    )


def test_a_damaged_last_block_is_not_taken_for_torn(disk: TornDisk) -> None:
    disk.flip("segment-0000000003", 3 * SECTOR_BYTES + 100, 0)
    assert refusal(disk) == (
        "segment-0000000003 is damaged at byte 1536: record 20 should begin there, and may have been confirmed; "
        "restore the file from a copy, or give up the journal's end: truncate -s 1536 segment-0000000003"
    )


def test_giving_up_the_end_works_as_it_says(disk: TornDisk) -> None:
    disk.flip("segment-0000000003", 3 * SECTOR_BYTES + 100, 0)
    disk.replace("segment-0000000003", [disk.read("segment-0000000003", 0, 1536)])
    journal, records = opened(disk)
    assert records == RECORDS[:19]
    commit(journal, disk, [b"new"])
    assert contents(disk) == [*RECORDS[:19], b"new"]


def test_records_that_the_manifest_knows_of_are_missed(disk: TornDisk) -> None:
    journal, _ = opened(disk)
    disk.replace("manifest", [journal.closing().manifest.encode()])
    disk.cut("segment-0000000003", 1536, 2048)  # as if it had never been written
    assert refusal(disk) == (
        "segment-0000000004 is the last segment, and records 20 to 20, which were confirmed, are in none; "
        "restore the segments from a copy"
    )
    disk.write("segment-0000000003", 2000, b"something")
    assert refusal(disk) == (
        "segment-0000000003 is damaged at byte 1536: record 20 should begin there, and was confirmed; "
        "restore the file from a copy"
    )


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        (FIRST, f"{FIRST} is missing, and 0 more; restore the files from a copy"),
        ("segment-0000000003", "segment-0000000003 is missing"),
        ("segment-0000000004", "segment-0000000004 is missing"),
        ("manifest", f"manifest is missing, and {FIRST} is there; restore the manifest from a copy"),
    ],
)
def test_a_missing_file_is_refused(disk: TornDisk, missing: str, problem: str) -> None:
    disk.remove(missing)
    assert refusal(disk).startswith(problem)


def test_a_missing_snapshot_is_refused(disk: TornDisk) -> None:
    journal, _ = opened(disk)
    compacted(journal, disk)
    disk.remove("snapshot-00000000000000000020")
    assert refusal(disk).startswith("snapshot-00000000000000000020 is missing")


def test_a_segment_of_another_journal_is_refused(disk: TornDisk) -> None:
    other = TornDisk()
    journal, recovered = Journal.open(other, SMALL, new_id=ID + 1)
    assert not list(recovered.records)
    for record in RECORDS:
        commit(journal, other, [record])
    disk.replace(SECOND, [other.read(SECOND)])
    assert refusal(disk) == (
        f"{SECOND} is damaged at byte 0: a block of another journal begins there; put back this journal's file"
    )


def test_segments_that_changed_places_are_refused(disk: TornDisk) -> None:
    first = disk.read(FIRST)
    disk.replace(FIRST, [disk.read(SECOND)])
    disk.replace(SECOND, [first])
    assert refusal(disk).startswith(f"{FIRST} is damaged at byte 0: record 9 stands where 1 should")


def test_a_manifest_that_is_older_than_the_segments_is_refused(disk: TornDisk) -> None:
    old = disk.read("manifest")
    journal, _ = opened(disk)
    for record in RECORDS:
        commit(journal, disk, [record])
    disk.replace("manifest", [old])
    assert refusal(disk) == (
        "segment-0000000005 has records, and manifest does not name it: the manifest is older than the segments; "
        "restore all files from one copy"
    )


def test_nothing_that_may_help_to_mend_a_damaged_journal_is_cleared_away(disk: TornDisk) -> None:
    journal, _ = opened(disk)
    first = disk.read(FIRST)
    compacted(journal, disk)
    disk.create(FIRST, 4096)
    disk.write(FIRST, 0, first)
    disk.replace("snapshot-00000000000000000007", [b"an old one"])
    disk.flip("snapshot-00000000000000000020", 100, 1)
    assert refusal(disk).startswith("snapshot-00000000000000000020 is damaged at byte 28")
    disk.flip("snapshot-00000000000000000020", 100, 1)
    disk.flip("segment-0000000003", 100, 1)
    assert refusal(disk).startswith("segment-0000000003 is damaged at byte 0")
    disk.flip("segment-0000000003", 100, 1)
    assert contents(disk) == RECORDS
    assert FIRST not in disk.names()


def test_a_file_that_was_cut_short_is_refused(disk: TornDisk) -> None:
    disk.replace("segment-0000000003", [disk.read("segment-0000000003", 0, 2000)])
    assert "segment-0000000003 is damaged at byte 1536" in refusal(disk)
    disk.replace(SECOND, [disk.read(SECOND, 0, 1024)])
    assert "segment-0000000003 is damaged at byte 0: record 17 stands where 11 should" in refusal(disk)


def test_something_behind_the_end_that_is_no_block_is_cleared(disk: TornDisk) -> None:
    disk.flip("segment-0000000003", 3000, 5)
    disk.flip("segment-0000000004", 700, 5)
    journal, records = opened(disk)
    assert records == RECORDS
    assert [torn[:3] for torn in journal.torn] == [(3, 2048, 3001 - 2048), (4, 0, 701)]
    assert disk.read("segment-0000000003", 2048) == bytes(2048)
    assert disk.read("segment-0000000004") == bytes(4096)


def test_what_a_killed_process_had_written_and_not_synced_is_durable_once_it_was_read(disk: TornDisk) -> None:
    """Without a loss of power it is there, and will be delivered: it must not be lost with the next one."""
    journal, _ = opened(disk)
    journal.stage(b"unsynced")
    write = journal.begin()
    assert write is not None
    disk.write(write.name, write.offset, write.data)
    assert contents(disk) == [*RECORDS, b"unsynced"]
    disk.lose_power(lambda sector: False)
    assert contents(disk) == [*RECORDS, b"unsynced"]


def test_a_torn_end_is_cut_off_and_what_comes_next_takes_its_place(disk: TornDisk) -> None:
    journal, _ = opened(disk)
    journal.stage(b"t" * 1900)
    write = journal.begin()
    assert write is not None
    disk.write(write.name, write.offset, write.data)
    disk.lose_power(lambda sector: sector != 2)
    journal, records = opened(disk)
    assert records == RECORDS
    assert [torn.offset for torn in journal.torn] == [write.offset]
    commit(journal, disk, [b"new"])
    journal, records = opened(disk)
    assert records == [*RECORDS, b"new"]
    assert journal.torn == []


def test_what_was_torn_once_does_not_come_back_in_the_next_torn_block(disk: TornDisk) -> None:
    journal, _ = opened(disk)
    for lost in ({0}, {1, 2}):
        journal.stage(b"t" * 1200)
        write = journal.begin()
        assert write is not None
        disk.write(write.name, write.offset, write.data)
        assert disk.unsynced() == 3
        disk.lose_power(lambda sector, lost=lost: sector not in lost)  # type: ignore[misc]
        journal, records = opened(disk)
        assert records == RECORDS


def test_a_torn_end_at_the_beginning_of_a_segment_is_cut_off(disk: TornDisk) -> None:
    journal, _ = opened(disk)
    journal.stage(b"t" * 3000)  # does not fit into what is left of the third segment
    write = journal.begin()
    assert write is not None
    assert (write.name, write.offset) == ("segment-0000000004", 0)
    disk.write(write.name, write.offset, write.data)
    disk.lose_power(lambda sector: sector > 0)
    journal, records = opened(disk)
    assert records == RECORDS
    commit(journal, disk, [b"small", b"t" * 3000])
    assert contents(disk) == [*RECORDS, b"small", b"t" * 3000]


def test_a_record_that_is_a_copy_of_blocks_does_not_pass_for_blocks(disk: TornDisk) -> None:
    """Somebody keeps copies of the journal in the journal: torn, those must not look like blocks behind the end."""
    journal, _ = opened(disk)
    header_bytes = 48 + 4
    copies = b"x" * (SECTOR_BYTES - header_bytes) + disk.read(FIRST, 0, 2048)
    journal.stage(copies)
    write = journal.begin()
    assert write is not None
    assert write.data.count(b"LVBLOCK1") == 5
    disk.write(write.name, write.offset, write.data)
    disk.lose_power(lambda sector: sector in (1, 2))
    assert contents(disk) == RECORDS


def test_what_is_whole_behind_a_whole_header_does_not_count_as_later(disk: TornDisk) -> None:
    """Even a forged copy of the very next block, inside a torn one, is only content."""
    journal, _ = opened(disk)
    forged = encode_block([b"forged"], 22, ID)
    journal.stage(b"x" * (SECTOR_BYTES - 48 - 4) + forged + b"y" * 800)
    write = journal.begin()
    assert write is not None
    disk.write(write.name, write.offset, write.data)
    disk.lose_power(lambda sector: sector < 2)
    assert contents(disk) == RECORDS
