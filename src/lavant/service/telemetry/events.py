"""What the event loop notes: one small value for each request, and nothing for each message.

Bodies are not kept: an event holds numbers, and lists of numbers that are there anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from lavant.broker.queues.commands import Acknowledge, Receipt, Receive, Refused, Send, SentEntry
from lavant.broker.queues.hub import Queues
from lavant.broker.serving.commands import Answer, Command
from lavant.broker.subscriptions.commands import Deliver
from lavant.broker.workflows.commands import CompleteTask, FailTask, LeaseTasks, SubmitJob

EVENTS_MAX = 200_000
"""Requests of some seconds at full speed; more than that behind, and events are dropped and counted."""


class Arrived(NamedTuple):
    """Publications came."""

    time_us: int
    publications: int


class Matched(NamedTuple):
    """Publications were matched together."""

    time_us: int
    publications: int
    subscriptions: int
    matches: int
    duration_us: int | None
    """None if it was done elsewhere."""


class Entered(NamedTuple):
    """Messages were sent to a queue."""

    time_us: int
    queue: str
    entries: list[SentEntry | Refused]
    last: int
    """The number of the last message that there is now."""


class Spread(NamedTuple):
    """Notifications went into queues."""

    time_us: int
    queues: bytes
    ends: bytes
    last: int


class Taken(NamedTuple):
    """Messages were received."""

    time_us: int
    queue: str
    numbers: list[int]


class Settled(NamedTuple):
    """Messages were acknowledged."""

    time_us: int
    queue: str
    receipts: list[Receipt]
    refused: dict[int, Refused]


class Submitted(NamedTuple):
    time_us: int
    job: int
    job_type: str


class Leased(NamedTuple):
    """Workers got tasks: job, task, attempt and job type of each."""

    time_us: int
    topic: str
    tasks: list[tuple[int, str, int, str]]


class Reported(NamedTuple):
    """A worker is done with a task; `ended` if the job is, too."""

    time_us: int
    job: int
    task: str
    attempt: int
    is_ok: bool
    ended: str


Event: TypeAlias = Arrived | Matched | Entered | Spread | Taken | Settled | Submitted | Leased | Reported


class Events:
    """The loop appends, a thread takes. `now_us` is the time, in microseconds since 1970."""

    def __init__(self, queues: Queues, now_us: Callable[[], int], events_max: int = EVENTS_MAX) -> None:
        self.dropped = 0
        self._queues = queues
        self._now_us = now_us
        self._events_max = events_max
        self._events: deque[Event] = deque()
        self._notes: dict[type, Callable[[Any, Any], Event | None]] = {
            Send: self._entered,
            Receive: self._taken,
            Acknowledge: self._settled,
            Deliver: self._spread,
            SubmitJob: self._submitted,
            LeaseTasks: self._leased,
            CompleteTask: self._reported,
            FailTask: self._reported,
        }

    def observe(self, command: Command, answer: Answer) -> None:
        """A command was carried out: called for each of them."""
        note = self._notes.get(type(command))
        if note is not None:
            event = note(command, answer)
            if event is not None:
                self._add(event)

    def arrived(self, publications: int) -> None:
        self._add(Arrived(self._now_us(), publications))

    def matched(self, publications: int, subscriptions: int, matches: int, seconds: float | None = None) -> None:
        duration_us = None if seconds is None else int(seconds * 1e6)
        self._add(Matched(self._now_us(), publications, subscriptions, matches, duration_us))

    def take(self) -> list[Event]:
        """All that came since the last time."""
        events = self._events
        return [events.popleft() for _ in range(len(events))]

    def _add(self, event: Event) -> None:
        if len(self._events) < self._events_max:
            self._events.append(event)
        else:
            self.dropped += 1

    def _entered(self, command: Any, answer: Any) -> Event:
        return Entered(self._now_us(), command.queue, answer.entries, self._queues.number)

    def _taken(self, command: Any, answer: Any) -> Event | None:
        deliveries = answer.deliveries
        if not deliveries:
            return None
        return Taken(self._now_us(), command.queue, [delivery.receipt.number for delivery in deliveries])

    def _settled(self, command: Any, answer: Any) -> Event:
        return Settled(self._now_us(), command.queue, command.receipts, answer.refused)

    def _spread(self, command: Any, answer: Any) -> Event | None:
        spread = command.spread
        return Spread(self._now_us(), spread.queues, spread.ends, self._queues.number) if spread.queues else None

    def _submitted(self, command: Any, answer: Any) -> Event | None:
        return Submitted(self._now_us(), answer.job, command.job_type) if answer.is_new else None

    def _leased(self, command: Any, answer: Any) -> Event | None:
        tasks = [(task.job, task.task, task.attempt, task.job_type) for task in answer.tasks]
        return Leased(self._now_us(), command.topic, tasks) if tasks else None

    def _reported(self, command: Any, answer: Any) -> Event | None:
        if not answer.is_new:
            return None
        is_ok, ended = type(command) is CompleteTask, answer.job_state
        return Reported(self._now_us(), command.job, command.task, command.attempt, is_ok, ended)
