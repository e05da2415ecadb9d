"""A subscription of an asynchronous client: iterate over its notifications, or handle them in tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from lavant.client.consumers.asynchronous import AsyncReceiving
from lavant.client.operations import Asynchronous
from lavant.client.subscriptions.base import SubscriptionBase, SubscriptionParts
from lavant.client.subscriptions.notification import Notification

AsyncHandler: TypeAlias = Callable[[Notification], Awaitable[Any]]


class AsyncSubscription(SubscriptionBase[AsyncHandler], AsyncReceiving[Notification], Asynchronous):
    """A subscription for the tasks of one event loop. A notification is acknowledged when you ask for the next one, or
    when its handler has returned."""

    def __init__(self, parts: SubscriptionParts) -> None:
        super().__init__(parts)
        self._use()

    def __aiter__(self) -> AsyncIterator[Notification]:
        return self.notifications()
