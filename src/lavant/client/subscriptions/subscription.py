"""A subscription of a blocking client: iterate over its notifications, or handle them in threads."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from lavant.client.connection.loop_thread import LoopThread
from lavant.client.consumers.threaded import ThreadedReceiving
from lavant.client.operations import Blocking
from lavant.client.subscriptions.base import SubscriptionBase, SubscriptionParts
from lavant.client.subscriptions.notification import Notification

Handler: TypeAlias = Callable[[Notification], Any]


class Subscription(SubscriptionBase[Handler], ThreadedReceiving[Notification], Blocking):
    """A notification is acknowledged when you ask for the next one, or when its handler has returned.

    Iterate in one thread only; `run` has several.
    """

    def __init__(self, parts: SubscriptionParts, background: Callable[[], LoopThread]) -> None:
        super().__init__(parts)
        self._use(background)

    def __iter__(self) -> Iterator[Notification]:
        return self.notifications()


def __getattr__(name: str) -> Any:
    """The name of the class in version 0.1."""
    if name == "ClientSubscription":
        warnings.warn("ClientSubscription is now lavant.Subscription", DeprecationWarning, stacklevel=2)
        return Subscription
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
