"""A queue that serves tenants fairly: start-time fair queueing. Pure.

    add(tenant, item) ──► a line for each tenant ──► next() ──► an item of who used the least ──► charge(tenant, cost)

The paper is Goyal, Vin and Cheng, "Start-time Fair Queueing: A Scheduling Algorithm for Integrated Services Packet
Switching Networks" (SIGCOMM 1996). Each tenant has a virtual time, which its costs move on; the tenant with the least
is served next. One who comes after a pause begins at the virtual time of whoever is being served: it goes next, and
gets no credit for the time in which it wanted nothing. What differs from the paper: an item's cost is known only
when it is done, so it is charged afterwards.

So, of two tenants that both have items all the time, neither gets more than one item's cost ahead of the other; one
tenant alone is served as from a plain queue; and the items of one tenant stay in their order.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Generic, TypeVar

COST_MIN = 1e-6
"""What an item costs at least: whoever is served for nothing would be served for ever."""

T = TypeVar("T")


class _Line(Generic[T]):
    """The items of a tenant, and its virtual time."""

    __slots__ = ("is_held", "is_listed", "items", "time")

    def __init__(self, time: float) -> None:
        self.items: deque[T] = deque()
        self.time = time
        self.is_listed = False
        """Whether it is in the heap."""
        self.is_held = False


class FairQueue(Generic[T]):
    """
    >>> queue: FairQueue[str] = FairQueue()
    >>> for item in ("n1", "n2", "n3"):
    ...     queue.add("noisy", item)
    >>> queue.next()
    ('noisy', 'n1')
    >>> queue.add("quiet", "q1")
    >>> queue.charge("noisy", 5.0)
    >>> queue.next(), queue.charge("quiet", 1.0), queue.next(), queue.next()
    (('quiet', 'q1'), None, ('noisy', 'n2'), ('noisy', 'n3'))
    """

    def __init__(self) -> None:
        self._lines: dict[str, _Line[T]] = {}
        """Of tenants that have items, or are held, or have used more than others since anybody waited."""
        self._heap: list[tuple[float, int, str]] = []
        """By virtual times, which may be those of before a charge."""
        self._listings = 0
        self._time = 0.0
        """The virtual time of whoever was served last."""
        self._count = 0
        self._head: _Line[T]
        """That which `first` found."""

    def __len__(self) -> int:
        """How many items wait, also of tenants that are held."""
        return self._count

    def waiting(self, tenant: str) -> int:
        line = self._lines.get(tenant)
        return 0 if line is None else len(line.items)

    def is_held(self, tenant: str) -> bool:
        line = self._lines.get(tenant)
        return line is not None and line.is_held

    def add(self, tenant: str, item: T) -> None:
        """Behind all other items of the tenant."""
        line = self._line(tenant)
        if not line.items:
            line.time = max(line.time, self._time)
        line.items.append(item)
        self._count += 1
        self._list(tenant, line)

    def put_back(self, tenant: str, item: T) -> None:
        """Before all other items of the tenant: it was taken, and could not be done."""
        self.add(tenant, item)
        items = self._lines[tenant].items
        items.rotate(1)

    def next(self) -> tuple[str, T] | None:
        """Take the item that is to be done next, and charge it later; None if there is none of a tenant that is not
        held."""
        found = self.first()
        if found is not None:
            self.take(0.0)
        return found

    def first(self) -> tuple[str, T] | None:
        """The item that is to be done next."""
        heap = self._heap
        while heap:
            time, _, tenant = heap[0]
            line = self._lines[tenant]
            if line.time > time:  # it was charged since
                self._listings += 1
                heapq.heapreplace(heap, (line.time, self._listings, tenant))
            elif line.is_held or not line.items:
                heapq.heappop(heap)
                line.is_listed = False
                self._forget(tenant, line)
            else:
                self._head = line
                return tenant, line.items[0]
        return None

    def take(self, cost: float) -> None:
        """Take the item that `first` just returned, whose cost is known."""
        line = self._head
        line.items.popleft()
        self._time = line.time
        line.time += max(cost, COST_MIN)
        self._count -= 1

    def charge(self, tenant: str, cost: float) -> None:
        """What an item of the tenant has cost. Nothing is remembered where nobody waits."""
        if self._count:
            line = self._line(tenant)
            line.time = max(line.time, self._time) + max(cost, COST_MIN)
            self._list(tenant, line)

    def hold(self, tenant: str) -> None:
        """Serve nothing of this tenant until it is released."""
        self._line(tenant).is_held = True

    def release(self, tenant: str) -> None:
        line = self._lines.get(tenant)
        if line is not None and line.is_held:
            line.is_held = False
            line.time = max(line.time, self._time)
            self._list(tenant, line)
            self._forget(tenant, line)

    def _line(self, tenant: str) -> _Line[T]:
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = _Line(self._time)
        return line

    def _list(self, tenant: str, line: _Line[T]) -> None:
        if not line.is_listed and not line.is_held:
            line.is_listed = True
            self._listings += 1
            heapq.heappush(self._heap, (line.time, self._listings, tenant))

    def _forget(self, tenant: str, line: _Line[T]) -> None:
        """Whoever is not in the heap has used no more than those who are served next."""
        if not line.items and not line.is_held and not line.is_listed:
            del self._lines[tenant]
