"""All couriers of a server: one for each subscription that has a webhook."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable

from lavant.broker.protocol.subscriptions import SubscriptionState
from lavant.broker.subscriptions.registry import Added, Change
from lavant.core.errors import LavantError
from lavant.service.delivery.webhooks.http_client import Idle
from lavant.service.delivery.webhooks.sender import WebhookSender
from lavant.service.observability.counters import Meters
from lavant.service.runtime.broker_runtime import BrokerRuntime

_logger = logging.getLogger(__name__)


class Webhooks:
    """Follows the subscriptions of a service."""

    def __init__(self, service: BrokerRuntime, meters: Meters, *, to_private: bool) -> None:
        self._service = service
        self._meters = meters
        self._to_private = to_private
        self._context = ssl.create_default_context()
        self._turns = asyncio.Semaphore(service.limits.webhook_requests_total_max)
        self._idle = Idle(service.limits.webhook_idle_max)
        self._couriers: dict[int, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._couriers)

    def start(self, subscriptions: Iterable[SubscriptionState]) -> None:
        """Take up the work for those that are there, and for all that come and go from now on."""
        for subscription in subscriptions:
            self._hire(subscription)
        self._service.access.on_changes = self.changed

    def changed(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, Added):
                self._hire(change.subscription)
            else:
                courier = self._couriers.pop(change.subscription.number, None)
                if courier is not None:
                    courier.cancel()

    async def stop(self) -> None:
        """Requests that take too long are given up; their messages are posted again when a server is there again."""
        self._service.access.on_changes = lambda changes: None
        couriers = list(self._couriers.values())
        self._couriers.clear()
        for courier in couriers:
            courier.cancel()
        await asyncio.gather(*couriers, return_exceptions=True)

    def _hire(self, subscription: SubscriptionState) -> None:
        if subscription.webhook is None:
            return
        try:
            courier = WebhookSender(
                subscription,
                self._service,
                self._meters,
                self._turns,
                self._idle,
                to_private=self._to_private,
                context=self._context,
            )
        except LavantError as error:  # an address that nobody can call
            _logger.warning("the webhook of subscription %s is not served: %s", subscription.name, error)
            return
        self._couriers[subscription.number] = asyncio.create_task(courier.run(), name=f"webhook {subscription.name}")
