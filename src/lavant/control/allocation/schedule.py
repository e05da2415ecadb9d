"""When to decide again: when the load has changed, when the goal is missed, and periodically.

Nguyen and Nahrstedt, "Resource Management for Elastic Publish Subscribe Systems", Section II: the resource scheduler
reschedules when the monitored response time is above a threshold. By then the queues are full; a change of arrivals
shows earlier, so it triggers a decision too.
"""

from __future__ import annotations

import msgspec

from lavant.core.errors import InvalidValue


class ScheduleConfig(msgspec.Struct, frozen=True, kw_only=True):
    every_ms: int = 15_000
    """Without any other trigger."""
    pause_ms: int = 5_000
    """The pause after a decision, so that it takes effect, unless the load has changed. After a change it is decided
    again after one pause, then twice that, and so on: the first figures of a change are rough.
    """
    missed_above_s: float | None = None
    """A response time above this triggers a decision."""

    def __post_init__(self) -> None:
        if not 0 <= self.pause_ms <= self.every_ms or self.every_ms < 1:
            raise InvalidValue(f"a schedule needs 0 ≤ pause_ms ≤ every_ms, got {self.pause_ms} and {self.every_ms}")


class Schedule:
    """Returns the reason to decide now, or None.

    >>> schedule = Schedule(ScheduleConfig(every_ms=100, pause_ms=20, missed_above_s=5.0))
    >>> schedule.occasion(0, change="", response_s=None)
    'the first look'
    >>> schedule.occasion(10, change="", response_s=9.0)
    >>> schedule.occasion(20, change="", response_s=9.0)
    'the response time is 9 s, above 5 s'
    >>> schedule.occasion(21, change="arrivals went from 2/s to 9/s", response_s=9.0)
    'arrivals went from 2/s to 9/s'
    >>> [schedule.occasion(time_ms, change="", response_s=None) for time_ms in (40, 41, 80, 81, 160, 161)]
    [None, '0.02 s have passed', None, '0.04 s have passed', None, '0.08 s have passed']
    """

    def __init__(self, config: ScheduleConfig) -> None:
        self._config = config
        self._decided_ms: int | None = None
        self._interval_ms = config.every_ms

    def occasion(self, now_ms: int, *, change: str, response_s: float | None) -> str | None:
        """A returned reason counts as a decision."""
        reason = self._reason(now_ms, change, response_s)
        if reason is not None:
            self._decided_ms = now_ms
            following_ms = max(self._config.pause_ms, 1) if change else 2 * self._interval_ms
            self._interval_ms = min(following_ms, self._config.every_ms)
        return reason

    def _reason(self, now_ms: int, change: str, response_s: float | None) -> str | None:
        if self._decided_ms is None:
            return "the first look"
        if change:
            return change
        passed_ms = now_ms - self._decided_ms
        limit_s = self._config.missed_above_s
        is_missed = limit_s is not None and response_s is not None and response_s > limit_s
        if is_missed and passed_ms >= self._config.pause_ms:
            return f"the response time is {response_s:.3g} s, above {limit_s:g} s"
        if passed_ms >= self._interval_ms:
            return f"{self._interval_ms / 1000:g} s have passed"
        return None
