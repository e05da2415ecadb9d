"""A queue that serves tenants fairly: start-time fair queueing. Pure.

    add(tenant, item) ──► a backlog per tenant ──► next() ──► item of the least served tenant ──► charge(tenant, cost)

The paper is Goyal, Vin and Cheng, "Start-time Fair Queueing: A Scheduling Algorithm for Integrated Services Packet
Switching Networks" (SIGCOMM 1996). Each tenant has a virtual time, which its costs advance; the tenant with the lowest
is served next. A tenant that returns after a pause starts at the virtual time of the tenant in service: it is next, and
gets no credit for the time without items. Unlike in the paper, the cost of an item is charged afterwards, because it is
known only then.

Of two tenants that always have items, neither gets more than one item's cost ahead of the other; a single tenant is
served as from a plain queue; and the items of one tenant stay in order.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Generic, TypeVar

COST_MIN = 1e-6
"""The least cost of an item: a tenant served for free would be served forever."""

T = TypeVar("T")


class _Backlog(Generic[T]):
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
        self._backlogs: dict[str, _Backlog[T]] = {}
        """Of tenants that have items, are held, or used more than others while items waited."""
        self._heap: list[tuple[float, int, str]] = []
        """By virtual time, which may be outdated by a charge."""
        self._listings = 0
        self._time = 0.0
        """The virtual time of the tenant served last."""
        self._count = 0
        self._head: _Backlog[T]
        """Of the tenant that `first` returned."""

    def __len__(self) -> int:
        """The number of waiting items, including those of held tenants."""
        return self._count

    def waiting(self, tenant: str) -> int:
        backlog = self._backlogs.get(tenant)
        return 0 if backlog is None else len(backlog.items)

    def is_held(self, tenant: str) -> bool:
        backlog = self._backlogs.get(tenant)
        return backlog is not None and backlog.is_held

    def add(self, tenant: str, item: T) -> None:
        """Appends an item behind all others of the tenant."""
        backlog = self._backlog(tenant)
        if not backlog.items:
            backlog.time = max(backlog.time, self._time)
        backlog.items.append(item)
        self._count += 1
        self._list(tenant, backlog)

    def put_back(self, tenant: str, item: T) -> None:
        """Puts an item back before all others of the tenant: it was taken and could not be done."""
        self.add(tenant, item)
        items = self._backlogs[tenant].items
        items.rotate(1)

    def next(self) -> tuple[str, T] | None:
        """Takes the next item, to be charged later; None if no tenant that is not held has one."""
        found = self.first()
        if found is not None:
            self.take(0.0)
        return found

    def first(self) -> tuple[str, T] | None:
        """Returns the next item without taking it."""
        heap = self._heap
        while heap:
            time, _, tenant = heap[0]
            backlog = self._backlogs[tenant]
            if backlog.time > time:  # it was charged since
                self._listings += 1
                heapq.heapreplace(heap, (backlog.time, self._listings, tenant))
            elif backlog.is_held or not backlog.items:
                heapq.heappop(heap)
                backlog.is_listed = False
                self._forget(tenant, backlog)
            else:
                self._head = backlog
                return tenant, backlog.items[0]
        return None

    def take(self, cost: float) -> None:
        """Takes the item that `first` just returned, at a known cost."""
        backlog = self._head
        backlog.items.popleft()
        self._time = backlog.time
        backlog.time += max(cost, COST_MIN)
        self._count -= 1

    def charge(self, tenant: str, cost: float) -> None:
        """Charges the cost of an item. Without waiting items, nothing is recorded."""
        if self._count:
            backlog = self._backlog(tenant)
            backlog.time = max(backlog.time, self._time) + max(cost, COST_MIN)
            self._list(tenant, backlog)

    def hold(self, tenant: str) -> None:
        """Serves nothing of this tenant until it is released."""
        self._backlog(tenant).is_held = True

    def release(self, tenant: str) -> None:
        backlog = self._backlogs.get(tenant)
        if backlog is not None and backlog.is_held:
            backlog.is_held = False
            backlog.time = max(backlog.time, self._time)
            self._list(tenant, backlog)
            self._forget(tenant, backlog)

    def _backlog(self, tenant: str) -> _Backlog[T]:
        backlog = self._backlogs.get(tenant)
        if backlog is None:
            backlog = self._backlogs[tenant] = _Backlog(self._time)
        return backlog

    def _list(self, tenant: str, backlog: _Backlog[T]) -> None:
        if not backlog.is_listed and not backlog.is_held:
            backlog.is_listed = True
            self._listings += 1
            heapq.heappush(self._heap, (backlog.time, self._listings, tenant))

    def _forget(self, tenant: str, backlog: _Backlog[T]) -> None:
        """Removes a tenant without items: it has used no more than those served next."""
        if not backlog.items and not backlog.is_held and not backlog.is_listed:
            del self._backlogs[tenant]
