"""The interface of a delivery kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from lavant.broker.protocol.subscriptions import Subscribe, SubscriptionState
from lavant.service.observability.openmetrics import MetricFamily
from lavant.service.runtime.broker_runtime import BrokerRuntime


class DeliveryKind:
    """A way for messages to leave the server. The defaults are those of a kind that waits for consumers to ask.

    `to_private` says whether the kind may connect to this machine and to private networks.
    """

    name: ClassVar[str]
    """As log messages call it."""
    ways: ClassVar[tuple[str, ...]]
    """The values of the label `way` of the metric `lavant_notifications` that this kind counts."""

    def __init__(self, service: BrokerRuntime, *, to_private: bool) -> None:
        self.delivered = Counter(dict.fromkeys(self.ways, 0))
        """Messages that left the server, by way."""
        self._service = service
        self._to_private = to_private

    def check(self, request: Subscribe) -> None:
        """Raises a `LavantError` if this kind could not serve the subscription. Not called for a replay.

        The broker itself checks what its own state depends on (`lavant.broker.subscriptions.validation`).
        """

    def serves(self, subscription: SubscriptionState) -> bool:
        """Whether `deliver` is to run for the subscription."""
        return False

    async def deliver(self, subscription: SubscriptionState) -> None:
        """Delivers the subscription's messages until it is cancelled or the queue is gone.

        A task of its own runs this. Cancelled, it releases its messages, and ends within the limit `stop_s_max`.
        """
        raise NotImplementedError

    def families(self) -> Iterable[MetricFamily]:
        """Metrics of this kind, besides the number of messages delivered."""
        return ()
