"""Real files: a writer that is killed, a disk that is full, a directory in use, and compaction in its own process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration import storage_writer
from tests.integration.processes import descendants
from tests.integration.small_disks import SmallDisk, left_on, small_file_system, small_files
from tests.integration.storage_writer import CONFIG, QUEUE, body, record

from lavant.broker.machine.replay import replay
from lavant.broker.protocol.queues import Peek, Peeked
from lavant.broker.storage.disks import FileDisk
from lavant.broker.storage.journal import Journal, JournalConfig
from lavant.core.errors import CorruptJournal, LavantError, StorageFailed, StorageFull, StorageLocked
from lavant.service.storage import JournalStore, open_store
from lavant.service.storage.housekeeping import compact_directory

SMALL = JournalConfig(segment_bytes=256 << 10)


@contextmanager
def writing(directory: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, storage_writer.__file__, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def bodies(directory: Path) -> list[bytes]:
    """The bodies of all messages that a server would find when it starts."""
    store = open_store(directory, CONFIG)
    try:
        queues = replay(store.recovered.chunks, store.recovered.records)
    finally:
        asyncio.run(store.close())
    found: list[bytes] = []
    after = 0
    while True:
        peeked = queues.handle(Peek(QUEUE, count=10, after=after), 1)
        assert isinstance(peeked, Peeked)
        if not peeked.messages:
            return found
        found += [message.body for message in peeked.messages]
        after = peeked.messages[-1].number


def has_snapshot(directory: Path) -> bool:
    return any(directory.glob("snapshot-*[0-9]"))


def test_everything_confirmed_is_there_after_a_kill_in_the_middle_of_load(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    for turn in range(2):
        with writing(directory) as process:
            assert process.stdout is not None
            confirmed = lines = 0
            # The last turn goes on until compaction has run beside the load.
            while lines < 300 + 111 * turn or (turn == 1 and not has_snapshot(directory)):
                line = process.stdout.readline()
                assert line, "the writer ended by itself"
                confirmed, lines = int(line), lines + 1
            process.send_signal(signal.SIGKILL)
            confirmed = max([confirmed, *(int(line) for line in process.stdout.read().split("\n")[:-1])])
        found = bodies(directory)
        assert len(found) >= confirmed - 1
        assert found == [body(number) for number in range(2, len(found) + 2)]
    assert not left_on(directory)


def test_a_directory_in_use_is_refused_and_free_again_when_its_user_is_killed(tmp_path: Path) -> None:
    with writing(tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(StorageLocked) as caught:
            FileDisk(tmp_path)
        assert str(caught.value) == (
            f"{tmp_path} is in use already, by process {process.pid}; stop that one, or give this one a "
            "directory of its own"
        )
    FileDisk(tmp_path).close()


def test_the_lock_holds_within_one_process_too(tmp_path: Path) -> None:
    with FileDisk(tmp_path), pytest.raises(StorageLocked, match=f"process {os.getpid()}"):
        FileDisk(tmp_path)
    with FileDisk(tmp_path) as disk:
        assert FileDisk(tmp_path, lock=False).names() == disk.names() == []


def test_what_a_killed_writer_left_unfinished_is_cleared_away_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "segment-0000000007.partial").write_bytes(b"half")
    with FileDisk(tmp_path) as disk:
        assert disk.names() == []
    assert os.listdir(tmp_path) == ["lock"]


def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    with FileDisk(tmp_path) as disk:
        disk.create("a", 512)
        disk.replace("b", [b"x"])
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "b", "lock")} == {0o600}


# ── a full disk ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["file system", "files"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    if request.param == "file system":
        opened = small_file_system(tmp_path / "mount", 4 << 20)
    else:
        opened = small_files(tmp_path, SMALL.segment_bytes - 1)
    with opened as disk:
        yield disk


class Client:
    """Stages records in a store and waits for their confirmation."""

    def __init__(self, store: JournalStore) -> None:
        self.store = store
        self.confirmed = 0
        self.failed: list[StorageFailed] = []
        store.start(on_committed=self._on_committed, on_failed=self.failed.append)

    def _on_committed(self, position: int) -> None:
        self.confirmed = position

    async def send(self, size: int) -> None:
        position = self.store.stage(b"%d " % (self.store.position + 1) + b"s" * size)
        await self.until_confirmed(position)

    async def until_confirmed(self, position: int) -> None:
        while self.confirmed < position:
            assert not self.failed
            await asyncio.sleep(0.001)


def records_in(directory: Path) -> list[int]:
    """The numbers with which the records of a closed store begin."""
    with FileDisk(directory) as disk:
        _, recovered = Journal.open(disk, SMALL)
        return [int(record.split()[0]) for record in recovered.records]


def test_a_full_disk_refuses_nothing_that_was_confirmed_and_goes_on_when_there_is_room(small_disk: SmallDisk) -> None:
    async def main() -> int:
        disk = FileDisk(small_disk.directory)
        store = JournalStore(disk, SMALL, on_closed=disk.close)
        assert not list(store.recovered.records)
        client = Client(store)
        await client.send(1000)
        while len(disk.names()) < 3:  # the manifest, the first segment, a spare
            await asyncio.sleep(0.001)
        small_disk.fill()
        while not store.is_full:
            await client.send(20_000)
        assert not store.is_exhausted
        for _ in range(50):
            await client.send(50)  # acknowledgements and such still fit
        assert not left_on(small_disk.directory)
        while not store.is_exhausted:
            await client.send(10_000)
        waiting = [store.stage(b"%d " % (store.position + 1) + b"w" * 20_000) for _ in range(5)]
        await asyncio.sleep(0.05)
        assert client.confirmed < waiting[-1]
        assert not client.failed
        small_disk.free()
        await client.until_confirmed(waiting[-1])
        assert not store.is_full
        await client.send(1000)
        await store.close()
        return client.confirmed

    confirmed = asyncio.run(main())
    assert records_in(small_disk.directory) == list(range(1, confirmed + 1))


def test_a_full_disk_does_not_keep_a_store_from_opening(small_disk: SmallDisk) -> None:
    async def fill_up() -> None:
        disk = FileDisk(small_disk.directory)
        store = JournalStore(disk, SMALL, on_closed=disk.close)
        assert not list(store.recovered.records)
        client = Client(store)
        await client.send(100)
        small_disk.fill()
        await store.close()

    async def go_on() -> None:
        disk = FileDisk(small_disk.directory)
        store = JournalStore(disk, SMALL, on_closed=disk.close)
        assert len(list(store.recovered.records)) == 1
        client = Client(store)
        await client.send(100)
        await store.close()

    asyncio.run(fill_up())
    asyncio.run(go_on())
    assert records_in(small_disk.directory) == [1, 2]


def test_no_room_for_a_snapshot_leaves_the_journal_as_it_is(small_disk: SmallDisk) -> None:
    directory = small_disk.directory
    large = JournalConfig(segment_bytes=512 << 10)
    asyncio.run(store_records(directory, 1200, large))
    before = sorted(os.listdir(directory))
    small_disk.fill()
    with pytest.raises(StorageFull, match=r"there is no space for .*snapshot-00000000000000001200"):
        asyncio.run(compact_directory(directory, 1200))
    assert sorted(os.listdir(directory)) == before
    small_disk.free()
    assert asyncio.run(compact_directory(directory, 1200)) > 1200 * 300
    assert bodies(directory) == [body(number) for number in range(2, 1201)]


def test_a_new_store_on_a_full_disk_is_refused(small_disk: SmallDisk) -> None:
    small_disk.directory.mkdir()
    small_disk.fill()
    with pytest.raises(StorageFull, match="there is no space for"):
        open_store(small_disk.directory)
    small_disk.free()
    FileDisk(small_disk.directory).close()


# ── compaction ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def store_records(directory: Path, count: int, config: JournalConfig = CONFIG) -> None:
    """Records 1 to `count`, without compaction."""
    disk = FileDisk(directory)
    store = JournalStore(disk, config, on_closed=disk.close)
    assert not list(store.recovered.records)
    store.start(on_committed=lambda position: None, on_failed=lambda error: sys.exit(str(error)))
    for number in range(1, count + 1):
        store.stage(record(number))
    await store.close()


def test_compaction_in_its_own_process_folds_queues(tmp_path: Path) -> None:
    asyncio.run(store_records(tmp_path, 1000))

    async def compact_and_adopt() -> None:
        size_bytes = await compact_directory(tmp_path, 900)
        snapshot = tmp_path / "snapshot-00000000000000000900"
        assert snapshot.stat().st_size == size_bytes
        disk = FileDisk(tmp_path)
        (tmp_path / "kept").write_bytes(snapshot.read_bytes())
        store = JournalStore(disk, CONFIG, on_closed=disk.close)  # takes an unused snapshot for left by a crash
        assert len(list(store.recovered.records)) == 1000
        (tmp_path / "kept").rename(snapshot)
        store.journal.adopt(900, size_bytes)
        store.start(on_committed=lambda position: None, on_failed=lambda error: sys.exit(str(error)))
        store.stage(record(1001))
        await store.close()

    segments = len(list(tmp_path.glob("segment-*")))
    asyncio.run(compact_and_adopt())
    assert len(list(tmp_path.glob("segment-*"))) < segments
    assert bodies(tmp_path) == [body(number) for number in range(2, 1002)]


def test_compaction_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(LavantError, match=f"there is no journal in {tmp_path}/none to compact"):
        asyncio.run(compact_directory(tmp_path / "none", 1))
    asyncio.run(store_records(tmp_path / "data", 300))
    first = tmp_path / "data" / "segment-0000000001"
    damaged = bytearray(first.read_bytes())
    damaged[700] ^= 1
    first.write_bytes(damaged)
    with pytest.raises(CorruptJournal, match=f"^{first} is damaged at byte 0: record 1 should begin there"):
        asyncio.run(compact_directory(tmp_path / "data", 300))
    assert not has_snapshot(tmp_path / "data")
    assert not left_on(tmp_path / "data")


def test_compaction_ends_with_its_server(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest")  # to be read from for ever
    command = [sys.executable, "-m", "lavant.service.storage.compaction", str(tmp_path), "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.close()
        try:
            assert process.wait(60) == 1
        finally:
            process.kill()


def test_a_compaction_that_is_given_up_is_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest")

    async def main() -> None:
        task = asyncio.create_task(compact_directory(tmp_path, 1))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not [process for process in descendants() if str(tmp_path) in process.command]
