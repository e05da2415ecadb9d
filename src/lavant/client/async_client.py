"""The client for tasks of an event loop: publish, subscribe, queues, jobs and advertisements over one connection.

>>> from lavant import connect_async
>>> async def work() -> None:
...     async with await connect_async() as client, await client.subscribe("price > 100") as expensive:
...         await client.publish({"symbol": "IBM", "price": 121.5})
...         async for notification in expensive.notifications(count=1):
...             print(notification.attributes["symbol"])
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import MoveState
from lavant.broker.protocol.subscriptions import AdvertisementState, Subscribe, SubscriptionState, Webhook
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.calls import Call
from lavant.client.connection.retries import RETRIES, TIMEOUT_S, Retries
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.jobs.async_jobs import AsyncJobRequests
from lavant.client.publications import Publishable, Requests, Result, only_id, with_payload
from lavant.client.queues import calls as queue_calls
from lavant.client.queues.async_queue import AsyncQueue
from lavant.client.queues.calls import NEW_QUEUE
from lavant.client.subscriptions import calls
from lavant.client.subscriptions.async_subscription import AsyncHandler, AsyncSubscription
from lavant.client.subscriptions.base import check_receiving
from lavant.client.subscriptions.lease import Lease, end_all
from lavant.client.subscriptions.prefetcher import PREFETCH
from lavant.core.errors import Overloaded
from lavant.core.ports import QUEUES_URL

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher
    from lavant.client.encryption.key import Key

LISTED_AT_ONCE = 1000


async def connect_async(
    url: str = QUEUES_URL,
    *,
    key: str = "",
    ca_file: Path | str | None = None,
    encryption: Key | None = None,
    timeout_s: float = TIMEOUT_S,
    retries: Retries = RETRIES,
) -> AsyncClient:
    """A client of the server at `url`: `lavant://HOST:PORT`, or `lavants://HOST:PORT` with TLS.

    `key` says who asks, where a server wants to know. With `encryption`, everything is encrypted here before it leaves.
    An answer may take `timeout_s`; a server that is gone is tried again as `retries` says.
    """
    settings = ConnectionSettings.of(url, key=key, ca_file=ca_file, timeout_s=timeout_s, retries=retries)
    return await AsyncClient(settings, None if encryption is None else encryption.cipher()).open()


class AsyncClient(AsyncConnection, AsyncJobRequests):
    """Everything a server can be asked, for the tasks of one event loop."""

    def __init__(self, settings: ConnectionSettings, cipher: Cipher | None = None) -> None:
        super().__init__(settings)
        self._cipher = cipher
        self._subscribed: set[AsyncSubscription] = set()

    async def close(self) -> None:
        """For good: what is under way fails. Temporary subscriptions end."""
        leases = [lease for subscription in list(self._subscribed) for lease in await subscription._let_go()]
        await end_all(leases)
        await super().close()

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, publication: Publishable, *, payload: bytes | None = None) -> str:
        """Publish, and return the id. It is in the queues of all who want it then, and on the server's disk."""
        requests = Requests([with_payload(publication, payload)], self._cipher)
        await self._publish(requests)
        return only_id(requests)

    async def publish_many(self, publications: Iterable[Publishable]) -> list[str]:
        """Publish, and return the ids. `PartlyRefused` says which were not accepted, if any."""
        requests = Requests(publications, self._cipher)
        await self._publish(requests)
        return requests.ids()

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(
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
        handler: AsyncHandler | None = None,
        workers: int = 1,
    ) -> AsyncSubscription:
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
        state = await self.run(calls.subscribe(request))
        lease = self._started_lease(request) if state.is_temporary else None
        subscription = self._subscription(state, lease, prefetch, visibility_s)
        if handler is not None:
            subscription.start(handler, workers=workers)
        return subscription

    async def subscription(
        self, name: str, *, prefetch: int = PREFETCH, visibility_s: float | None = None
    ) -> AsyncSubscription:
        """One that is there already. Closing it does not end it."""
        check_receiving(prefetch, visibility_s)
        return self._subscription(await self.run(calls.describe(name)), None, prefetch, visibility_s)

    async def subscriptions(self, prefix: str = "") -> AsyncIterator[SubscriptionState]:
        """All, sorted by name."""
        after = ""
        while found := await self.run(calls.list_subscriptions(prefix, after, LISTED_AT_ONCE)):
            for each in found:
                yield each
            after = found[-1].name

    async def unsubscribe(self, name: str) -> None:
        """End a subscription, whoever made it; what waits in a queue of its own is gone."""
        await self.run(calls.unsubscribe(name))

    # ── advertisements ────────────────────────────────────────────────────────────────────────────────────────────────

    async def advertise(self, filter: str, *, name: str = "") -> AdvertisementState:
        """Say what is going to be published: all of it will match the filter."""
        return await self.run(calls.advertise(filter, name))

    async def unadvertise(self, name: str) -> None:
        await self.run(calls.unadvertise(name))

    async def advertisements(self) -> AsyncIterator[AdvertisementState]:
        """All, sorted by name."""
        after = ""
        while found := await self.run(calls.list_advertisements(after, LISTED_AT_ONCE)):
            for each in found:
                yield each
            after = found[-1].name

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def queue(self, name: str) -> AsyncQueue:
        """A queue by its name; whether it is there shows when it is used."""
        return AsyncQueue(self, name)

    async def create_queue(
        self, name: str, config: QueueConfig = NEW_QUEUE, *, tags: dict[str, str] | None = None
    ) -> AsyncQueue:
        """A queue that is there from now on; it may be there already, with the same settings."""
        await self.run(queue_calls.create(name, config, {} if tags is None else tags))
        return AsyncQueue(self, name)

    async def queues(self, prefix: str = "") -> AsyncIterator[str]:
        """The names of all queues, sorted."""
        after = ""
        while names := await self.run(queue_calls.list_queues(prefix, after, LISTED_AT_ONCE)):
            for name in names:
                yield name
            after = names[-1]

    async def cancel_move(self, task: int) -> MoveState:
        return await self.run(queue_calls.cancel_move(task))

    # ── its own ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _publish(self, requests: Requests) -> None:
        """In order: what is published first is in the queues first."""
        for places, call in requests:
            requests.take(places, await self._run_patiently(call))

    async def _run_patiently(self, call: Call[list[Result]]) -> list[Result]:
        """A server that has too much to do is given some time."""
        pauses_s = self._settings.retries.pauses_s()
        while True:
            try:
                return await self.run(call)
            except Overloaded:
                pause_s = next(pauses_s, None)
                if pause_s is None:
                    raise
            await asyncio.sleep(pause_s)

    def _subscription(
        self, state: SubscriptionState, lease: Lease | None, prefetch: int, visibility_s: float | None
    ) -> AsyncSubscription:
        subscription = AsyncSubscription(
            self,
            self._settings,
            state,
            lease,
            cipher=self._cipher,
            prefetch=prefetch,
            visibility_s=visibility_s,
            forget=self._subscribed.discard,
        )
        self._subscribed.add(subscription)
        return subscription

    def _started_lease(self, request: Subscribe) -> Lease:
        lease = Lease(self, request)
        lease.start()
        return lease
