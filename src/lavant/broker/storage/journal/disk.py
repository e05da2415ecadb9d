"""The `Disk` protocol of a journal: a flat directory of named files.

A sector (512 bytes, at multiples of 512 of a file) is written atomically. Data written and not yet synced may be lost
in any combination: after a crash, each written sector may be there or not. Synced data stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

SECTOR_BYTES = 512


class Disk(Protocol):
    def names(self) -> list[str]:
        """The existing files, sorted."""
        ...

    def read(self, name: str, position: int = 0, length: int | None = None) -> bytes:
        """The file from a position on, at most `length` bytes (all by default); fewer where the file ends."""
        ...

    def create(self, name: str, size: int) -> None:
        """Create a file of so many zeros, fully allocated and durable with its name: writing into it needs no space.

        Raises `StorageFull`, and then the file does not exist. A crash meanwhile may leave a part of it.
        """
        ...

    def write(self, name: str, position: int, data: bytes) -> None:
        """Write within a file that exists."""
        ...

    def sync(self, name: str) -> None:
        """Return when all writes to the file are durable."""
        ...

    def replace(self, name: str, parts: Iterable[bytes]) -> None:
        """Atomically and durably replace the file of that name, if any.

        Raises `StorageFull`, and then the old one is unchanged.
        """
        ...

    def remove(self, name: str) -> None:
        """Durable at some later time: a removed file may reappear after a crash."""
        ...
