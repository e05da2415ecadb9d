"""Turns recorded events into rows and metrics: waiting and service times of messages, vectorised."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.core.telemetry import PUBLICATIONS_MAX, STAGE_PREFIX, ObservationKind
from lavant.service.observability.telemetry import events
from lavant.service.observability.telemetry.rows import Integers, Rows
from lavant.service.observability.telemetry.stages import Stages

UNKNOWN = -1
"""Stands for an unknown time."""
SENT_MAX = 1 << 20
SLOTS = 1 << 20


class SentTimes:
    """Messages with numbers up to `last[i]`, and above the one before, were sent at `times[i]`."""

    def __init__(self, last: int, most: int = SENT_MAX) -> None:
        """`last` is the number of the last earlier message: send times up to it are unknown."""
        self._most = most
        self._last: Integers = np.empty(2 * most, np.int64)
        self._times: Integers = np.empty(2 * most, np.int64)
        self._last[0], self._times[0] = last, UNKNOWN
        self._count = 1

    def add(self, last: Integers, times: Integers) -> None:
        """Add ascending numbers, at most as many as are kept; repeated ones are ignored."""
        assert len(last) <= self._most
        is_new = np.diff(last, prepend=self._last[self._count - 1]) > 0
        last, times = last[is_new], times[is_new]
        end = self._count + len(last)
        if end > len(self._last):
            self._forget()
            end = self._count + len(last)
        self._last[self._count : end] = last
        self._times[self._count : end] = times
        self._count = end

    def of(self, numbers: Integers) -> Integers:
        """A message that a job sent since has a larger number than all, and is unknown too."""
        places = np.searchsorted(self._last[: self._count], numbers)
        known = places < self._count
        return np.where(known, self._times[np.where(known, places, 0)], UNKNOWN)

    def _forget(self) -> None:
        """Drop all but the latest, which move to the front; rare, so the amortised cost is small."""
        start, kept = max(0, self._count - self._most), min(self._count, self._most)
        self._last[:kept], self._times[:kept] = self._last[start : self._count], self._times[start : self._count]
        self._times[0] = UNKNOWN  # of all before, too
        self._count = kept


class ReceivedTimes:
    """Receive times in a ring of about a million slots."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = slots
        self._number: Integers = np.zeros(slots, np.int64)
        """The message of each slot; messages are numbered from 1."""
        self._times: Integers = np.zeros(slots, np.int64)
        self._first: NDArray[np.int32] = np.zeros(slots, np.int32)

    def put(self, numbers: Integers, times: Integers) -> None:
        slots = numbers % self._slots
        self._number[slots] = numbers
        self._times[slots] = times

    def pop(self, numbers: Integers) -> Integers:
        """Return and remove the times: each is known once."""
        slots = numbers % self._slots
        order = np.arange(len(numbers), dtype=np.int32)
        self._first[slots[::-1]] = order[::-1]
        known = (self._number[slots] == numbers) & (self._first[slots] == order)
        times = np.where(known, self._times[slots], UNKNOWN)
        self._number[slots[known]] = 0
        return times


ACCESS, MATCH = f"{STAGE_PREFIX}access", f"{STAGE_PREFIX}match"
"""Topics of the stages before queues."""
NOWHERE = -1
TABLE_MAX = 1 << 20
JOBS_MAX = 1_000_000
"""Open jobs and tasks; beyond this, the oldest are dropped."""
ENDED = ("completed", "failed")


class Digest:
    """`name_of` returns the name of a queue by its number, or None if it is gone; `wall_ns` is added to times."""

    def __init__(
        self, rows: Rows, stages: Stages, name_of: Callable[[int], str | None], *, last: int, wall_ns: int = 0
    ) -> None:
        """`last` is the number of the last earlier message."""
        self._rows = rows
        self._stages = stages
        self._name_of = name_of
        self._wall_ns = wall_ns
        self._sent = SentTimes(last)
        self._received = ReceivedTimes()
        self._jobs: dict[int, tuple[int, str]] = {}
        self._tasks: dict[tuple[int, str, int], tuple[int, str, str]] = {}
        self._handlers: dict[type, Callable[[Any, int], None]] = {
            events.SubmitEvent: self._submitted,
            events.LeaseEvent: self._leased,
            events.ReportEvent: self._reported,
        }

    def take(self, columns: events.EventColumns) -> None:
        if columns.arrived:
            self._take_arrived(columns)
        if columns.matched:
            self._take_matched(columns)
        if columns.sent:
            self._take_sent(columns)
        if columns.fan_outs:
            self._take_fan_outs(columns)
        if columns.taken_ns:
            self._take_received(columns)
        if columns.settled_ns:
            self._take_settled(columns)
        for event in columns.jobs:
            self._handlers[type(event)](event, (event.time_ns + self._wall_ns) // 1000)
        for remembered in (self._jobs, self._tasks):
            _forget(remembered)

    def _codes(self, columns: events.EventColumns) -> Integers:
        """Codes of queues in the rows, by their codes in the columns."""
        return np.array([self._rows.code(name) for name in columns.queues], np.int64)

    def _times_us(self, times_ns: Integers) -> Integers:
        return (times_ns + self._wall_ns) // 1000

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_sent(self, columns: events.EventColumns) -> None:
        times_ns, last, arrived, queues = _rows_of(columns.sent, events.SENT_FIELDS)
        times_us = self._times_us(times_ns)
        self._sent.add(last, times_us)
        some = arrived > 0
        topics = self._codes(columns)[queues[some]]
        self._rows.add(ObservationKind.ARRIVAL, times_us[some], topics, publications=arrived[some])

    def _take_fan_outs(self, columns: events.EventColumns) -> None:
        """One row for each queue of each batch; deleted queues have none."""
        times_ns, queues, ends_of = zip(*columns.fan_outs, strict=True)
        sizes = np.array([len(each) // INTEGERS.itemsize for each in queues])
        ends = np.frombuffer(b"".join(ends_of), INTEGERS)
        counts, firsts = ends.astype(np.int64), np.cumsum(sizes) - sizes
        counts[1:] -= ends[:-1]
        counts[firsts] = ends[firsts]
        self._stages.counts["exit"] += int(counts.sum())
        serials, places = _distinct(np.frombuffer(b"".join(queues), INTEGERS))
        names = [self._name_of(serial) for serial in serials.tolist()]
        topics = np.array([NOWHERE if name is None else self._rows.code(name) for name in names])[places]
        times_us = np.repeat(self._times_us(np.array(times_ns)), sizes)
        if None in names:
            there = topics != NOWHERE
            times_us, topics, counts = times_us[there], topics[there], counts[there]
        self._rows.add(ObservationKind.ARRIVAL, times_us, topics, publications=np.minimum(counts, PUBLICATIONS_MAX))

    def _take_received(self, columns: events.EventColumns) -> None:
        numbers = _integers(columns.taken_numbers)
        times_us = np.repeat(self._times_us(_integers(columns.taken_ns)), _integers(columns.taken_count))
        self._received.put(numbers, times_us)
        sent_us = self._sent.of(numbers)
        self._stages.times["queue"].add_all((times_us - sent_us)[sent_us >= 0] / 1e6)

    def _take_settled(self, columns: events.EventColumns) -> None:
        """Messages without a receive time were acknowledged before, or received too long ago."""
        counts, numbers = _integers(columns.settled_count), _integers(columns.settled_numbers)
        times_us = np.repeat(self._times_us(_integers(columns.settled_ns)), counts)
        topics = np.repeat(self._codes(columns)[_integers(columns.settled_queue)], counts)
        received_us, sent_us = self._received.pop(numbers), self._sent.of(numbers)
        served = received_us >= 0
        responded = served & (sent_us >= 0)
        service_us, response_us = (times_us - received_us)[served], (times_us - sent_us)[responded]
        self._stages.times["consumer"].add_all(service_us / 1e6)
        self._stages.times["response"].add_all(response_us / 1e6)
        self._rows.add(ObservationKind.SERVICE, times_us[served], topics[served], duration_us=service_us)
        self._rows.add(ObservationKind.RESPONSE, times_us[responded], topics[responded], duration_us=response_us)

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_arrived(self, columns: events.EventColumns) -> None:
        times_ns, publications = _rows_of(columns.arrived, events.ARRIVED_FIELDS)
        self._stages.counts["access"] += int(publications.sum())
        times_us = self._times_us(times_ns)
        self._rows.add(ObservationKind.ARRIVAL, times_us, self._rows.code(ACCESS), publications=publications)

    def _take_matched(self, columns: events.EventColumns) -> None:
        rows = _rows_of(columns.matched, events.MATCHED_FIELDS)
        times_ns, publications, subscriptions, matches, taken_ns = rows
        self._stages.counts["match"] += int(publications.sum())
        times_us, topic = self._times_us(times_ns), self._rows.code(MATCH)
        counts = {"publications": publications, "subscriptions": subscriptions}
        counts["matches"] = np.minimum(matches, publications * subscriptions)
        self._rows.add(ObservationKind.MATCH, times_us, topic, **counts)
        here = taken_ns != events.ELSEWHERE
        self._stages.times["match"].add_all(taken_ns[here] / 1e9)
        self._rows.add(ObservationKind.SERVICE, times_us[here], topic, duration_us=taken_ns[here] // 1000)

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _submitted(self, event: events.SubmitEvent, time_us: int) -> None:
        self._jobs[event.job] = (time_us, event.job_type)
        self._rows.arrival(time_us, 0, 1, job_type=self._rows.code(event.job_type))

    def _leased(self, event: events.LeaseEvent, time_us: int) -> None:
        for job, task, attempt, job_type in event.tasks:
            self._tasks[job, task, attempt] = (time_us, event.topic, job_type)

    def _reported(self, event: events.ReportEvent, time_us: int) -> None:
        started = self._tasks.pop((event.job, event.task, event.attempt), None)
        code = self._rows.code
        if started is not None:
            started_us, topic, job_type = started
            self._stages.times["consumer"].add((time_us - started_us) / 1e6)
            self._rows.timed(
                ObservationKind.SERVICE,
                time_us,
                code(topic),
                time_us - started_us,
                job_type=code(job_type),
                is_ok=event.is_ok,
            )
        if event.job_state in ENDED and (submitted := self._jobs.pop(event.job, None)) is not None:
            submitted_us, job_type = submitted
            is_ok = event.job_state == ENDED[0]
            self._rows.timed(
                ObservationKind.RESPONSE, time_us, 0, time_us - submitted_us, job_type=code(job_type), is_ok=is_ok
            )


def _rows_of(flat: list[int], fields: int) -> Integers:
    """Rows as columns, by field."""
    return np.fromiter(flat, np.int64, len(flat)).reshape(-1, fields).T


def _integers(column: array[int]) -> Integers:
    return np.frombuffer(column, np.int64) if column else np.empty(0, np.int64)


def _distinct(serials: NDArray[np.uint32]) -> tuple[Integers, Integers]:
    """The distinct values, ascending, and the index of each. Queues created at about the same time have numbers close
    together: then a table does it, without sorting.

    >>> _distinct(np.array([70, 80, 70], np.uint32))
    (array([70, 80]), array([0, 1, 0]))
    """
    first = int(serials.min())
    offsets = serials.astype(np.int64) - first
    if offsets.max() >= TABLE_MAX:
        distinct, places = np.unique(offsets, return_inverse=True)
        return distinct + first, places
    occurs = np.zeros(offsets.max() + 1, np.bool_)
    occurs[offsets] = True
    return np.flatnonzero(occurs) + first, (np.cumsum(occurs) - 1)[offsets]


def _forget(remembered: dict[Any, Any]) -> None:
    """Drop the oldest, if there are too many."""
    while len(remembered) > JOBS_MAX:
        del remembered[next(iter(remembered))]
