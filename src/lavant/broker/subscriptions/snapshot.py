"""Snapshots of the registry of subscriptions.

    Head | SubscriptionsPart … | AdvertisementsPart … | KeysPart … | AnsweredPart … | LogsPart … | End

Format 2 had no `AnsweredPart`: its keys have neither namespace nor fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import AdvertisementState, SubscriptionState
from lavant.broker.queues.snapshot import by_count
from lavant.broker.subscriptions.idempotency import RememberedRequest
from lavant.broker.subscriptions.log_offsets import LogOffset
from lavant.broker.subscriptions.registry import Subscriptions
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, check_format

FORMAT = 3
FORMAT_OLDEST = 2
CHUNK_ENTRIES = 1000


class _Part(msgspec.Struct, frozen=True, array_like=True):
    pass


class SubscriptionsHead(_Part, tag="head", frozen=True):
    format: int
    number: int


class SubscriptionsPart(_Part, tag="subscriptions", frozen=True):
    subscriptions: list[SubscriptionState]


class AdvertisementsPart(_Part, tag="advertisements", frozen=True):
    advertisements: list[AdvertisementState]


class KeysPart(_Part, tag="keys", frozen=True):
    keys: list[tuple[str, int, list[str | Refused]]]


class AnsweredPart(_Part, tag="answered", frozen=True):
    answered: list[tuple[str, str, RememberedRequest]]


class LogsPart(_Part, tag="lanes", frozen=True):
    lanes: list[tuple[str, LogOffset]]


class SubscriptionsEnd(_Part, tag="end", frozen=True):
    subscriptions: int


Part: TypeAlias = (
    SubscriptionsHead | SubscriptionsPart | AdvertisementsPart | KeysPart | AnsweredPart | LogsPart | SubscriptionsEnd
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Part).decode


def encode(registry: Subscriptions) -> Iterator[bytes]:
    registry.forget()
    number, subscriptions, advertisements = registry.contents()
    yield _encode(SubscriptionsHead(FORMAT, number))
    for some in by_count(subscriptions, CHUNK_ENTRIES):
        yield _encode(SubscriptionsPart(some))
    for announced in by_count(advertisements, CHUNK_ENTRIES):
        yield _encode(AdvertisementsPart(announced))
    for keys in by_count(registry.recent.unplaced(), CHUNK_ENTRIES):
        yield _encode(KeysPart(keys))
    for answered in by_count(registry.recent.all(), CHUNK_ENTRIES):
        yield _encode(AnsweredPart(answered))
    for logs in by_count(registry.log_offsets.all(), CHUNK_ENTRIES):
        yield _encode(LogsPart(logs))
    yield _encode(SubscriptionsEnd(len(registry)))


def decode(chunks: Iterable[bytes], registry: Subscriptions) -> None:
    """Fill an empty registry, whose queues exist already."""
    parts = _parts_in(chunks)
    head = next(parts, None)
    if not isinstance(head, SubscriptionsHead):
        raise _corrupt("it does not begin with its head")
    check_format("the snapshot of the subscriptions", head.format, FORMAT, oldest=FORMAT_OLDEST)
    subscriptions: list[SubscriptionState] = []
    advertisements: list[AdvertisementState] = []
    keys: list[tuple[str, int, list[str | Refused]]] = []
    answered: list[tuple[str, str, RememberedRequest]] = []
    logs: list[tuple[str, LogOffset]] = []
    for part in parts:
        if isinstance(part, SubscriptionsPart):
            subscriptions += part.subscriptions
        elif isinstance(part, AdvertisementsPart):
            advertisements += part.advertisements
        elif isinstance(part, KeysPart):
            keys += part.keys
        elif isinstance(part, AnsweredPart):
            answered += part.answered
        elif isinstance(part, LogsPart):
            logs += part.lanes
        elif isinstance(part, SubscriptionsEnd) and part.subscriptions == len(subscriptions):
            registry.restore(head.number, subscriptions, advertisements)
            registry.recent.restore(answered, keys)
            registry.log_offsets.restore(logs)
            return
        else:
            raise _corrupt(f"a part of kind {type(part).__name__} comes after {len(subscriptions)} subscriptions")
    raise _corrupt("its end is missing")


def _parts_in(chunks: Iterable[bytes]) -> Iterator[Part]:
    for place, chunk in enumerate(chunks):
        try:
            yield _decode(chunk)
        except UNDECODABLE as error:
            raise _corrupt(f"chunk {place} cannot be read ({error})") from None


def _corrupt(problem: str) -> CorruptSnapshot:
    return CorruptSnapshot(f"the snapshot of the subscriptions is damaged: {problem}; restore it from a copy")
