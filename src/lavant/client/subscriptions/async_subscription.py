"""A subscription for tasks of an event loop: iterate over its notifications, or have them handled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from lavant.broker.protocol.subscriptions import SubscriptionState
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.queues import calls as queue_calls
from lavant.client.subscriptions import calls
from lavant.client.subscriptions.base import STOP_S_MAX, SubscriptionBase
from lavant.client.subscriptions.lease import Lease, end_all
from lavant.client.subscriptions.notification import Notification
from lavant.client.subscriptions.prefetcher import Prefetcher
from lavant.client.subscriptions.quota import NotificationQuota
from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher

AsyncHandler: TypeAlias = Callable[[Notification], Awaitable[Any]]


class AsyncSubscription(SubscriptionBase):
    """Of an `AsyncClient`. A notification is acknowledged when the next is asked for, or its handler has returned."""

    def __init__(
        self,
        client: AsyncConnection,
        settings: ConnectionSettings,
        state: SubscriptionState,
        lease: Lease | None,
        *,
        cipher: Cipher | None,
        prefetch: int,
        visibility_s: float | None,
        forget: Callable[[AsyncSubscription], None],
    ) -> None:
        super().__init__(state, lease, cipher=cipher, prefetch=prefetch, visibility_s=visibility_s)
        self._client = client
        self._forget = forget
        self._settings = settings
        self._intake: Prefetcher | None = None
        self._starting = asyncio.Lock()
        self._background: asyncio.Task[int] | None = None
        self._working: set[asyncio.Task[None]] = set()

    def __aiter__(self) -> AsyncIterator[Notification]:
        return self.notifications()

    async def notifications(
        self, *, count: int | None = None, timeout_s: float | None = None
    ) -> AsyncIterator[Notification]:
        """Notifications as they come: at most so many, for at most so long."""
        self._check_receivable()
        quota = NotificationQuota(count, timeout_s)
        while quota.claim():
            self._settle_current(is_done=True)
            self._current = await self._next(quota)
            if self._current is None:
                return
            yield self._current
        self._settle_current(is_done=True)

    async def run(
        self, handler: AsyncHandler, *, workers: int = 1, count: int | None = None, timeout_s: float | None = None
    ) -> int:
        """Have notifications handled, by so many tasks beside each other; returns how many were.

        A notification whose handler raises comes again, after a rest that is longer each time, or goes to the queue's
        dead letters if this was the last attempt.
        """
        if workers < 1:
            raise InvalidValue(f"workers must be at least 1, got {workers}")
        self._check_receivable()
        quota = NotificationQuota(count, timeout_s)
        tasks = [asyncio.create_task(self._work(handler, quota)) for _ in range(workers)]
        self._working.update(tasks)
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            self._working.difference_update(tasks)
        return quota.claimed

    def start(self, handler: AsyncHandler, *, workers: int = 1) -> None:
        """The same in the background, until this subscription is closed; `join` waits for its end."""
        if self._background is not None:
            raise InvalidValue(f"subscription {self.name!r} has a handler already")
        self._background = asyncio.create_task(self.run(handler, workers=workers))

    async def join(self) -> None:
        """Wait until the handlers that `start` began have ended; raises what ended them."""
        if self._background is not None:
            await self._background

    async def flush(self) -> None:
        """Wait until the server knows what was acknowledged."""
        if self._intake is not None:
            await self._intake.flush()

    async def unsubscribe(self) -> None:
        """End the subscription for good, temporary or not; what waits in a queue of its own is gone."""
        await self._close(is_removed=True)
        if self._is_removed:
            return
        if self._lease is not None:
            await self._lease.stop()
        await self._client.run(calls.remove(self.name))
        self._is_removed = True

    async def close(self) -> None:
        """Stop receiving. A temporary subscription ends, another goes on at the server."""
        await end_all(await self._let_go())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settle_current(is_done=kind is None)
        await self.close()

    async def _work(self, handler: AsyncHandler, quota: NotificationQuota) -> None:
        while quota.claim():
            notification = await self._next(quota)
            if notification is None:
                quota.give_back()
                return
            try:
                await handler(notification)
            except Exception:
                self._failed(notification)
            except BaseException:  # cancelled: somebody else may do it
                notification.retry()
                raise
            else:
                notification.acknowledge()

    async def _next(self, quota: NotificationQuota) -> Notification | None:
        intake = await self._started() if self._intake is None else self._intake
        while (held := await intake.next(quota.left_s())) is not None:
            notification = self._notification(intake, held)
            if notification is not None:
                return notification
        return None

    async def _started(self) -> Prefetcher:
        async with self._starting:
            self._check_receivable()
            if self._intake is None:
                lease_ms = self._take_config((await self._client.run(queue_calls.describe(self.queue))).config)
                self._intake = Prefetcher(
                    AsyncConnection(self._settings),
                    self.queue,
                    visibility_ms=lease_ms,
                    prefetch=self._prefetch,
                    wake=asyncio.Event.set,
                    revive=self._revive(),
                )
            return self._intake

    async def _let_go(self) -> list[Lease]:
        """Stop receiving; the leases that are to be ended then."""
        await self._close(is_removed=self.is_temporary)
        return self._take_lease()

    async def _close(self, *, is_removed: bool) -> None:
        was_closed, self._is_closed = self._is_closed, True
        if not was_closed and self._intake is not None:
            self._intake.stop()
            if self._background is not None and asyncio.current_task() not in self._working:
                await asyncio.wait([self._background], timeout=STOP_S_MAX)
                self._background.cancel()
                await asyncio.wait([self._background])
            await self._intake.close(is_queue_gone=is_removed and self.state.owns_queue)
        self._forget(self)
