"""At which time a server goes on when it starts: how much of the wall clock's time is believed. Pure.

A running server counts the time itself, so a clock that jumps does not matter to it. While it is stopped it counts
nothing. Beside the journal it keeps a *mark*: its own time, and what the machine's clocks said at that moment.

    what is known at the start                               how much time has passed since the mark
    ───────────────────────────────────────────────────      ──────────────────────────────────────────────────────
    the machine has not booted since the mark                what the kernel counted since: known, however long it is
    it has, and the wall clock says at most `DOWN_MS_MAX`    what the wall clock says: believed
    it has, and the clock was synchronised then and is now   what the wall clock says: believed, however long it is
    it has, and nobody vouches for the clock                 nothing: held, until the clock is synchronised or accepted
    the wall clock says that it is earlier than then         nothing: set back

A wrong clock that is believed lets messages expire and leases end before their time, and no later start can mend that.
A right clock that is not believed only lets them last longer. Hence the last two lines.
"""

from __future__ import annotations

import zlib
from enum import StrEnum

import msgspec

MARK_FILE = "clock"
"""Beside the journal's files."""
DOWN_MS_MAX = 5 * 60_000
"""A reboot takes about so long: within it the wall clock is believed, whoever set it."""
CORRECTION_MS_MAX = 1_000
"""A difference between the two clocks that is no jump; the server takes the wall's time then."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What the clocks of a machine say at one moment."""

    wall_ms: int
    boot: str = ""
    """No two boots of any machines have the same; empty where it is not known."""
    uptime_ms: int = 0
    """Since that boot, and the time of a suspended machine counts."""
    is_synchronised: bool = False
    """The kernel says that something, NTP for instance, keeps the wall clock right."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The server's own time, and what the clocks said then."""

    time_ms: int
    reading: Reading


_HEAD = b"lavant-clock 1 %08x\n"


def encode_mark(mark: Mark) -> bytes:
    text = msgspec.json.encode(mark)
    return _HEAD % zlib.crc32(text) + text


def decode_mark(data: bytes) -> Mark | None:
    """None if it is damaged: then the journal's last time has to do."""
    head, _, text = data.partition(b"\n")
    return msgspec.json.decode(text, type=Mark) if head + b"\n" == _HEAD % zlib.crc32(text) else None


class ClockVerdict(StrEnum):
    NEW = "new"
    """There is nothing to go on from: the server begins at the wall's time."""
    COUNTED = "counted"
    BELIEVED = "believed"
    HELD = "held"
    SET_BACK = "set back"
    ACCEPTED = "accepted"
    """The operator said that the clock is right."""


class StartTime(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server goes on, why, and the figures behind it."""

    time_ms: int
    verdict: ClockVerdict
    last_ms: int
    """The latest time that journal and mark know of; 0 if there is none."""
    wall_ms: int
    passed_ms: int
    """Since the mark, or else since the journal's last record, as far as it is known or believed."""
    claimed_ms: int
    """The same by the wall clock."""

    @property
    def ahead_ms(self) -> int:
        """Of the wall clock; negative if the server is behind it."""
        return self.time_ms - self.wall_ms


def start_time(journal_ms: int, mark: Mark | None, now: Reading, *, is_accepted: bool = False) -> StartTime:
    """The time at which a server goes on whose last record is of `journal_ms`, 0 if it has none.

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
        return found(ClockVerdict.ACCEPTED, now.wall_ms, max(0, claimed_ms), claimed_ms)
    counted_ms = _counted_ms(since.reading, now)
    if counted_ms is not None:
        return found(ClockVerdict.COUNTED, since.time_ms + counted_ms, counted_ms, claimed_ms)
    if claimed_ms < -CORRECTION_MS_MAX:
        return found(ClockVerdict.SET_BACK, last_ms, 0, claimed_ms)
    if claimed_ms <= DOWN_MS_MAX or is_vouched_for(mark, now):
        return found(ClockVerdict.BELIEVED, since.time_ms + claimed_ms, claimed_ms, claimed_ms)
    return found(ClockVerdict.HELD, last_ms, 0, claimed_ms)


def is_vouched_for(mark: Mark | None, now: Reading) -> bool:
    """Whether the wall clock can be trusted with any length of time; of a journal without a mark, its end is."""
    return now.is_synchronised and (mark is None or mark.reading.is_synchronised)


def _counted_ms(then: Reading, now: Reading) -> int | None:
    """What the kernel counted between two readings, if it was running all the time."""
    if not then.boot or then.boot != now.boot or now.uptime_ms < then.uptime_ms:
        return None
    return now.uptime_ms - then.uptime_ms
