"""Time only goes on, and only as fast as it does for everybody else."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from lavant.broker.machine.start_time import DOWN_MS_MAX, MARK_FILE, ClockVerdict, Mark, Reading
from lavant.service.observability.openmetrics import openmetrics
from lavant.service.runtime.clock import ServerClock, TimeKeeper, is_synchronised, read_clocks, read_mark, write_mark

MS = 1_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOON_MS = 1_750_000_000_000


class Machine:
    """A machine's clocks, set by hand."""

    def __init__(self) -> None:
        self.wall_ms = NOON_MS
        self.boot = "first"
        self.steady_ms = 1_000
        self.is_synchronised = False

    def pass_by(self, duration_ms: int) -> None:
        self.wall_ms += duration_ms
        self.steady_ms += duration_ms

    def reboot(self) -> None:
        self.boot, self.steady_ms = self.boot + "!", 10

    def read(self) -> Reading:
        return Reading(
            wall_ms=self.wall_ms, boot=self.boot, uptime_ms=self.steady_ms, is_synchronised=self.is_synchronised
        )

    def start(self, journal_ms: int, directory: Path | None, *, is_accepted: bool = False) -> TimeKeeper:
        return TimeKeeper(
            journal_ms, directory, is_accepted=is_accepted, read=self.read, steady_ns=lambda: self.steady_ms * MS
        )

    def stop(self, keeper: TimeKeeper, directory: Path) -> int:
        """The server's time when it stopped."""
        write_mark(directory, Mark(time_ms=keeper.clock.now_ms(), reading=self.read()))
        return keeper.clock.now_ms()


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_clock_starts_at_the_walls_time_and_runs_with_the_steady_one() -> None:
    steady = iter([500 * MS, 500 * MS, 750 * MS])
    clock = ServerClock(wall_ns=lambda: NOON_MS * MS, steady_ns=lambda: next(steady))
    assert (clock.now_ms(), clock.now_ms()) == (NOON_MS, NOON_MS + 250)


def test_a_timer_never_fires_before_its_time(machine: Machine) -> None:
    clock = machine.start(0, None).clock
    assert clock.seconds_until(NOON_MS + 40) == 0.04
    assert clock.seconds_until(NOON_MS - 1000) == 0
    machine.pass_by(40)
    assert clock.now_ms() == NOON_MS + 40


def test_a_wall_clock_that_jumps_while_the_server_runs_is_reported_and_does_not_matter(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = machine.start(0, None)
    for jump_ms in (5 * DAY_MS, -9 * DAY_MS, 4 * DAY_MS):
        machine.wall_ms += jump_ms
        machine.pass_by(10)
        keeper.check()
        keeper.check()  # and is no news the second time
    assert keeper.clock.now_ms() == NOON_MS + 30
    assert [record.message.partition(" while")[0] for record in caplog.records] == [
        "the clock was set forward by 5 days, 0:00:00",
        "the clock was set back by 9 days, 0:00:00",
        "the clock was set forward by 4 days, 0:00:00",
    ]


@pytest.mark.parametrize("jump_ms", [2_000, HOUR_MS, 5 * DAY_MS, -HOUR_MS, -5 * DAY_MS])
@pytest.mark.parametrize("down_ms", [3_000, 3 * DAY_MS])
def test_on_the_same_boot_exactly_the_time_counts_that_the_kernel_counted(
    machine: Machine, tmp_path: Path, jump_ms: int, down_ms: int
) -> None:
    stopped_ms = machine.stop(machine.start(0, tmp_path), tmp_path)
    machine.pass_by(down_ms)
    machine.wall_ms += jump_ms
    assert machine.start(stopped_ms - 5, tmp_path).clock.now_ms() == stopped_ms + down_ms


def test_time_counts_that_the_server_ran_without_a_record_and_then_crashed(machine: Machine, tmp_path: Path) -> None:
    machine.stop(machine.start(0, tmp_path), tmp_path)
    machine.pass_by(DAY_MS)
    assert machine.start(NOON_MS, tmp_path).clock.now_ms() == NOON_MS + DAY_MS


@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize("claimed_ms", [DOWN_MS_MAX + 1, HOUR_MS, 5 * DAY_MS])
def test_after_a_reboot_a_long_time_is_not_believed_of_a_clock_that_nobody_keeps_right(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_marked: bool, claimed_ms: int
) -> None:
    stopped_ms = machine.stop(machine.start(0, tmp_path), tmp_path)
    if not is_marked:
        (tmp_path / MARK_FILE).unlink()
    machine.reboot()
    machine.wall_ms += claimed_ms
    keeper = machine.start(stopped_ms, tmp_path)
    assert (keeper.clock.now_ms(), keeper.is_held) == (stopped_ms, True)
    [said] = caplog.messages
    assert "2025-06-15T15:06:40Z" in said  # the last recorded time
    assert "--clock-jump accept" in said
    assert "lavant_clock_held 1" in openmetrics(keeper.families())
    assert machine.start(stopped_ms, tmp_path, is_accepted=True).clock.now_ms() == stopped_ms + claimed_ms


def test_time_that_is_accepted_after_a_start_that_did_not_believe_it_is_told(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The mark of that start has the clock's new time already."""
    machine.stop(machine.start(0, tmp_path), tmp_path)
    machine.wall_ms += 5 * DAY_MS
    stopped_ms = machine.stop(machine.start(NOON_MS, tmp_path), tmp_path)
    assert stopped_ms == NOON_MS
    caplog.clear()
    assert machine.start(stopped_ms, tmp_path, is_accepted=True).clock.now_ms() == NOON_MS + 5 * DAY_MS
    [said] = caplog.messages
    assert "the clock is accepted, and 5 days, 0:00:00 count as passed" in said


def test_after_a_reboot_a_weekend_is_believed_of_a_clock_that_is_kept_right(machine: Machine, tmp_path: Path) -> None:
    machine.is_synchronised = True
    stopped_ms = machine.stop(machine.start(0, tmp_path), tmp_path)
    machine.reboot()
    machine.wall_ms += 3 * DAY_MS
    assert machine.start(stopped_ms, tmp_path).clock.now_ms() == stopped_ms + 3 * DAY_MS


def test_a_clock_that_was_wrong_when_the_server_stopped_is_not_believed_when_it_is_right(
    machine: Machine, tmp_path: Path
) -> None:
    machine.wall_ms = 1_000  # a machine without a battery
    stopped_ms = machine.stop(machine.start(0, tmp_path), tmp_path)
    machine.reboot()
    machine.wall_ms, machine.is_synchronised = NOON_MS, True
    assert machine.start(stopped_ms, tmp_path).clock.now_ms() == stopped_ms


def test_a_clock_that_is_synchronised_after_the_start_is_believed_then(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine.is_synchronised = True
    stopped_ms = machine.stop(machine.start(0, tmp_path), tmp_path)
    machine.reboot()
    machine.wall_ms, machine.is_synchronised = NOON_MS + DAY_MS, False
    keeper = machine.start(stopped_ms, tmp_path)
    machine.pass_by(500)
    keeper.check()
    assert (keeper.clock.now_ms(), keeper.is_held) == (stopped_ms + 500, True)
    machine.is_synchronised = True
    keeper.check()
    assert (keeper.clock.now_ms(), keeper.is_held) == (stopped_ms + DAY_MS + 500, False)
    assert "synchronised now" in caplog.messages[-1]


def test_a_short_reboot_is_believed(machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stopped_ms = machine.stop(machine.start(0, tmp_path), tmp_path)
    machine.reboot()
    machine.wall_ms += DOWN_MS_MAX
    assert machine.start(stopped_ms, tmp_path).clock.now_ms() == stopped_ms + DOWN_MS_MAX
    assert caplog.messages == []


def test_a_clock_that_was_set_back_does_not_take_time_back_and_the_lead_is_reported(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine.wall_ms += 5 * DAY_MS
    stopped_ms = machine.stop(machine.start(0, tmp_path), tmp_path)
    machine.reboot()
    machine.wall_ms = NOON_MS
    keeper = machine.start(stopped_ms, tmp_path)
    assert (keeper.clock.now_ms(), keeper.start.verdict) == (stopped_ms, ClockVerdict.SET_BACK)
    assert "stays 5 days, 0:00:00 ahead of the clock" in caplog.messages[0]
    assert "lavant_clock_ahead_seconds 432000" in openmetrics(keeper.families())


def test_corrections_of_the_clock_are_taken(machine: Machine, tmp_path: Path) -> None:
    stopped_ms = machine.stop(machine.start(0, tmp_path), tmp_path)
    machine.pass_by(5_000)
    machine.wall_ms += 400
    assert machine.start(stopped_ms, tmp_path).clock.now_ms() == stopped_ms + 5_400


@pytest.mark.parametrize("content", [b"", b"\0" * 200, b"lavant-clock 1 00000000\n{}", b"no mark at all"])
def test_a_damaged_mark_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MARK_FILE).write_bytes(content)
    assert read_mark(tmp_path) is None


def test_the_mark_is_written_at_the_start_and_at_the_end(machine: Machine, tmp_path: Path) -> None:
    async def live() -> None:
        keeper = machine.start(0, tmp_path)
        keeper.begin()
        while read_mark(tmp_path) is None:
            await asyncio.sleep(0.001)
        machine.pass_by(77)
        await keeper.stop()

    asyncio.run(live())
    assert read_mark(tmp_path) == Mark(time_ms=NOON_MS + 77, reading=machine.read())


def test_a_mark_that_cannot_be_written_is_said_once(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def live() -> None:
        keeper = machine.start(0, tmp_path / "gone")
        await keeper._write()
        await keeper._write()

    with caplog.at_level(logging.WARNING):
        asyncio.run(live())
    assert len(caplog.messages) == 1


def test_the_clocks_of_this_machine_can_be_read() -> None:
    first, second = read_clocks(), read_clocks()
    assert first.boot == second.boot
    assert first.uptime_ms <= second.uptime_ms
    assert is_synchronised() in (True, False)
