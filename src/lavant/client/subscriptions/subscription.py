"""A subscription for callers that wait: iterate over its notifications, or have them handled in threads.

What goes on in the background (receiving ahead, acknowledging, extending leases) does so in the event loop of the
client's thread, by the same `Prefetcher` that asynchronous clients use.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from lavant.broker.protocol.subscriptions import SubscriptionState
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.connection import Connection
from lavant.client.connection.loop_thread import LoopThread
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


class Workers:
    """Start at once; they end when their work returns."""

    def __init__(self, count: int, work: Callable[[], None], *, name: str) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until all have ended, and raise what ended one of them, if it was an error."""
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def wait(self, timeout_s: float) -> None:
        """For so long at most."""
        end_s = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():  # a handler may close its own subscription
                thread.join(max(0.0, end_s - time.monotonic()))

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failure = error


Handler: TypeAlias = Callable[[Notification], Any]


class ClientSubscription(SubscriptionBase):
    """Of a `Client`. A notification is acknowledged when the next is asked for, or its handler has returned.

    One thread iterates; several are what `run` is for.
    """

    def __init__(
        self,
        client: Connection,
        settings: ConnectionSettings,
        state: SubscriptionState,
        lease: Lease | None,
        *,
        background: Callable[[], LoopThread],
        cipher: Cipher | None,
        prefetch: int,
        visibility_s: float | None,
        forget: Callable[[ClientSubscription], None],
    ) -> None:
        super().__init__(state, lease, cipher=cipher, prefetch=prefetch, visibility_s=visibility_s)
        self._client = client
        self._forget = forget
        self._settings = settings
        self._background = background
        self._intake: Prefetcher | None = None
        self._lock = threading.Lock()
        self._workers: Workers | None = None

    def __iter__(self) -> Iterator[Notification]:
        return self.notifications()

    def notifications(self, *, count: int | None = None, timeout_s: float | None = None) -> Iterator[Notification]:
        """Notifications as they come: at most so many, for at most so long."""
        self._check_receivable()
        quota = NotificationQuota(count, timeout_s)
        while quota.claim():
            self._settle_current(is_done=True)
            self._current = self._next(quota)
            if self._current is None:
                return
            yield self._current
        self._settle_current(is_done=True)

    def run(
        self, handler: Handler, *, workers: int = 1, count: int | None = None, timeout_s: float | None = None
    ) -> int:
        """Have notifications handled, by so many threads beside each other; returns how many were.

        A notification whose handler raises comes again, after a rest that is longer each time, or goes to the queue's
        dead letters if this was the last attempt. If this is interrupted,
        the subscription is to be closed.
        """
        quota = NotificationQuota(count, timeout_s)
        started = self._start(handler, workers, quota)
        try:
            started.join()
        except BaseException:
            self._stop()
            raise
        return quota.claimed

    def start(self, handler: Handler, *, workers: int = 1) -> None:
        """The same in the background, until this subscription is closed; `join` waits for its end."""
        if self._workers is not None:
            raise InvalidValue(f"subscription {self.name!r} has a handler already")
        self._workers = self._start(handler, workers, NotificationQuota(None, None))

    def join(self) -> None:
        """Wait until the handlers that `start` began have ended; raises what ended them."""
        if self._workers is not None:
            self._workers.join()

    def flush(self) -> None:
        """Wait until the server knows what was acknowledged."""
        if self._intake is not None:
            self._background().run(self._intake.flush())

    def unsubscribe(self) -> None:
        """End the subscription for good, temporary or not; what waits in a queue of its own is gone."""
        self._close(is_removed=True)
        if self._is_removed:
            return
        if self._lease is not None:
            self._background().run(self._lease.stop())
        self._client.run(calls.remove(self.name))
        self._is_removed = True

    def close(self) -> None:
        """Stop receiving. A temporary subscription ends, another goes on at the server."""
        leases = self._let_go()
        if leases:
            self._background().run(end_all(leases))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settle_current(is_done=kind is None)
        self.close()

    def _start(self, handler: Handler, workers: int, quota: NotificationQuota) -> Workers:
        if workers < 1:
            raise InvalidValue(f"workers must be at least 1, got {workers}")
        self._check_receivable()
        self._started()  # here, for a worker that begins late may find it closed
        return Workers(workers, lambda: self._work(handler, quota), name=f"lavant-{self.name}")

    def _work(self, handler: Handler, quota: NotificationQuota) -> None:
        while quota.claim():
            notification = self._next(quota)
            if notification is None:
                quota.give_back()
                return
            try:
                handler(notification)
            except Exception:
                self._failed(notification)
            else:
                notification.acknowledge()

    def _next(self, quota: NotificationQuota) -> Notification | None:
        intake = self._started()
        while True:
            held = intake.take()
            if held is None:
                held = self._background().run(intake.next(quota.left_s()))
            if held is None:
                return None
            notification = self._notification(intake, held)
            if notification is not None:
                return notification

    def _started(self) -> Prefetcher:
        if self._intake is not None:
            return self._intake
        with self._lock:
            self._check_receivable()
            if self._intake is None:
                lease_ms = self._take_config(self._client.run(queue_calls.describe(self.queue)).config)
                self._intake = self._background().run(self._new_intake(lease_ms))
            return self._intake

    async def _new_intake(self, lease_ms: int) -> Prefetcher:
        loop = asyncio.get_running_loop()
        return Prefetcher(
            AsyncConnection(self._settings),
            self.queue,
            visibility_ms=lease_ms,
            prefetch=self._prefetch,
            wake=lambda event: _set_later(loop, event),
            revive=self._revive(),
        )

    def _stop(self) -> None:
        if self._intake is not None:
            self._background().loop.call_soon_threadsafe(self._intake.stop)

    def _let_go(self) -> list[Lease]:
        """Stop receiving; the leases that are to be ended then."""
        self._close(is_removed=self.is_temporary)
        return self._take_lease()

    def _close(self, *, is_removed: bool) -> None:
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed and self._intake is not None:
            self._stop()
            if self._workers is not None:
                self._workers.wait(STOP_S_MAX)
            self._background().run(self._intake.close(is_queue_gone=is_removed and self.state.owns_queue))
        self._forget(self)


def _set_later(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(event.set)
