"""Operations on a subscription that both clients offer, beside those of every consumer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.consumers.base import ConsumerBase, ConsumerParts, HandlerT
from lavant.client.consumers.item import Settle
from lavant.client.consumers.prefetcher import HeldMessage
from lavant.client.operations import Caller, listing, operation
from lavant.client.subscriptions import calls
from lavant.client.subscriptions.lease import Lease, end_all
from lavant.client.subscriptions.notification import Notification, notification_of
from lavant.client.values.subscriptions import SubscriptionState
from lavant.core.errors import InvalidValue, UnknownSubscription

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher


class SubscriptionParts(NamedTuple):
    """What a client makes a subscription of."""

    client: Caller
    receiving: AsyncConnection
    state: SubscriptionState
    lease: Lease | None
    cipher: Cipher | None
    prefetch: int
    visibility_s: float | None
    forget: Callable[[Any], None]
    """Called when the subscription is closed."""


class SubscriptionBase(ConsumerBase[Notification, HandlerT], Generic[HandlerT]):
    """A subscription on a server, and how its notifications are received here."""

    KIND = "subscription"

    def __init__(self, parts: SubscriptionParts) -> None:
        super().__init__(
            ConsumerParts(
                parts.client, parts.receiving, parts.state.queue, parts.prefetch, parts.visibility_s, parts.forget
            )
        )
        self._lease, self._cipher = parts.lease, parts.cipher
        self.state = parts.state
        """The subscription as the server described it."""
        self._is_removed = False

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def is_temporary(self) -> bool:
        """Whether it ends when it is closed: it was made here without a name, or with a lease."""
        return self._lease is not None

    @property
    def lapses(self) -> int:
        """How often a temporary subscription had ended at the server and was made again."""
        return 0 if self._lease is None else self._lease.lapses

    @listing
    def notifications(self, *, count: int | None = None, timeout_s: float | None = None) -> AsyncIterator[Notification]:
        """Yields notifications as they come: at most `count`, for at most `timeout_s`."""
        return self._items(count, timeout_s)

    @operation
    async def update(self, filter: str) -> None:
        """Changes the filter for publications from now on. The queue stays, with the notifications that wait there."""
        wanted = filter if self._cipher is None else self._cipher.filter(filter)
        self.state = await self._client._answer(calls.update(self.name, wanted))
        if self._lease is not None:
            self._lease.updated(wanted)

    @operation
    async def unsubscribe(self) -> None:
        """Ends the subscription for good, temporary or not, and deletes the queue that it owns."""
        await self._close(is_queue_gone=self.state.owns_queue)
        if self._is_removed:
            return
        if self._lease is not None:
            await self._in_loop(self._lease.stop())
        with suppress(UnknownSubscription):
            await self._client._answer(calls.remove(self.name))
        self._is_removed = True

    def _check_receivable(self) -> None:
        if self._is_closed:
            raise InvalidValue(f"subscription {self.name!r} was closed; subscribe again under its name to go on")
        if self.state.webhook is not None:
            raise InvalidValue(f"the notifications of {self.name!r} go to {self.state.webhook.url}, not to a program")

    def _decoded(self, held: HeldMessage, settle: Settle) -> Notification:
        return notification_of(held.delivery, self._cipher, settle)

    def _revive(self) -> Callable[[], Awaitable[None]] | None:
        """Restores the queue, if it ends with the lease."""
        return self._lease.renew if self._lease is not None and self.state.owns_queue else None

    async def _end(self) -> None:
        leases = await self._detach()
        if leases:
            await self._in_loop(end_all(leases))

    async def _detach(self) -> list[Lease]:
        """Stops receiving, and returns the leases that the caller must end, once."""
        await self._close(is_queue_gone=self.is_temporary and self.state.owns_queue)
        if self._lease is None or self._is_removed:
            return []
        self._is_removed = True
        return [self._lease]
