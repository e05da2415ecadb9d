"""What the event loop notes: by column for queues, whose requests are many, and one by one for all else.

Bodies are not kept, only numbers. From time to time the loop hands the columns over, and goes on with new ones.

Arrivals are all noted, because their variability counts. Messages are timed by the request that received them: all, up
to some requests a second, and beyond that some, drawn by chance, so that a server under full load spends no more on it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import randrange
from time import monotonic_ns
from typing import Any, TypeAlias

import msgspec

from lavant.broker.queues.commands import Acknowledge, Receive, Send, SentEntry
from lavant.broker.queues.hub import Queues
from lavant.broker.serving.commands import Answer, Command
from lavant.broker.subscriptions.commands import Deliver
from lavant.broker.workflows.commands import CompleteTask, FailTask, LeaseTasks, SubmitJob

EVENTS_MAX = 200_000
"""Requests of some seconds at full speed; more than that behind, and they are dropped and counted."""
RECEIVES_TIMED = 200
"""Of one hand-over; if there were more in the last one, some are left out."""
TIMED_MAX = 200_000
"""Messages that are timed and not acknowledged yet; then all are forgotten."""


class _Event(msgspec.Struct, frozen=True, gc=False):
    time_ns: int


class Arrived(_Event, frozen=True):
    """Publications came."""

    publications: int


class Matched(_Event, frozen=True):
    """Publications were matched together."""

    publications: int
    subscriptions: int
    matches: int
    seconds: float | None
    """None if it was done elsewhere."""


class Spread(_Event, frozen=True):
    """Notifications went into queues."""

    queues: bytes
    ends: bytes


class Submitted(_Event, frozen=True):
    job: int
    job_type: str


class Leased(_Event, frozen=True):
    """Workers got tasks: job, task, attempt and job type of each."""

    topic: str
    tasks: list[tuple[int, str, int, str]]


class Reported(_Event, frozen=True):
    """A worker is done with a task."""

    job: int
    task: str
    attempt: int
    is_ok: bool
    job_state: str


Event: TypeAlias = Arrived | Matched | Spread | Submitted | Leased | Reported


class Columns:
    """What was noted since the last time. Times are those of a steady clock, in nanoseconds."""

    __slots__ = (
        "entered_count",
        "entered_ns",
        "entered_queue",
        "others",
        "queues",
        "requests",
        "sent_last",
        "sent_ns",
        "settled",
        "settled_count",
        "settled_ns",
        "settled_numbers",
        "settled_queue",
        "taken",
        "taken_count",
        "taken_ns",
        "taken_numbers",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.taken = 0
        """Messages received, timed or not."""
        self.settled = 0
        """Messages acknowledged, timed or not."""
        self.queues: dict[str, int] = {}
        """Codes by name."""
        self.sent_ns = array("q")
        self.sent_last = array("q")
        """The number of the last message that there was after each request that sent some."""
        self.entered_ns = array("q")
        self.entered_queue = array("q")
        self.entered_count = array("q")
        self.taken_ns = array("q")
        self.taken_count = array("q")
        self.taken_numbers = array("q")
        self.settled_ns = array("q")
        self.settled_queue = array("q")
        self.settled_count = array("q")
        self.settled_numbers = array("q")
        self.others: list[Event] = []


def _draw(most: int) -> int:
    return randrange(1, most + 1)


class Events:
    """Of one thread, the loop's: it appends, and hands over what it has.

    `chance` draws a number from 1 up to one that it is given.
    """

    def __init__(
        self,
        queues: Queues,
        events_max: int = EVENTS_MAX,
        clock_ns: Callable[[], int] = monotonic_ns,
        chance: Callable[[int], int] = _draw,
    ) -> None:
        self.dropped = 0
        self._queues = queues
        self._events_max = events_max
        self._clock_ns = clock_ns
        self._chance = chance
        self._columns = Columns()
        self._receives = 0
        self._span = 1
        """A receive is timed for each so many, in the mean half of it."""
        self._skipped = 1
        """Until the next one that is timed."""
        self._timed: set[int] = set()
        """Messages of which it is known when they were received."""
        self._notes: dict[type, Callable[[Columns, Any, Any, int], None]] = {
            Send: self._send,
            Receive: self._receive,
            Acknowledge: self._acknowledge,
            Deliver: self._deliver,
            SubmitJob: _submit,
            LeaseTasks: _lease,
            CompleteTask: _report,
            FailTask: _report,
        }

    def observe(self, command: Command, answer: Answer) -> None:
        """A command was carried out: called for each of them."""
        note = self._notes.get(type(command))
        if note is None:
            return
        columns = self._columns
        if columns.requests < self._events_max:
            columns.requests += 1
            note(columns, command, answer, self._clock_ns())
        else:
            self.dropped += 1

    def arrived(self, publications: int) -> None:
        self._add(Arrived(self._clock_ns(), publications))

    def matched(self, publications: int, subscriptions: int, matches: int, seconds: float | None = None) -> None:
        self._add(Matched(self._clock_ns(), publications, subscriptions, matches, seconds))

    @property
    def has_some(self) -> bool:
        return self._columns.requests > 0

    def take(self) -> Columns:
        """All that came since the last time."""
        taken, self._columns = self._columns, Columns()
        self._span = 1 if self._receives <= RECEIVES_TIMED else 2 * self._receives // RECEIVES_TIMED
        self._receives = 0
        if len(self._timed) > TIMED_MAX:
            self._timed.clear()
        return taken

    def _add(self, event: Event) -> None:
        columns = self._columns
        if columns.requests < self._events_max:
            columns.requests += 1
            columns.others.append(event)
        else:
            self.dropped += 1

    def _send(self, columns: Columns, command: Send, answer: Any, now_ns: int) -> None:
        columns.sent_ns.append(now_ns)
        columns.sent_last.append(self._queues.number)
        count = list(map(type, answer.entries)).count(SentEntry)
        if count:
            columns.entered_ns.append(now_ns)
            columns.entered_queue.append(_code(columns, command.queue))
            columns.entered_count.append(count)

    def _receive(self, columns: Columns, command: Receive, answer: Any, now_ns: int) -> None:
        deliveries = answer.deliveries
        if not deliveries:
            return
        columns.taken += len(deliveries)
        self._receives += 1
        self._skipped -= 1
        if self._skipped > 0:
            return
        self._skipped = 1 if self._span == 1 else self._chance(self._span)
        numbers = [delivery.receipt.number for delivery in deliveries]
        self._timed.update(numbers)
        columns.taken_ns.append(now_ns)
        columns.taken_count.append(len(numbers))
        columns.taken_numbers.extend(numbers)

    def _acknowledge(self, columns: Columns, command: Acknowledge, answer: Any, now_ns: int) -> None:
        """What was received together is mostly acknowledged together: the first stands for all."""
        receipts = command.receipts
        columns.settled += len(receipts) - len(answer.refused)
        if not receipts or receipts[0].number not in self._timed:
            return
        numbers = [receipt.number for receipt in receipts]
        if answer.refused:
            numbers = [number for place, number in enumerate(numbers) if place not in answer.refused]
        self._timed.difference_update(numbers)
        columns.settled_ns.append(now_ns)
        columns.settled_queue.append(_code(columns, command.queue))
        columns.settled_count.append(len(numbers))
        columns.settled_numbers.extend(numbers)

    def _deliver(self, columns: Columns, command: Deliver, answer: Any, now_ns: int) -> None:
        spread = command.spread
        if spread.queues:
            columns.sent_ns.append(now_ns)
            columns.sent_last.append(self._queues.number)
            columns.others.append(Spread(now_ns, spread.queues, spread.ends))


def _submit(columns: Columns, command: SubmitJob, answer: Any, now_ns: int) -> None:
    if answer.is_new:
        columns.others.append(Submitted(now_ns, answer.job, command.job_type))


def _lease(columns: Columns, command: LeaseTasks, answer: Any, now_ns: int) -> None:
    if answer.tasks:
        tasks = [(task.job, task.task, task.attempt, task.job_type) for task in answer.tasks]
        columns.others.append(Leased(now_ns, command.topic, tasks))


def _report(columns: Columns, command: CompleteTask | FailTask, answer: Any, now_ns: int) -> None:
    if answer.is_new:
        is_ok = type(command) is CompleteTask
        columns.others.append(Reported(now_ns, command.job, command.task, command.attempt, is_ok, answer.job_state))


def _code(columns: Columns, queue: str) -> int:
    return columns.queues.setdefault(queue, len(columns.queues))
