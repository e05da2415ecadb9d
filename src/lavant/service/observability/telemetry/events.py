"""What the event loop notes: by column what is frequent, and one by one what happens to jobs.

Bodies are not kept, only numbers. From time to time the loop hands the columns over, and goes on with new ones.

Arrivals are all noted, because their variability counts. Messages are timed by the request that received them: all, up
to some requests a second. Beyond that one is drawn by chance from time to time. In between, and for acknowledgements of
messages that are not timed, the observers return at once: under full load they cost next to nothing.
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
"""Requests of some seconds at full speed; more than that behind, and they are dropped and counted."""
RECEIVES_TIMED = 200
"""All of them, if there are no more until columns are handed over."""
BUSY_FROM = 50
"""So many were timed since the last hand-over although most were left out: then it goes on like that."""
DRAWN = 4
"""Receives that are timed between two pauses,"""
DRAWN_FROM = 8
"""each one out of so many."""
SENT_FIELDS, ARRIVED_FIELDS, MATCHED_FIELDS = 4, 2, 5
MANY = -1
ELSEWHERE = -1
TIMED_MAX = 200_000
"""Messages that are timed and not acknowledged yet; then all are forgotten."""


class _Event(msgspec.Struct, frozen=True, gc=False):
    time_ns: int


class SubmitEvent(_Event, frozen=True):
    job: int
    job_type: str


class LeaseEvent(_Event, frozen=True):
    """Workers got tasks: job, task, attempt and job type of each."""

    topic: str
    tasks: list[tuple[int, str, int, str]]


class ReportEvent(_Event, frozen=True):
    """A worker is done with a task."""

    job: int
    task: str
    attempt: int
    is_ok: bool
    job_state: str


Event: TypeAlias = SubmitEvent | LeaseEvent | ReportEvent


class _Codes(dict[str, int]):
    """By name; one that is new gets the next.

    >>> codes = _Codes()
    >>> codes["orders"], codes["stock"], codes["orders"]
    (0, 1, 0)
    """

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code


class EventColumns:
    """What was noted since the last time. Times are those of a steady clock, in nanoseconds.

    What is most frequent is in lists of integers, row after row: so it costs least, and gives the collector of garbage
    nothing to look at.
    """

    __slots__ = (
        "arrived",
        "jobs",
        "matched",
        "queues",
        "sent",
        "settled_count",
        "settled_ns",
        "settled_numbers",
        "settled_queue",
        "spread",
        "taken_count",
        "taken_ns",
        "taken_numbers",
    )

    def __init__(self) -> None:
        self.queues = _Codes()
        self.arrived: list[int] = []
        """`ARRIVED_FIELDS` for each request that published some: the time, and how many."""
        self.matched: list[int] = []
        """`MATCHED_FIELDS` for publications that were matched together: the time, how many, against how many
        subscriptions, how many matches, and for how long, or `ELSEWHERE`."""
        self.sent: list[int] = []
        """`SENT_FIELDS` for each request that sent some: the time, the last message's number then, how many, and the
        queue; none, and `MANY`, if into many."""
        self.spread: list[tuple[int, bytes, bytes]] = []
        """Of notifications that went into queues: the time, and the queues and ends of the `Spread`."""
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
    """Of one thread, the loop's: it appends, and hands over what it has.

    `chance` draws a number from 1 up to one that it is given; `later` calls what it is given after a pause.
    """

    # It is used for every request that sends: in slots, what it looks at is together in memory.
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
        """Of the columns: what each request that sends needs."""
        self._number = queues.number
        self._receives = 0
        """Timed since the last hand-over."""
        self._is_busy = False
        """Not all receives are timed."""
        self._is_paused = False
        """No receive is timed."""
        self._left = 1
        """Receives up to the next one that is."""
        self._timed: set[int] = set()
        """Messages of which it is known when they were received."""
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
        """All that came since the last time."""
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
        else:  # some were refused, or sent before, or a job has sent something
            last, count = self._queues.number, list(map(type, entries)).count(SentEntry)
        self._number = last
        if len(rows) < self._sent_max:
            rows += (self._clock_ns(), last, count, self._codes[command.queue])
        else:
            self.dropped += 1

    def _deliver(self, command: Deliver, answer: Any) -> None:
        spread, columns = command.spread, self._columns
        if not spread.queues:
            return
        now_ns, self._number = self._clock_ns(), self._queues.number
        if len(columns.sent) < self._sent_max:
            columns.sent += (now_ns, self._number, 0, MANY)
            columns.spread.append((now_ns, spread.queues, spread.ends))
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
        if self._is_busy and self._receives % DRAWN == 0:
            self._is_paused = True
            self._later(self._resume)
        self._draw_next()

    def _resume(self) -> None:
        """After a pause."""
        self._is_paused = False
        self._draw_next()

    def _draw_next(self) -> None:
        """Not always the very next one: it is mostly the first that was read from the sockets."""
        self._left = self._chance(DRAWN_FROM) if self._is_busy else 1

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
        # What was received together is mostly acknowledged together: the first stands for all.
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
