"""The client for callers that wait: publish, subscribe, queues, jobs and advertisements over one connection.

>>> from lavant import connect
>>> with connect() as client, client.subscribe("price > 100") as expensive:  # doctest: +SKIP
...     client.publish({"symbol": "IBM", "price": 121.5})
...     for notification in expensive.notifications(count=1):
...         print(notification.attributes["symbol"])
IBM
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import MoveState
from lavant.broker.protocol.subscriptions import AdvertisementState, Subscribe, SubscriptionState, Webhook
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.calls import Call
from lavant.client.connection.connection import Connection
from lavant.client.connection.loop_thread import LoopThread
from lavant.client.connection.retries import RETRIES, TIMEOUT_S, Retries
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.jobs.jobs import JobRequests
from lavant.client.publications import Publishable, Requests, Result, only_id, with_payload
from lavant.client.queues import calls as queue_calls
from lavant.client.queues.calls import NEW_QUEUE
from lavant.client.queues.queue import Queue
from lavant.client.subscriptions import calls
from lavant.client.subscriptions.base import check_receiving
from lavant.client.subscriptions.lease import Lease, end_all
from lavant.client.subscriptions.prefetcher import PREFETCH
from lavant.client.subscriptions.subscription import ClientSubscription, Handler
from lavant.client.transport import BackgroundTransport
from lavant.core.errors import Overloaded
from lavant.core.ports import QUEUES_URL

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher
    from lavant.client.encryption.key import Key
    from lavant.client.publisher import Publisher
    from lavant.control.publishing import PublisherConfig

LISTED_AT_ONCE = 1000


def connect(
    url: str = QUEUES_URL,
    *,
    key: str = "",
    ca_file: Path | str | None = None,
    encryption: Key | None = None,
    timeout_s: float = TIMEOUT_S,
    retries: Retries = RETRIES,
) -> Client:
    """A client of the server at `url`: `lavant://HOST:PORT`, or `lavants://HOST:PORT` with TLS.

    `key` says who asks, where a server wants to know. With `encryption`, everything is encrypted here before it leaves.
    An answer may take `timeout_s`; a server that is gone is tried again as `retries` says.
    """
    settings = ConnectionSettings.of(url, key=key, ca_file=ca_file, timeout_s=timeout_s, retries=retries)
    return Client(settings, None if encryption is None else encryption.cipher()).open()


class Client(Connection, JobRequests):
    """Everything a server can be asked. Threads may share one."""

    def __init__(self, settings: ConnectionSettings, cipher: Cipher | None = None) -> None:
        super().__init__(settings)
        self._cipher = cipher
        self._thread: LoopThread | None = None
        self._starting = threading.Lock()
        self._subscribed: set[ClientSubscription] = set()
        self._leasing = AsyncConnection(settings)
        """For the leases of temporary subscriptions, in the background."""
        self._transports: list[BackgroundTransport] = []

    def close(self) -> None:
        """For good. Temporary subscriptions end."""
        leases = [lease for subscription in list(self._subscribed) for lease in subscription._let_go()]
        if leases:
            self._background().run(end_all(leases))
        for transport in self._transports:
            transport.close()
        super().close()
        if self._thread is not None:
            self._thread.run(self._leasing.close())
            self._thread.close()
            self._thread = None

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, publication: Publishable, *, payload: bytes | None = None) -> str:
        """Publish, and return the id. It is in the queues of all who want it then, and on the server's disk."""
        requests = Requests([with_payload(publication, payload)], self._cipher)
        self._publish(requests)
        return only_id(requests)

    def publish_many(self, publications: Iterable[Publishable]) -> list[str]:
        """Publish, and return the ids. `PartlyRefused` says which were not accepted, if any."""
        requests = Requests(publications, self._cipher)
        self._publish(requests)
        return requests.ids()

    def publisher(
        self, store: Path | str, *, controller: str | None = None, config: PublisherConfig | None = None
    ) -> Publisher:
        """A publisher that keeps publications in the directory `store` until the server has them, and tunes itself.

        `controller` says how it does that, if not as the configuration has it. It is closed before the client is.
        """
        from lavant.client.publisher import Publisher  # noqa: PLC0415
        from lavant.client.publisher.publisher import DEFAULT  # noqa: PLC0415

        wanted = DEFAULT if config is None else config
        if controller is not None:
            wanted = replace(wanted, tuning=replace(wanted.tuning, controller=controller))
        transport = BackgroundTransport(self._background(), self._settings, self._cipher)
        self._transports.append(transport)
        return Publisher(transport, store, wanted)

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        filter: str,
        *,
        name: str = "",
        queue: str = "",
        webhook: Webhook | str | None = None,
        config: QueueConfig | None = None,
        lease_s: float | None = None,
        prefetch: int = PREFETCH,
        visibility_s: float | None = None,
        handler: Handler | None = None,
        workers: int = 1,
    ) -> ClientSubscription:
        """Have what matches from now on. With a `name`, it is kept while nobody listens; the same name again goes on.
        Without one, or with `lease_s`, it is temporary: it ends when it is closed, or `lease_s` (60 s) after this
        program was last heard of.

        Notifications wait in a `queue` of the subscription's own, made with `config`, unless one is named. `prefetch`
        of them are received ahead, and leased for `visibility_s` at a time. With a `webhook` the server posts them.
        With a `handler` they are handled in the background, by so many `workers`.
        """
        check_receiving(prefetch, visibility_s, workers)
        wanted = filter if self._cipher is None else self._cipher.filter(filter)
        request = calls.subscription(wanted, name=name, queue=queue, webhook=webhook, config=config, lease_s=lease_s)
        state = self.run(calls.subscribe(request))
        lease = self._started_lease(request) if state.is_temporary else None
        subscription = self._subscription(state, lease, prefetch, visibility_s)
        if handler is not None:
            subscription.start(handler, workers=workers)
        return subscription

    def subscription(
        self, name: str, *, prefetch: int = PREFETCH, visibility_s: float | None = None
    ) -> ClientSubscription:
        """One that is there already. Closing it does not end it."""
        check_receiving(prefetch, visibility_s)
        return self._subscription(self.run(calls.describe(name)), None, prefetch, visibility_s)

    def subscriptions(self, prefix: str = "") -> Iterator[SubscriptionState]:
        """All, sorted by name."""
        after = ""
        while found := self.run(calls.list_subscriptions(prefix, after, LISTED_AT_ONCE)):
            yield from found
            after = found[-1].name

    def unsubscribe(self, name: str) -> None:
        """End a subscription, whoever made it; what waits in a queue of its own is gone."""
        self.run(calls.unsubscribe(name))

    # ── advertisements ────────────────────────────────────────────────────────────────────────────────────────────────

    def advertise(self, filter: str, *, name: str = "") -> AdvertisementState:
        """Say what is going to be published: all of it will match the filter."""
        return self.run(calls.advertise(filter, name))

    def unadvertise(self, name: str) -> None:
        self.run(calls.unadvertise(name))

    def advertisements(self) -> Iterator[AdvertisementState]:
        """All, sorted by name."""
        after = ""
        while found := self.run(calls.list_advertisements(after, LISTED_AT_ONCE)):
            yield from found
            after = found[-1].name

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def queue(self, name: str) -> Queue:
        """A queue by its name; whether it is there shows when it is used."""
        return Queue(self, name)

    def create_queue(self, name: str, config: QueueConfig = NEW_QUEUE, *, tags: dict[str, str] | None = None) -> Queue:
        """A queue that is there from now on; it may be there already, with the same settings."""
        self.run(queue_calls.create(name, config, {} if tags is None else tags))
        return Queue(self, name)

    def queues(self, prefix: str = "") -> Iterator[str]:
        """The names of all queues, sorted."""
        after = ""
        while names := self.run(queue_calls.list_queues(prefix, after, LISTED_AT_ONCE)):
            yield from names
            after = names[-1]

    def cancel_move(self, task: int) -> MoveState:
        return self.run(queue_calls.cancel_move(task))

    # ── its own ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _publish(self, requests: Requests) -> None:
        for places, call in requests:
            requests.take(places, self._run_patiently(call))

    def _run_patiently(self, call: Call[list[Result]]) -> list[Result]:
        """A server that has too much to do is given some time."""
        pauses_s = self._settings.retries.pauses_s()
        while True:
            try:
                return self.run(call)
            except Overloaded:
                pause_s = next(pauses_s, None)
                if pause_s is None:
                    raise
            time.sleep(pause_s)

    def _subscription(
        self, state: SubscriptionState, lease: Lease | None, prefetch: int, visibility_s: float | None
    ) -> ClientSubscription:
        subscription = ClientSubscription(
            self,
            self._settings,
            state,
            lease,
            background=self._background,
            cipher=self._cipher,
            prefetch=prefetch,
            visibility_s=visibility_s,
            forget=self._subscribed.discard,
        )
        self._subscribed.add(subscription)
        return subscription

    def _started_lease(self, request: Subscribe) -> Lease:
        lease = Lease(self._leasing, request)
        self._background().loop.call_soon_threadsafe(lease.start)
        return lease

    def _background(self) -> LoopThread:
        """For what goes on beside the caller; there is none until it is needed."""
        with self._starting:
            if self._thread is None:
                self._thread = LoopThread()
            return self._thread
