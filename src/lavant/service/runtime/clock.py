"""The server's clock: milliseconds that never go back, whatever happens to the wall clock.

`lavant.broker.machine.start_time` computes the time at which a server starts; from then on a monotonic clock counts.
Its input is kept in the file `clock` beside the journal, which is rewritten every few seconds.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from lavant.broker.machine.start_time import (
    MARK_FILE,
    ClockVerdict,
    Mark,
    Reading,
    StartTime,
    decode_mark,
    encode_mark,
    is_vouched_for,
    start_time,
)
from lavant.service.observability.openmetrics import MetricFamily

NANOSECONDS_PER_MS = 1_000_000
MARK_S = 10.0
"""Interval at which the mark is written and the wall clock checked."""
APART_MS_MAX = 60_000
"""A larger difference between server and wall clock is logged."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_ERROR = 5
"""Returned by `adjtimex` for a clock that is not synchronised."""

_logger = logging.getLogger(__name__)

steady_ns: Callable[[], int] = (
    # Time while the machine is suspended counts: it passes for clients, too.
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns
)


class ServerClock:
    """Starts at the given time, or at that of the wall clock, and then runs on, even if the wall clock jumps.

    >>> steady = iter([5_000_000, 5_000_000, 12_000_000])
    >>> clock = ServerClock(2000, steady_ns=lambda: next(steady))
    >>> clock.now_ms(), clock.now_ms()
    (2000, 2007)
    """

    def __init__(
        self,
        start_ms: int | None = None,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = steady_ns,
    ) -> None:
        self._steady_ns = steady_ns
        start_ms = wall_ns() // NANOSECONDS_PER_MS if start_ms is None else start_ms
        self._ahead_ms = start_ms - steady_ns() // NANOSECONDS_PER_MS

    def now_ms(self) -> int:
        return self._steady_ns() // NANOSECONDS_PER_MS + self._ahead_ms

    def seconds_until(self, time_ms: int) -> float:
        """For a timer that must not fire before `time_ms`."""
        return max(0, (time_ms - self._ahead_ms) * NANOSECONDS_PER_MS - self._steady_ns()) / 1e9

    def advance(self, by_ms: int) -> None:
        """More time has passed than was counted."""
        assert by_ms >= 0, "time does not go back"
        self._ahead_ms += by_ms


# ── the clocks of the machine ─────────────────────────────────────────────────────────────────────────────────────────


class _Timex(ctypes.Structure):
    """The beginning of the kernel's `struct timex`, with more space than the rest needs."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("numbers", ctypes.c_long * 4),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def read_clocks() -> Reading:
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:  # not available on this system
        boot = ""
    return Reading(
        wall_ms=time.time_ns() // NANOSECONDS_PER_MS,
        boot=boot,
        uptime_ms=steady_ns() // NANOSECONDS_PER_MS,
        is_synchronised=is_synchronised(),
    )


def is_synchronised() -> bool:
    """Whether the kernel considers the wall clock synchronised."""
    try:
        state: int = ctypes.CDLL(None).adjtimex(ctypes.byref(_Timex()))
    except (OSError, AttributeError):  # not available on this system
        return False
    return 0 <= state < _TIME_ERROR


# ── the mark ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_mark(directory: Path) -> Mark | None:
    try:
        return decode_mark((directory / MARK_FILE).read_bytes())
    except OSError:
        return None


def write_mark(directory: Path, mark: Mark) -> None:
    """Not synced: a mark lost in a crash of the machine would belong to another boot anyway."""
    unfinished = directory / f"{MARK_FILE}.partial"
    unfinished.write_bytes(encode_mark(mark))
    unfinished.replace(directory / MARK_FILE)


# ── over a server's life ──────────────────────────────────────────────────────────────────────────────────────────────


class TimeKeeper:
    """Starts a server's clock, keeps its mark, and logs when it differs from the wall clock."""

    def __init__(
        self,
        journal_ms: int,
        directory: Path | None,
        *,
        is_accepted: bool = False,
        read: Callable[[], Reading] = read_clocks,
        steady_ns: Callable[[], int] = steady_ns,
    ) -> None:
        self._directory = directory
        self._read = read
        self._mark = None if directory is None else read_mark(directory)
        now = read()
        self.start = start_time(journal_ms, self._mark, now, is_accepted=is_accepted)
        self.clock = ServerClock(self.start.time_ms, steady_ns=steady_ns)
        self.is_held = self.start.verdict is ClockVerdict.HELD
        """The wall clock claims that more time has passed than is credible."""
        self._apart_ms = self.start.ahead_ms
        """How far the server was ahead of the wall clock when that was last logged."""
        self._is_mark_lost = False
        self._task: asyncio.Task[None] | None = None
        if said := report(self.start):
            _logger.warning("%s", said)

    def begin(self) -> None:
        """Start to keep the mark, in the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            await self._write()

    async def _keep(self) -> None:
        while True:
            await self._write()
            await asyncio.sleep(MARK_S)
            self.check()

    def check(self) -> None:
        """Compare with the wall clock, and log a new difference."""
        now = self._read()
        if self.is_held and is_vouched_for(self._mark, now):
            self._release(now)
        apart_ms = self.clock.now_ms() - now.wall_ms
        if abs(apart_ms - self._apart_ms) > APART_MS_MAX:
            by = format_duration(abs(apart_ms - self._apart_ms))
            way = "back" if apart_ms > self._apart_ms else "forward"
            _logger.warning(
                "the clock was set %s by %s while the server ran, to %s; the server keeps its own time, %s",
                way,
                by,
                format_time(now.wall_ms),
                format_time(now.wall_ms + apart_ms),
            )
            self._apart_ms = apart_ms

    def families(self) -> Iterable[MetricFamily]:
        ahead_s = (self.clock.now_ms() - self._read().wall_ms) / 1000
        yield MetricFamily(
            "lavant_clock_ahead_seconds",
            "gauge",
            "The server's own time minus the wall clock's; messages and leases run by the former.",
            [({}, ahead_s)],
            unit="seconds",
        )
        yield MetricFamily(
            "lavant_clock_held",
            "gauge",
            "1 if the wall clock claims that more time passed while the server was stopped than is credible.",
            [({}, int(self.is_held))],
        )

    def _release(self, now: Reading) -> None:
        """The wall clock is synchronised now, so its account of the time while the server was stopped is accepted."""
        self.is_held = False
        start = self.start
        since_ms = start.last_ms if self._mark is None else self._mark.time_ms
        wall_ms = start.wall_ms - start.claimed_ms
        behind_ms = since_ms + now.wall_ms - wall_ms - self.clock.now_ms()
        if behind_ms > 0:
            self.clock.advance(behind_ms)
        self._apart_ms = self.clock.now_ms() - now.wall_ms
        _logger.warning(
            "the clock is synchronised now, and shows that the server was stopped for %s longer than it had assumed; "
            "the server's time is %s",
            format_duration(max(0, behind_ms)),
            format_time(self.clock.now_ms()),
        )

    async def _write(self) -> None:
        if self._directory is None:
            return
        mark = Mark(time_ms=self.clock.now_ms(), reading=self._read())
        try:
            await asyncio.get_running_loop().run_in_executor(None, write_mark, self._directory, mark)
        except OSError as error:  # the old mark still tells how much time has passed
            if not self._is_mark_lost:
                _logger.warning("the file %s could not be written: %s", self._directory / MARK_FILE, error.strerror)
            self._is_mark_lost = True
        else:
            self._is_mark_lost = False


def report(start: StartTime) -> str:
    """A message for the operator about the time of a start; empty if all clocks agree.

    >>> day_ms = 86_400_000
    >>> report(start_time(9 * day_ms, None, Reading(wall_ms=14 * day_ms)))[:88]
    'the clock says 1970-01-15T00:00:00Z and the last recorded time is 1970-01-10T00:00:00Z: '
    """
    ahead_ms = start.ahead_ms
    if abs(ahead_ms) <= APART_MS_MAX and not (
        start.verdict is ClockVerdict.ACCEPTED and start.passed_ms > APART_MS_MAX
    ):
        return ""
    found = f"the clock says {format_time(start.wall_ms)} and the last recorded time is {format_time(start.last_ms)}"
    time = format_time(start.time_ms)
    by = format_duration(abs(ahead_ms))
    if ahead_ms > APART_MS_MAX:
        return (
            f"{found}: the clock was set back, or was far ahead when that was recorded; the server's time goes on from "
            f"{time} and stays {by} ahead of the clock"
        )
    accept = "If the clock is right, start once with --clock-jump accept"
    if start.verdict is ClockVerdict.HELD:
        claimed = format_duration(start.claimed_ms)
        return (
            f"{found}: {claimed} later, which nothing confirms; the server keeps its own time from {time}, and "
            f"nothing expires by the clock's. {accept}"
        )
    if start.verdict is ClockVerdict.COUNTED:
        return (
            f"{found}; by the kernel's count {format_duration(start.passed_ms)} passed since the server last ran, so "
            f"the clock jumped; the server keeps its own time from {time}, {by} behind the clock, and nothing "
            f"expires by the clock's. {accept}"
        )
    if start.verdict is ClockVerdict.ACCEPTED:
        return f"{found}; the clock is accepted, and {format_duration(start.passed_ms)} count as passed"
    return f"{found}; the server's time goes on from {time} and stays {by} behind the clock. {accept}"


def format_time(time_ms: int) -> str:
    """
    >>> format_time(1_500)
    '1970-01-01T00:00:01Z'
    """
    try:
        return datetime.fromtimestamp(time_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):  # beyond the calendar
        return f"{time_ms} ms"


def format_duration(duration_ms: int) -> str:
    """
    >>> format_duration(90_061_000)
    '1 day, 1:01:01'
    """
    return str(timedelta(seconds=duration_ms // 1000))
