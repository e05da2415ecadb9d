"""Group commit: one block for all that came meanwhile, an answer only after the sync, and a failure only once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import get_ident

import pytest
from tests.unit.broker.storage.journal.journals import SMALL, contents, keep_up, opened
from tests.unit.service.storage.slow_disk import SlowDisk

from lavant.broker.storage.journal import Journal, JournalConfig
from lavant.core.errors import StorageFailed
from lavant.service.storage.group_commit import INLINE_BYTES_MAX, INLINE_S_MAX, GroupCommit


class Bench:
    """A group commit on a disk, with all that it says."""

    def __init__(self, config: JournalConfig = SMALL, capacity_bytes: int | None = None) -> None:
        self.disk = SlowDisk(capacity_bytes=capacity_bytes)
        self.journal: Journal
        self.journal, _ = opened(self.disk, config)
        keep_up(self.journal, self.disk)
        self.disk.synced.clear()
        self.committed: list[int] = []
        self.failed: list[StorageFailed] = []
        self.rolled = 0
        self.commit = GroupCommit(
            self.journal,
            self.disk,
            on_committed=self.committed.append,
            on_failed=self.failed.append,
            on_rolled=self._on_rolled,
            clock=self.disk.clock,
        )

    def _on_rolled(self) -> None:
        self.rolled += 1
        keep_up(self.journal, self.disk)

    def slow(self) -> None:
        """From now on a thread does it."""
        self.disk.sync_s = self.commit.sync_s = 1.0

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(20_000):
            if condition():
                return
            await asyncio.sleep(0.0001)
        raise AssertionError("it never came")


def run(test: Callable[[Bench], Awaitable[None]], config: JournalConfig = SMALL) -> None:
    async def main() -> None:
        bench = Bench(config)
        async with asyncio.timeout(60):
            await test(bench)
            await bench.commit.close()

    asyncio.run(main())


def test_what_is_staged_in_one_turn_of_the_loop_is_one_block() -> None:
    async def test(bench: Bench) -> None:
        assert [bench.commit.stage(b"a"), bench.commit.stage(b"b"), bench.commit.stage(b"c")] == [1, 2, 3]
        assert bench.committed == [], "never before stage has returned"
        await asyncio.sleep(0)
        assert bench.committed == [3]
        assert len(bench.disk.writes) == 1
        assert contents(bench.disk) == [b"a", b"b", b"c"]

    run(test)


def test_a_thread_commits_what_came_meanwhile_as_one_block() -> None:
    async def test(bench: Bench) -> None:
        bench.slow()
        bench.disk.go.clear()
        bench.commit.stage(b"first")
        await bench.until(lambda: len(bench.disk.writes) == 1)
        for number in range(50):
            bench.commit.stage(b"%d" % number)
            await asyncio.sleep(0)
        assert bench.committed == []
        bench.disk.go.set()
        await bench.until(lambda: bench.committed[-1:] == [51])
        assert bench.committed == [1, 51]
        assert len(bench.disk.writes) == len(bench.disk.synced) == 2

    run(test)


def test_the_loop_goes_on_while_a_slow_sync_is_on_its_way() -> None:
    async def test(bench: Bench) -> None:
        bench.slow()
        bench.disk.go.clear()
        bench.commit.stage(b"first")
        turns = 0
        while turns < 100 or not bench.disk.writes:
            await asyncio.sleep(0)
            turns += 1
        assert bench.committed == []
        bench.disk.go.set()

    run(test)


def test_committed_is_said_in_the_loops_thread() -> None:
    async def test(bench: Bench) -> None:
        threads: list[int] = []
        bench.commit._on_committed = lambda position: threads.append(get_ident())
        bench.commit.stage(b"inline")
        await bench.until(lambda: len(threads) == 1)
        bench.slow()
        bench.commit.stage(b"in a thread")
        await bench.until(lambda: len(threads) == 2)
        assert set(threads) == {get_ident()}

    run(test)


def test_a_large_block_is_written_by_a_thread_even_if_syncs_are_quick() -> None:
    async def test(bench: Bench) -> None:
        bench.disk.go.clear()
        bench.commit.stage(b"x" * INLINE_BYTES_MAX)
        await bench.until(lambda: len(bench.disk.writes) == 1)
        assert bench.committed == []
        bench.disk.go.set()
        await bench.until(lambda: bench.committed == [1])
        bench.commit.stage(b"small")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert bench.committed == [1, 2]

    run(test, JournalConfig(segment_bytes=1 << 20))


def test_slow_syncs_go_to_the_thread_and_quick_ones_come_back_to_the_loop() -> None:
    async def test(bench: Bench) -> None:
        async def one() -> bool:
            """Whether it was committed in the loop, that is, at once."""
            held = bench.journal.durable
            bench.commit.stage(b"one")
            await asyncio.sleep(0)
            was_inline = bench.journal.durable > held
            await bench.until(lambda: bench.journal.durable > held)
            await asyncio.sleep(0)
            return was_inline

        bench.disk.sync_s = INLINE_S_MAX / 2
        assert all([await one() for _ in range(50)])
        bench.disk.sync_s = INLINE_S_MAX * 2
        while bench.commit.sync_s < INLINE_S_MAX:
            await one()
        bench.disk.go.clear()  # in the loop, this would never end
        bench.commit.stage(b"in the thread")
        await asyncio.sleep(0)
        bench.disk.go.set()
        bench.disk.sync_s = INLINE_S_MAX / 2
        while bench.commit.sync_s >= INLINE_S_MAX:
            await one()
        assert all([await one() for _ in range(50)])

    run(test)


def test_what_a_callback_stages_is_committed_too() -> None:
    async def test(bench: Bench) -> None:
        def again(position: int) -> None:
            bench.committed.append(position)
            if position < 20:
                bench.commit.stage(b"next")
            if position == 10:
                bench.slow()

        bench.commit._on_committed = again
        bench.commit.stage(b"first")
        await bench.until(lambda: bench.committed[-1:] == [20])
        assert bench.committed == list(range(1, 21))

    run(test)


def test_what_is_not_in_a_hurry_waits_for_what_is() -> None:
    async def test(bench: Bench) -> None:
        bench.commit.stage(b"no hurry", hurry=False)
        bench.commit.stage(b"", hurry=False)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert bench.disk.writes == []
        bench.commit.stage(b"hurry")
        await asyncio.sleep(0)
        assert bench.committed == [3]
        await asyncio.sleep(0)
        bench.commit.stage(b"no hurry", hurry=False)
        await asyncio.sleep(0)
        bench.commit.go_on()
        await asyncio.sleep(0)
        assert bench.committed == [3, 4]

    run(test)


def test_what_is_not_in_a_hurry_is_committed_in_the_end() -> None:
    async def test(bench: Bench) -> None:
        for number in range(3):
            bench.commit.stage(b"%d" % number, hurry=False)
            await bench.until(lambda number=number: bench.committed[-1:] == [number + 1])  # type: ignore[misc]
        bench.commit.stage(b"", hurry=False)
        await bench.commit.close()
        assert bench.committed[-1] == 4

    run(test)


def test_giving_up_lets_close_return() -> None:
    async def main() -> None:
        bench = Bench(capacity_bytes=2 * 4096 + 1000)
        bench.commit._on_rolled = lambda: None  # nobody makes a spare, nor says that there is no room for one
        for _ in range(30):
            bench.commit.stage(b"s" * 400)
        closing = asyncio.create_task(bench.commit.close())
        await bench.until(lambda: len(bench.disk.writes) == 2)
        await asyncio.sleep(0)
        assert not closing.done()
        bench.commit.give_up()
        await closing
        assert bench.journal.durable < 30

    asyncio.run(main())


def test_close_waits_for_everything_that_is_staged() -> None:
    for is_slow in (False, True):

        async def test(bench: Bench, is_slow: bool = is_slow) -> None:
            if is_slow:
                bench.slow()
            for number in range(40):
                bench.commit.stage(b"%d" % number * 100)
            await bench.commit.close()
            assert bench.committed[-1] == 40
            assert bench.journal.durable == 40

        run(test)


def test_every_new_segment_is_told_so_that_there_is_a_spare() -> None:
    async def test(bench: Bench) -> None:
        for number in range(40):
            bench.commit.stage(b"%d" % number + b"x" * 400)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert bench.committed[-1] == 40
        assert bench.rolled == 5
        assert len(contents(bench.disk)) == 40

    run(test)


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_failure_is_told_once_and_nothing_is_confirmed_from_then_on(is_slow: bool) -> None:
    async def test(bench: Bench) -> None:
        bench.commit.stage(b"safe")
        await bench.until(lambda: bench.committed == [1])
        if is_slow:
            bench.slow()
        bench.disk.error = "medium error"
        bench.commit.stage(b"lost")
        await bench.until(lambda: len(bench.failed) == 1)
        bench.disk.error = None
        bench.commit.stage(b"too late")
        await asyncio.sleep(0.01)
        assert bench.committed == [1]
        assert str(bench.failed[0]) == (
            "segment-0000000001 could not be written at byte 512: [Errno 5] medium error; everything confirmed is "
            "safe, nothing more can be confirmed: check the disk and start again"
        )
        assert len(bench.failed) == 1

    run(test)


def test_a_full_disk_lets_close_return_although_something_is_staged() -> None:
    async def main() -> None:
        bench = Bench(capacity_bytes=3 * 4096)
        for _ in range(20):
            bench.commit.stage(b"s" * 400)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert bench.journal.is_full
        for _ in range(40):
            bench.commit.stage(b"s" * 400)
        await bench.commit.close()
        assert bench.committed[-1] == bench.journal.durable < bench.journal.position

    asyncio.run(main())


def test_what_had_no_room_is_committed_when_told_to_go_on() -> None:
    async def main() -> None:
        bench = Bench(capacity_bytes=3 * 4096)
        for _ in range(40):
            bench.commit.stage(b"s" * 400)
        await bench.until(lambda: bench.journal.is_full)
        bench.disk.capacity_bytes = None
        bench.journal.retry()
        keep_up(bench.journal, bench.disk)
        bench.commit.go_on()
        await bench.commit.close()
        assert bench.journal.durable == 40

    asyncio.run(main())
