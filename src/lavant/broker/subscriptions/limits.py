"""Limits of subscriptions, advertisements and publish requests.

They decide whether a request is accepted, never what it does: a journal written under other limits replays the same.
"""

from __future__ import annotations

import msgspec


class SubscriptionLimits(msgspec.Struct, frozen=True):
    subscriptions_max: int = 1_000_000
    advertisements_max: int = 10_000
    namespace_attributes_max: int = 4096
    """Attributes, each with a type, that the plain filters of one namespace compare; see `filter_quota`."""


DEFAULT_LIMITS = SubscriptionLimits()
UNLIMITED = SubscriptionLimits(*[1 << 62] * len(SubscriptionLimits.__struct_fields__))
"""For replay: a command that was accepted once is never refused."""

URL_CHARACTERS_MAX = 2048
SECRET_CHARACTERS_MAX = 256
WEBHOOK_ATTEMPTS_MAX = 100
WEBHOOK_TIMEOUT_MS_MIN, WEBHOOK_TIMEOUT_MS_MAX = 100, 60_000
NAMESPACE_CHARACTERS_MAX = 40
KEY_CHARACTERS_MAX = 128
PUBLICATIONS_MAX = 10_000
"""Per request."""
LEASE_MS_MIN, LEASE_MS_MAX = 1_000, 24 * 3_600_000
"""Of a temporary subscription."""
LEASE_MS = 60_000
"""Default of a temporary subscription."""
