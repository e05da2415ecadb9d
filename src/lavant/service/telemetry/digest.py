"""From events to rows and figures: who waited how long is found by the numbers of messages.

Messages are numbered as they are sent, over all queues. So one entry for each request that sent some says when each of
them was sent, and that of a message is found by bisection. What was received is remembered until it is acknowledged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lavant.broker.queues.commands import SentEntry
from lavant.broker.queues.spreading import INTEGERS
from lavant.core.telemetry import PUBLICATIONS_MAX, Kind
from lavant.service.telemetry import events
from lavant.service.telemetry.rows import Rows
from lavant.service.telemetry.stages import Stages

ACCESS, MATCH = "@access", "@match"
"""Topics of what happens before queues; no queue has such a name."""
REMEMBERED_MAX = 1_000_000
"""Of messages in flight, jobs and tasks under way, and requests that sent: beyond, the oldest are forgotten."""
ENDED = ("completed", "failed")


class Digest:
    """`name_of` tells the name of a queue by its number, or None if it is gone."""

    def __init__(self, rows: Rows, stages: Stages, name_of: Callable[[int], str | None], *, last: int) -> None:
        """`last` is the number of the last message that was there before: when it was sent is not known."""
        self._rows = rows
        self._stages = stages
        self._name_of = name_of
        self._sent = _SentTimes(last)
        self._received: dict[int, int] = {}
        self._jobs: dict[int, tuple[int, str]] = {}
        self._tasks: dict[tuple[int, str, int], tuple[int, str, str]] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.Arrived: self._arrived,
            events.Matched: self._matched,
            events.Entered: self._entered,
            events.Spread: self._spread,
            events.Taken: self._taken,
            events.Settled: self._settled,
            events.Submitted: self._submitted,
            events.Leased: self._leased,
            events.Reported: self._reported,
        }

    def take(self, some: Iterable[events.Event]) -> None:
        for event in some:
            self._handlers[type(event)](event)
        for remembered in (self._received, self._jobs, self._tasks):
            _forget(remembered)
        self._sent.forget()

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _arrived(self, event: events.Arrived) -> None:
        self._stages.counts["access"] += event.publications
        self._rows.arrival(event.time_us, self._rows.code(ACCESS), event.publications)

    def _matched(self, event: events.Matched) -> None:
        self._stages.counts["match"] += event.publications
        topic = self._rows.code(MATCH)
        self._rows.match(
            event.time_us,
            topic,
            publications=event.publications,
            subscriptions=event.subscriptions,
            matches=min(event.matches, event.publications * event.subscriptions),
        )
        if event.duration_us is not None:
            self._stages.times["match"].add(event.duration_us / 1e6)
            self._rows.timed(Kind.SERVICE, event.time_us, topic, [event.duration_us])

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _entered(self, event: events.Entered) -> None:
        self._sent.add(event.last, event.time_us)
        count = sum(map(isinstance, event.entries, repeat(SentEntry)))
        if count:
            self._rows.arrival(event.time_us, self._rows.code(event.queue), count)

    def _spread(self, event: events.Spread) -> None:
        self._sent.add(event.last, event.time_us)
        ends = np.frombuffer(event.ends, INTEGERS)
        counts = np.diff(ends, prepend=np.uint32(0)).tolist()
        self._stages.counts["exit"] += int(ends[-1])
        for serial, count in zip(np.frombuffer(event.queues, INTEGERS).tolist(), counts, strict=True):
            name = self._name_of(serial)
            if name is not None:
                self._rows.arrival(event.time_us, self._rows.code(name), min(count, PUBLICATIONS_MAX))

    def _taken(self, event: events.Taken) -> None:
        self._stages.counts["queue"] += len(event.numbers)
        self._received.update(zip(event.numbers, repeat(event.time_us)))
        waited = self._since_sent(event.numbers, event.time_us)
        self._stages.times["queue"].add_all(waited / 1e6)

    def _settled(self, event: events.Settled) -> None:
        refused = event.refused
        numbers = [receipt.number for place, receipt in enumerate(event.receipts) if place not in refused]
        taken_us = list(map(self._received.pop, numbers, repeat(None)))
        served = [event.time_us - time_us for time_us in taken_us if time_us is not None]
        known = [number for number, time_us in zip(numbers, taken_us, strict=True) if time_us is not None]
        if not served:
            return
        responded = self._since_sent(known, event.time_us)
        topic, stages = self._rows.code(event.queue), self._stages
        stages.counts["consumer"] += len(served)
        stages.times["consumer"].add_all(np.array(served) / 1e6)
        stages.times["response"].add_all(responded / 1e6)
        self._rows.timed(Kind.SERVICE, event.time_us, topic, served)
        self._rows.timed(Kind.RESPONSE, event.time_us, topic, responded.tolist())

    def _since_sent(self, numbers: list[int], time_us: int) -> NDArray[np.int64]:
        """Of those whose time is known."""
        return np.maximum(time_us - self._sent.of(numbers), 0)

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _submitted(self, event: events.Submitted) -> None:
        self._jobs[event.job] = (event.time_us, event.job_type)
        self._rows.arrival(event.time_us, 0, 1, job_type=self._rows.code(event.job_type))

    def _leased(self, event: events.Leased) -> None:
        for job, task, attempt, job_type in event.tasks:
            self._tasks[job, task, attempt] = (event.time_us, event.topic, job_type)

    def _reported(self, event: events.Reported) -> None:
        started = self._tasks.pop((event.job, event.task, event.attempt), None)
        if started is not None:
            time_us, topic, job_type = started
            self._stages.counts["consumer"] += 1
            self._stages.times["consumer"].add((event.time_us - time_us) / 1e6)
            self._rows.timed(
                Kind.SERVICE,
                event.time_us,
                self._rows.code(topic),
                [event.time_us - time_us],
                job_type=self._rows.code(job_type),
                is_ok=event.is_ok,
            )
        if event.ended in ENDED and (submitted := self._jobs.pop(event.job, None)) is not None:
            time_us, job_type = submitted
            self._rows.timed(
                Kind.RESPONSE,
                event.time_us,
                0,
                [event.time_us - time_us],
                job_type=self._rows.code(job_type),
                is_ok=event.ended == ENDED[0],
            )


class _SentTimes:
    """When messages were sent: those with numbers up to `last[i]`, and above the one before, at `time_us[i]`."""

    def __init__(self, last: int) -> None:
        self._last: list[int] = [last]
        self._time_us: list[int] = [-1]

    def add(self, last: int, time_us: int) -> None:
        if last > self._last[-1]:
            self._last.append(last)
            self._time_us.append(time_us)

    def of(self, numbers: list[int]) -> NDArray[np.int64]:
        """Without those that were sent too long ago."""
        found = [self._one(number) for number in numbers]
        times_us = np.array(found, np.int64)
        return times_us[times_us >= 0]

    def _one(self, number: int) -> int:
        place = bisect_left(self._last, number)
        return self._time_us[place] if place < len(self._last) else -1

    def forget(self) -> None:
        if len(self._last) > REMEMBERED_MAX:
            half = len(self._last) // 2
            self._last, self._time_us = self._last[half:], self._time_us[half:]
            self._time_us[0] = -1


def _forget(remembered: dict[Any, Any]) -> None:
    """The oldest, if there are too many."""
    while len(remembered) > REMEMBERED_MAX:
        del remembered[next(iter(remembered))]
