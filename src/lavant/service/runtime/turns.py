"""Fair scheduling of the event loop: each namespace gets the same time, whatever the backlog of others.

    native connections ──enter──┐                        ┌──► take(): requests for about a quantum
                                ├──► one fair queue ─────┤
    HTTP and SQS ───────wait────┘     of namespaces      └──► wake the coroutine

In each round of the loop, requests are processed for about a slice; the rest waits, and their connections are not read
meanwhile. So the backlog of one namespace delays another by about a slice, not by the backlog.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from lavant.core.fair_queue import FairQueue


class StagedShares:
    """Bytes staged by each namespace: when more than `bytes_max` wait for the disk, those with over half are held.

    >>> shares = StagedShares(bytes_max=100)
    >>> for namespace, size_bytes in (("noisy", 90), ("quiet", 20)):
    ...     shares.stage(size_bytes)
    ...     shares.attribute(namespace)
    >>> shares.to_hold(staged_bytes=110), shares.to_hold(staged_bytes=110)
    (['noisy'], [])
    >>> shares.to_release(staged_bytes=60), shares.to_release(staged_bytes=50), shares.to_release(staged_bytes=0)
    ([], ['noisy'], [])
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._unattributed = 0
        self._shares: dict[str, int] = defaultdict(int)
        self._held: list[str] = []

    def stage(self, size_bytes: int) -> None:
        """Count a record; the next `attribute` names its namespace."""
        self._unattributed += size_bytes

    def attribute(self, namespace: str) -> None:
        if self._unattributed:
            self._shares[namespace] += self._unattributed
            self._unattributed = 0

    def to_hold(self, staged_bytes: int) -> list[str]:
        """Namespaces to hold now, if too much waits for the disk."""
        if staged_bytes <= self._bytes_max:
            return []
        found = [name for name, size in self._shares.items() if size > self._bytes_max // 2 and name not in self._held]
        self._held += found
        return found

    def to_release(self, staged_bytes: int) -> list[str]:
        """All held namespaces once at most half of `bytes_max` waits; the counts start again."""
        if staged_bytes > self._bytes_max // 2:
            return []
        self._shares.clear()
        released, self._held = self._held, []
        return released


SLICE_S = 0.002
"""Time for requests before the loop polls its sockets again."""
QUANTUM_S = 0.0005
"""Time for one connection at once."""
CALL_S = 0.0002
"""Approximate cost of an HTTP request besides the broker's work: parsing it and writing the answer."""


class Work(Protocol):
    """Work that takes turns."""

    cost_s: float
    """The least cost of a turn."""

    def take(self, until_s: float) -> bool:
        """Work until about `until_s`; returns whether there is more to do."""
        ...


class _Waiter:
    """A coroutine that waits for its turn."""

    __slots__ = ("cost_s", "future")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self.cost_s = CALL_S

    def take(self, until_s: float) -> bool:
        if self.future.done():  # cancelled
            self.cost_s = 0.0
        else:
            self.future.set_result(None)
        return False


class Turns:
    """The scheduler of one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Callable[[], float] = time.perf_counter,
        slice_s: float = SLICE_S,
    ) -> None:
        self.clock = clock
        self._loop = loop
        self._queue: FairQueue[Work] = FairQueue()
        self._slice_s = slice_s
        self._left_s = slice_s
        """The rest of this round's slice."""
        self._is_working = False
        self._is_renewal_due = False

    @property
    def waiting(self) -> int:
        """Connections and calls that wait for a turn."""
        return len(self._queue)

    def enter(self, namespace: str, work: Work) -> None:
        """Schedule work: it gets its turn now or later."""
        if self._queue or self._is_working or self._left_s <= 0 or self._queue.is_held(namespace):
            self._queue.add(namespace, work)
            self._go_on()
            return
        self._is_working = True  # nobody else waits: the usual case
        try:
            self._turn(namespace, work)
        finally:
            self._is_working = False
        if self._queue:
            self._go_on()

    async def wait(self, namespace: str) -> None:
        """Return in a turn of this namespace."""
        if not self._queue and self._left_s > 0 and not self._queue.is_held(namespace):
            self._spend(CALL_S)
            return
        waiter = _Waiter(self._loop.create_future())
        self.enter(namespace, waiter)
        await waiter.future

    def charge(self, namespace: str, seconds: float) -> None:
        """Charge a namespace for work outside its turns."""
        self._queue.charge(namespace, seconds)
        self._spend(seconds)

    def hold(self, namespace: str) -> None:
        """Give it no turns until it is released."""
        self._queue.hold(namespace)

    def release(self, namespace: str) -> None:
        self._queue.release(namespace)
        self._go_on()

    def _go_on(self) -> None:
        if self._is_working:
            return
        self._is_working = True
        try:
            self._work()
        finally:
            self._is_working = False

    def _work(self) -> None:
        while self._left_s > 0 and (turn := self._queue.next()) is not None:
            self._turn(*turn)

    def _turn(self, namespace: str, work: Work) -> None:
        started_s = self.clock()
        has_more = work.take(started_s + QUANTUM_S)
        cost_s = max(self.clock() - started_s, work.cost_s)
        if has_more:
            self._queue.add(namespace, work)
        self._queue.charge(namespace, cost_s)
        self._spend(cost_s)

    def _spend(self, seconds: float) -> None:
        self._left_s -= seconds
        if not self._is_renewal_due:
            self._is_renewal_due = True
            self._loop.call_soon(self._renew)

    def _renew(self) -> None:
        """Begin the next round."""
        self._is_renewal_due = False
        self._left_s = self._slice_s
        if self._queue:
            self._go_on()
