"""The operations that both clients offer: publications, subscriptions, advertisements, queues and jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lavant import tracing
from lavant.broker.protocol.queues import SendEntry
from lavant.broker.protocol.subscriptions import Subscribe
from lavant.client import queue_calls
from lavant.client.arguments import listed
from lavant.client.bodies import Body, body_bytes
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.calls import Call
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.consumers.base import check_receiving
from lavant.client.consumers.consumer import QueueMessage
from lavant.client.consumers.prefetcher import PREFETCH
from lavant.client.jobs import PAGE_SIZE, JobOperations
from lavant.client.operations import listing, operation
from lavant.client.publications import Publishable, Requests, Result, only_id, with_payload
from lavant.client.queue_calls import NEW_QUEUE
from lavant.client.queues.queue import QueueOperations
from lavant.client.requests import Replies, reply_to
from lavant.client.subscriptions import calls
from lavant.client.subscriptions.base import SubscriptionBase, SubscriptionParts
from lavant.client.subscriptions.lease import Lease
from lavant.client.subscriptions.notification import Notification
from lavant.client.values.queues import MoveState, QueueConfig
from lavant.client.values.subscriptions import AdvertisementState, SubscriptionState, Webhook
from lavant.core.errors import InvalidValue, NoReply, Overloaded
from lavant.core.seconds import check_seconds

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher
    from lavant.client.encryption.key import Key

QueueT = TypeVar("QueueT", bound=QueueOperations[Any, Any])
SubscriptionT = TypeVar("SubscriptionT", bound=SubscriptionBase[Any])
HandlerT = TypeVar("HandlerT")


def cipher_of(encryption: Key | None) -> Cipher | None:
    """What encrypts with a key; raises if it is none."""
    if encryption is None:
        return None
    if not hasattr(encryption, "cipher"):  # the class itself needs NumPy, which a client without encryption lacks
        raise InvalidValue(f'encryption must be a `Key`, such as Key.load("key.json"), got {encryption!r:.40}')
    return encryption.cipher()


class ClientOperations(JobOperations, Generic[QueueT, SubscriptionT, HandlerT]):
    """Everything you can ask a server."""

    _settings: ConnectionSettings
    _receiving: AsyncConnection
    """Shared by all consumers, so that publications and other requests do not hold them up."""
    _cipher: Cipher | None
    _subscribed: set[SubscriptionT]

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    @operation
    async def publish(self, publication: Publishable, *, payload: Body | None = None) -> str:
        """Publishes, and returns the id: it is in the queues of all matching subscriptions then, and on disk. A payload
        may be bytes, text, or a dict or list, which are sent as JSON."""
        return await self._publish_one(with_payload(publication, payload))

    @operation
    async def publish_many(self, publications: Iterable[Publishable]) -> list[str]:
        """Publishes in order and returns the ids. `PartlyRefused` says which were not accepted, if any."""
        given = listed("publish_many", publications)
        with tracing.producing("publish", count=len(given)):
            requests = Requests(given, self._cipher, trace=tracing.current())
            await self._publish(requests)
            return requests.ids()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @operation
    async def request(self, queue: str, body: Body, *, timeout_s: float = 30.0) -> Notification:
        """Sends a message to a queue, and returns the reply: its payload is what a consumer of the queue gave to
        `reply`. Raises `NoReply` after `timeout_s`; the message may still be handled then."""
        if self._cipher is not None:
            raise InvalidValue("replies cannot be encrypted; connect without `encryption` for requests")
        check_seconds("timeout_s", timeout_s)
        replies = await self._expect_replies()
        number, future = replies.expect()
        try:
            with tracing.producing("request", queue):
                entry = SendEntry(body_bytes(body), replies.attributes(number, tracing.current()))
                await self._answer(queue_calls.send_stored(queue, entry))
                return await self._reply_of(future, timeout_s)
        except TimeoutError:
            raise NoReply(
                f"no reply came from queue {queue!r} within {timeout_s:g} s; is there a consumer, and does it reply?"
            ) from None
        finally:
            replies.forget(number)

    @operation
    async def reply(self, message: QueueMessage, body: Body) -> None:
        """Answers a message that was sent with `request`, and does not acknowledge it."""
        await self._publish_one(reply_to(message, body_bytes(body, "a reply")))

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
        check_receiving(prefetch, visibility_s, handler, workers)
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

    async def _publish_one(self, publication: Publishable) -> str:
        with tracing.producing("publish"):
            requests = Requests([publication], self._cipher, trace=tracing.current())
            await self._publish(requests)
            return only_id(requests)

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

    async def _expect_replies(self) -> Replies:
        """The replies to this client, with a subscription for them."""
        raise NotImplementedError

    async def _reply_of(self, future: Future[Notification], timeout_s: float) -> Notification:
        raise NotImplementedError

    def _add_subscription(
        self, state: SubscriptionState, lease: Lease | None, prefetch: int, visibility_s: float | None
    ) -> SubscriptionT:
        forget = self._subscribed.discard
        subscription = self._new_subscription(
            SubscriptionParts(self, self._receiving, state, lease, self._cipher, prefetch, visibility_s, forget)
        )
        self._subscribed.add(subscription)
        return subscription

    def _new_subscription(self, parts: SubscriptionParts) -> SubscriptionT:
        raise NotImplementedError

    def _start_lease(self, request: Subscribe) -> Lease:
        raise NotImplementedError


def checked_name(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidValue(f"a queue's name must be a string that is not empty, got {name!r:.60}")
    return name
