"""A subscription of a blocking client: iterate over its notifications, or handle them in threads.

The background work (prefetching, acknowledging, extending leases) runs in the event loop of the client's thread, in the
same `Prefetcher` that asynchronous clients use.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from lavant.client.connection.loop_thread import LoopThread
from lavant.client.operations import Blocking, run_blocking
from lavant.client.queues import calls as queue_calls
from lavant.client.subscriptions.base import STOP_S_MAX, SubscriptionBase, SubscriptionParts, check_workers
from lavant.client.subscriptions.notification import Notification
from lavant.client.subscriptions.prefetcher import Prefetcher
from lavant.client.subscriptions.quota import NotificationQuota
from lavant.core.errors import InvalidValue

Handler: TypeAlias = Callable[[Notification], Any]
T = TypeVar("T")


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
            if thread is not threading.current_thread():  # a handler may close its own subscription
                thread.join(max(0.0, end_s - time.monotonic()))

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failure = error


class ClientSubscription(SubscriptionBase[Handler], Blocking):
    """A notification is acknowledged when you ask for the next one, or when its handler has returned.

    Iterate in one thread only; `run` has several.
    """

    def __init__(self, parts: SubscriptionParts, background: Callable[[], LoopThread]) -> None:
        super().__init__(parts)
        self._background = background
        self._lock = threading.Lock()
        self._workers: Workers | None = None

    def __iter__(self) -> Iterator[Notification]:
        return self.notifications()

    def start(self, handler: Handler, *, workers: int = 1) -> None:
        if self._workers is not None:
            raise InvalidValue(f"subscription {self.name!r} has a handler already")
        check_workers(workers)
        self._check_receivable()
        self._workers = self._start(handler, workers, NotificationQuota(None, None))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settle_current(is_done=kind is None)
        self.close()

    async def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return self._background().run(work)

    async def _handle(self, handler: Handler, workers: int, quota: NotificationQuota) -> None:
        started = self._start(handler, workers, quota)
        try:
            started.join()
        except BaseException:
            self._stop()
            raise

    async def _join(self) -> None:
        if self._workers is not None:
            self._workers.join()

    def _start(self, handler: Handler, workers: int, quota: NotificationQuota) -> Workers:
        self._started()  # here, because the subscription may be closed before a worker begins
        return Workers(workers, lambda: self._work(handler, quota), name=f"lavant-{self.name}")

    def _work(self, handler: Handler, quota: NotificationQuota) -> None:
        while quota.claim():
            notification = self._take_next(quota)
            if notification is None:
                quota.give_back()
                return
            try:
                handler(notification)
            except Exception:
                self._failed(notification)
            else:
                notification.acknowledge()

    async def _next(self, quota: NotificationQuota) -> Notification | None:
        return self._take_next(quota)

    def _take_next(self, quota: NotificationQuota) -> Notification | None:
        prefetcher = self._started()
        while True:
            held = prefetcher.take()
            if held is None:
                held = self._background().run(prefetcher.next(quota.left_s()))
            if held is None:
                return None
            notification = self._notification(prefetcher, held)
            if notification is not None:
                return notification

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

    async def _close(self, *, is_removed: bool) -> None:
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed and self._prefetcher is not None:
            self._stop()
            if self._workers is not None:
                self._workers.wait(STOP_S_MAX)
            self._background().run(self._prefetcher.close(is_queue_gone=is_removed and self.state.owns_queue))
        self._forget(self)


def _set_later(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(event.set)
