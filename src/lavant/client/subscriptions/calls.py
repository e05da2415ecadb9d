"""Calls about subscriptions and advertisements. Names make most of them repeatable."""

from __future__ import annotations

import secrets

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.subscriptions import (
    Advertise,
    DescribeSubscription,
    EncryptedFilter,
    ListAdvertisements,
    ListSubscriptions,
    RenewSubscription,
    Subscribe,
    Subscribed,
    Unadvertise,
    Unsubscribe,
    UpdateSubscription,
)
from lavant.broker.subscriptions.limits import LEASE_MS, LEASE_MS_MAX, LEASE_MS_MIN
from lavant.client.connection.calls import Call, done
from lavant.client.values.mirror import from_protocol, given
from lavant.client.values.queues import QueueConfig
from lavant.client.values.subscriptions import AdvertisementState, SubscriptionState, Webhook
from lavant.core.errors import InvalidValue
from lavant.core.seconds import check_seconds

TEMPORARY_PREFIX = "tmp-"
TEMPORARY = QueueConfig(retention_s=3600)
"""The queue of a temporary subscription. Its short retention keeps a slow program from filling the disk for days."""
DURABLE = QueueConfig()


def new_name() -> str:
    """A name for an unnamed subscription. The client chooses it, so that a repeated request makes one subscription."""
    return TEMPORARY_PREFIX + secrets.token_hex(8)


def subscription(
    filter: str | EncryptedFilter,
    *,
    name: str,
    queue: str,
    webhook: Webhook | str | None,
    config: QueueConfig | None,
    lease_s: float | None,
) -> Subscribe:
    """The request to subscribe: temporary without a name or with a lease, durable otherwise."""
    if webhook is not None and not name:
        raise InvalidValue("a subscription with a webhook goes on when this program has ended; give it a name")
    if lease_s is None:
        lease_ms = 0 if name else LEASE_MS
    else:
        check_seconds("lease_s", lease_s, LEASE_MS_MIN / SECOND_MS, LEASE_MS_MAX / SECOND_MS)
        lease_ms = round(lease_s * SECOND_MS)
    if config is None:
        config = TEMPORARY if lease_ms else DURABLE
    hook = Webhook(webhook) if isinstance(webhook, str) else webhook
    return Subscribe(
        filter,
        name if name else new_name(),
        queue,
        config=given("config", config, QueueConfig),
        webhook=None if hook is None else given("webhook", hook, Webhook),
        lease_ms=lease_ms,
    )


def subscribe(request: Subscribe) -> Call[SubscriptionState]:
    return Call(request, _subscribed)


def subscribe_again(request: Subscribe) -> Call[bool]:
    """Returns whether the subscription had ended."""
    return Call(request, lambda answer: answer.is_new)


def renew(name: str) -> Call[SubscriptionState]:
    return Call(RenewSubscription(name), _subscribed)


def update(name: str, filter: str | EncryptedFilter) -> Call[SubscriptionState]:
    return Call(UpdateSubscription(name, filter), _subscribed)


def unsubscribe(name: str) -> Call[None]:
    return Call(Unsubscribe(name), done, is_repeatable=False)


def remove(name: str) -> Call[None]:
    """The same for callers that ignore `UnknownSubscription`, so it may be repeated."""
    return Call(Unsubscribe(name), done)


def describe(name: str) -> Call[SubscriptionState]:
    return Call(DescribeSubscription(name), _subscribed)


def list_subscriptions(prefix: str, after: str, count: int) -> Call[list[SubscriptionState]]:
    request = ListSubscriptions(prefix=prefix, after=after, count=count)
    return Call(request, lambda answer: [from_protocol(SubscriptionState, each) for each in answer.subscriptions])


def advertise(filter: str, name: str) -> Call[AdvertisementState]:
    request = Advertise(filter, name if name else new_name())
    return Call(request, lambda answer: from_protocol(AdvertisementState, answer.advertisement))


def unadvertise(name: str) -> Call[None]:
    return Call(Unadvertise(name), done, is_repeatable=False)


def list_advertisements(after: str, count: int) -> Call[list[AdvertisementState]]:
    request = ListAdvertisements(after=after, count=count)
    return Call(request, lambda answer: [from_protocol(AdvertisementState, each) for each in answer.advertisements])


def _subscribed(answer: Subscribed) -> SubscriptionState:
    return from_protocol(SubscriptionState, answer.subscription)
