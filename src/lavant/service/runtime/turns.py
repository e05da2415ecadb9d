"""Fair turns of the event loop: the requests of each namespace get the same time, whatever waits of others.

    native connections ──enter──┐                        ┌──► take(): requests for about a quantum
                                ├──► one fair queue ─────┤
    HTTP and SQS ───────wait────┘     of namespaces      └──► wake up, and go on

In each round of the loop requests are worked on for about a slice; the rest waits, and so do the connections that they
came from: they are not read meanwhile. So a backlog of one namespace costs another about a slice, not the backlog.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from lavant.core.fair_queue import FairQueue


class StagedShares:
    """Of at most `bytes_max`, no namespace may have staged more than half since the disk was last behind by so much.

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
        """A record; whose it is, is said by the next `attribute`."""
        self._unattributed += size_bytes

    def attribute(self, namespace: str) -> None:
        if self._unattributed:
            self._shares[namespace] += self._unattributed
            self._unattributed = 0

    def to_hold(self, staged_bytes: int) -> list[str]:
        """Those that staged too much, if so much waits for the disk."""
        if staged_bytes <= self._bytes_max:
            return []
        found = [name for name, size in self._shares.items() if size > self._bytes_max // 2 and name not in self._held]
        self._held += found
        return found

    def to_release(self, staged_bytes: int) -> list[str]:
        """All that are held, when the disk has caught up with half of it; what was staged until then is forgotten."""
        if staged_bytes > self._bytes_max // 2:
            return []
        self._shares.clear()
        released, self._held = self._held, []
        return released


SLICE_S = 0.002
"""How long requests are worked on before the loop looks at its sockets again."""
QUANTUM_S = 0.0005
"""How long at once for one connection."""
CALL_S = 0.0002
"""What a request over HTTP costs in about, beside what the broker does for it: reading it, and writing the answer."""


class Work(Protocol):
    """Whoever has its turn."""

    cost_s: float
    """What a turn costs at least."""

    def take(self, until_s: float) -> bool:
        """Work until about then; true if there is more to do."""
        ...


class _Waiter:
    """A coroutine that waits for its turn."""

    __slots__ = ("cost_s", "future")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self.cost_s = CALL_S

    def take(self, until_s: float) -> bool:
        if self.future.done():  # it was cancelled
            self.cost_s = 0.0
        else:
            self.future.set_result(None)
        return False


class Turns:
    """Of one event loop."""

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
        """Of this round's slice."""
        self._is_working = False
        self._is_renewal_due = False

    @property
    def waiting(self) -> int:
        """Connections and calls that wait for their turn."""
        return len(self._queue)

    def enter(self, namespace: str, work: Work) -> None:
        """It has something to do; it has its turn now, or later."""
        self._queue.add(namespace, work)
        self._go_on()

    async def wait(self, namespace: str) -> None:
        """Return when it is this namespace's turn."""
        if not self._queue and self._left_s > 0 and not self._queue.is_held(namespace):
            self._spend(CALL_S)
            return
        waiter = _Waiter(self._loop.create_future())
        self.enter(namespace, waiter)
        await waiter.future

    def charge(self, namespace: str, seconds: float) -> None:
        """What was done for a namespace outside of its turn."""
        self._queue.charge(namespace, seconds)
        self._spend(seconds)

    def hold(self, namespace: str) -> None:
        """It has no turns until it is released."""
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
        queue, clock = self._queue, self.clock
        while self._left_s > 0 and (turn := queue.next()) is not None:
            namespace, work = turn
            started_s = clock()
            has_more = work.take(started_s + QUANTUM_S)
            cost_s = max(clock() - started_s, work.cost_s)
            if has_more:
                queue.add(namespace, work)
            queue.charge(namespace, cost_s)
            self._spend(cost_s)

    def _spend(self, seconds: float) -> None:
        self._left_s -= seconds
        if not self._is_renewal_due:
            self._is_renewal_due = True
            self._loop.call_soon(self._renew)

    def _renew(self) -> None:
        """The next round of the loop."""
        self._is_renewal_due = False
        self._left_s = self._slice_s
        if self._queue:
            self._go_on()
