"""Receiving with an asynchronous client: iterate, or handle messages in tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from lavant import tracing
from lavant.client import queue_calls
from lavant.client.consumers.base import STOP_S_MAX, ConsumerBase, ItemT
from lavant.client.consumers.prefetcher import Prefetcher
from lavant.client.consumers.quota import ReceiveQuota
from lavant.core.errors import InvalidValue

T = TypeVar("T")
AsyncFunction: TypeAlias = Callable[[ItemT], Awaitable[Any]]


class AsyncReceiving(ConsumerBase[ItemT, "AsyncFunction[ItemT]"]):
    """The part that needs tasks of an event loop."""

    _background: asyncio.Task[int] | None

    def _use(self) -> None:
        self._starting = asyncio.Lock()
        self._background = None
        self._working: set[asyncio.Task[None]] = set()

    def start(self, handler: AsyncFunction[ItemT], *, workers: int = 1) -> None:
        if self._background is not None:
            raise InvalidValue(f"{self.KIND} {self.name!r} has a handler already")
        self._background = asyncio.create_task(self._run(handler, workers, ReceiveQuota(None, None)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settle_current(is_done=kind is None)
        await self._end()

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return work

    async def _handle(self, handler: AsyncFunction[ItemT], workers: int, quota: ReceiveQuota) -> None:
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

    async def _work(self, handler: AsyncFunction[ItemT], quota: ReceiveQuota) -> None:
        while quota.claim():
            item = await self._next(quota)
            if item is None:
                quota.give_back()
                return
            try:
                with tracing.processing(self.queue, item.trace):
                    await handler(item)
            except Exception as error:
                self._failed(item, error)
            except BaseException:  # cancelled: another consumer may handle it
                item.retry()
                raise
            else:
                item.acknowledge()

    async def _next(self, quota: ReceiveQuota) -> ItemT | None:
        prefetcher = await self._started() if self._prefetcher is None else self._prefetcher
        while (held := await prefetcher.next(quota.left_s())) is not None:
            item = self._item(prefetcher, held)
            if item is not None:
                return item
        return None

    async def _started(self) -> Prefetcher:
        async with self._starting:
            self._check_receivable()
            if self._prefetcher is None:
                config = (await self._client._answer(queue_calls.describe(self.queue))).config
                self._prefetcher = await self._new_prefetcher(config, asyncio.Event.set)
            return self._prefetcher

    async def _close(self, *, is_queue_gone: bool) -> None:
        was_closed, self._is_closed = self._is_closed, True
        if not was_closed and self._prefetcher is not None:
            self._prefetcher.stop()
            if self._background is not None and asyncio.current_task() not in self._working:
                await asyncio.wait([self._background], timeout=STOP_S_MAX)
                self._background.cancel()
                await asyncio.wait([self._background])
            await self._prefetcher.close(is_queue_gone=is_queue_gone)
        self._forget(self)
