"""Prefetches messages of a queue, extends their leases, and settles them in batches.

    server ──Receive──► ready ──take──► being handled ──settle──► settled ──Acknowledge, ChangeVisibility──► server
                          └───────── held: leases extended until they are settled ─────────┘

It runs in one event loop. All consumers of a client share a connection: what comes for many of them at once is read and
written at once. `take` and `settle` may be called from other threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from copy import copy
from itertools import islice
from typing import TypeVar

from lavant.broker.protocol.queue_config import BATCH_ENTRIES_MAX, SECOND_MS, WAIT_MS_MAX
from lavant.broker.protocol.queues import ChangeVisibility, Delivery, VisibilityChange
from lavant.client import queue_calls as calls
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.calls import Call
from lavant.core.errors import LavantError, PartlyRefused, TooManyInFlight, UnknownQueue

PREFETCH = 256
"""Messages that are leased ahead; 1 MiB each at most."""
PREFETCH_MAX = BATCH_ENTRIES_MAX
HELD_S_MAX = 12 * 3600.0
"""A lease is not extended for longer: its handler is considered stuck."""
CLOSE_S_MAX = 5.0
END_S = 0.1
"""How long the answer to the last receive is awaited before it is ended once more."""
GATHER_S, GATHERED_MIN = 0.01, 100
"""How long settled messages are gathered into a batch, and how many are sent at once."""
BUSY_S = 0.5
"""The pause before the next receive if the queue has as many messages in flight as it may."""

T = TypeVar("T")
_logger = logging.getLogger(__name__)


class HeldMessage:
    """A message that is leased to this consumer."""

    __slots__ = ("delivery", "is_lost", "is_settled", "leased_s", "since_s")

    def __init__(self, delivery: Delivery, now_s: float) -> None:
        self.delivery = delivery
        self.since_s = now_s
        self.leased_s = now_s
        """When the lease began or was last extended."""
        self.is_settled = False
        self.is_lost = False
        """The lease expired, for example while there was no connection: the message comes again."""


class Prefetcher:
    """Prefetches from one queue. `wake` sets an event of the loop from the threads that call `take` and `settle`.

    `revive` restores a queue that was deleted, if that is possible.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        queue: str,
        *,
        visibility_ms: int,
        prefetch: int,
        wake: Callable[[asyncio.Event], None],
        revive: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._visibility_ms = visibility_ms
        self._prefetch = prefetch
        self._low = prefetch // 2
        self._wake = wake
        self._revive = revive
        self._loop = asyncio.get_running_loop()
        self._ready: deque[HeldMessage] = deque()
        self._held: dict[int, HeldMessage] = {}
        self._settled: deque[tuple[HeldMessage, int | None, str]] = deque()
        self._arrived, self._room, self._to_settle = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._settling = asyncio.Lock()
        self._failure: LavantError | None = None
        self._is_stopped = False
        always = (self._receive, self._settle, self._extend)
        self._tasks = [self._loop.create_task(self._guard(work)) for work in always]

    # ── from any thread ───────────────────────────────────────────────────────────────────────────────────────────────

    def take(self) -> HeldMessage | None:
        """The next message, if one is ready."""
        while self._ready and not self._is_stopped:
            try:
                held = self._ready.popleft()
            except IndexError:  # another thread took it
                break
            if len(self._ready) <= self._low and not self._room.is_set():
                self._wake(self._room)
            if not held.is_lost:
                return held
        return None

    def settle(self, held: HeldMessage, retry_ms: int | None, reason: str = "") -> None:
        """Acknowledges a message (None), or releases it after `retry_ms`, with the reason. The server is told in the
        background."""
        held.is_settled = True
        self._settled.append((held, retry_ms, reason))
        if not self._to_settle.is_set():
            self._wake(self._to_settle)

    # ── in the loop ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def next(self, timeout_s: float | None) -> HeldMessage | None:
        """Waits for a message; None if none came in time or it was stopped. Raises the error that ended prefetching."""
        deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        while (held := self.take()) is None:
            if self._failure is not None:
                raise copy(self._failure)
            if self._is_stopped:
                return None
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._arrived.wait()
            except TimeoutError:
                return None
        return held

    async def flush(self) -> None:
        """Sends what is settled, and waits until the server has it."""
        async with self._settling:
            while self._settled:
                some = [self._settled.popleft() for _ in range(min(len(self._settled), BATCH_ENTRIES_MAX))]
                await self._tell(some)

    def stop(self) -> None:
        """Delivers no more; waiting callers get None."""
        self._is_stopped = True
        self._arrived.set()
        self._room.set()

    async def close(self, *, is_queue_gone: bool = False) -> None:
        """Ends receiving, sends what is settled and releases the rest, within `CLOSE_S_MAX`. If the queue is gone, or
        about to be, nothing is released."""
        self.stop()
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                while not self._tasks[0].done():  # a receive that is sent once more, after a reconnect, must end too
                    await self._connection.run(calls.end_long_polls(self._queue))
                    await asyncio.wait(self._tasks[:1], timeout=END_S)
                if not is_queue_gone and self._failure is None:
                    self._settled.extend((held, 0, "") for held in self._ready)
                    self._ready.clear()
                    await self.flush()
        except (LavantError, TimeoutError) as error:  # the leases expire, and the messages come again
            _logger.warning("consumer of %s: not all settled messages could be reported: %s", self._queue, error)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """Keeps the error of a task for the next caller of `next`."""
        try:
            await work()
        except LavantError as error:
            self._failure = error
            self._arrived.set()

    async def _receive(self) -> None:
        while not self._is_stopped:
            self._room.clear()
            if len(self._ready) > self._low:
                await self._room.wait()
                continue
            count = self._prefetch - len(self._ready)
            try:
                found = await self._ask(calls.prefetch(self._queue, count, self._visibility_ms, WAIT_MS_MAX))
            except TooManyInFlight:
                await asyncio.sleep(BUSY_S)
                continue
            now_s = self._loop.time()
            for delivery in found:
                held = HeldMessage(delivery, now_s)
                self._held[delivery.receipt.number] = held
                self._ready.append(held)
            if found:
                self._arrived.set()

    async def _settle(self) -> None:
        while True:
            await self._to_settle.wait()
            if len(self._settled) < GATHERED_MIN:
                await asyncio.sleep(GATHER_S)
            self._to_settle.clear()
            await self.flush()

    async def _tell(self, some: list[tuple[HeldMessage, int | None, str]]) -> None:
        done = [held for held, retry_ms, _ in some if retry_ms is None]
        again = [(held, retry_ms, reason) for held, retry_ms, reason in some if retry_ms is not None]
        try:
            if done:
                await self._ask(
                    calls.acknowledge(
                        self._queue, [held.delivery.receipt for held in done], is_patient=not self._is_stopped
                    )
                )
        except PartlyRefused as refused:  # their leases had expired: they come again
            _logger.info("consumer of %s: %s", self._queue, refused)
        if again:
            await self._ask(_hide(self._queue, again))
        for held, *_ in some:
            self._forget(held)

    async def _extend(self) -> None:
        """Extends leases three times within their length, so that one lost connection does no harm."""
        period_s = self._visibility_ms / SECOND_MS / 3
        while True:
            await asyncio.sleep(period_s)
            due = [held for held in self._held.values() if self._is_due(held, period_s)]
            for start in range(0, len(due), BATCH_ENTRIES_MAX):
                some = [held for held in islice(due, start, start + BATCH_ENTRIES_MAX) if not held.is_settled]
                if some:
                    await self._extend_some(some)

    def _is_due(self, held: HeldMessage, period_s: float) -> bool:
        now_s = self._loop.time()
        return now_s - held.leased_s > period_s / 2 and now_s - held.since_s < HELD_S_MAX

    async def _extend_some(self, some: list[HeldMessage]) -> None:
        now_s = self._loop.time()
        refused = await self._ask(_hide(self._queue, [(held, self._visibility_ms, "") for held in some]))
        for place, held in enumerate(some):
            if place in refused and not held.is_settled:
                held.is_lost = True
                self._forget(held)
            else:
                held.leased_s = now_s

    async def _ask(self, call: Call[T]) -> T:
        try:
            return await self._connection.run(call)
        except UnknownQueue:
            if self._revive is None or self._is_stopped:
                raise
            await self._revive()
            return await self._connection.run(call)

    def _forget(self, held: HeldMessage) -> None:
        number = held.delivery.receipt.number
        if self._held.get(number) is held:  # it may have come again already
            del self._held[number]


def _hide(queue: str, changes: list[tuple[HeldMessage, int, str]]) -> Call[frozenset[int]]:
    """Changes leases, and returns the indices of those that had expired, which is no error here."""
    wanted = [VisibilityChange(held.delivery.receipt, hidden_ms, reason) for held, hidden_ms, reason in changes]
    return Call(ChangeVisibility(queue, wanted), lambda answer: frozenset(answer.refused))
