"""De-duplication: the names of the messages that were sent to an in-order queue within the last five minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from typing import TypeAlias

from lavant.broker.queues.config import DEDUPLICATION_MS

Key: TypeAlias = str | tuple[str, str]
"""A name or, where each group has names of its own, a group and a name."""


class Deduplication:
    """Which message had a name first. A name counts from the sending of that message, whatever became of it.

    >>> names = Deduplication()
    >>> names.remember("order 7", number=1, now_ms=0)
    >>> names.number_of("order 7", now_ms=DEDUPLICATION_MS - 1)
    1
    >>> names.number_of("order 7", now_ms=DEDUPLICATION_MS) is None
    True
    """

    __slots__ = ("_numbers", "_windows")

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._windows: deque[tuple[int, list[Key]]] = deque()
        """When the names that were remembered in the same millisecond are forgotten; the earliest first."""

    def __len__(self) -> int:
        return len(self._numbers)

    def number_of(self, key: Key, now_ms: int) -> int | None:
        if self._windows and self._windows[0][0] <= now_ms:
            self.forget(now_ms)
        return self._numbers.get(key)

    def remember(self, key: Key, *, number: int, now_ms: int) -> None:
        """A name that is not remembered now."""
        self.restore(key, number, now_ms + DEDUPLICATION_MS)

    def restore(self, key: Key, number: int, end_ms: int) -> None:
        """As `remembered` told it, in that order."""
        self._numbers[key] = number
        if self._windows and self._windows[-1][0] == end_ms:
            self._windows[-1][1].append(key)
        else:
            self._windows.append((end_ms, [key]))

    def clear(self) -> None:
        """Forget all names, as if nothing had been sent."""
        self._numbers.clear()
        self._windows.clear()

    def forget(self, now_ms: int) -> None:
        """Names whose time is over."""
        while self._windows and self._windows[0][0] <= now_ms:
            for key in self._windows.popleft()[1]:
                del self._numbers[key]

    def remembered(self) -> Iterator[tuple[int, Key, int]]:
        """Until when, which name, whose it is; the earliest first."""
        for end_ms, keys in self._windows:
            for key in keys:
                yield end_ms, key, self._numbers[key]


def name_of_content(body: bytes) -> str:
    return sha256(body).hexdigest()
