"""The waiting room: receives that found nothing and wait for a message, in the order in which they came.

    add ──► waiting ──┬──► remove     a message came: it is served
                      ├──► expired    its time is up: an empty answer
                      └──► forget     its client is gone: nothing

Ties are broken by the order of arrival.
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
"""So many deadlines of those who have left are not worth tidying up."""

_NO_MESSAGES = Received([])
_NO_TASKS = TasksLeased([])
_Name = TypeVar("_Name", bound=Hashable)
_Line = TypeVar("_Line", bound=MutableMapping[int, "LongPoll"])


class RequestContext(msgspec.Struct, frozen=True, gc=False):
    """Who asked, so that it can be answered."""

    client: Hashable
    number: int
    raw: bytes | None
    """The request in MessagePack, if it came as that."""


class LongPoll:
    """A receive that waits."""

    __slots__ = ("asked", "deadline_ms", "is_over", "place", "request")

    def __init__(self, asked: RequestContext, request: Receive | LeaseTasks, *, deadline_ms: int, place: int) -> None:
        self.asked = asked
        self.request = request
        self.deadline_ms = deadline_ms
        self.place = place
        """Counts up in the order of arrival."""
        self.is_over = False


def nothing_for(request: Receive | LeaseTasks) -> Received | TasksLeased:
    """The answer if nothing came."""
    return _NO_TASKS if isinstance(request, LeaseTasks) else _NO_MESSAGES


class LongPolls:
    """Who waits for a message of which queue, and until when.

    >>> room = LongPolls()
    >>> room.add(RequestContext("ann", 1, None), Receive("orders"), deadline_ms=300)
    >>> room.add(RequestContext("bob", 1, None), Receive("orders"), deadline_ms=200)
    >>> room.first("orders").asked.client, room.wakeup_ms()
    ('ann', 200)
    >>> [waiting.asked.client for waiting in room.expired(250)], len(room)
    (['bob'], 1)
    """

    def __init__(self, size_max: int = WAITING_MAX) -> None:
        self._size_max = size_max
        self._size = 0
        self._places = 0
        # An ordered dictionary, because the first of a plain one is slow to find when many before it were removed.
        self._by_queue: dict[str, OrderedDict[int, LongPoll]] = {}
        self._by_client: dict[Hashable, dict[int, LongPoll]] = {}
        self._deadlines: list[tuple[int, int, LongPoll]] = []

    def __len__(self) -> int:
        return self._size

    def add(self, asked: RequestContext, request: Receive | LeaseTasks, *, deadline_ms: int) -> None:
        if self._size >= self._size_max:
            raise LimitExceeded(
                f"{self._size} receives wait for a message already, which is the limit; "
                "receive without waiting, or from fewer places at once"
            )
        self._places += 1
        waiting = LongPoll(asked, request, deadline_ms=deadline_ms, place=self._places)
        self._size += 1
        self._by_queue.setdefault(request.queue, OrderedDict())[waiting.place] = waiting
        self._by_client.setdefault(asked.client, {})[waiting.place] = waiting
        heapq.heappush(self._deadlines, (deadline_ms, waiting.place, waiting))

    def first(self, queue: str) -> LongPoll | None:
        """Who has waited for longest."""
        line = self._by_queue.get(queue)
        return None if line is None else next(iter(line.values()))

    def remove(self, waiting: LongPoll) -> None:
        waiting.is_over = True
        self._size -= 1
        _leave(self._by_queue, waiting.request.queue, waiting.place)
        _leave(self._by_client, waiting.asked.client, waiting.place)
        if len(self._deadlines) > 2 * self._size + STALE_MIN:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_over]
            heapq.heapify(self._deadlines)

    def expired(self, now_ms: int) -> list[LongPoll]:
        """Those whose time is up, by deadline; they wait no more."""
        expired = []
        while (deadline_ms := self.wakeup_ms()) is not None and deadline_ms <= now_ms:
            expired.append(self._deadlines[0][2])
            self.remove(self._deadlines[0][2])
        return expired

    def everybody(self) -> list[LongPoll]:
        """All, by deadline; they wait no more."""
        latest_ms = max((deadline_ms for deadline_ms, _, _ in self._deadlines), default=0)
        return self.expired(latest_ms)

    def forget(self, client: Hashable) -> None:
        """All of a client."""
        for waiting in list(self._by_client.get(client, {}).values()):
            self.remove(waiting)

    def wakeup_ms(self) -> int | None:
        """When the next one's time is up."""
        while self._deadlines and self._deadlines[0][2].is_over:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def queues(self) -> list[str]:
        """Those that somebody waits for, in the order in which the waiting began."""
        return list(self._by_queue)

    def count(self, client: Hashable) -> int:
        """How many receives of a client wait."""
        return len(self._by_client.get(client, ()))


def _leave(lines: dict[_Name, _Line], name: _Name, place: int) -> None:
    line = lines[name]
    del line[place]
    if not line:
        del lines[name]
