"""The blocking client: publications, subscriptions, queues, jobs and advertisements over one connection.

>>> from lavant import connect
>>> with connect() as client, client.subscribe("price > 100") as expensive:  # doctest: +SKIP
...     client.publish({"symbol": "IBM", "price": 121.5})
...     for notification in expensive.notifications(count=1):
...         print(notification.attributes["symbol"])
IBM
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lavant.broker.protocol.subscriptions import Subscribe
from lavant.client.client_operations import ClientOperations, checked_name, cipher_of
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.connection import Connection
from lavant.client.connection.loop_thread import LoopThread
from lavant.client.connection.retries import RETRIES, TIMEOUT_S, Retries
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.consumers.base import ConsumerParts
from lavant.client.consumers.consumer import Consumer
from lavant.client.operations import run_blocking
from lavant.client.queues.queue import Queue
from lavant.client.requests import Replies
from lavant.client.subscriptions.base import SubscriptionParts
from lavant.client.subscriptions.lease import Lease, end_all
from lavant.client.subscriptions.notification import Notification
from lavant.client.subscriptions.subscription import Handler, Subscription
from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher
    from lavant.client.encryption.key import Key
    from lavant.client.publisher import Publisher
    from lavant.client.publisher.transport import BackgroundTransport
    from lavant.client.values.publisher import PublisherConfig


def connect(
    url: str = "",
    *,
    key: str = "",
    ca_file: Path | str | None = None,
    encryption: Key | None = None,
    timeout_s: float = TIMEOUT_S,
    retries: Retries = RETRIES,
) -> Client:
    """Connects to the server at `url`: `lavant://HOST:PORT`, or `lavants://HOST:PORT` with TLS.

    Without `url`, `key` or `ca_file`, the environment variables `LAVANT_URL`, `LAVANT_KEY` and `LAVANT_CA_FILE` are
    read; without those, the server is at `lavant://127.0.0.1:7324`. `key` is the API key, if the server requires one.
    With `encryption`, everything is encrypted before it is sent. An answer may take `timeout_s`; `retries` says how
    often the client tries to reach a server that does not answer.
    """
    settings = ConnectionSettings.from_environment(url, key=key, ca_file=ca_file, timeout_s=timeout_s, retries=retries)
    return Client(settings, cipher_of(encryption)).open()


class Client(ClientOperations[Queue, Subscription, Handler], Connection):
    """A blocking client. Threads may share one."""

    def __init__(self, settings: ConnectionSettings, cipher: Cipher | None = None) -> None:
        super().__init__(settings)
        self._cipher = cipher
        self._thread: LoopThread | None = None
        self._starting = threading.Lock()
        self._subscribed: set[Subscription] = set()
        self._consumers: set[Consumer] = set()
        self._replies: Replies | None = None
        self._replying = threading.Lock()
        self._receiving = AsyncConnection(settings)
        """In the background; renews the leases of temporary subscriptions, too."""
        self._transports: list[BackgroundTransport] = []

    def close(self) -> None:
        """Ends consumers and temporary subscriptions, and closes the connection, for good."""
        for consumer in list(self._consumers):
            consumer.close()
        leases = [lease for each in list(self._subscribed) for lease in run_blocking(each._detach())]
        if leases:
            self._background().run(end_all(leases))
        for transport in self._transports:
            transport.close()
        super().close()
        if self._thread is not None:
            self._thread.run(self._receiving.close())
            self._thread.close()
            self._thread = None

    def publisher(
        self, store: Path | str, *, controller: str | None = None, config: PublisherConfig | None = None
    ) -> Publisher:
        """A publisher that stores publications in the directory `store` until the server has them, and tunes itself.

        `controller` replaces the one in `config`. Close the publisher before the client.
        """
        from lavant.client.publisher import Publisher  # noqa: PLC0415
        from lavant.client.publisher.publisher import DEFAULT  # noqa: PLC0415
        from lavant.client.publisher.transport import BackgroundTransport  # noqa: PLC0415

        if not isinstance(store, Path | str):
            raise InvalidValue(f"a publisher's store must be the path of a directory, got {store!r:.40}")
        wanted = DEFAULT if config is None else config
        if controller is not None:
            wanted = replace(wanted, tuning=replace(wanted.tuning, controller=controller))
        transport = BackgroundTransport(self._background(), self._settings, self._cipher)
        self._transports.append(transport)
        return Publisher(transport, store, wanted)

    def queue(self, name: str) -> Queue:
        return Queue(self, checked_name(name), self._new_consumer)

    def _new_consumer(self, queue: str, prefetch: int, visibility_s: float | None) -> Consumer:
        parts = ConsumerParts(self, self._receiving, queue, prefetch, visibility_s, self._consumers.discard)
        consumer = Consumer(parts, self._background)
        self._consumers.add(consumer)
        return consumer

    async def _expect_replies(self) -> Replies:
        with self._replying:
            if self._replies is None:
                replies = Replies()
                self.subscribe(replies.filter, handler=replies.received)
                self._replies = replies
            return self._replies

    async def _reply_of(self, future: Future[Notification], timeout_s: float) -> Notification:
        return future.result(timeout_s)

    def _new_subscription(self, parts: SubscriptionParts) -> Subscription:
        return Subscription(parts, self._background)

    def _start_lease(self, request: Subscribe) -> Lease:
        lease = Lease(self._receiving, request)
        self._background().loop.call_soon_threadsafe(lease.start)
        return lease

    def _background(self) -> LoopThread:
        """The thread for background work, started when it is first needed."""
        with self._starting:
            if self._thread is None:
                self._thread = LoopThread()
            return self._thread
