"""The time at which a server continues when it starts: how much of the wall clock's time is trusted. Pure.

A running server counts the time itself, so jumps of the wall clock do not affect it. A stopped server counts nothing.
So it keeps a *mark* beside the journal: its own time, and the readings of the machine's clocks at that moment.

    at the start                                              time since the mark
    ────────────────────────────────────────────────────      ──────────────────────────────────────────────────────
    the machine has not rebooted since                         as the kernel counted, however long
    rebooted; by the wall clock at most `DOWN_MS_MAX` ago      as the wall clock says: trusted
    rebooted; the clock was synchronised then and is now       as the wall clock says: trusted, however long
    rebooted; the clock is not synchronised                    none: held, until it is synchronised or accepted
    the wall clock shows an earlier time than then             none: set back

A wrong clock that is trusted expires messages and leases too early, and no later start can undo that. A right clock
that is not trusted only lets them last longer. Hence the last two rows.
"""

from __future__ import annotations

import zlib
from enum import StrEnum

import msgspec

MARK_FILE = "clock"
"""In the directory of the journal."""
DOWN_MS_MAX = 5 * 60_000
"""About the length of a reboot: within it the wall clock is trusted, synchronised or not."""
CORRECTION_MS_MAX = 1_000
"""A difference between the clocks that is no jump: the server adopts the wall clock's time."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The clocks of a machine at one moment."""

    wall_ms: int
    boot: str = ""
    """Unique id of the boot; empty if it is not known."""
    uptime_ms: int = 0
    """Since that boot, including the time in which the machine was suspended."""
    is_synchronised: bool = False
    """By the kernel: NTP, say, keeps the wall clock right."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The server's own time, and the clocks at that moment."""

    time_ms: int
    reading: Reading


_HEAD = b"lavant-clock 1 %08x\n"


def encode_mark(mark: Mark) -> bytes:
    text = msgspec.json.encode(mark)
    return _HEAD % zlib.crc32(text) + text


def decode_mark(data: bytes) -> Mark | None:
    """None if it is damaged; the last time of the journal replaces it."""
    head, _, text = data.partition(b"\n")
    return msgspec.json.decode(text, type=Mark) if head + b"\n" == _HEAD % zlib.crc32(text) else None


class ClockVerdict(StrEnum):
    NEW = "new"
    """No mark and no record: the server starts at the wall clock's time."""
    COUNTED = "counted"
    BELIEVED = "believed"
    HELD = "held"
    SET_BACK = "set back"
    ACCEPTED = "accepted"
    """The operator confirmed the clock."""


class StartTime(msgspec.Struct, frozen=True, kw_only=True):
    """The time at which a server continues, why, and the figures behind it."""

    time_ms: int
    verdict: ClockVerdict
    last_ms: int
    """The latest time in journal and mark; 0 if there is none."""
    wall_ms: int
    passed_ms: int
    """Since the mark, or the last record of the journal, as far as it is known or trusted. If the clock is accepted,
    this includes by how much the server's own time was behind it."""
    claimed_ms: int
    """The same by the wall clock."""

    @property
    def ahead_ms(self) -> int:
        """How far the server is ahead of the wall clock; negative if it is behind."""
        return self.time_ms - self.wall_ms


def start_time(journal_ms: int, mark: Mark | None, now: Reading, *, is_accepted: bool = False) -> StartTime:
    """The time at which a server continues after its last record, of `journal_ms`; 0 if it has none.

    >>> mark = Mark(time_ms=50_000, reading=Reading(wall_ms=50_000, boot="a", uptime_ms=7_000))
    >>> start_time(49_000, mark, Reading(wall_ms=900_000_000, boot="a", uptime_ms=9_000)).time_ms
    52000
    """
    last_ms = max(journal_ms, 0 if mark is None else mark.time_ms)

    def found(verdict: ClockVerdict, time_ms: int, passed_ms: int, claimed_ms: int) -> StartTime:
        if abs(now.wall_ms - time_ms) <= CORRECTION_MS_MAX:
            time_ms = now.wall_ms
        return StartTime(
            time_ms=max(time_ms, last_ms),
            verdict=verdict,
            last_ms=last_ms,
            wall_ms=now.wall_ms,
            passed_ms=passed_ms,
            claimed_ms=claimed_ms,
        )

    if not last_ms:
        return found(ClockVerdict.NEW, now.wall_ms, 0, 0)
    since = Mark(time_ms=last_ms, reading=Reading(wall_ms=last_ms)) if mark is None else mark
    claimed_ms = now.wall_ms - since.reading.wall_ms
    if is_accepted:
        return found(ClockVerdict.ACCEPTED, now.wall_ms, max(0, now.wall_ms - last_ms), claimed_ms)
    counted_ms = _counted_ms(since.reading, now)
    if counted_ms is not None:
        return found(ClockVerdict.COUNTED, since.time_ms + counted_ms, counted_ms, claimed_ms)
    if claimed_ms < -CORRECTION_MS_MAX:
        return found(ClockVerdict.SET_BACK, last_ms, 0, claimed_ms)
    if claimed_ms <= DOWN_MS_MAX or is_vouched_for(mark, now):
        return found(ClockVerdict.BELIEVED, since.time_ms + claimed_ms, claimed_ms, claimed_ms)
    return found(ClockVerdict.HELD, last_ms, 0, claimed_ms)


def is_vouched_for(mark: Mark | None, now: Reading) -> bool:
    """Whether the wall clock is trusted however much time it shows; without a mark, its state now decides."""
    return now.is_synchronised and (mark is None or mark.reading.is_synchronised)


def _counted_ms(then: Reading, now: Reading) -> int | None:
    """The time between two readings by the kernel, if there was no reboot."""
    if not then.boot or then.boot != now.boot or now.uptime_ms < then.uptime_ms:
        return None
    return now.uptime_ms - then.uptime_ms
