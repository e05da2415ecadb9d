"""What every disk promises to the journal, and what the journal and the store promise on every disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.store_cases import DISKS, Reopen, left_open
from tests.unit.broker.storage.journal.journals import SMALL, commit, compacted, contents, opened

from lavant.broker.storage.journal import Disk
from lavant.core.errors import CorruptJournal, StorageFailed
from lavant.service.storage import JournalStore, RecordStore, VolatileStore

RECORDS = [b"%d " % number + b"r" * 400 for number in range(30)]


@pytest.fixture(params=sorted(DISKS))
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    factory = DISKS[request.param](tmp_path)
    yield factory
    left_open(factory)


@pytest.fixture
def disk(reopen: Reopen) -> Disk:
    return reopen()


# ── disks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_disk_is_empty(disk: Disk) -> None:
    assert disk.names() == []


def test_a_created_file_is_zeros(disk: Disk) -> None:
    disk.create("b", 3_000_000)
    disk.create("a", 512)
    assert disk.names() == ["a", "b"]
    assert disk.read("b") == bytes(3_000_000)


def test_a_file_is_not_created_twice(disk: Disk) -> None:
    disk.create("a", 512)
    disk.write("a", 0, b"kept")
    with pytest.raises(FileExistsError):
        disk.create("a", 512)
    assert disk.read("a", 0, 4) == b"kept"


def test_what_is_written_is_read_and_the_rest_stays(disk: Disk) -> None:
    disk.create("a", 2048)
    disk.write("a", 512, b"x" * 600)
    disk.write("a", 2040, b"end")
    disk.sync("a")
    assert disk.read("a") == bytes(512) + b"x" * 600 + bytes(928) + b"end" + bytes(5)


@pytest.mark.parametrize(
    ("position", "length", "expected"),
    [(0, None, b"0123456789"), (3, None, b"3456789"), (3, 4, b"3456"), (8, 100, b"89"), (10, 5, b""), (50, 5, b"")],
)
def test_a_part_of_a_file_is_read_up_to_its_end(disk: Disk, position: int, length: int | None, expected: bytes) -> None:
    disk.replace("a", [b"0123456789"])
    assert disk.read("a", position, length) == expected


def test_a_file_is_replaced_as_a_whole(disk: Disk) -> None:
    disk.replace("a", [b"long ", b"", b"content " * 1000])
    assert disk.read("a") == b"long " + b"content " * 1000
    disk.replace("a", [b"short"])
    assert disk.read("a") == b"short"
    disk.replace("a", [])
    assert (disk.read("a"), disk.names()) == (b"", ["a"])


def test_a_file_whose_parts_fail_is_not_replaced(disk: Disk) -> None:
    def parts() -> Iterator[bytes]:
        yield b"half"
        raise CorruptJournal("the other half")

    disk.replace("a", [b"old"])
    for name in ("a", "b"):
        with pytest.raises(CorruptJournal):
            disk.replace(name, parts())
    assert (disk.read("a"), disk.names()) == (b"old", ["a"])


def test_a_file_that_was_written_can_be_replaced_and_written_again(disk: Disk) -> None:
    disk.create("a", 1024)
    disk.write("a", 0, b"old")
    disk.sync("a")
    disk.remove("a")
    disk.create("a", 512)
    disk.write("a", 1, b"new")
    assert disk.read("a", 0, 5) == b"\0new\0"


def test_a_removed_file_is_gone(disk: Disk) -> None:
    disk.create("a", 512)
    disk.remove("a")
    assert disk.names() == []
    for operation in (disk.read, disk.sync, disk.remove):
        with pytest.raises(FileNotFoundError):
            operation("a")
    with pytest.raises(FileNotFoundError):
        disk.write("a", 0, b"x")


def test_everything_is_there_when_the_disk_is_opened_again(reopen: Reopen) -> None:
    disk = reopen()
    disk.create("a", 1024)
    disk.write("a", 5, b"written")
    disk.sync("a")
    disk.replace("b", [b"replaced"])
    disk = reopen()
    assert disk.names() == ["a", "b"]
    assert (disk.read("a", 5, 7), disk.read("b")) == (b"written", b"replaced")


# ── journals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_records_survive_reopening_again_and_again(reopen: Reopen) -> None:
    expected: list[bytes] = []
    for turn in range(4):
        disk = reopen()
        journal, records = opened(disk)
        assert records == expected
        for record in RECORDS[: 5 * turn + 5]:
            commit(journal, disk, [record, b"%d" % turn])
            expected += [record, b"%d" % turn]
    assert contents(reopen()) == expected


def test_compaction_keeps_the_records_and_drops_segments(reopen: Reopen) -> None:
    disk = reopen()
    journal, _ = opened(disk)
    for record in RECORDS:
        commit(journal, disk, [record])
    before = len(disk.names())
    compacted(journal, disk)
    assert len(disk.names()) < before
    journal, records = opened(reopen())
    assert records == RECORDS


def test_a_torn_end_is_cut_off_and_a_damaged_middle_is_refused(reopen: Reopen) -> None:
    disk = reopen()
    journal, _ = opened(disk)
    for record in RECORDS[:6]:
        commit(journal, disk, [record])
    disk.write("segment-0000000001", 5 * 512, bytes(512))
    disk.sync("segment-0000000001")
    assert contents(reopen()) == RECORDS[:5]
    disk = reopen()
    disk.write("segment-0000000001", 2 * 512 + 100, b"damage")
    with pytest.raises(CorruptJournal, match="damaged at byte 1024: record 3 should begin there, and later ones are"):
        contents(disk)


# ── stores ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def confirmed_by(store: RecordStore, records: list[bytes]) -> list[int]:
    """What the store says while it takes these, one by one as fast as it can."""
    said: list[int] = []
    failures: list[StorageFailed] = []
    store.start(on_committed=said.append, on_failed=failures.append)
    first = store.position + 1
    for place, record in enumerate(records):
        assert store.stage(record) == first + place
        if place % 3 == 0:
            await asyncio.sleep(0)
    await store.close()
    assert not failures
    return said


def test_a_store_confirms_everything_in_order_and_has_it_again(reopen: Reopen) -> None:
    for turn in range(3):
        store = JournalStore(reopen(), SMALL)
        assert store.recovered.chunks is None
        assert list(store.recovered.records) == RECORDS * turn
        said = asyncio.run(confirmed_by(store, RECORDS))
        assert said == sorted(set(said))
        assert said[-1] == store.position == 30 * (turn + 1)


def test_a_store_without_a_disk_confirms_everything_and_keeps_nothing() -> None:
    store = VolatileStore()
    assert list(store.recovered.records) == []
    said = asyncio.run(confirmed_by(store, RECORDS))
    assert said == sorted(set(said))
    assert said[-1] == 30
