"""Memory of subscriptions, advertisements and idempotency keys, from the constants of `queues.accounting.memory`."""

from __future__ import annotations

from collections.abc import Iterable

from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import AdvertisementState, SubscriptionState
from lavant.broker.queues.accounting.memory import (
    ADVERTISEMENT,
    KEY,
    KEY_ENTRY,
    MATCHED,
    MATCHED_BYTE,
    MATCHED_TEST_BYTE,
    SUBSCRIPTION,
    text_bytes,
    texts_bytes,
)


def memory_of(state: SubscriptionState) -> int:
    """Memory of a subscription and of its filter in the matchers' index, without its queue."""
    texts = [state.name, state.namespace, state.queue]
    if state.webhook is not None:
        texts += [state.webhook.url, state.webhook.secret]
    if isinstance(state.filter, str):
        filter_bytes = text_bytes(state.filter) + len(state.filter) * MATCHED_BYTE
    else:
        filter_bytes = len(state.filter.tests) * MATCHED_TEST_BYTE
    return SUBSCRIPTION + MATCHED + texts_bytes(texts) + filter_bytes


def memory_of_advertisement(state: AdvertisementState) -> int:
    return ADVERTISEMENT + texts_bytes((state.name, state.namespace, state.filter))


def memory_of_key(key: str, entries: Iterable[str | Refused]) -> int:
    """Memory of an idempotency key and its answer."""
    return KEY + text_bytes(key) + sum(map(_entry_memory, entries))


def _entry_memory(entry: str | Refused) -> int:
    if isinstance(entry, str):
        return KEY_ENTRY + text_bytes(entry)
    return 2 * KEY_ENTRY + text_bytes(entry.code) + text_bytes(entry.reason)
