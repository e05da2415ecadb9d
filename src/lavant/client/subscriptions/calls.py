"""What can be asked about subscriptions and advertisements. All may be repeated: names make a second time harmless."""

from __future__ import annotations

import contextlib
import secrets

from lavant.broker.queues.config import MINUTE_MS, QueueConfig
from lavant.broker.serving.commands import Answer
from lavant.broker.subscriptions.commands import (
    Advertise,
    Advertised,
    AdvertisementsListed,
    AdvertisementState,
    DescribeSubscription,
    EncryptedFilter,
    ListAdvertisements,
    ListSubscriptions,
    Subscribe,
    Subscribed,
    SubscriptionsListed,
    SubscriptionState,
    Unadvertise,
    Unsubscribe,
    Webhook,
)
from lavant.client.connection.calls import Call, done, expect
from lavant.core.errors import InvalidValue, UnknownSubscription

TEMPORARY_PREFIX = "tmp-"
TEMPORARY = QueueConfig(retention_ms=60 * MINUTE_MS)
"""Of a subscription without a name: should its program die without a word, it does not fill the disk for days."""
DURABLE = QueueConfig()


def new_name() -> str:
    """For a subscription that nobody named; the client chooses it, so that asking twice makes one subscription."""
    return TEMPORARY_PREFIX + secrets.token_hex(8)


def subscribe(
    filter: str | EncryptedFilter,
    *,
    name: str,
    queue: str,
    webhook: Webhook | str | None,
    config: QueueConfig | None,
) -> Call[SubscriptionState]:
    if webhook is not None and not name:
        raise InvalidValue("a subscription with a webhook goes on when this program has ended; give it a name")
    if config is None:
        config = DURABLE if name else TEMPORARY
    request = Subscribe(
        filter,
        name if name else new_name(),
        queue,
        config=config,
        webhook=Webhook(webhook) if isinstance(webhook, str) else webhook,
    )
    return Call(request, _subscribed)


def unsubscribe(name: str) -> Call[None]:
    return Call(Unsubscribe(name), done, is_repeatable=False)


def remove(name: str) -> Call[None]:
    """The same, and it is no mistake if it is gone already."""
    return Call(Unsubscribe(name), _gone)


def describe(name: str) -> Call[SubscriptionState]:
    return Call(DescribeSubscription(name), _subscribed)


def list_subscriptions(prefix: str, after: str, count: int) -> Call[list[SubscriptionState]]:
    request = ListSubscriptions(prefix=prefix, after=after, count=count)
    return Call(request, lambda answer: expect(answer, SubscriptionsListed).subscriptions)


def advertise(filter: str, name: str) -> Call[AdvertisementState]:
    request = Advertise(filter, name if name else new_name())
    return Call(request, lambda answer: expect(answer, Advertised).advertisement)


def unadvertise(name: str) -> Call[None]:
    return Call(Unadvertise(name), done, is_repeatable=False)


def list_advertisements(after: str, count: int) -> Call[list[AdvertisementState]]:
    request = ListAdvertisements(after=after, count=count)
    return Call(request, lambda answer: expect(answer, AdvertisementsListed).advertisements)


def _subscribed(answer: Answer) -> SubscriptionState:
    return expect(answer, Subscribed).subscription


def _gone(answer: Answer) -> None:
    with contextlib.suppress(UnknownSubscription):
        done(answer)
