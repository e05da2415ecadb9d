"""De-duplication: the names of messages sent to an in-order queue within the last five minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from typing import TypeAlias

from lavant.broker.protocol.queue_config import DEDUPLICATION_MS
from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.accounting.memory import NAME, NAME_IN_GROUP, NAMES_WINDOW, text_bytes, texts_bytes
from lavant.core.errors import LimitExceeded

Key: TypeAlias = str | tuple[str, str]
"""A name or, where each group has names of its own, a group and a name."""


class Deduplication:
    """The first message with each name. A name is kept from the send on, whatever became of the message.

    >>> names = Deduplication(QueueCounters())
    >>> names.remember("order 7", number=1, now_ms=0)
    >>> names.number_of("order 7", now_ms=DEDUPLICATION_MS - 1)
    1
    >>> names.number_of("order 7", now_ms=DEDUPLICATION_MS) is None
    True
    """

    __slots__ = ("_counters", "_memory", "_numbers", "_windows")

    def __init__(self, counters: QueueCounters) -> None:
        self._counters = counters
        self._memory = 0
        """Memory of this queue's names."""
        self._numbers: dict[Key, int] = {}
        self._windows: deque[tuple[int, list[Key]]] = deque()
        """Expiry time of the names remembered in one millisecond; the earliest first."""

    def __len__(self) -> int:
        return len(self._numbers)

    def number_of(self, key: Key, now_ms: int) -> int | None:
        if self._windows and self._windows[0][0] <= now_ms:
            self.forget(now_ms)
        return self._numbers.get(key)

    def check_room(self, queue: str, names: int, names_max: int, now_ms: int) -> None:
        """Raise unless so many more names fit, now or after expired ones are forgotten."""
        if len(self) + names > names_max:
            self.forget(now_ms)
            if len(self) + names > names_max:
                raise LimitExceeded(
                    f"queue {queue!r} remembers {len(self)} names of recent messages, which is the limit; "
                    "send more slowly, or to several queues"
                )

    def remember(self, key: Key, *, number: int, now_ms: int) -> None:
        """Remember a new name."""
        self.restore(key, number, now_ms + DEDUPLICATION_MS)

    def restore(self, key: Key, number: int, end_ms: int) -> None:
        """Restore an entry of `remembered`, in that order."""
        self._numbers[key] = number
        self._hold(1, memory_of(key))
        if self._windows and self._windows[-1][0] == end_ms:
            self._windows[-1][1].append(key)
        else:
            self._windows.append((end_ms, [key]))
            self._hold(0, NAMES_WINDOW)

    def clear(self) -> None:
        """Forget all names, as if nothing had been sent."""
        self._hold(-len(self._numbers), -self._memory)
        self._numbers.clear()
        self._windows.clear()

    def forget(self, now_ms: int) -> None:
        """Forget expired names."""
        while self._windows and self._windows[0][0] <= now_ms:
            keys = self._windows.popleft()[1]
            for key in keys:
                del self._numbers[key]
            self._hold(-len(keys), -NAMES_WINDOW - sum(map(memory_of, keys)))

    def remembered(self) -> Iterator[tuple[int, Key, int]]:
        """Expiry time, name and message number, the earliest first."""
        for end_ms, keys in self._windows:
            for key in keys:
                yield end_ms, key, self._numbers[key]

    def _hold(self, names: int, size_bytes: int) -> None:
        self._memory += size_bytes
        self._counters.names += names
        self._counters.memory += size_bytes


def memory_of(key: Key) -> int:
    return NAME + text_bytes(key) if isinstance(key, str) else NAME_IN_GROUP + texts_bytes(key)


def name_of_content(body: bytes) -> str:
    return sha256(body).hexdigest()
