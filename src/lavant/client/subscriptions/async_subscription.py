"""A subscription of an asynchronous client: iterate over its notifications, or handle them in tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from lavant.client.operations import Asynchronous
from lavant.client.queues import calls as queue_calls
from lavant.client.subscriptions.base import STOP_S_MAX, SubscriptionBase, SubscriptionParts
from lavant.client.subscriptions.notification import Notification
from lavant.client.subscriptions.prefetcher import Prefetcher
from lavant.client.subscriptions.quota import NotificationQuota
from lavant.core.errors import InvalidValue

AsyncHandler: TypeAlias = Callable[[Notification], Awaitable[Any]]
T = TypeVar("T")


class AsyncSubscription(SubscriptionBase[AsyncHandler], Asynchronous):
    """A notification is acknowledged when you ask for the next one, or when its handler has returned."""

    def __init__(self, parts: SubscriptionParts) -> None:
        super().__init__(parts)
        self._starting = asyncio.Lock()
        self._background: asyncio.Task[int] | None = None
        self._working: set[asyncio.Task[None]] = set()

    def __aiter__(self) -> AsyncIterator[Notification]:
        return self.notifications()

    def start(self, handler: AsyncHandler, *, workers: int = 1) -> None:
        if self._background is not None:
            raise InvalidValue(f"subscription {self.name!r} has a handler already")
        self._background = asyncio.create_task(self.run(handler, workers=workers))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settle_current(is_done=kind is None)
        await self.close()

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return work

    async def _handle(self, handler: AsyncHandler, workers: int, quota: NotificationQuota) -> None:
        tasks = [asyncio.create_task(self._work(handler, quota)) for _ in range(workers)]
        self._working.update(tasks)
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            self._working.difference_update(tasks)

    async def _join(self) -> None:
        if self._background is not None:
            await self._background

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
            except BaseException:  # cancelled: another consumer may handle it
                notification.retry()
                raise
            else:
                notification.acknowledge()

    async def _next(self, quota: NotificationQuota) -> Notification | None:
        prefetcher = await self._started() if self._prefetcher is None else self._prefetcher
        while (held := await prefetcher.next(quota.left_s())) is not None:
            notification = self._notification(prefetcher, held)
            if notification is not None:
                return notification
        return None

    async def _started(self) -> Prefetcher:
        async with self._starting:
            self._check_receivable()
            if self._prefetcher is None:
                config = (await self._client._answer(queue_calls.describe(self.queue))).config
                self._prefetcher = await self._new_prefetcher(config, asyncio.Event.set)
            return self._prefetcher

    async def _close(self, *, is_removed: bool) -> None:
        was_closed, self._is_closed = self._is_closed, True
        if not was_closed and self._prefetcher is not None:
            self._prefetcher.stop()
            if self._background is not None and asyncio.current_task() not in self._working:
                await asyncio.wait([self._background], timeout=STOP_S_MAX)
                self._background.cancel()
                await asyncio.wait([self._background])
            await self._prefetcher.close(is_queue_gone=is_removed and self.state.owns_queue)
        self._forget(self)
