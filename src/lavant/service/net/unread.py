"""Answers that clients have not read: of each client, and of all together, since they are in the server's memory.

A client that reads slowly is not read from any more, and one that reads nothing for too long is disconnected. When all
of them together hold too much nevertheless, the one that holds the most is.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol


class Reader(Hashable, Protocol):
    def abort(self) -> None:
        """Hang up at once; `forget` is called before it returns."""
        ...


class UnreadAnswers:
    """Of the clients that have more than a little. `bytes_max` is for all of them."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._bytes_of: dict[Reader, int] = {}

    def note(self, reader: Reader, size_bytes: int) -> None:
        """So much is waiting for a client."""
        self.bytes += size_bytes - self._bytes_of.get(reader, 0)
        self._bytes_of[reader] = size_bytes
        while self.bytes > self._bytes_max:
            max(self._bytes_of, key=self._bytes_of.__getitem__).abort()

    def forget(self, reader: Reader) -> None:
        """It has read its answers, or is gone."""
        self.bytes -= self._bytes_of.pop(reader, 0)
