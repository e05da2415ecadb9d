"""What a journal needs of a disk: a flat directory of named files.

A sector (512 bytes, at multiples of 512 of a file) is written whole. What was written and not synced yet may be lost in
any way: of the sectors written, any may be there after a crash and any not. What was synced stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

SECTOR_BYTES = 512


class Disk(Protocol):
    def names(self) -> list[str]:
        """The files that are there, sorted."""
        ...

    def read(self, name: str, position: int = 0, length: int | None = None) -> bytes:
        """The file from a position on, at most `length` bytes (all by default); fewer where the file ends."""
        ...

    def create(self, name: str, size: int) -> None:
        """A new file of so many zeros, on the disk in full and durable with its name: writing into it needs no room.

        Raises `StorageFull`, and then the file is not there. A crash meanwhile may leave a part of it.
        """
        ...

    def write(self, name: str, position: int, data: bytes) -> None:
        """Write within a file that exists."""
        ...

    def sync(self, name: str) -> None:
        """Return when all that was written into the file is durable."""
        ...

    def replace(self, name: str, parts: Iterable[bytes]) -> None:
        """Put a file in the place of the one of that name, if any: whole and durable, or not at all.

        Raises `StorageFull`, and then the old one is as it was.
        """
        ...

    def remove(self, name: str) -> None:
        """Durable at some later time: a file that was removed may be there again after a crash."""
        ...
