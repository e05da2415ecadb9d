"""All delivery kinds, and the tasks that deliver the messages of subscriptions."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextvars import Context
from typing import TypeVar, cast

from lavant.broker.protocol.subscriptions import Subscribe, SubscriptionState
from lavant.broker.subscriptions.registry import Added, Change
from lavant.core.errors import LavantError
from lavant.service.delivery.interface import DeliveryKind
from lavant.service.delivery.queue import QueueDelivery
from lavant.service.delivery.stream import StreamDelivery
from lavant.service.delivery.webhooks import WebhookDelivery
from lavant.service.observability.counters import counter_family
from lavant.service.observability.openmetrics import MetricFamily
from lavant.service.runtime.broker_runtime import BrokerRuntime

KINDS: tuple[type[DeliveryKind], ...] = (QueueDelivery, StreamDelivery, WebhookDelivery)

K = TypeVar("K", bound=DeliveryKind)
_logger = logging.getLogger(__name__)


class Deliveries:
    """The delivery kinds of one server. From `start` to `stop`, it follows the server's subscriptions."""

    def __init__(
        self, service: BrokerRuntime, *, to_private: bool = False, kinds: Iterable[type[DeliveryKind]] = KINDS
    ) -> None:
        self._service = service
        self._kinds = {kind: kind(service, to_private=to_private) for kind in kinds}
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}
        """By the number of the subscription."""

    def __getitem__(self, kind: type[K]) -> K:
        return cast(K, self._kinds[kind])

    def start(self, subscriptions: Iterable[SubscriptionState]) -> None:
        """Starts delivery for these subscriptions, and for all that come from now on."""
        for subscription in subscriptions:
            self._start(subscription)
        self._service.ingest.check_subscribe = self.check
        self._service.ingest.on_changes = self._changed

    async def stop(self) -> None:
        """Stops delivery. Messages in flight are delivered again when the server runs again."""
        self._service.ingest.on_changes = lambda changes: None
        tasks = [task for each in self._tasks.values() for task in each]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def check(self, request: Subscribe) -> None:
        for kind in self._kinds.values():
            kind.check(request)

    def families(self) -> Iterator[MetricFamily]:
        delivered = Counter({way: count for kind in self._kinds.values() for way, count in kind.delivered.items()})
        yield counter_family("lavant_notifications", "Messages handed to clients over HTTP.", "way", delivered)
        for kind in self._kinds.values():
            yield from kind.families()

    def _changed(self, changes: Sequence[Change]) -> None:
        """A subscription whose filter is changed goes on with the tasks that it has."""
        goes_on = {change.replaces for change in changes if isinstance(change, Added)}
        for change in changes:
            if isinstance(change, Added):
                tasks = self._tasks.pop(change.replaces, None)
                if tasks is not None:
                    self._tasks[change.subscription.number] = tasks
                elif not change.replaces:
                    self._start(change.subscription)
            elif change.subscription.number not in goes_on:
                for task in self._tasks.pop(change.subscription.number, ()):
                    task.cancel()

    def _start(self, subscription: SubscriptionState) -> None:
        # In a context of its own: a delivery does not belong to the request that made the subscription.
        tasks = [
            asyncio.create_task(
                _deliver(kind, subscription), name=f"{kind.name} {subscription.name}", context=Context()
            )
            for kind in self._kinds.values()
            if kind.serves(subscription)
        ]
        if tasks:
            self._tasks[subscription.number] = tasks


async def _deliver(kind: DeliveryKind, subscription: SubscriptionState) -> None:
    try:
        await kind.deliver(subscription)
    except LavantError as error:
        _logger.warning("the %s of subscription %s is not served: %s", kind.name, subscription.name, error)
