"""Receiving from a queue, for both clients and for subscriptions and plain queues: loops, handlers, and settling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from lavant.broker.protocol.queue_config import REASON_CHARACTERS_MAX, SECOND_MS, VISIBILITY_MS_MAX
from lavant.client.arguments import check_count
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.consumers.item import ReceivedItem, Settle, pause_s
from lavant.client.consumers.prefetcher import PREFETCH_MAX, HeldMessage, Prefetcher
from lavant.client.consumers.quota import ReceiveQuota
from lavant.client.operations import Caller, operation
from lavant.client.values.queues import QueueConfig
from lavant.core.errors import InvalidValue
from lavant.core.seconds import check_seconds

VISIBILITY_S_MIN = 1.0
"""A shorter lease could not be extended in time."""
WORKERS_MAX = 1000
"""Threads, or tasks, of a consumer; as many as it can prefetch messages."""
STOP_S_MAX = 30.0
"""How long `close` waits for running handlers."""

T = TypeVar("T")
ItemT = TypeVar("ItemT", bound=ReceivedItem)
HandlerT = TypeVar("HandlerT")

_logger = logging.getLogger(__name__)


def check_receiving(prefetch: int, visibility_s: float | None, handler: Any = None, workers: int = 1) -> None:
    """Raises `InvalidValue` before the server is asked, so that nothing is subscribed in vain."""
    check_count("prefetch", prefetch, 1, PREFETCH_MAX)
    if visibility_s is not None:
        check_seconds("visibility_s", visibility_s, VISIBILITY_S_MIN, VISIBILITY_MS_MAX / SECOND_MS)
    check_handling(handler, workers)


def check_handling(handler: Any, workers: int) -> None:
    if handler is not None and not callable(handler):
        raise InvalidValue(f"a handler must be a function of one argument, got {handler!r:.40}")
    check_count("workers", workers, 1, WORKERS_MAX)


class ConsumerParts(NamedTuple):
    """What a client makes a consumer of."""

    client: Caller
    receiving: AsyncConnection
    """Shared by all consumers of the client; belongs to the event loop that prefetches."""
    queue: str
    prefetch: int
    visibility_s: float | None
    forget: Callable[[Any], None]
    """Called when the consumer is closed."""


class ConsumerBase(Generic[ItemT, HandlerT]):
    """Receives from one queue. A message is acknowledged when you ask for the next one, or when its handler has
    returned."""

    KIND = "consumer of"
    """In the log, before the name."""

    def __init__(self, parts: ConsumerParts) -> None:
        self._client, self._receiving = parts.client, parts.receiving
        self._prefetch, self._visibility_s, self._forget = parts.prefetch, parts.visibility_s, parts.forget
        self._source = parts.queue
        self._queue_config: QueueConfig | None = None
        """As it was when receiving began."""
        self._prefetcher: Prefetcher | None = None
        self._is_closed = False
        self._current: ItemT | None = None
        """The last item that iteration yielded."""

    @property
    def name(self) -> str:
        """In log lines and names of threads."""
        return self._source

    @property
    def queue(self) -> str:
        """The queue it receives from."""
        return self._source

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @operation
    async def run(
        self, handler: HandlerT, *, workers: int = 1, count: int | None = None, timeout_s: float | None = None
    ) -> int:
        """Calls `handler` for each one that comes, in so many threads or tasks, and returns how many were handled.

        If the handler raises, the message comes again after a pause that doubles with each attempt, or goes to
        the queue's dead letters if this was the last attempt. If a blocking `run` is interrupted, close this.
        """
        return await self._run(handler, workers, ReceiveQuota(count, timeout_s))

    def start(self, handler: HandlerT, *, workers: int = 1) -> None:
        """Runs the handler in the background, until this is closed; `join` waits for its end."""
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
    async def close(self) -> None:
        """Stops receiving. A temporary subscription ends, another goes on at the server."""
        await self._end()

    async def _run(self, handler: HandlerT, workers: int, quota: ReceiveQuota) -> int:
        check_handling(handler, workers)
        self._check_receivable()
        await self._handle(handler, workers, quota)
        return quota.claimed

    async def _items(self, count: int | None, timeout_s: float | None) -> AsyncIterator[ItemT]:
        self._check_receivable()
        quota = ReceiveQuota(count, timeout_s)
        while quota.claim():
            self._settle_current(is_done=True)
            self._current = await self._next(quota)
            if self._current is None:
                return
            yield self._current
        self._settle_current(is_done=True)

    def _check_receivable(self) -> None:
        if self._is_closed:
            raise InvalidValue(f"this {self.KIND} {self.name!r} was closed; make another one to go on")

    def _take_config(self, config: QueueConfig) -> int:
        """Keeps the queue's settings, and returns for how many milliseconds messages are leased."""
        self._queue_config = config
        visibility_s = self._visibility_s
        if visibility_s is None:
            visibility_s = max(config.visibility_s, VISIBILITY_S_MIN)
        return round(visibility_s * SECOND_MS)

    async def _new_prefetcher(self, config: QueueConfig, wake: Callable[[asyncio.Event], None]) -> Prefetcher:
        """For a queue with these settings; belongs to the event loop that runs this."""
        return Prefetcher(
            self._receiving,
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

    def _item(self, prefetcher: Prefetcher, held: HeldMessage) -> ItemT | None:
        """None if it cannot be decoded: it comes again, later each time, and goes to the dead letters in the end."""
        try:
            return self._decoded(held, partial(prefetcher.settle, held))
        except InvalidValue as error:
            _logger.warning("%s %s: %s", self.KIND, self.name, error)
            retry_ms = round(self._retry_pause_s(held.delivery.receive_count) * SECOND_MS)
            prefetcher.settle(held, retry_ms, reason_of(error))
            return None

    def _settle_current(self, *, is_done: bool) -> None:
        current, self._current = self._current, None
        if current is None:
            return
        if is_done:
            current.acknowledge()
        else:
            current.retry(self._retry_pause_s(current.attempt))

    def _failed(self, item: ItemT, error: Exception) -> None:
        """Logs that the handler raised, and releases the message."""
        attempt, retry_s = item.attempt, self._retry_pause_s(item.attempt)
        if self._is_last(attempt):
            assert self._queue_config is not None
            outcome = f"this was the last attempt, it goes to the dead-letter queue {self._queue_config.dead_letters}"
        else:
            outcome = f"it comes again in {retry_s:g} s"
        _logger.exception(
            "%s %s: the handler failed at %r (attempt %d); %s", self.KIND, self.name, item, attempt, outcome
        )
        item.retry(retry_s, reason=reason_of(error))

    # ── for subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────

    def _decoded(self, held: HeldMessage, settle: Settle) -> ItemT:
        """What is yielded for a message; raises `InvalidValue` if this client cannot read it."""
        raise NotImplementedError

    def _revive(self) -> Callable[[], Awaitable[None]] | None:
        """Restores a queue that was deleted, if that is possible."""
        return None

    async def _end(self) -> None:
        await self._close(is_queue_gone=False)

    # ── for each kind of client ───────────────────────────────────────────────────────────────────────────────────────

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Runs a coroutine in the event loop of the prefetcher and the lease."""
        raise NotImplementedError

    async def _next(self, quota: ReceiveQuota) -> ItemT | None:
        """The next item; None if none came in time, or this was closed."""
        raise NotImplementedError

    async def _handle(self, handler: HandlerT, workers: int, quota: ReceiveQuota) -> None:
        raise NotImplementedError

    async def _join(self) -> None:
        raise NotImplementedError

    async def _close(self, *, is_queue_gone: bool) -> None:
        """Stops receiving; `is_queue_gone` says that nothing needs to be released."""
        raise NotImplementedError


def reason_of(error: BaseException) -> str:
    """The error in a line, for people who look at dead letters."""
    return f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
