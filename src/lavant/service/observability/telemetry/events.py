"""Events recorded by the event loop: frequent ones by column, those of jobs one by one.

Only numbers are kept, no bodies. The thread takes the columns at intervals, and the loop goes on with new ones.

All arrivals are recorded, because their variability matters. Messages are timed by the request that received them: all
of them up to some requests a second, and a random sample beyond that. In between, and for acknowledgements of messages
that are not timed, the observers return at once: under full load they cost next to nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import randrange
from time import monotonic_ns
from typing import Any, TypeAlias

import msgspec

from lavant.broker.machine.effects import Observer
from lavant.broker.protocol.jobs import CompleteTask, FailTask, LeaseTasks, SubmitJob
from lavant.broker.protocol.queues import Acknowledge, Acknowledged, Delivery, Receive, Received, Send, Sent, SentEntry
from lavant.broker.protocol.subscriptions import Deliver
from lavant.broker.queues.machine import Queues

EVENTS_MAX = 200_000
"""Some seconds of requests at full speed; further ones are dropped and counted."""
RECEIVES_TIMED = 200
"""Receives that are all timed, until the columns are taken; then sampling begins."""
BUSY_FROM = 50
"""Sampling continues if this many were timed since the columns were last taken."""
SAMPLED = 4
"""Receives that are timed between two pauses,"""
SAMPLED_FROM = 8
"""each one of so many."""
SENT_FIELDS, ARRIVED_FIELDS, MATCHED_FIELDS = 4, 2, 5
MANY = -1
ELSEWHERE = -1
TIMED_MAX = 200_000
"""Timed messages that are not acknowledged yet; beyond this, all are dropped."""


class _Event(msgspec.Struct, frozen=True, gc=False):
    time_ns: int


class SubmitEvent(_Event, frozen=True):
    job: int
    job_type: str


class LeaseEvent(_Event, frozen=True):
    """Workers leased tasks: job, task, attempt and job type of each."""

    topic: str
    tasks: list[tuple[int, str, int, str]]


class ReportEvent(_Event, frozen=True):
    """A worker reported a task."""

    job: int
    task: str
    attempt: int
    is_ok: bool
    job_state: str


Event: TypeAlias = SubmitEvent | LeaseEvent | ReportEvent


class _Codes(dict[str, int]):
    """Codes by name; a new name gets the next code.

    >>> codes = _Codes()
    >>> codes["orders"], codes["stock"], codes["orders"]
    (0, 1, 0)
    """

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code


class EventColumns:
    """Events since the columns were last taken. Times are those of a monotonic clock, in nanoseconds.

    The most frequent ones are in flat lists of integers, row after row: the cheapest, with nothing for the garbage
    collector to track.
    """

    __slots__ = (
        "arrived",
        "fan_outs",
        "jobs",
        "matched",
        "queues",
        "sent",
        "settled_count",
        "settled_ns",
        "settled_numbers",
        "settled_queue",
        "taken_count",
        "taken_ns",
        "taken_numbers",
    )

    def __init__(self) -> None:
        self.queues = _Codes()
        self.arrived: list[int] = []
        """`ARRIVED_FIELDS` for each request to publish: the time and the number of publications."""
        self.matched: list[int] = []
        """`MATCHED_FIELDS` for each matched batch: the time, numbers of publications, subscriptions and matches, and
        the duration, or `ELSEWHERE`."""
        self.sent: list[int] = []
        """`SENT_FIELDS` for each request that sent messages: the time, the last message's number, how many, and the
        queue; 0 and `MANY` for several queues."""
        self.fan_outs: list[tuple[int, bytes, bytes]] = []
        """For notifications: the time, and the queues and ends of the `FanOut`."""
        self.taken_ns = array("q")
        self.taken_count = array("q")
        self.taken_numbers = array("q")
        self.settled_ns = array("q")
        self.settled_queue = array("q")
        self.settled_count = array("q")
        self.settled_numbers = array("q")
        self.jobs: list[Event] = []


def _draw(most: int) -> int:
    return randrange(1, most + 1)


class TelemetryEvents:
    """Used by the event loop's thread only, which appends events and takes the columns.

    `chance(n)` draws a number from 1 to n; `later(callback)` calls back after a pause.
    """

    # Used for every request that sends: slots keep its data together in memory.
    __slots__ = (
        "_chance",
        "_clock_ns",
        "_codes",
        "_columns",
        "_events_max",
        "_is_busy",
        "_is_paused",
        "_later",
        "_left",
        "_number",
        "_queues",
        "_receives",
        "_sent",
        "_sent_max",
        "_timed",
        "dropped",
        "observers",
    )

    def __init__(
        self,
        queues: Queues,
        events_max: int = EVENTS_MAX,
        clock_ns: Callable[[], int] = monotonic_ns,
        chance: Callable[[int], int] = _draw,
        *,
        later: Callable[[Callable[[], None]], object],
    ) -> None:
        self.dropped = 0
        self._queues = queues
        self._events_max = events_max
        self._sent_max = SENT_FIELDS * events_max
        self._clock_ns = clock_ns
        self._chance = chance
        self._later = later
        self._columns = EventColumns()
        self._sent, self._codes = self._columns.sent, self._columns.queues
        """Shortcuts into the columns for requests that send."""
        self._number = queues.number
        self._receives = 0
        """Receives timed since the columns were last taken."""
        self._is_busy = False
        """Receives are sampled."""
        self._is_paused = False
        """No receive is timed."""
        self._left = 1
        """Receives until the next timed one."""
        self._timed: set[int] = set()
        """Messages with a known receive time."""
        self.observers: dict[type, Observer] = {
            Send: self._send,
            Receive: self._receive,
            Acknowledge: self._acknowledge,
            Deliver: self._deliver,
            SubmitJob: self._submit,
            LeaseTasks: self._lease,
            CompleteTask: self._report,
            FailTask: self._report,
        }
        """By command type, for `BrokerMachine.observe`."""

    def take(self) -> EventColumns:
        """Remove and return the events since the last call."""
        taken, self._columns = self._columns, EventColumns()
        self._sent, self._codes = self._columns.sent, self._columns.queues
        self._is_busy = self._is_busy and self._receives >= BUSY_FROM
        self._receives = 0
        if len(self._timed) > TIMED_MAX:
            self._timed.clear()
        return taken

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, command: Send, answer: Sent) -> None:
        entries, rows = answer.entries, self._sent
        count, sent = len(entries), entries[-1]
        if type(sent) is SentEntry and sent.number - self._number == count:
            last = sent.number
        else:  # some were refused or duplicates, or a job has sent messages
            last, count = self._queues.number, list(map(type, entries)).count(SentEntry)
        self._number = last
        if len(rows) < self._sent_max:
            rows += (self._clock_ns(), last, count, self._codes[command.queue])
        else:
            self.dropped += 1

    def _deliver(self, command: Deliver, answer: Any) -> None:
        fan_out, columns = command.fan_out, self._columns
        if not fan_out.queues:
            return
        now_ns, self._number = self._clock_ns(), self._queues.number
        if len(columns.sent) < self._sent_max:
            columns.sent += (now_ns, self._number, 0, MANY)
            columns.fan_outs.append((now_ns, fan_out.queues, fan_out.ends))
        else:
            self.dropped += 1

    def _receive(self, command: Receive, answer: Received) -> None:
        if self._is_paused or not answer.deliveries:
            return
        self._left -= 1
        if self._left:
            return
        self._time_received(answer.deliveries)
        self._receives += 1
        self._is_busy = self._is_busy or self._receives >= RECEIVES_TIMED
        if self._is_busy and self._receives % SAMPLED == 0:
            self._is_paused = True
            self._later(self._resume)
        self._draw_next()

    def _resume(self) -> None:
        """After a pause."""
        self._is_paused = False
        self._draw_next()

    def _draw_next(self) -> None:
        """Random, because the next one is mostly the first that was read from the sockets."""
        self._left = self._chance(SAMPLED_FROM) if self._is_busy else 1

    def _time_received(self, deliveries: list[Delivery]) -> None:
        columns = self._columns
        if len(columns.taken_ns) >= self._events_max:
            self.dropped += 1
            return
        numbers = [delivery.receipt.number for delivery in deliveries]
        self._timed.update(numbers)
        columns.taken_ns.append(self._clock_ns())
        columns.taken_count.append(len(numbers))
        columns.taken_numbers.extend(numbers)

    def _acknowledge(self, command: Acknowledge, answer: Acknowledged) -> None:
        timed = self._timed
        if not timed:
            return
        receipts, columns = command.receipts, self._columns
        # Messages received together are mostly acknowledged together: the first stands for all.
        if not receipts or receipts[0].number not in timed:
            return
        if len(columns.settled_ns) >= self._events_max:
            self.dropped += 1
            return
        numbers = [receipt.number for place, receipt in enumerate(receipts) if place not in answer.refused]
        timed.difference_update(numbers)
        columns.settled_ns.append(self._clock_ns())
        columns.settled_queue.append(columns.queues[command.queue])
        columns.settled_count.append(len(numbers))
        columns.settled_numbers.extend(numbers)

    # ── publications and jobs ─────────────────────────────────────────────────────────────────────────────────────────

    def arrived(self, publications: int) -> None:
        arrived = self._columns.arrived
        if len(arrived) < ARRIVED_FIELDS * self._events_max:
            arrived += (self._clock_ns(), publications)
        else:
            self.dropped += 1

    def matched(self, publications: int, subscriptions: int, matches: int, seconds: float | None = None) -> None:
        matched = self._columns.matched
        if len(matched) < MATCHED_FIELDS * self._events_max:
            taken_ns = ELSEWHERE if seconds is None else int(seconds * 1e9)
            matched += (self._clock_ns(), publications, subscriptions, matches, taken_ns)
        else:
            self.dropped += 1

    def _submit(self, command: SubmitJob, answer: Any) -> None:
        if answer.is_new:
            self._add(SubmitEvent(self._clock_ns(), answer.job, command.job_type))

    def _lease(self, command: LeaseTasks, answer: Any) -> None:
        if answer.tasks:
            tasks = [(task.job, task.task, task.attempt, task.job_type) for task in answer.tasks]
            self._add(LeaseEvent(self._clock_ns(), command.topic, tasks))

    def _report(self, command: CompleteTask | FailTask, answer: Any) -> None:
        if answer.is_new:
            is_ok, now_ns = type(command) is CompleteTask, self._clock_ns()
            self._add(ReportEvent(now_ns, command.job, command.task, command.attempt, is_ok, answer.job_state))

    def _add(self, event: Event) -> None:
        if len(self._columns.jobs) < self._events_max:
            self._columns.jobs.append(event)
        else:
            self.dropped += 1
