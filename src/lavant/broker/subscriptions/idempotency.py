"""Idempotency keys: a publish request repeated with its key gets the same answer and is not done twice.

    namespace ──► key ──► time of the answer, fingerprint of the publications, the answer

Each namespace has its own keys and its own bound. A namespace that exceeds it forgets its own oldest keys early and
affects no other. When all namespaces together hold too many, those with the most keys lose some. Keys expire second by
second, and a namespace is dropped with its last key.

The same key with other publications is a publisher's error, told from a repetition by the fingerprint.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, takewhile

import msgspec

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import PublishOutcome
from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.accounting.memory import KEYS_NAMESPACE, text_bytes
from lavant.broker.subscriptions.memory import memory_of_key
from lavant.core.errors import UNDECODABLE
from lavant.core.publications.publication import ID, POINT

REMEMBERED_MS = 5 * 60_000
KEYS_MAX = 200_000
"""Per namespace. Beyond it, its oldest keys are forgotten early."""
KEYS_TOTAL_MAX = 1_000_000
"""Over all namespaces. Beyond it, the namespaces with the most keys are cut to one size, the largest that fits."""
FINGERPRINT_BYTES = 16

_KEPT_OF_TOTAL = KEYS_TOTAL_MAX * 99 // 100
"""Left after a cut, so that the next one is not due at once."""
_POINT_NAME = b'"' + POINT.encode() + b'"'

Entries = list[str | Refused]


class RememberedRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer to a request with a key."""

    time_ms: int
    fingerprint: bytes
    """Empty in data of versions that stored none: then every request matches."""
    entries: Entries

    def matches(self, fingerprint: bytes) -> bool:
        return not self.fingerprint or self.fingerprint == fingerprint


class IdempotencyKeys:
    """Answers to requests with a key, kept for some minutes."""

    __slots__ = ("_counters", "_namespaces", "_seconds", "_total", "_unplaced", "evicted")

    def __init__(self, counters: QueueCounters) -> None:
        self.evicted = 0
        """Keys forgotten early since the process started."""
        self._counters = counters
        self._namespaces: dict[str, dict[str, RememberedRequest]] = {}
        """Namespaces with their keys, in the order of time."""
        self._seconds: dict[int, dict[str, None]] = {}
        """The namespaces that got keys in each second, in the order of time."""
        self._unplaced: dict[str, RememberedRequest] = {}
        """From versions that did not store the namespace."""
        self._total = 0

    def __len__(self) -> int:
        return self._total + len(self._unplaced)

    def counts(self) -> Mapping[str, int]:
        """Number of keys by namespace."""
        return {namespace: len(keys) for namespace, keys in self._namespaces.items()}

    def find(self, namespace: str, key: str, now_ms: int) -> RememberedRequest | None:
        """The answer to a recent request with this key."""
        keys = self._namespaces.get(namespace)
        found = None if keys is None else keys.get(key)
        if found is None:
            found = self._unplaced.get(key)
        return found if found is not None and now_ms < found.time_ms + REMEMBERED_MS else None

    def remember(self, answers: Iterable[PublishOutcome], now_ms: int) -> None:
        self.forget(now_ms)
        for each in answers:
            self._put(each.namespace, each.key, RememberedRequest(now_ms, each.fingerprint, each.entries))
            keys = self._namespaces[each.namespace]
            if len(keys) > KEYS_MAX:
                self._drop(each.namespace, keys, 1)
                self.evicted += 1
        if self._total > KEYS_TOTAL_MAX:
            self._cut()

    def remember_unplaced(self, answers: Mapping[str, Entries], now_ms: int) -> None:
        """From journals of versions that stored neither namespace nor fingerprint."""
        self.forget(now_ms)
        for key, entries in answers.items():
            self._unplaced.pop(key, None)
            self._unplaced[key] = RememberedRequest(now_ms, b"", entries)
        while len(self._unplaced) > KEYS_MAX:
            del self._unplaced[next(iter(self._unplaced))]

    def forget(self, now_ms: int) -> None:
        """Forget keys of seconds that ended `REMEMBERED_MS` ago."""
        over = (now_ms - REMEMBERED_MS) // SECOND_MS
        while self._seconds and (second := next(iter(self._seconds))) < over:
            for namespace in self._seconds.pop(second):
                keys = self._namespaces.get(namespace, {})
                self._drop(namespace, keys, _count_before(keys, over * SECOND_MS))
        for key in list(islice(self._unplaced, _count_before(self._unplaced, over * SECOND_MS))):
            del self._unplaced[key]

    def all(self) -> Iterator[tuple[str, str, RememberedRequest]]:
        """Namespace, key, answer; in the order that `restore` needs."""
        return ((namespace, key, each) for namespace, keys in self._namespaces.items() for key, each in keys.items())

    def unplaced(self) -> Iterator[tuple[str, int, Entries]]:
        return ((key, each.time_ms, each.entries) for key, each in self._unplaced.items())

    def restore(
        self, answers: Iterable[tuple[str, str, RememberedRequest]], unplaced: Iterable[tuple[str, int, Entries]]
    ) -> None:
        """Restore into an empty instance."""
        for namespace, key, each in answers:
            self._put(namespace, key, each)
        self._seconds = dict(sorted(self._seconds.items()))
        self._unplaced = {key: RememberedRequest(time_ms, b"", entries) for key, time_ms, entries in unplaced}

    def _put(self, namespace: str, key: str, remembered: RememberedRequest) -> None:
        """Add as the latest of its namespace."""
        keys = self._namespaces.get(namespace)
        if keys is None:
            keys = self._namespaces[namespace] = {}
            self._counters.memory += KEYS_NAMESPACE + text_bytes(namespace)
        former = keys.pop(key, None)
        if former is not None:
            self._total -= 1
            self._counters.memory -= memory_of_key(key, former.entries)
        keys[key] = remembered
        self._total += 1
        self._counters.memory += memory_of_key(key, remembered.entries)
        self._seconds.setdefault(remembered.time_ms // SECOND_MS, {})[namespace] = None

    def _drop(self, namespace: str, keys: dict[str, RememberedRequest], count: int) -> None:
        """Forget the oldest keys of a namespace, and the namespace if these are all."""
        if not count:
            return
        for key in list(islice(keys, count)):
            self._counters.memory -= memory_of_key(key, keys.pop(key).entries)
        self._total -= count
        if not keys:
            del self._namespaces[namespace]
            self._counters.memory -= KEYS_NAMESPACE + text_bytes(namespace)

    def _cut(self) -> None:
        """Cut the namespaces with the most keys; those with fewer are not touched."""
        most = _level([len(keys) for keys in self._namespaces.values()], _KEPT_OF_TOTAL)
        for namespace, keys in list(self._namespaces.items()):
            surplus = max(0, len(keys) - most)
            self._drop(namespace, keys, surplus)
            self.evicted += surplus


def _count_before(keys: Mapping[str, RememberedRequest], time_ms: int) -> int:
    """How many are older; they are in the order of time."""
    return sum(1 for _ in takewhile(lambda each: each.time_ms < time_ms, keys.values()))


def fingerprint_of(publications: list[bytes]) -> bytes:
    """Equal for the same publications, byte for byte. Encryption differs each time, so encrypted ones are compared by
    id.
    """
    joined = b"".join(publications)
    if _POINT_NAME in joined:
        publications = [_comparable(each) for each in publications]
        joined = b"".join(publications)
    digest = hashlib.blake2b(array("Q", map(len, publications)), digest_size=FINGERPRINT_BYTES)
    digest.update(joined)
    return digest.digest()


def _comparable(publication: bytes) -> bytes:
    try:
        row = msgspec.json.decode(publication)
    except UNDECODABLE:
        return publication
    if not isinstance(row, dict) or POINT not in row:
        return publication
    return _POINT_NAME + str(row.get(ID, "")).encode()


def _level(sizes: list[int], total: int) -> int:
    """The largest size such that sizes cut to it have at most this total.

    >>> _level([100, 7, 50], 67), _level([100, 7, 50], 1000), _level([1, 1, 1], 2)
    (30, 100, 0)
    """
    left = total
    ordered = sorted(sizes)
    for place, size in enumerate(ordered):
        share = left // (len(ordered) - place)
        if size > share:
            return share
        left -= size
    return max(ordered, default=0)
