"""Validation of subscriptions, filters, webhooks, namespaces and publish requests."""

from __future__ import annotations

import re

import numpy as np

from lavant.broker.filters import parse
from lavant.broker.matching.encrypted.values import EncryptedFilters
from lavant.broker.protocol.queue_config import NAME_CHARACTERS_MAX
from lavant.broker.protocol.subscriptions import (
    Advertise,
    EncryptedFilter,
    ListAdvertisements,
    ListSubscriptions,
    Publish,
    Subscribe,
    Webhook,
)
from lavant.broker.queues.validation import check_name, check_range
from lavant.broker.subscriptions.limits import (
    KEY_CHARACTERS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    NAMESPACE_CHARACTERS_MAX,
    PUBLICATIONS_MAX,
    SECRET_CHARACTERS_MAX,
    URL_CHARACTERS_MAX,
    WEBHOOK_ATTEMPTS_MAX,
    WEBHOOK_TIMEOUT_MS_MAX,
    WEBHOOK_TIMEOUT_MS_MIN,
)
from lavant.core.errors import InvalidValue, LimitExceeded

LISTED_MAX = 1000
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]*")
_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_URL = re.compile(r"https?://[^\s/?#]+[^\s]*")


def check_filter(filter: str | EncryptedFilter) -> None:
    """Check that it can be matched. Costly, so done once for a new subscription and not on replay."""
    if isinstance(filter, str):
        parse(filter)
    else:
        tests_of(filter)


def tests_of(filter: EncryptedFilter) -> EncryptedFilters:
    """An encrypted filter as matchers take it."""
    width = filter.dimensions * 8
    if filter.dimensions < 1 or not filter.tests or len(filter.tests) % width:
        raise InvalidValue(
            f"an encrypted filter has {len(filter.tests)} bytes, which are not whole vectors of {filter.dimensions} "
            "doubles; encrypt it with the client's key"
        )
    return EncryptedFilters(np.frombuffer(filter.tests, "<f8").astype(np.float64).reshape(1, -1, filter.dimensions))


def check_subscribe(request: Subscribe) -> None:
    """Check all but the filter and what depends on other subscriptions."""
    check_namespace(request.namespace)
    _check_short("subscription", request.name)
    _check_short("queue", request.queue)
    if request.webhook is not None:
        _check_webhook(request.webhook)
    if request.lease_ms:
        _check_lease(request)


def check_advertise(request: Advertise) -> None:
    check_namespace(request.namespace)
    _check_short("advertisement", request.name)


def check_listing(request: ListSubscriptions | ListAdvertisements) -> None:
    check_namespace(request.namespace)
    check_range("count", request.count, 1, LISTED_MAX)
    _check_short("subscription" if isinstance(request, ListSubscriptions) else "advertisement", request.after)
    if isinstance(request, ListSubscriptions):
        _check_short("subscription", request.prefix)


def check_namespace(namespace: str) -> None:
    if len(namespace) > NAMESPACE_CHARACTERS_MAX or _NAMESPACE.fullmatch(namespace) is None:
        raise InvalidValue(
            f"a namespace consists of at most {NAMESPACE_CHARACTERS_MAX} letters, digits and any of _ - "
            f"(not {namespace[:60]!r})"
        )


def check_publish(request: Publish) -> None:
    """Check the size of the request; publications are checked one by one."""
    if not request.publications:
        raise InvalidValue("there is nothing to publish; give at least one publication")
    check_range("the number of publications", len(request.publications), 1, PUBLICATIONS_MAX)
    if len(request.key) > KEY_CHARACTERS_MAX:
        raise LimitExceeded(
            f"a request's key has {len(request.key)} characters, at most {KEY_CHARACTERS_MAX} are allowed"
        )


def _check_short(what: str, name: str) -> None:
    if not name:
        return
    if len(name) > NAME_CHARACTERS_MAX:
        check_name(name)
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(f"a {what}'s name consists of letters, digits and any of _ - . (not {name[:60]!r})")


def _check_webhook(webhook: Webhook) -> None:
    if len(webhook.url) > URL_CHARACTERS_MAX or _URL.fullmatch(webhook.url) is None:
        raise InvalidValue(
            f"a webhook's address must begin with http:// or https:// and have at most {URL_CHARACTERS_MAX} "
            f"characters, got {webhook.url[:80]!r}"
        )
    check_range("a webhook's attempts_max", webhook.attempts_max, 1, WEBHOOK_ATTEMPTS_MAX)
    check_range("a webhook's timeout_ms", webhook.timeout_ms, WEBHOOK_TIMEOUT_MS_MIN, WEBHOOK_TIMEOUT_MS_MAX)
    check_range("the length of a webhook's secret", len(webhook.secret), 0, SECRET_CHARACTERS_MAX)


def _check_lease(request: Subscribe) -> None:
    check_range("a subscription's lease_ms", request.lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)
    if request.webhook is not None:
        raise InvalidValue(
            "a subscription with a webhook has no client that could renew its lease; omit lease_ms, and "
            "unsubscribe when it is no longer needed"
        )
