"""Receiving with a blocking client: iterate, or handle messages in threads.

The background work (prefetching, acknowledging, extending leases) runs in the event loop of the client's thread, in the
same `Prefetcher` that asynchronous clients use.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from lavant import tracing
from lavant.client import queue_calls
from lavant.client.connection.loop_thread import LoopThread
from lavant.client.consumers.base import STOP_S_MAX, ConsumerBase, ItemT, check_handling
from lavant.client.consumers.prefetcher import Prefetcher
from lavant.client.consumers.quota import ReceiveQuota
from lavant.client.operations import run_blocking
from lavant.core.errors import InvalidValue

T = TypeVar("T")
Function: TypeAlias = Callable[[ItemT], Any]


class Workers:
    """Threads that start at once and end when their work returns."""

    def __init__(self, count: int, work: Callable[[], None], *, name: str) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Waits until all have ended, and raises the error that ended one of them, if any."""
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def wait(self, timeout_s: float) -> None:
        """Waits until all have ended, for at most `timeout_s`."""
        end_s = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():  # a handler may close its own consumer
                thread.join(max(0.0, end_s - time.monotonic()))

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failure = error


class ThreadedReceiving(ConsumerBase[ItemT, "Function[ItemT]"]):
    """The part that needs threads. Iterate in one thread only; `run` has several."""

    _background: Callable[[], LoopThread]
    _workers: Workers | None

    def _use(self, background: Callable[[], LoopThread]) -> None:
        self._background = background
        self._lock = threading.Lock()
        self._workers = None

    def start(self, handler: Function[ItemT], *, workers: int = 1) -> None:
        if self._workers is not None:
            raise InvalidValue(f"{self.KIND} {self.name!r} has a handler already")
        check_handling(handler, workers)
        self._check_receivable()
        self._workers = self._start(handler, workers, ReceiveQuota(None, None))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settle_current(is_done=kind is None)
        run_blocking(self._end())

    async def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return self._background().run(work)

    async def _handle(self, handler: Function[ItemT], workers: int, quota: ReceiveQuota) -> None:
        started = self._start(handler, workers, quota)
        try:
            started.join()
        except BaseException:
            self._stop()
            raise

    async def _join(self) -> None:
        if self._workers is not None:
            self._workers.join()

    def _start(self, handler: Function[ItemT], workers: int, quota: ReceiveQuota) -> Workers:
        self._started()  # here, because this may be closed before a worker begins
        return Workers(workers, lambda: self._work(handler, quota), name=f"lavant-{self.name}")

    def _work(self, handler: Function[ItemT], quota: ReceiveQuota) -> None:
        while quota.claim():
            item = self._take_next(quota)
            if item is None:
                quota.give_back()
                return
            try:
                with tracing.processing(self.queue, item.trace):
                    handler(item)
            except Exception as error:
                self._failed(item, error)
            else:
                item.acknowledge()

    async def _next(self, quota: ReceiveQuota) -> ItemT | None:
        return self._take_next(quota)

    def _take_next(self, quota: ReceiveQuota) -> ItemT | None:
        prefetcher = self._started()
        while True:
            held = prefetcher.take()
            if held is None:
                held = self._background().run(prefetcher.next(quota.left_s()))
            if held is None:
                return None
            item = self._item(prefetcher, held)
            if item is not None:
                return item

    def _started(self) -> Prefetcher:
        if self._prefetcher is not None:
            return self._prefetcher
        with self._lock:
            self._check_receivable()
            if self._prefetcher is None:
                config = run_blocking(self._client._answer(queue_calls.describe(self.queue))).config
                background = self._background()
                wake = partial(_set_later, background.loop)
                self._prefetcher = background.run(self._new_prefetcher(config, wake))
            return self._prefetcher

    def _stop(self) -> None:
        if self._prefetcher is not None:
            self._background().loop.call_soon_threadsafe(self._prefetcher.stop)

    async def _close(self, *, is_queue_gone: bool) -> None:
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed and self._prefetcher is not None:
            self._stop()
            if self._workers is not None:
                self._workers.wait(STOP_S_MAX)
            self._background().run(self._prefetcher.close(is_queue_gone=is_queue_gone))
        self._forget(self)


def _set_later(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(event.set)
