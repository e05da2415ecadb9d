"""Operations on a subscription that both clients offer, and how its notifications are settled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from lavant.broker.protocol.queue_config import SECOND_MS, VISIBILITY_MS_MAX, QueueConfig
from lavant.broker.protocol.subscriptions import SubscriptionState
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.operations import Caller, listing, operation
from lavant.client.subscriptions import calls
from lavant.client.subscriptions.lease import Lease, end_all
from lavant.client.subscriptions.notification import Notification, notification_of, pause_s
from lavant.client.subscriptions.prefetcher import PREFETCH_MAX, HeldNotification, Prefetcher
from lavant.client.subscriptions.quota import NotificationQuota
from lavant.core.errors import InvalidValue, UnknownSubscription

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher

VISIBILITY_S_MIN = 1.0
"""A shorter lease could not be extended in time."""
STOP_S_MAX = 30.0
"""How long `close` waits for running handlers."""

T = TypeVar("T")
HandlerT = TypeVar("HandlerT")

_logger = logging.getLogger(__name__)


def check_receiving(prefetch: int, visibility_s: float | None, workers: int = 1) -> None:
    """Raises `InvalidValue` before the server is asked, so that nothing is subscribed in vain."""
    if not 1 <= prefetch <= PREFETCH_MAX:
        raise InvalidValue(f"prefetch must be between 1 and {PREFETCH_MAX}, got {prefetch}")
    if visibility_s is not None and not VISIBILITY_S_MIN <= visibility_s <= VISIBILITY_MS_MAX / SECOND_MS:
        raise InvalidValue(
            f"visibility_s must be between {VISIBILITY_S_MIN:g} and {VISIBILITY_MS_MAX // SECOND_MS}, "
            f"got {visibility_s}"
        )
    check_workers(workers)


def check_workers(workers: int) -> None:
    if workers < 1:
        raise InvalidValue(f"workers must be at least 1, got {workers}")


class SubscriptionParts(NamedTuple):
    """What a client makes a subscription of."""

    client: Caller
    settings: ConnectionSettings
    state: SubscriptionState
    lease: Lease | None
    cipher: Cipher | None
    prefetch: int
    visibility_s: float | None
    forget: Callable[[Any], None]
    """Called when the subscription is closed."""


class SubscriptionBase(Generic[HandlerT]):
    """A subscription on a server, and how its notifications are received here."""

    def __init__(self, parts: SubscriptionParts) -> None:
        self._client, self._settings = parts.client, parts.settings
        self._lease, self._cipher = parts.lease, parts.cipher
        self._prefetch, self._visibility_s, self._forget = parts.prefetch, parts.visibility_s, parts.forget
        self.state = parts.state
        """The subscription as the server described it."""
        self._queue_config: QueueConfig | None = None
        """As it was when receiving began."""
        self._prefetcher: Prefetcher | None = None
        self._is_closed = False
        self._is_removed = False
        self._current: Notification | None = None
        """The last notification that iteration yielded."""

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def queue(self) -> str:
        """The queue its notifications wait in."""
        return self.state.queue

    @property
    def is_temporary(self) -> bool:
        """Whether it ends when it is closed: it was made here without a name, or with a lease."""
        return self._lease is not None

    @property
    def lapses(self) -> int:
        """How often a temporary subscription had ended at the server and was made again."""
        return 0 if self._lease is None else self._lease.lapses

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @listing
    async def notifications(
        self, *, count: int | None = None, timeout_s: float | None = None
    ) -> AsyncIterator[Notification]:
        """Yields notifications as they come: at most `count`, for at most `timeout_s`."""
        self._check_receivable()
        quota = NotificationQuota(count, timeout_s)
        while quota.claim():
            self._settle_current(is_done=True)
            self._current = await self._next(quota)
            if self._current is None:
                return
            yield self._current
        self._settle_current(is_done=True)

    @operation
    async def run(
        self, handler: HandlerT, *, workers: int = 1, count: int | None = None, timeout_s: float | None = None
    ) -> int:
        """Calls `handler` for each notification, in so many threads or tasks, and returns how many were handled.

        If the handler raises, the notification comes again after a pause that doubles with each attempt, or goes to
        the queue's dead letters if this was the last attempt. If a blocking `run` is interrupted, close this.
        """
        quota = NotificationQuota(count, timeout_s)
        check_workers(workers)
        self._check_receivable()
        await self._handle(handler, workers, quota)
        return quota.claimed

    def start(self, handler: HandlerT, *, workers: int = 1) -> None:
        """Runs the handler in the background, until this subscription is closed; `join` waits for its end."""
        raise NotImplementedError

    @operation
    async def join(self) -> None:
        """Waits until the handlers that `start` began have ended; raises the error that ended them."""
        await self._join()

    @operation
    async def flush(self) -> None:
        """Waits until the server knows what was acknowledged."""
        if self._prefetcher is not None:
            await self._in_loop(self._prefetcher.flush())

    @operation
    async def unsubscribe(self) -> None:
        """Ends the subscription for good, temporary or not, and deletes the queue that it owns."""
        await self._close(is_removed=True)
        if self._is_removed:
            return
        if self._lease is not None:
            await self._in_loop(self._lease.stop())
        with suppress(UnknownSubscription):
            await self._client._answer(calls.remove(self.name))
        self._is_removed = True

    @operation
    async def close(self) -> None:
        """Stops receiving. A temporary subscription ends, another goes on at the server."""
        leases = await self._detach()
        if leases:
            await self._in_loop(end_all(leases))

    def _check_receivable(self) -> None:
        if self._is_closed:
            raise InvalidValue(f"subscription {self.name!r} was closed; subscribe again under its name to go on")
        if self.state.webhook is not None:
            raise InvalidValue(f"the notifications of {self.name!r} go to {self.state.webhook.url}, not to a program")

    def _take_config(self, config: QueueConfig) -> int:
        """Keeps the queue's settings, and returns for how long messages are leased."""
        self._queue_config = config
        if self._visibility_s is not None:
            return round(self._visibility_s * SECOND_MS)
        return max(config.visibility_ms, round(VISIBILITY_S_MIN * SECOND_MS))

    async def _new_prefetcher(self, config: QueueConfig, wake: Callable[[asyncio.Event], None]) -> Prefetcher:
        """For a queue with these settings; belongs to the event loop that runs this."""
        return Prefetcher(
            AsyncConnection(self._settings),
            self.queue,
            visibility_ms=self._take_config(config),
            prefetch=self._prefetch,
            wake=wake,
            revive=self._revive(),
        )

    def _is_last(self, attempt: int) -> bool:
        """Whether a message that fails now goes to the dead letters and does not come again."""
        receives_max = None if self._queue_config is None else self._queue_config.receives_max
        return receives_max is not None and attempt >= receives_max

    def _retry_pause_s(self, attempt: int) -> float:
        """The pause before a failed message comes again. After the last attempt, the next receive moves it."""
        return 0.0 if self._is_last(attempt) else pause_s(attempt)

    def _notification(self, prefetcher: Prefetcher, held: HeldNotification) -> Notification | None:
        """None if it cannot be decoded: it comes again, later each time, and goes to the dead letters in the end."""
        try:
            return notification_of(held.delivery, self._cipher, partial(prefetcher.settle, held))
        except InvalidValue as error:
            _logger.warning("subscription %s: %s", self.name, error)
            prefetcher.settle(held, round(self._retry_pause_s(held.delivery.receive_count) * SECOND_MS))
            return None

    def _settle_current(self, *, is_done: bool) -> None:
        current, self._current = self._current, None
        if current is None:
            return
        if is_done:
            current.acknowledge()
        else:
            current.retry(self._retry_pause_s(current.attempt))

    def _revive(self) -> Callable[[], Awaitable[None]] | None:
        """Restores the queue, if it ends with the lease."""
        return self._lease.renew if self._lease is not None and self.state.owns_queue else None

    async def _detach(self) -> list[Lease]:
        """Stops receiving, and returns the leases that the caller must end, once."""
        await self._close(is_removed=self.is_temporary)
        if self._lease is None or self._is_removed:
            return []
        self._is_removed = True
        return [self._lease]

    def _failed(self, notification: Notification) -> None:
        """Logs that the handler raised, and releases the notification."""
        attempt, retry_s = notification.attempt, self._retry_pause_s(notification.attempt)
        if self._is_last(attempt):
            assert self._queue_config is not None
            outcome = f"this was the last attempt, it goes to the dead-letter queue {self._queue_config.dead_letters}"
        else:
            outcome = f"it comes again in {retry_s:g} s"
        _logger.exception(
            "subscription %s: the handler failed at notification %s (attempt %d); %s",
            self.name,
            notification.id,
            attempt,
            outcome,
        )
        notification.retry(retry_s)

    # ── for each kind of client ───────────────────────────────────────────────────────────────────────────────────────

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Runs a coroutine in the event loop of the prefetcher and the lease."""
        raise NotImplementedError

    async def _next(self, quota: NotificationQuota) -> Notification | None:
        """The next notification; None if none came in time, or this subscription was closed."""
        raise NotImplementedError

    async def _handle(self, handler: HandlerT, workers: int, quota: NotificationQuota) -> None:
        raise NotImplementedError

    async def _join(self) -> None:
        raise NotImplementedError

    async def _close(self, *, is_removed: bool) -> None:
        """Stops receiving; `is_removed` says that the subscription ends at the server too."""
        raise NotImplementedError
