"""The asynchronous client: publications, subscriptions, queues, jobs and advertisements over one connection.

>>> from lavant import connect_async
>>> async def work() -> None:
...     async with await connect_async() as client, await client.subscribe("price > 100") as expensive:
...         await client.publish({"symbol": "IBM", "price": 121.5})
...         async for notification in expensive.notifications(count=1):
...             print(notification.attributes["symbol"])
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from lavant.broker.protocol.subscriptions import Subscribe
from lavant.client.client_operations import ClientOperations, checked_name, cipher_of
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.retries import RETRIES, TIMEOUT_S, Retries
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.consumers.base import ConsumerParts
from lavant.client.consumers.consumer import AsyncConsumer
from lavant.client.queues.queue import AsyncQueue
from lavant.client.requests import Replies
from lavant.client.subscriptions.async_subscription import AsyncHandler, AsyncSubscription
from lavant.client.subscriptions.base import SubscriptionParts
from lavant.client.subscriptions.lease import Lease, end_all
from lavant.client.subscriptions.notification import Notification

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher
    from lavant.client.encryption.key import Key


async def connect_async(
    url: str = "",
    *,
    key: str = "",
    ca_file: Path | str | None = None,
    encryption: Key | None = None,
    timeout_s: float = TIMEOUT_S,
    retries: Retries = RETRIES,
) -> AsyncClient:
    """Connects an asynchronous client. The parameters are those of `connect`."""
    settings = ConnectionSettings.from_environment(url, key=key, ca_file=ca_file, timeout_s=timeout_s, retries=retries)
    return await AsyncClient(settings, cipher_of(encryption)).open()


class AsyncClient(ClientOperations[AsyncQueue, AsyncSubscription, AsyncHandler], AsyncConnection):
    """An asynchronous client, for the tasks of one event loop."""

    def __init__(self, settings: ConnectionSettings, cipher: Cipher | None = None) -> None:
        super().__init__(settings)
        self._cipher = cipher
        self._receiving = AsyncConnection(settings)
        self._subscribed: set[AsyncSubscription] = set()
        self._consumers: set[AsyncConsumer] = set()
        self._replies: Replies | None = None
        self._replying = asyncio.Lock()

    async def close(self) -> None:
        """Like `Client.close`; requests in flight fail."""
        for consumer in list(self._consumers):
            await consumer.close()
        leases = [lease for each in list(self._subscribed) for lease in await each._detach()]
        await end_all(leases)
        await self._receiving.close()
        await super().close()

    def queue(self, name: str) -> AsyncQueue:
        return AsyncQueue(self, checked_name(name), self._new_consumer)

    def _new_consumer(self, queue: str, prefetch: int, visibility_s: float | None) -> AsyncConsumer:
        parts = ConsumerParts(self, self._receiving, queue, prefetch, visibility_s, self._consumers.discard)
        consumer = AsyncConsumer(parts)
        self._consumers.add(consumer)
        return consumer

    async def _expect_replies(self) -> Replies:
        async with self._replying:
            if self._replies is None:
                replies = Replies()

                async def received(reply: Notification) -> None:
                    replies.received(reply)

                await self.subscribe(replies.filter, handler=received)
                self._replies = replies
            return self._replies

    async def _reply_of(self, future: Future[Notification], timeout_s: float) -> Notification:
        return await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)

    def _new_subscription(self, parts: SubscriptionParts) -> AsyncSubscription:
        return AsyncSubscription(parts)

    def _start_lease(self, request: Subscribe) -> Lease:
        lease = Lease(self, request)
        lease.start()
        return lease
