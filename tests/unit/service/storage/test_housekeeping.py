"""Housekeeping: there is a spare in time, room is asked for again, and compaction runs when it is due."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable

import pytest
from tests.unit.broker.storage.journal.journals import SMALL, commit, contents, fold, opened
from tests.unit.service.storage.slow_disk import SlowDisk

from lavant.broker.storage.journal import Journal, JournalConfig, compact
from lavant.core.errors import LavantError, StorageFailed, StorageFull
from lavant.service.storage.housekeeping import Housekeeper

SPARING = JournalConfig(segment_bytes=4096)
"""No compaction unless the disk is full."""


class House:
    def __init__(self, config: JournalConfig, capacity_bytes: int | None = None) -> None:
        self.config = config
        self.disk = SlowDisk(capacity_bytes=capacity_bytes)
        self.journal: Journal
        self.journal, _ = opened(self.disk, config)
        self.rooms = 0
        self.failed: list[StorageFailed] = []
        self.asked: list[int] = []
        self.refuse: LavantError | None = None
        self.keeper = Housekeeper(
            self.journal,
            self.disk,
            self._compact,
            on_room=self._on_room,
            on_failed=self.failed.append,
            retry_s=0.001,
            compaction_retry_s=0.001,
        )

    def _on_room(self) -> None:
        self.rooms += 1

    async def _compact(self, upto: int) -> int:
        self.asked.append(upto)
        await asyncio.sleep(0)
        if self.refuse is not None:
            raise self.refuse
        return compact(self.disk, upto, fold, self.config)

    def segments(self) -> list[int]:
        return [int(name[-10:]) for name in self.disk.names() if name.startswith("segment")]

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(20_000):
            if condition():
                return
            await asyncio.sleep(0.0001)
        raise AssertionError("it never came")


def test_a_spare_is_made_and_told() -> None:
    async def main() -> None:
        house = House(SPARING)
        house.keeper.check()
        house.keeper.check()
        await house.until(lambda: house.rooms == 1)
        assert house.segments() == [1, 2]
        await house.keeper.close()

    asyncio.run(main())


def test_a_full_disk_is_asked_again_until_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        house = House(SPARING, capacity_bytes=4096 + 4000)
        house.keeper.check()
        await house.until(lambda: house.journal.is_full)
        await asyncio.sleep(0.02)
        assert house.rooms == 0
        house.disk.capacity_bytes = None
        await house.until(lambda: house.rooms == 1)
        assert not house.journal.is_full
        await house.keeper.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("nothing new is accepted until there is disk space: segment-0000000002 needs 4096 bytes")
    assert last == "there is disk space again"


def test_compaction_starts_by_itself_and_segments_go() -> None:
    async def main() -> None:
        house = House(SMALL)
        for count in (20, 60, 180):  # each time more than the snapshot holds
            commit(house.journal, house.disk, [b"s" * 400] * count)
            house.keeper.check()
            await house.until(lambda: house.journal.sealed_bytes == 0)
            assert house.asked[-1] == house.journal.durable
            assert contents(house.disk) == [b"s" * 400] * house.journal.durable
        await house.keeper.close()

    asyncio.run(main())


def test_a_compaction_that_fails_is_tried_again_later_and_hurts_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        house = House(SMALL)
        commit(house.journal, house.disk, [b"s" * 400] * 20)
        house.refuse = StorageFull("no room for a snapshot")
        house.keeper.check()
        await house.until(lambda: len(house.asked) > 2)
        assert contents(house.disk) == [b"s" * 400] * 20
        house.refuse = None
        await house.until(lambda: 1 not in house.segments())
        await house.keeper.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert caplog.records[0].getMessage() == "compaction failed and is tried again in 0.001 s: no room for a snapshot"


def test_one_compaction_runs_at_a_time() -> None:
    async def main() -> None:
        house = House(SMALL)
        commit(house.journal, house.disk, [b"s" * 400] * 20)
        house.keeper.check()
        house.keeper.check()
        house.keeper.check()
        await house.until(lambda: 1 not in house.segments())
        assert house.asked == [20]
        await house.keeper.close()

    asyncio.run(main())


def test_closing_ends_a_compaction_and_the_waiting_for_room() -> None:
    async def main() -> None:
        house = House(SMALL)
        ended = asyncio.Event()

        async def forever(upto: int) -> int:
            try:
                await asyncio.sleep(1000)
            finally:
                ended.set()
            return 0

        house.keeper._compact = forever
        commit(house.journal, house.disk, [b"s" * 400] * 20)
        house.keeper.check()
        await asyncio.sleep(0)
        await house.keeper.close()
        assert ended.is_set()
        house.keeper.check()
        assert house.asked == []

    asyncio.run(main())


def test_any_other_error_is_a_failure() -> None:
    class Broken(SlowDisk):
        def create(self, name: str, size: int) -> None:
            if name != "segment-0000000001":
                raise OSError(errno.EIO, "medium error")
            super().create(name, size)

    async def main() -> None:
        house = House(SPARING)
        house.keeper._disk = Broken()
        house.keeper.check()
        await house.until(lambda: len(house.failed) == 1)
        assert str(house.failed[0]) == (
            "the journal's files could not be changed: [Errno 5] medium error; check the disk"
        )
        await house.keeper.close()

    asyncio.run(main())
