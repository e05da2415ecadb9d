"""Subscriptions and advertisements as a server describes them, and webhooks."""

from __future__ import annotations

from typing import ClassVar

from lavant.broker.protocol import subscriptions as protocol
from lavant.broker.protocol.subscriptions import EncryptedFilter
from lavant.broker.subscriptions.limits import WEBHOOK_TIMEOUT_MS_MAX, WEBHOOK_TIMEOUT_MS_MIN
from lavant.client.values.mirror import Bounds, Mirror
from lavant.core.seconds import SECOND_MS

_NEW = protocol.Webhook("")


class Webhook(Mirror[protocol.Webhook], frozen=True):
    """Delivers each notification in an HTTP request of its own."""

    url: str
    attempts_max: int = _NEW.attempts_max
    """After that, a notification goes to the dead-letter queue."""
    timeout_s: float = _NEW.timeout_ms / SECOND_MS
    """Of one request."""
    secret: str = _NEW.secret
    """If given, each request carries an HMAC-SHA256 of its id, time and body under this secret."""

    _bounds_ms: ClassVar[Bounds] = {"timeout_s": (WEBHOOK_TIMEOUT_MS_MIN, WEBHOOK_TIMEOUT_MS_MAX)}


class SubscriptionState(Mirror[protocol.SubscriptionState], frozen=True):
    """A subscription as the server holds it."""

    number: int
    """Identifies it and its filter; another one after each update."""
    name: str
    namespace: str
    filter: str | EncryptedFilter
    queue: str
    owns_queue: bool
    webhook: Webhook | None
    created_s: float
    """In seconds since 1970."""
    lease_s: float = 0.0
    """Positive if it is temporary."""
    expires_s: float = 0.0
    """When it ends unless its lease is renewed, in seconds since 1970; 0 if it is not temporary."""

    @property
    def is_temporary(self) -> bool:
        return self.lease_s > 0


class AdvertisementState(Mirror[protocol.AdvertisementState], frozen=True):
    """An advertisement as the server holds it."""

    name: str
    namespace: str
    filter: str
    created_s: float
    """In seconds since 1970."""
