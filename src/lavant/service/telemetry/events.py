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

from lavant.broker.queues.commands import Acknowledge, Delivery, Receive, Send, SentEntry
from lavant.broker.queues.hub import Queues
from lavant.broker.serving.commands import Answer, Command
from lavant.broker.subscriptions.commands import Deliver
from lavant.broker.workflows.commands import CompleteTask, FailTask, LeaseTasks, SubmitJob

EVENTS_MAX = 200_000
"""Requests of some seconds at full speed; more than that behind, and they are dropped and counted."""
RECEIVES_TIMED = 200
"""Of one hand-over; if there were more in the last one, some are left out."""
SENT_FIELDS = 4
MANY = -1
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


Event: TypeAlias = Arrived | Matched | Submitted | Leased | Reported


class _Codes(dict[str, int]):
    """By name; one that is new gets the next.

    >>> codes = _Codes()
    >>> codes["orders"], codes["stock"], codes["orders"]
    (0, 1, 0)
    """

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code


class Columns:
    """What was noted since the last time. Times are those of a steady clock, in nanoseconds."""

    __slots__ = (
        "others",
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
        self.sent: list[int] = []
        """`SENT_FIELDS` for each request that sent some: the time, the last message's number then, how many, and the
        queue; none, and `MANY`, if into many. In one row, because so it costs least, and gives the collector of garbage
        nothing to look at."""
        self.spread: list[tuple[int, bytes, bytes]] = []
        """Of notifications that went into queues: the time, and the queues and ends of the `Spread`."""
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

    # It is used for every request: in slots, what it looks at is together in memory.
    __slots__ = (
        "_chance",
        "_clock_ns",
        "_columns",
        "_events_max",
        "_left",
        "_notes",
        "_number",
        "_queues",
        "_receives",
        "_sent_max",
        "_span",
        "_timed",
        "dropped",
    )

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
        self._sent_max = SENT_FIELDS * events_max
        self._clock_ns = clock_ns
        self._chance = chance
        self._columns = Columns()
        self._number = queues.number
        self._receives = 0
        """Up to the next one that is timed."""
        self._left = 1
        """Until then."""
        self._span = 1
        """Of so many receives, two are timed in the mean; or all, if it is 1."""
        self._timed: set[int] = set()
        """Messages of which it is known when they were received."""
        self._notes: dict[type, Callable[[Columns, Any, Any, int], None]] = {
            Deliver: self._deliver,
            SubmitJob: _submit,
            LeaseTasks: _lease,
            CompleteTask: _report,
            FailTask: _report,
        }

    def observe(self, command: Command, answer: Answer) -> None:
        """A command was carried out: called for each of them, so what is frequent comes first, and at once."""
        kind = type(command)
        if kind is Receive:
            if answer.deliveries:  # type: ignore[union-attr]
                self._left -= 1
                if self._left <= 0:
                    self._time_received(answer.deliveries)  # type: ignore[union-attr]
        elif kind is Acknowledge:
            receipts = command.receipts  # type: ignore[union-attr]
            # What was received together is mostly acknowledged together: the first stands for all.
            if receipts and receipts[0].number in self._timed:
                self._time_settled(command, answer)
        elif kind is Send:
            entries, columns = answer.entries, self._columns  # type: ignore[union-attr]
            count, sent = len(entries), entries[-1]
            if type(sent) is SentEntry and sent.number - self._number == count:
                last = sent.number
            else:  # some were refused, or sent before, or a job has sent something
                last, count = self._queues.number, list(map(type, entries)).count(SentEntry)
            self._number = last
            if len(columns.sent) < self._sent_max:
                queue = columns.queues[command.queue]  # type: ignore[union-attr]
                columns.sent += (self._clock_ns(), last, count, queue)
            else:
                self.dropped += 1
        else:
            note = self._notes.get(kind)
            if note is not None and self._has_room():
                note(self._columns, command, answer, self._clock_ns())

    def arrived(self, publications: int) -> None:
        if self._has_room():
            self._columns.others.append(Arrived(self._clock_ns(), publications))

    def matched(self, publications: int, subscriptions: int, matches: int, seconds: float | None = None) -> None:
        if self._has_room():
            event = Matched(self._clock_ns(), publications, subscriptions, matches, seconds)
            self._columns.others.append(event)

    def take(self) -> Columns:
        """All that came since the last time."""
        taken, self._columns = self._columns, Columns()
        receives = self._receives - self._left
        self._span = 1 if receives <= RECEIVES_TIMED else 2 * receives // RECEIVES_TIMED
        self._receives = self._left
        if len(self._timed) > TIMED_MAX:
            self._timed.clear()
        return taken

    def _has_room(self) -> bool:
        if len(self._columns.others) < self._events_max:
            return True
        self.dropped += 1
        return False

    def _time_received(self, deliveries: list[Delivery]) -> None:
        columns = self._columns
        if len(columns.taken_ns) >= self._events_max:
            self.dropped += 1
            return
        self._left = 1 if self._span == 1 else self._chance(self._span)
        self._receives += self._left
        numbers = [delivery.receipt.number for delivery in deliveries]
        self._timed.update(numbers)
        columns.taken_ns.append(self._clock_ns())
        columns.taken_count.append(len(numbers))
        columns.taken_numbers.extend(numbers)

    def _time_settled(self, command: Any, answer: Any) -> None:
        columns = self._columns
        if len(columns.settled_ns) >= self._events_max:
            self.dropped += 1
            return
        numbers = [receipt.number for receipt in command.receipts]
        if answer.refused:
            numbers = [number for place, number in enumerate(numbers) if place not in answer.refused]
        self._timed.difference_update(numbers)
        columns.settled_ns.append(self._clock_ns())
        columns.settled_queue.append(columns.queues[command.queue])
        columns.settled_count.append(len(numbers))
        columns.settled_numbers.extend(numbers)

    def _deliver(self, columns: Columns, command: Deliver, answer: Any, now_ns: int) -> None:
        spread = command.spread
        if spread.queues and len(columns.sent) < self._sent_max:
            self._number = self._queues.number
            columns.sent += (now_ns, self._number, 0, MANY)
            columns.spread.append((now_ns, spread.queues, spread.ends))


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
