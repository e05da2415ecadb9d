"""Schedules: what fires when. The record of a firing holds the job or message and the next time together.

    AddSchedule ──► due at next_ms ──FireSchedule──► job or message; next_ms is the first time after now

So a schedule fires once for each time, whatever crashes, and once for all the times that passed while the server was
down.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from msgspec.structs import replace

from lavant.broker.protocol.jobs import AddSchedule, FireSchedule, ScheduleState
from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.accounting.memory import text_bytes
from lavant.broker.queues.validation import check_range
from lavant.broker.workflows.cron import Cron
from lavant.broker.workflows.definitions.validation import check_name
from lavant.broker.workflows.limits import INPUT_BYTES_MAX, INTERVAL_MS_MAX, INTERVAL_MS_MIN
from lavant.core.errors import InvalidValue, QuotaExceeded, UnknownSchedule

SCHEDULES_MAX = 1000
"""In a namespace."""
RETRY_MS = 1000
"""The pause before a schedule fires for which there was no room."""
SCHEDULE_BYTES = 600
"""In memory, without its texts."""


def check_schedule(request: AddSchedule) -> None:
    """Raises unless the request says when, and what to do then."""
    check_name("a schedule", request.name)
    if bool(request.cron) == bool(request.interval_ms):
        raise InvalidValue(f"schedule {request.name!r} needs a cron expression or an interval, one of both")
    if bool(request.job_type) == bool(request.queue):
        raise InvalidValue(f"schedule {request.name!r} needs a job type or a queue, one of both")
    if not request.cron:
        check_range("interval_ms", request.interval_ms, INTERVAL_MS_MIN, INTERVAL_MS_MAX)
    check_range("the size of a schedule's body", len(request.body), 0, INPUT_BYTES_MAX)


def next_of(schedule: AddSchedule | ScheduleState, previous_ms: int, now_ms: int) -> int:
    """The first time after now. Intervals keep their phase.

    >>> next_of(AddSchedule("s", interval_ms=1000, queue="q"), previous_ms=500, now_ms=3700)
    4500
    """
    if schedule.cron:
        return Cron.parse(schedule.cron).next_ms(now_ms)
    return previous_ms + ((now_ms - previous_ms) // schedule.interval_ms + 1) * schedule.interval_ms


def memory_of_schedule(schedule: AddSchedule | ScheduleState) -> int:
    texts = (schedule.name, schedule.cron, schedule.job_type, schedule.queue, schedule.namespace)
    return SCHEDULE_BYTES + sum(map(text_bytes, texts)) + len(schedule.body)


Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


class Schedules:
    """All schedules of a server."""

    def __init__(self, counters: QueueCounters) -> None:
        self._counters = counters
        self._schedules: dict[Key, ScheduleState] = {}
        self._next_ms: int | None = None
        self._paused_until_ms = 0

    def __iter__(self) -> Iterator[ScheduleState]:
        """Sorted by namespace and name."""
        return iter([self._schedules[key] for key in sorted(self._schedules)])

    def find(self, namespace: str, name: str) -> ScheduleState:
        """Raises if there is none of that name."""
        found = self.get(namespace, name)
        if found is None:
            raise UnknownSchedule(f"there is no schedule {name!r}; `lavant schedule ls` lists the schedules")
        return found

    def get(self, namespace: str, name: str) -> ScheduleState | None:
        return self._schedules.get((namespace, name))

    def of(self, namespace: str) -> list[ScheduleState]:
        """Those of a namespace, sorted by name."""
        return [each for each in self if each.namespace == namespace]

    def check_room(self, namespace: str, name: str) -> None:
        if self.get(namespace, name) is None and len(self.of(namespace)) >= SCHEDULES_MAX:
            raise QuotaExceeded(f"there are {SCHEDULES_MAX} schedules, which is the limit; remove one first")

    def put(self, schedule: ScheduleState) -> None:
        """Adds a schedule, or replaces the one of its name."""
        self.remove(schedule.namespace, schedule.name)
        self._schedules[schedule.namespace, schedule.name] = schedule
        self._counters.memory += memory_of_schedule(schedule)
        self._set_next()

    def remove(self, namespace: str, name: str) -> None:
        before = self._schedules.pop((namespace, name), None)
        if before is not None:
            self._counters.memory -= memory_of_schedule(before)
            self._set_next()

    def fired(self, schedule: ScheduleState, now_ms: int, error: str) -> None:
        next_ms = next_of(schedule, schedule.next_ms, now_ms)
        self._schedules[schedule.namespace, schedule.name] = replace(
            schedule, next_ms=next_ms, fired=schedule.fired + 1, last_ms=now_ms, last_error=error
        )
        self._set_next()

    def due(self, now_ms: int) -> list[FireSchedule]:
        """Those whose time has come, in the order of (time, namespace, name)."""
        if self._next_ms is None or max(self._next_ms, self._paused_until_ms) > now_ms:
            return []
        found = sorted((each.next_ms, *key) for key, each in self._schedules.items() if each.next_ms <= now_ms)
        return [FireSchedule(name, namespace) for _, namespace, name in found]

    def pause(self, now_ms: int) -> None:
        """There is no room for what a schedule makes: it fires later."""
        self._paused_until_ms = now_ms + RETRY_MS

    def next_ms(self) -> int | None:
        return None if self._next_ms is None else max(self._next_ms, self._paused_until_ms)

    def _set_next(self) -> None:
        self._next_ms = min((each.next_ms for each in self._schedules.values()), default=None)
