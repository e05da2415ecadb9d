"""Stores end in good order: what failed is told once, and after that nothing of the files is touched."""

from __future__ import annotations

import asyncio
import errno

from tests.unit.broker.storage.journal.journals import SMALL, contents
from tests.unit.service.storage.slow_disk import SlowDisk

from lavant.broker.storage.journal import JournalConfig
from lavant.core.errors import StorageFailed
from lavant.service.storage import JournalStore, VolatileStore


class Stubborn(SlowDisk):
    """Refuses to remove files."""

    def remove(self, name: str) -> None:
        raise OSError(errno.EPERM, "not permitted")


class Halved(SlowDisk):
    """Makes the first segment and no other."""

    def create(self, name: str, size: int) -> None:
        if name != "segment-0000000001":
            raise OSError(errno.EIO, "medium error")
        super().create(name, size)


def test_a_closed_store_knows_where_it_ended() -> None:
    async def main() -> None:
        store = JournalStore(disk, SMALL)
        assert not list(store.recovered.records)
        store.start(on_committed=lambda position: None, on_failed=lambda error: None)
        for _ in range(5):
            store.stage(b"record")
        await store.close()

    disk = SlowDisk()
    asyncio.run(main())
    assert b'"durable":5' in disk.read("manifest")


def test_a_store_knows_how_long_its_commits_took() -> None:
    async def main() -> None:
        store = JournalStore(SlowDisk(), SMALL)
        assert not list(store.recovered.records)
        committed = asyncio.Event()
        store.start(on_committed=lambda position: committed.set(), on_failed=lambda error: None)
        for number in range(1, 4):
            committed.clear()
            store.stage(b"record")
            await committed.wait()
            assert list(store.commit_times.cumulative())[-1] == ("+Inf", number)
        assert store.commit_times.sum > 0
        await store.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_failure_between_two_changes_of_files_leaves_them_as_they_are() -> None:
    """Above all the old manifest must not come back: it names a snapshot that may be gone."""
    failed: list[StorageFailed] = []

    async def main() -> None:
        store = JournalStore(disk, SMALL)
        assert not list(store.recovered.records)
        store.start(on_committed=lambda position: None, on_failed=failed.append)
        for _ in range(10):
            store.stage(b"r" * 1000)
        while store.journal.durable < 10:
            await asyncio.sleep(0.001)
        disk.replace("snapshot-00000000000000000010", [b"whatever"])
        store.journal.adopt(10, 8)
        assert store._housekeeper is not None
        store._housekeeper.check()
        while not failed:
            await asyncio.sleep(0.001)
        after = disk.read("manifest")
        assert store.stage(b"too late") == 11
        await store.close()
        assert disk.read("manifest") == after

    disk = Stubborn()
    asyncio.run(asyncio.wait_for(main(), 60))
    assert [str(error) for error in failed] == [
        "the journal's files could not be changed: [Errno 1] not permitted; check the disk"
    ]
    assert b'"snapshot":10' in disk.read("manifest")


def test_a_store_closes_although_its_disk_failed_while_records_wait_for_a_segment() -> None:
    failed: list[StorageFailed] = []
    committed: list[int] = []

    async def main() -> None:
        store = JournalStore(Halved(), SMALL)
        assert not list(store.recovered.records)
        store.start(on_committed=committed.append, on_failed=failed.append)
        for _ in range(10):
            store.stage(b"r" * 1000)
        await store.close()
        assert store.journal.durable < 10

    asyncio.run(asyncio.wait_for(main(), 60))
    assert len(failed) == 1


def test_a_record_for_which_even_the_spare_is_too_small_gets_a_segment_of_the_size_that_is_set() -> None:
    async def main(config: JournalConfig, record: bytes) -> None:
        store = JournalStore(disk, config)
        list(store.recovered.records)
        store.start(on_committed=lambda position: None, on_failed=lambda error: None)
        store.stage(record)
        await store.close()

    disk = SlowDisk()
    large = JournalConfig(segment_bytes=1 << 16)
    for config, record in ((SMALL, b"s" * 1000), (large, b"l" * 40_000)):
        asyncio.run(asyncio.wait_for(main(config, record), 60))
    assert contents(disk, large) == [b"s" * 1000, b"l" * 40_000]


def test_a_store_that_was_never_started_can_be_closed() -> None:
    closed: list[bool] = []
    disk = SlowDisk()
    store = JournalStore(disk, SMALL, on_closed=lambda: closed.append(True))
    asyncio.run(store.close())
    assert closed == [True]
    assert contents(disk) == []


def test_stores_have_identities_that_last_as_long_as_what_they_hold() -> None:
    disk = SlowDisk()
    assert JournalStore(disk, SMALL).identity == JournalStore(disk, SMALL).identity
    assert JournalStore(disk, SMALL).identity != JournalStore(SlowDisk(), SMALL).identity
    assert VolatileStore().identity != VolatileStore().identity
