"""Long polls: receives without messages that wait for one, served in the order of arrival.

add ──► waiting ──┬──► remove     a message came: it is served
                  ├──► expired    its time is up: an empty answer
                  ├──► take       its client wants no more: an empty answer
                  └──► forget     its client is gone: no answer
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable, MutableMapping
from typing import TypeVar

import msgspec

from lavant.broker.protocol.jobs import LeaseTasks, TasksLeased
from lavant.broker.protocol.queues import Receive, Received
from lavant.core.errors import LimitExceeded

WAITING_MAX = 20_000
STALE_MIN = 64
"""Deadlines of removed polls that are not worth a cleanup."""

_NO_MESSAGES = Received([])
_NO_TASKS = TasksLeased([])
_Name = TypeVar("_Name", bound=Hashable)
_Polls = TypeVar("_Polls", bound=MutableMapping[int, "LongPoll"])


class RequestContext(msgspec.Struct, frozen=True, gc=False):
    """Client and number of a request, for its reply."""

    client: Hashable
    number: int
    raw: bytes | None
    """The request in MessagePack, if it arrived like that."""


class LongPoll:
    """A receive, or a lease of tasks, that waits."""

    __slots__ = ("context", "deadline_ms", "is_over", "number", "request")

    def __init__(
        self, context: RequestContext, request: Receive | LeaseTasks, *, deadline_ms: int, number: int
    ) -> None:
        self.context = context
        self.request = request
        self.deadline_ms = deadline_ms
        self.number = number
        """In the order of arrival."""
        self.is_over = False


def nothing_for(request: Receive | LeaseTasks) -> Received | TasksLeased:
    """The empty answer."""
    return _NO_TASKS if isinstance(request, LeaseTasks) else _NO_MESSAGES


def nothing_instead(answer: Received | TasksLeased) -> Received | TasksLeased:
    """The empty answer to the same request."""
    return _NO_TASKS if isinstance(answer, TasksLeased) else _NO_MESSAGES


class LongPolls:
    """The long polls of a server.

    >>> polls = LongPolls()
    >>> polls.add(RequestContext("ann", 1, None), Receive("orders"), deadline_ms=300)
    >>> polls.add(RequestContext("bob", 1, None), Receive("orders"), deadline_ms=200)
    >>> polls.first("orders").context.client, polls.wakeup_ms()
    ('ann', 200)
    >>> [poll.context.client for poll in polls.expired(250)], len(polls)
    (['bob'], 1)
    """

    def __init__(self, size_max: int = WAITING_MAX) -> None:
        self._size_max = size_max
        self._size = 0
        self._number = 0
        # Ordered dictionaries: the first entry of a plain one is slow to find after many removals.
        self._by_queue: dict[str, OrderedDict[int, LongPoll]] = {}
        self._by_client: dict[Hashable, dict[int, LongPoll]] = {}
        self._deadlines: list[tuple[int, int, LongPoll]] = []

    def __len__(self) -> int:
        return self._size

    def add(self, context: RequestContext, request: Receive | LeaseTasks, *, deadline_ms: int) -> None:
        if self._size >= self._size_max:
            raise LimitExceeded(
                f"{self._size} receives wait for a message already, which is the limit; "
                "receive without waiting, or from fewer places at once"
            )
        self._number += 1
        poll = LongPoll(context, request, deadline_ms=deadline_ms, number=self._number)
        self._size += 1
        self._by_queue.setdefault(request.queue, OrderedDict())[poll.number] = poll
        self._by_client.setdefault(context.client, {})[poll.number] = poll
        heapq.heappush(self._deadlines, (deadline_ms, poll.number, poll))

    def first(self, queue: str) -> LongPoll | None:
        """The oldest poll of a queue."""
        polls = self._by_queue.get(queue)
        return None if polls is None else next(iter(polls.values()))

    def remove(self, poll: LongPoll) -> None:
        poll.is_over = True
        self._size -= 1
        _remove(self._by_queue, poll.request.queue, poll.number)
        _remove(self._by_client, poll.context.client, poll.number)
        if len(self._deadlines) > 2 * self._size + STALE_MIN:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_over]
            heapq.heapify(self._deadlines)

    def expired(self, now_ms: int) -> list[LongPoll]:
        """Remove and return the polls whose deadline has passed, by deadline."""
        expired = []
        while (deadline_ms := self.wakeup_ms()) is not None and deadline_ms <= now_ms:
            expired.append(self._deadlines[0][2])
            self.remove(self._deadlines[0][2])
        return expired

    def take_all(self) -> list[LongPoll]:
        """Remove and return all polls, by deadline."""
        latest_ms = max((deadline_ms for deadline_ms, _, _ in self._deadlines), default=0)
        return self.expired(latest_ms)

    def take(self, client: Hashable, queue: str) -> list[LongPoll]:
        """Remove and return the polls of a client at a queue, in the order of their arrival."""
        found = [poll for poll in self._by_client.get(client, {}).values() if poll.request.queue == queue]
        for poll in found:
            self.remove(poll)
        return found

    def forget(self, client: Hashable) -> None:
        """Remove all polls of a client."""
        for poll in list(self._by_client.get(client, {}).values()):
            self.remove(poll)

    def wakeup_ms(self) -> int | None:
        """The next deadline."""
        while self._deadlines and self._deadlines[0][2].is_over:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def queues(self) -> list[str]:
        """Queues with polls, in the order of their first poll."""
        return list(self._by_queue)

    def count(self, client: Hashable) -> int:
        """The number of polls of a client."""
        return len(self._by_client.get(client, ()))


def _remove(polls_by: dict[_Name, _Polls], name: _Name, number: int) -> None:
    polls = polls_by[name]
    del polls[number]
    if not polls:
        del polls_by[name]
