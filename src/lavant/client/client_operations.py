"""The operations that both clients offer: publications, subscriptions, advertisements, queues and jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import MoveState
from lavant.broker.protocol.subscriptions import AdvertisementState, Subscribe, SubscriptionState, Webhook
from lavant.client.connection.calls import Call
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.jobs import PAGE_SIZE, JobOperations
from lavant.client.operations import listing, operation
from lavant.client.publications import Publishable, Requests, Result, only_id, with_payload
from lavant.client.queues import calls as queue_calls
from lavant.client.queues.calls import NEW_QUEUE
from lavant.client.queues.queue import QueueOperations
from lavant.client.subscriptions import calls
from lavant.client.subscriptions.base import SubscriptionBase, SubscriptionParts, check_receiving
from lavant.client.subscriptions.lease import Lease
from lavant.client.subscriptions.prefetcher import PREFETCH
from lavant.core.errors import Overloaded

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher

QueueT = TypeVar("QueueT", bound=QueueOperations)
SubscriptionT = TypeVar("SubscriptionT", bound=SubscriptionBase[Any])
HandlerT = TypeVar("HandlerT")


class ClientOperations(JobOperations, Generic[QueueT, SubscriptionT, HandlerT]):
    """Everything you can ask a server."""

    _settings: ConnectionSettings
    _cipher: Cipher | None
    _subscribed: set[SubscriptionT]

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    @operation
    async def publish(self, publication: Publishable, *, payload: bytes | None = None) -> str:
        """Publishes, and returns the id: it is in the queues of all matching subscriptions then, and on disk."""
        requests = Requests([with_payload(publication, payload)], self._cipher)
        await self._publish(requests)
        return only_id(requests)

    @operation
    async def publish_many(self, publications: Iterable[Publishable]) -> list[str]:
        """Publishes in order and returns the ids. `PartlyRefused` says which were not accepted, if any."""
        requests = Requests(publications, self._cipher)
        await self._publish(requests)
        return requests.ids()

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────

    @operation
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
        handler: HandlerT | None = None,
        workers: int = 1,
    ) -> SubscriptionT:
        """Subscribes to publications that match the filter from now on. With a `name`, the subscription is durable:
        subscribe under the same name again to go on. Without a name, or with `lease_s`, it is temporary: it ends when
        it is closed, or `lease_s` (60 s) after the server last heard from this program.

        Notifications wait in a `queue` that the subscription owns, created with `config`, unless you name a queue.
        `prefetch` of them are leased ahead, for `visibility_s` at a time. With a `webhook` the server posts them. With
        a `handler` they are handled in the background, by so many `workers`.
        """
        check_receiving(prefetch, visibility_s, workers)
        wanted = filter if self._cipher is None else self._cipher.filter(filter)
        request = calls.subscription(wanted, name=name, queue=queue, webhook=webhook, config=config, lease_s=lease_s)
        state = await self._answer(calls.subscribe(request))
        lease = self._start_lease(request) if state.is_temporary else None
        subscription = self._add_subscription(state, lease, prefetch, visibility_s)
        if handler is not None:
            subscription.start(handler, workers=workers)
        return subscription

    @operation
    async def subscription(
        self, name: str, *, prefetch: int = PREFETCH, visibility_s: float | None = None
    ) -> SubscriptionT:
        """Returns a subscription that exists already. Closing it does not end it."""
        check_receiving(prefetch, visibility_s)
        return self._add_subscription(await self._answer(calls.describe(name)), None, prefetch, visibility_s)

    @listing
    async def subscriptions(self, prefix: str = "") -> AsyncIterator[SubscriptionState]:
        """All subscriptions whose names begin with `prefix`, sorted by name."""
        after = ""
        while found := await self._answer(calls.list_subscriptions(prefix, after, PAGE_SIZE)):
            for each in found:
                yield each
            after = found[-1].name

    @operation
    async def unsubscribe(self, name: str) -> None:
        """Ends a subscription, whichever client made it, and deletes the queue that it owns."""
        await self._answer(calls.unsubscribe(name))

    # ── advertisements ────────────────────────────────────────────────────────────────────────────────────────────────

    @operation
    async def advertise(self, filter: str, *, name: str = "") -> AdvertisementState:
        """Announces what you are going to publish: all of it will match the filter."""
        return await self._answer(calls.advertise(filter, name))

    @operation
    async def unadvertise(self, name: str) -> None:
        """Withdraws an advertisement."""
        await self._answer(calls.unadvertise(name))

    @listing
    async def advertisements(self) -> AsyncIterator[AdvertisementState]:
        """All advertisements, sorted by name."""
        after = ""
        while found := await self._answer(calls.list_advertisements(after, PAGE_SIZE)):
            for each in found:
                yield each
            after = found[-1].name

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def queue(self, name: str) -> QueueT:
        """A queue by its name. Nothing is asked of the server: a queue that does not exist raises when it is used."""
        raise NotImplementedError

    @operation
    async def create_queue(
        self, name: str, config: QueueConfig = NEW_QUEUE, *, tags: dict[str, str] | None = None
    ) -> QueueT:
        """Creates a queue. One that exists already with the same settings is returned."""
        await self._answer(queue_calls.create(name, config, {} if tags is None else tags))
        return self.queue(name)

    @listing
    async def queues(self, prefix: str = "") -> AsyncIterator[str]:
        """The names of all queues that begin with `prefix`, sorted."""
        after = ""
        while names := await self._answer(queue_calls.list_queues(prefix, after, PAGE_SIZE)):
            for name in names:
                yield name
            after = names[-1]

    @operation
    async def cancel_move(self, task: int) -> MoveState:
        """Stops a move of messages that `Queue.redrive` started."""
        return await self._answer(queue_calls.cancel_move(task))

    # ── private ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _publish(self, requests: Requests) -> None:
        for places, call in requests:
            requests.take(places, await self._answer_when_not_overloaded(call))

    async def _answer_when_not_overloaded(self, call: Call[list[Result]]) -> list[Result]:
        pauses_s = self._settings.retries.pauses_s()
        while True:
            try:
                return await self._answer(call)
            except Overloaded:
                pause_s = next(pauses_s, None)
                if pause_s is None:
                    raise
            await self._sleep(pause_s)

    def _add_subscription(
        self, state: SubscriptionState, lease: Lease | None, prefetch: int, visibility_s: float | None
    ) -> SubscriptionT:
        forget = self._subscribed.discard
        subscription = self._new_subscription(
            SubscriptionParts(self, self._settings, state, lease, self._cipher, prefetch, visibility_s, forget)
        )
        self._subscribed.add(subscription)
        return subscription

    def _new_subscription(self, parts: SubscriptionParts) -> SubscriptionT:
        raise NotImplementedError

    def _start_lease(self, request: Subscribe) -> Lease:
        raise NotImplementedError
