"""Tables of routes, with digests that find every difference between two brokers' copies.

A route is known by its key, a hash of its content. The digest of a bucket is the exclusive or of its keys, so it does
not depend on the order of changes and each change costs the same. Two brokers compare the digests of all buckets, and
exchange the buckets that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.broker.protocol.federation import RouteEntry

BUCKETS = 256
KEY_BYTES = 16
DIGESTS_BYTES = BUCKETS * KEY_BYTES
NO_ROUTES = bytes(DIGESTS_BYTES)
"""The digests of an empty table."""

_encode = msgspec.msgpack.Encoder().encode


def key_of(entry: RouteEntry) -> bytes:
    return blake2b(_encode(entry), digest_size=KEY_BYTES).digest()


def bucket_of(key: bytes) -> int:
    return key[0]


def differing(one: bytes, other: bytes) -> list[int]:
    """The buckets whose digests differ.

    >>> differing(NO_ROUTES, bytes(KEY_BYTES) + b"1" + bytes(DIGESTS_BYTES - KEY_BYTES - 1))
    [1]
    """
    left, right = (np.frombuffer(each, np.uint8).reshape(BUCKETS, KEY_BYTES) for each in (one, other))
    return [int(bucket) for bucket in np.flatnonzero((left != right).any(axis=1))]


def is_empty(digests: bytes, bucket: int) -> bool:
    """Whether the digest of a bucket is that of no routes."""
    return not any(digests[bucket * KEY_BYTES : (bucket + 1) * KEY_BYTES])


class RouteTable:
    """Routes by key, in the order in which they came."""

    def __init__(self, entries: Iterable[RouteEntry] = ()) -> None:
        self.kinds: Counter[type[RouteEntry]] = Counter()
        """How many routes there are of each kind."""
        self._entries: dict[bytes, RouteEntry] = {}
        self._buckets: list[dict[bytes, None]] = [{} for _ in range(BUCKETS)]
        self._digests: NDArray[np.uint8] = np.zeros((BUCKETS, KEY_BYTES), np.uint8)
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[RouteEntry]:
        return iter(self._entries.values())

    def items(self) -> Iterable[tuple[bytes, RouteEntry]]:
        return self._entries.items()

    def get(self, key: bytes) -> RouteEntry | None:
        return self._entries.get(key)

    def add(self, entry: RouteEntry) -> bytes | None:
        """Its key; None if it is there already."""
        key = key_of(entry)
        if key in self._entries:
            return None
        self._entries[key] = entry
        self.kinds[type(entry)] += 1
        self._buckets[bucket_of(key)][key] = None
        self._toggle(key)
        return key

    def remove(self, key: bytes) -> RouteEntry | None:
        """The removed route; None if there is none with this key."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.kinds[type(entry)] -= 1
            del self._buckets[bucket_of(key)][key]
            self._toggle(key)
        return entry

    def keys_in(self, bucket: int) -> list[bytes]:
        return list(self._buckets[bucket])

    def entries_in(self, buckets: Iterable[int]) -> list[RouteEntry]:
        return [self._entries[key] for bucket in buckets for key in self._buckets[bucket]]

    def digests(self) -> bytes:
        return self._digests.tobytes()

    def _toggle(self, key: bytes) -> None:
        self._digests[bucket_of(key)] ^= np.frombuffer(key, np.uint8)
